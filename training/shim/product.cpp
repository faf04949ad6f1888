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

// Whether libtorch multiplies bf16 matrices with vector instructions here. Without, a product takes several times as long
// as in float32.
bool multiplies_bf16() {
#ifdef __x86_64__
  static const bool found = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                            __builtin_cpu_supports("avx512vl");
  return found;
#else
  return true;
#endif
}

// Whether the product is computed in float32. For fewer rows, converting the matrix costs more than it saves.
bool is_widened(const Tensor &x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 && x.size(0) >= 4 && !multiplies_bf16();
}

// Float32 elements of a matrix, and of its product, that are held at a time.
constexpr int64_t WIDE_PANEL = 1 << 20;

// Calls `each` with some columns of x · wᵀ in float32 at a time, with their place and number.
template <typename Each> void in_panels(const Tensor &x, const Tensor &w, Each each) {
  Tensor wide = x.to(at::kFloat);
  int64_t longest = std::max({x.size(0), x.size(1), int64_t(1)});
  int64_t columns = std::max<int64_t>(WIDE_PANEL / longest, 32);
  for (int64_t start = 0; start < w.size(0); start += columns) {
    int64_t count = std::min(columns, w.size(0) - start);
    each(start, count, product(wide, w.narrow(0, start, count).to(at::kFloat)));
  }
}

} // namespace

Tensor operand(const Tensor &x) {
  bool widens = x.is_cpu() && x.scalar_type() == at::kBFloat16 && !multiplies_bf16();
  return widens ? x.to(at::kFloat) : x;
}

Tensor widened_product(const Tensor &x, const Tensor &w) {
  Tensor y = at::empty({x.size(0), w.size(0)}, x.options());
  in_panels(x, w, [&](int64_t start, int64_t count, const Tensor &panel) {
    y.narrow(1, start, count).copy_(panel);
  });
  return y;
}

// On a GPU the product accumulates; on a CPU a separate addition is faster.
void add_product(Tensor &to, const Tensor &x, const Tensor &w, bool sparing) {
  if (is_widened(x))
    in_panels(x, w, [&](int64_t start, int64_t count, const Tensor &panel) {
      to.narrow(1, start, count).add_(panel);
    });
  else if (to.is_cuda() || sparing)
    to.addmm_(x, w.t());
  else
    to.add_(product(x, w));
}

// For few rows the reordering of the matrix in oneDNN is too expensive.
Tensor product(const Tensor &x, const Tensor &w) {
  if (is_widened(x)) return widened_product(x, w);
  bool many = x.is_cpu() && std::min(x.size(0), w.size(0)) >= 32 && x.size(1) > 0;
  return many && x.scalar_type() == at::kFloat && by_onednn() ? onednn_product(x, w) : x.mm(w.t());
}
