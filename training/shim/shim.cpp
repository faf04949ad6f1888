// Parts of libtorch that tch does not expose. Tensors are passed as `torch::Tensor *`, the C_tensor of tch. Every
// function returns 0, or 1 and stores a message for `shim_error`.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "guarded.h"

using at::Tensor;

thread_local std::string shim_last_error;

static std::vector<Tensor> gather(Tensor *const *tensors, int count) {
  std::vector<Tensor> all;
  all.reserve(count);
  for (int i = 0; i < count; i++) all.push_back(*tensors[i]);
  return all;
}

extern "C" {

const char *shim_error() { return shim_last_error.c_str(); }

// One AdamW step over many tensors; `steps` include this step. Gradients are multiplied by `factor`.
int shim_fused_adamw(Tensor *const *params, Tensor *const *grads, Tensor *const *firsts,
                     Tensor *const *seconds, Tensor *const *steps, int count, double rate,
                     double beta1, double beta2, double decay, double epsilon, double factor) {
  return guarded([&] {
    at::NoGradGuard guard;
    std::optional<Tensor> divisor;
    if (factor != 1.0)
      divisor = at::full({}, 1.0 / factor, params[0]->options().dtype(at::kFloat));
    at::_fused_adamw_(gather(params, count), gather(grads, count), gather(firsts, count),
                      gather(seconds, count), {}, gather(steps, count), rate, beta1, beta2, decay,
                      epsilon, /*amsgrad=*/false, /*maximize=*/false, divisor);
  });
}

// Frees the storage of a tensor and its views. Nothing may access the data until `shim_allocate` has allocated it
// again.
int shim_release(Tensor *tensor) {
  return guarded([&] {
    auto *storage = tensor->storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
    storage->set_nbytes(0);
  });
}

int shim_allocate(Tensor *tensor) {
  return guarded([&] {
    auto *storage = tensor->storage().unsafeGetStorageImpl();
    size_t bytes = tensor->numel() * tensor->element_size();
    storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
    storage->set_nbytes(bytes);
  });
}

// Memory of a GPU in bytes: all of it, and the most in use since the last reset. That is the peak of libtorch's
// allocator, and what is in use now beside it: CUDA's context and libraries, and other programs.
int shim_device_memory(int device, int64_t *total, int64_t *peak) {
  return guarded([&] {
    auto *allocator = c10::getDeviceAllocator(c10::kCUDA);
    auto [free, all] = allocator->getMemoryInfo(device);
    // The first entry is the sum over pools of large and small blocks.
    auto reserved = allocator->getDeviceStats(device).reserved_bytes[0];
    *total = static_cast<int64_t>(all);
    *peak = reserved.peak + static_cast<int64_t>(all - free) - reserved.current;
  });
}

int shim_reset_device_peak(int device) {
  return guarded([&] { c10::getDeviceAllocator(c10::kCUDA)->resetPeakStats(device); });
}

// Gives what the allocator of libtorch holds for later on GPUs back to the driver.
int shim_release_device_memory() {
  return guarded([] { c10::getDeviceAllocator(c10::kCUDA)->emptyCache(); });
}

// Frees the gradient of a tensor.
int shim_forget_gradient(Tensor *tensor) {
  return guarded([&] { tensor->mutable_grad() = Tensor(); });
}
}
