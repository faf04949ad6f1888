// Matrix products of the fused operations.
#pragma once
#include <ATen/ATen.h>

// The rows of the last dimension, contiguous.
at::Tensor flat(const at::Tensor &tensor);
// The shape of `like` with another last dimension.
std::vector<int64_t> resized(const at::Tensor &like, int64_t last);
// x · wᵀ.
at::Tensor product(const at::Tensor &x, const at::Tensor &w);
