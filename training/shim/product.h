// Matrix products of the fused operations.
#pragma once
#include <ATen/ATen.h>

// The rows of the last dimension, contiguous.
at::Tensor flat(const at::Tensor &tensor);
// The shape of `like` with another last dimension.
std::vector<int64_t> resized(const at::Tensor &like, int64_t last);
// x · wᵀ.
at::Tensor product(const at::Tensor &x, const at::Tensor &w);
// The tensor as products take it: bf16 on a CPU becomes float32 where libtorch multiplies that several times as fast.
at::Tensor operand(const at::Tensor &x);
// Adds x · wᵀ; `sparing`, without holding all of it beside `to`.
void add_product(at::Tensor &to, const at::Tensor &x, const at::Tensor &w, bool sparing = false);
// x · wᵀ of bf16 matrices on a CPU by a product in float32, rounded once.
at::Tensor widened_product(const at::Tensor &x, const at::Tensor &w);
