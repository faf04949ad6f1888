// Implements the backend with kernels, on a GPU or, in tests, emulated on a CPU.
#include <ATen/ATen.h>

#include <algorithm>
#include <string>

#include "adamw.h"
#include "arguments.h"
#include "backend.h"
#include "guarded.h"
#include "kernels.h"
#include "nf4_blocks.h"
#include "nf4.h"

using at::Tensor;

namespace {

// Launches blocks of the kernel `name<kind>` on the device of the tensor. The arguments must have the types of the
// kernel.
template <typename... A>
void launch(const Tensor &on, const char *name, const std::string &kind, int64_t blocks, A... arguments) {
  std::string kernel = std::string(name) + "<" + kind + ">";
  void *list[] = {&arguments...};
  Launch launch{kernel.c_str(), blocks, list};
  if (on.is_cuda()) run_on_gpu(on.get_device(), launch);
  else run_emulated(launch);
}

const char *kind(const Tensor &tensor) {
  auto type = tensor.scalar_type();
  TORCH_CHECK((type == at::kFloat || type == at::kBFloat16) && tensor.is_contiguous(),
              "a kernel needs contiguous float32 or bf16");
  return type == at::kFloat ? "float" : "bf16";
}

// Tensors of one dtype. Elements are moved 16 bytes at a time if the alignment allows it.
struct Cut {
  int64_t at_once;
  std::string name;

  Cut(int64_t columns, std::initializer_list<Tensor> tensors) {
    const Tensor &first = *tensors.begin();
    at_once = 16 / first.element_size();
    for (const Tensor &tensor : tensors) {
      TORCH_CHECK(tensor.scalar_type() == first.scalar_type() && tensor.device() == first.device() &&
                      tensor.is_contiguous(),
                  "a kernel needs contiguous tensors of one kind in one place");
      bool whole = reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 == 0;
      if (!whole || columns % at_once) at_once = 1;
    }
    name = std::string(kind(first)) + ", " + std::to_string(at_once);
  }
  int64_t blocks(int64_t elements) const {
    int64_t block = at_once * THREADS_OF_A_BLOCK;
    return (elements + block - 1) / block;
  }
};

template <typename T> T *at_start(const Tensor &tensor) { return static_cast<T *>(tensor.data_ptr()); }
void *start(const Tensor &tensor) { return tensor.data_ptr(); }

// Number of blocks that share the rows of a sum: enough to fill a GPU, few enough for a fast final sum.
constexpr int64_t SUMS = 512;

struct Kernels : Backend {
  std::pair<Tensor, Tensor> norm(const Tensor &x, const Tensor &weight, double epsilon) const override {
    Tensor scales = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    return {normalized(x, weight, scales, false, epsilon), scales};
  }

  Tensor norm_again(const Tensor &x, const Tensor &weight, const Tensor &scales) const override {
    return normalized(x, weight, scales, true, 0);
  }

  Tensor norm_backward(const Tensor &x, const Tensor &weight, const Tensor &scales,
                       const Tensor &dy) const override {
    i64 count = x.size(0), width = x.size(1);
    Cut cut(width, {x, weight, dy});
    int64_t blocks = std::min<int64_t>(count, SUMS);
    Tensor sums = at::zeros({blocks, width}, scales.options());
    launch(x, "rms_norm_backward", cut.name, blocks, start(x), start(weight), start(scales), start(dy),
           start(sums), count, width);
    return sums.sum(0).to(weight.scalar_type());
  }

  Tensor gated(const Tensor &gate, const Tensor &up) const override {
    Tensor y = at::empty_like(gate);
    i64 count = gate.numel();
    Cut cut(count, {gate, up, y});
    launch(gate, "swiglu", cut.name, cut.blocks(count), start(gate), start(up), start(y), count);
    return y;
  }

  Tensor gated_backward(const Tensor &gate, const Tensor &up, const Tensor &dy) const override {
    Tensor dgate = at::empty_like(gate);
    i64 count = gate.numel();
    Cut cut(count, {gate, up, dy, dgate});
    launch(gate, "swiglu_backward", cut.name, cut.blocks(count), start(gate), start(up), start(dy),
           start(dgate), count);
    return dgate;
  }

