#include "product.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>

using at::Tensor;

Tensor flat(const Tensor &tensor) { return tensor.reshape({-1, tensor.size(-1)}).contiguous(); }

std::vector<int64_t> resized(const Tensor &like, int64_t last) {
  std::vector<int64_t> size = like.sizes().vec();
  size.back() = last;
  return size;
}

namespace {

// Whether oneDNN multiplies float32 matrices here. MKL has fast kernels only for Intel's processors.
bool by_onednn() {
#ifdef __x86_64__
  static const bool found =
      !__builtin_cpu_is("intel") &&
      c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""}).has_value();
  return found;
#else
  return false;
#endif
}

// x · wᵀ of float32 matrices by oneDNN.
Tensor onednn_product(const Tensor &x, const Tensor &w) {
  static auto operation =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "");
  std::vector<c10::IValue> stack{
      x, w, c10::IValue(), std::string("none"), c10::List<std::optional<at::Scalar>>(), c10::IValue()};
  operation.callBoxed(&stack);
  return stack[0].toTensor();
}

} // namespace

// For few rows the reordering of the matrix in oneDNN is too expensive.
Tensor product(const Tensor &x, const Tensor &w) {
  bool many = x.is_cpu() && std::min(x.size(0), w.size(0)) >= 32 && x.size(1) > 0;
  return many && x.scalar_type() == at::kFloat && by_onednn() ? onednn_product(x, w) : x.mm(w.t());
}
