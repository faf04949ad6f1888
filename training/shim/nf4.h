// Matrices in NF4, as Rust passes them.
#pragma once
#include <ATen/ATen.h>

// Levels are on the CPU, the other parts where the matrix is used. `ranges` and `mean` are null if the scales are
// float32.
struct Nf4Parts {
  at::Tensor *levels, *codes, *scales, *ranges, *mean;
};

// Fills a contiguous float32 or bf16 matrix with the kernel, on a GPU or emulated.
void nf4_by_kernel(const Nf4Parts &parts, const at::Tensor &to);
