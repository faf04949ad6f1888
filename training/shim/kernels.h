// The kernels of kernels.cu, by name, and who runs them.
#pragma once
#include <cstdint>

// Of float32 or bf16, one element at a time or sixteen bytes.
#define ROW_KERNEL(X, name) X(name<float, 1>) X(name<float, 4>) X(name<bf16, 1>) X(name<bf16, 8>)
#define KERNELS(X)                                                                                 \
  ROW_KERNEL(X, rms_norm)                                                                          \
  ROW_KERNEL(X, rms_norm_backward)                                                                 \
  ROW_KERNEL(X, swiglu)                                                                            \
  ROW_KERNEL(X, swiglu_backward)                                                                   \
  ROW_KERNEL(X, rotate)                                                                            \
  ROW_KERNEL(X, cross_entropy)                                                                     \
  X(adamw<float, float>) X(adamw<float, bf16>) X(adamw<bf16, float>) X(adamw<bf16, bf16>)

// Threads of a block on a GPU.
constexpr uint32_t THREADS_OF_A_BLOCK = 256;

// A kernel over so many blocks; `arguments` point to what it is called with.
struct Launch {
  const char *kernel;
  int64_t blocks;
  void **arguments;
};

// On the GPU of that number, after whatever libtorch gave it to do. Throws c10::Error.
void run_on_gpu(int device, const Launch &launch);
// Whether that is possible here: CUDA's compiler was found, and it took the kernels. Says why not, once.
bool gpu_runs_kernels();

// On the CPU with a few threads, for tests.
void run_emulated(const Launch &launch);
// Whether this thread sends tensors of the CPU to the kernels as well.
extern thread_local bool emulating;
