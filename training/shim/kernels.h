// The kernels of kernels.cu by name, and their launchers.
#pragma once
#include <cstdint>

// For float32 or bf16, one element or sixteen bytes at a time.
#define ROW_KERNEL(X, name) X(name<float, 1>) X(name<float, 4>) X(name<bf16, 1>) X(name<bf16, 8>)
#define KERNELS(X)                                                                                 \
  ROW_KERNEL(X, rms_norm)                                                                          \
  ROW_KERNEL(X, rms_norm_backward)                                                                 \
  ROW_KERNEL(X, swiglu)                                                                            \
  ROW_KERNEL(X, swiglu_backward)                                                                   \
  ROW_KERNEL(X, rotate)                                                                            \
  ROW_KERNEL(X, cross_entropy)                                                                     \
  X(nf4_dequantize<float>) X(nf4_dequantize<bf16>)                                                 \
  X(adamw<float, float>) X(adamw<float, bf16>) X(adamw<bf16, float>) X(adamw<bf16, bf16>)

// Threads of a block on a GPU.
constexpr uint32_t THREADS_OF_A_BLOCK = 256;

// Launches `blocks` blocks of a kernel; `arguments` points to its arguments.
struct Launch {
  const char *kernel;
  int64_t blocks;
  void **arguments;
};

// On the GPU with that number, on the default stream. Throws c10::Error.
void run_on_gpu(int device, const Launch &launch);
// Whether kernels can run on GPUs here. If not, prints the reason once.
bool gpu_runs_kernels();

// On the CPU with a few threads, for tests.
void run_emulated(const Launch &launch);
// Whether this thread uses the emulated kernels for CPU tensors.
extern thread_local bool emulating;
