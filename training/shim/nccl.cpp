// NCCL for shim_group_new: a library of its own, opened after libtorch_cuda. Built where PyTorch's CUDA
// headers are installed.
#define USE_CUDA
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

// Null when it fails; c10d's own log says why.
extern "C" c10d::Backend *shim_nccl_new(c10d::Store *store, int rank, int world, int seconds) {
  auto kept = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::seconds(seconds);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(kept, rank, world, options).release();
}
