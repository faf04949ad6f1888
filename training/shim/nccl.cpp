// NCCL for shim_group_new: a separate library that is opened after libtorch_cuda. Built only if PyTorch's CUDA
// headers are installed.
#define USE_CUDA
#define USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

// Returns null on failure; the log of c10d has the reason.
extern "C" c10d::Backend *shim_nccl_new(c10d::Store *store, int rank, int world, int seconds) {
  auto kept = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = std::chrono::seconds(seconds);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(kept, rank, world, options).release();
}