  Tensor rotated(const Tensor &x, const Tensor &cos, const Tensor &sin, float sign) const override {
    Tensor y = at::empty_like(x);
    i64 dim = cos.size(-1), heads = x.size(-1) / dim;
    Cut cut(dim / 2, {x, y});
    launch(x, "rotate", cut.name, cos.numel() / dim, start(x), start(cos), start(sin), sign, start(y),
           heads, dim);
    return y;
  }

  void cross_entropy(const Tensor &logits, const Tensor &tokens, const Tensor &weights, double scale,
                     const Tensor &losses) const override {
    i64 width = logits.size(1);
    Cut cut(width, {logits});
    launch(logits, "cross_entropy", cut.name, logits.size(0), start(logits), start(tokens),
           start(weights), static_cast<float>(scale), start(losses), width);
  }

private:
  Tensor normalized(const Tensor &x, const Tensor &weight, const Tensor &scales, int known,
                    double epsilon) const {
    Tensor y = at::empty_like(x);
    i64 width = x.size(1);
    Cut cut(width, {x, weight, y});
    launch(x, "rms_norm", cut.name, x.size(0), start(x), start(weight), start(scales), known,
           static_cast<float>(epsilon), start(y), width);
    return y;
  }
};

const Kernels own_kernels;

// One optimizer state: two tensors (codes and scales) with their levels, or one tensor.
Moment moment(Tensor *values, Tensor *scales, Tensor *levels) {
  if (!scales) return {at_start<float>(*values), nullptr, nullptr, nullptr};
  return {nullptr, at_start<u8>(*values), at_start<float>(*scales), at_start<float>(*levels)};
}

} // namespace

const Backend &kernels = own_kernels;

void nf4_by_kernel(const Nf4Parts &parts, const Tensor &to) {
  i64 count = to.numel(), blocks = (count + NF4_BLOCK - 1) / NF4_BLOCK;
  TORCH_CHECK(parts.codes->device() == to.device() && parts.scales->device() == to.device() &&
                  parts.levels->is_cpu() && parts.codes->numel() >= blocks * NF4_BLOCK / 2 &&
                  parts.scales->numel() >= blocks,
              "a matrix in NF4 needs codes and scales for ", blocks, " blocks where it is dequantized");
  Nf4 from{};
  std::copy_n(parts.levels->const_data_ptr<float>(), 16, from.levels);
  from.codes = at_start<u8>(*parts.codes);
  if (parts.ranges) {
    from.scales = at_start<signed char>(*parts.scales);
    from.ranges = at_start<float>(*parts.ranges), from.mean = at_start<float>(*parts.mean);
  } else {
    from.whole = at_start<float>(*parts.scales);
  }
  constexpr int64_t elements = 8 * THREADS_OF_A_BLOCK;
  launch(to, "nf4_dequantize", kind(to), (count + elements - 1) / elements, from, start(to), count);
}

extern "C" {

// One AdamW step on flat tensors in one pass, for all dtypes, on a GPU or a CPU. `master` may be null, and so may scales and levels of
// both states; `step` is a float32 that includes this step. With a seed below 0 bf16 weights are rounded to
// nearest, otherwise at random; `place` is the index of the first element in its parameter.
int shim_kernel_adamw(Tensor *weight, Tensor *gradient, Tensor *master, Tensor *const first[3],
                      Tensor *const second[3], Tensor *step, double rate, double beta1, double beta2,
                      double decay, double epsilon, double factor, int64_t seed, int64_t place) {
  return guarded([&] {
    Adam adam{rate, beta1, beta2, decay, epsilon, factor, seed, place};
    i64 count = weight->numel();
    TORCH_CHECK(gradient->numel() == count, "a gradient of ", gradient->numel(), " elements for ",
                count, " weights");
    std::string kinds = std::string(kind(*weight)) + ", " + kind(*gradient);
    Moment means = moment(first[0], first[1], first[2]), squares = moment(second[0], second[1], second[2]);
    if (!weight->is_cuda() && !emulating)
      return adamw_on_cpu(*weight, *gradient, master ? at_start<float>(*master) : nullptr, means, squares,
                          *at_start<float>(*step), adam);
    int64_t blocks = (count + THREADS_OF_A_BLOCK - 1) / THREADS_OF_A_BLOCK;
    launch(*weight, "adamw", kinds, blocks, start(*weight), start(*gradient),
           master ? start(*master) : nullptr, means, squares, start(*step), adam, count);
  });
}
}
