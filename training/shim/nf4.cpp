// Products with matrices in NF4. On a CPU each thread unpacks a panel of the matrix, which stays in its cache, and
// multiplies by it; the whole matrix is never in memory. On a GPU a kernel unpacks the matrix for one product.
#include "nf4.h"
#include "nf4_blocks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "guarded.h"
#include "kernels.h"
#include "product.h"
#include "rows.h"

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

#ifdef __x86_64__
extern const Nf4Blocks nf4_portable, nf4_avx2, nf4_avx512;
const Nf4Blocks *nf4_blocks(InstructionSet set) {
  if (set == InstructionSet::Portable) return &nf4_portable;
  if (set == InstructionSet::Avx2) return __builtin_cpu_supports("avx2") ? &nf4_avx2 : nullptr;
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") ? &nf4_avx512 : nullptr;
}
#else
extern const Nf4Blocks nf4_portable;
const Nf4Blocks *nf4_blocks(InstructionSet set) {
  return set == InstructionSet::Portable ? &nf4_portable : nullptr;
}
#endif

const Nf4Blocks &nf4_blocks() {
  static const Nf4Blocks *best = [] {
    for (InstructionSet set : {InstructionSet::Avx512, InstructionSet::Avx2})
      if (const Nf4Blocks *found = nf4_blocks(set)) return found;
    return nf4_blocks(InstructionSet::Portable);
  }();
  return *best;
}

namespace {

constexpr int64_t BYTES = NF4_BLOCK / 2;
// Scales that share a range.
constexpr int64_t SCALES = 256;
// Elements of a panel. Measured: larger ones leave the cache, smaller ones make thin products.
constexpr int64_t PANEL = 1 << 20;

void expand(const Nf4Blocks &ops, const uint8_t *codes, const float *levels, const float *scales, int64_t blocks,
            float *to) {
  ops.to_float(codes, levels, scales, blocks, to);
}

void expand(const Nf4Blocks &ops, const uint8_t *codes, const float *levels, const float *scales, int64_t blocks,
            uint16_t *to) {
  ops.to_bf16(codes, levels, scales, blocks, to);
}

class Packed {
  const Nf4Blocks &ops;
  const float *levels, *whole = nullptr, *ranges = nullptr;
  const uint8_t *codes;
  const int8_t *bytes = nullptr;
  float mean = 0;

  // Scales of consecutive blocks; in `room` if they are computed.
  const float *scales_at(int64_t block, int64_t count, float *room) const {
    if (whole) return whole + block;
    for (int64_t done = 0; done < count;) {
      int64_t range = (block + done) / SCALES, end = std::min(block + count, (range + 1) * SCALES);
      int64_t part = end - block - done;
      ops.scales_of(bytes + block + done, ranges[range] / 127.0f, mean, part, room + done);
      done += part;
    }
    return room;
  }

  template <typename T> void blocks_at(int64_t block, int64_t count, T *to) const {
    float room[SCALES];
    for (int64_t done = 0; done < count; done += SCALES) {
      int64_t part = std::min(SCALES, count - done);
      const float *scales = scales_at(block + done, part, room);
      expand(ops, codes + (block + done) * BYTES, levels, scales, part, to + done * NF4_BLOCK);
    }
  }

public:
  Packed(const variable_list &parts, int64_t elements, const Nf4Blocks &ops)
      : ops(ops), levels(data<float>(parts[0], 16)), codes(data<uint8_t>(parts[1], blocks_of(elements) * BYTES)) {
    const int64_t blocks = blocks_of(elements);
    if (parts[3].numel() == 0) {
      whole = data<float>(parts[2], blocks);
      return;
    }
    bytes = data<int8_t>(parts[2], blocks);
    ranges = data<float>(parts[3], (blocks + SCALES - 1) / SCALES);
    mean = *data<float>(parts[4], 1);
  }

  // `count` elements from `start` on.
  template <typename T> void elements(int64_t start, int64_t count, T *to) const {
    while (count > 0) {
      int64_t block = start / NF4_BLOCK, skipped = start % NF4_BLOCK, done;
      if (skipped == 0 && count >= NF4_BLOCK) {
        done = count / NF4_BLOCK * NF4_BLOCK;
        blocks_at(block, done / NF4_BLOCK, to);
      } else {
        T room[NF4_BLOCK];
        blocks_at(block, 1, room);
        done = std::min(count, NF4_BLOCK - skipped);
        std::copy_n(room + skipped, done, to);
      }
      start += done, to += done, count -= done;
    }
  }

  // Columns from `column` on, for some rows, of a matrix with rows of `width`.
  template <typename T>
  void panel(int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t width, T *to) const {
    if (columns == width) return elements(row * width, rows * width, to);
    for (int64_t i = 0; i < rows; i++) elements((row + i) * width + column, columns, to + i * columns);
  }

  static int64_t blocks_of(int64_t elements) { return (elements + NF4_BLOCK - 1) / NF4_BLOCK; }

private:
  template <typename T> static const T *data(const Tensor &tensor, int64_t least) {
    TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous() && tensor.numel() >= least &&
                    tensor.element_size() == sizeof(T),
                "a part of a matrix in NF4 has ", tensor.numel(), " elements instead of ", least);
    return static_cast<const T *>(tensor.const_data_ptr());
  }
};

variable_list list(const Nf4Parts &parts) {
  auto optional = [](Tensor *tensor) { return tensor ? *tensor : at::empty({0}); };
  return {*parts.levels, *parts.codes, *parts.scales, optional(parts.ranges), optional(parts.mean)};
}

// Writes into a contiguous float32 or bf16 tensor.
void unpack(const Packed &packed, const Tensor &to, int64_t row, int64_t column, int64_t width) {
  const int64_t rows = to.size(0), columns = to.size(1);
  if (to.scalar_type() == at::kFloat)
    packed.panel(row, rows, column, columns, width, to.data_ptr<float>());
  else
    packed.panel(row, rows, column, columns, width, static_cast<uint16_t *>(to.data_ptr()));
}

// Calls `work(start, count)` for panels of `count` of the `total` rows or columns, which have `length` elements each, on
// all threads. The counts are multiples of `unit`, except the last.
template <typename Work> void each_panel(int64_t total, int64_t length, int64_t unit, Work work) {
  const int64_t share = (total + at::get_num_threads() - 1) / at::get_num_threads();
  const int64_t wanted = std::min(share, std::max<int64_t>(1, PANEL / std::max<int64_t>(1, length)));
  const int64_t size = std::max<int64_t>(1, (wanted + unit - 1) / unit) * unit;
  at::parallel_for(0, (total + size - 1) / size, 1, [&](int64_t begin, int64_t end) {
    // Threads do not inherit the mode of autograd.
    at::NoGradGuard guard;
    for (int64_t panel = begin; panel < end; panel++)
      work(panel * size, std::min(size, total - panel * size));
  });
}

// The matrix, as kernels need it.
Tensor matrix_by_kernel(variable_list parts, int64_t out, int64_t width, const Tensor &like) {
  const bool whole = parts[3].numel() == 0;
  Tensor matrix = at::empty({out, width}, like.options());
  nf4_by_kernel({&parts[0], &parts[1], &parts[2], whole ? nullptr : &parts[3], whole ? nullptr : &parts[4]}, matrix);
  return matrix;
}

bool by_kernel(const Tensor &x) { return x.is_cuda() || emulating; }

// x · Wᵀ, by panels of rows of W.
Tensor forward_product(const Tensor &x, const Packed &packed, int64_t out) {
  const int64_t width = x.size(1);
  Tensor y = at::empty({x.size(0), out}, x.options());
  each_panel(out, width, 16, [&](int64_t start, int64_t count) {
    Tensor panel = at::empty({count, width}, x.options());
    unpack(packed, panel, start, 0, width);
    y.narrow(1, start, count).copy_(product(x, panel));
  });
  return y;
}

// dy · W, by panels of columns of W, so that no sum is rounded before it is complete.
Tensor backward_product(const Tensor &dy, const Packed &packed, int64_t width) {
  const int64_t out = dy.size(1);
  Tensor dx = at::empty({dy.size(0), width}, dy.options());
  each_panel(width, out, NF4_BLOCK, [&](int64_t start, int64_t count) {
    Tensor panel = at::empty({out, count}, dy.options());
    unpack(packed, panel, 0, start, width);
    dx.narrow(1, start, count).copy_(product(dy, panel.t()));
  });
  return dx;
}

// y = x · Wᵀ + b for a frozen W of `out` rows in NF4. `bias` may be empty.
struct Nf4Linear : Function<Nf4Linear> {
  static Tensor forward(AutogradContext *context, Tensor x, Tensor bias, int64_t out, at::TensorList parts) {
    const variable_list all(parts.begin(), parts.end());
    const int64_t width = x.size(-1);
    context->save_for_backward(all);
    context->saved_data["width"] = width;
    Tensor y = by_kernel(x) ? product(flat(x), matrix_by_kernel(all, out, width, x))
                            : forward_product(flat(x), Packed(all, out * width, nf4_blocks()), out);
    if (bias.numel()) y.add_(bias);
    return y.view(resized(x, out));
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    const int64_t width = context->saved_data["width"].toInt();
    Tensor dy = flat(gradients[0]), dx, dbias;
    if (context->needs_input_grad(0)) {
      const variable_list parts = context->get_saved_variables();
      dx = by_kernel(dy) ? product(dy, matrix_by_kernel(parts, dy.size(1), width, dy).t())
                         : backward_product(dy, Packed(parts, dy.size(1) * width, nf4_blocks()), width);
      dx = dx.view(resized(gradients[0], width));
    }
    if (context->needs_input_grad(1)) dbias = dy.sum(0);
    // The number of rows and the parts have no gradient.
    variable_list all{dx, dbias, Tensor()};
    all.resize(3 + 5);
    return all;
  }
};

void check_kind(const Tensor &tensor) {
  auto kind = tensor.scalar_type();
  TORCH_CHECK((tensor.is_cpu() || tensor.is_cuda()) && (kind == at::kFloat || kind == at::kBFloat16),
              "matrices in NF4 are multiplied in float32 or bf16");
}

// Rounds a contiguous float32 or bf16 matrix on the CPU.
void quantize(const Tensor &matrix, const float *middles, uint8_t *codes, float *scales, const Nf4Blocks &ops) {
  const int64_t elements = matrix.numel();
  const bool half = matrix.scalar_type() == at::kBFloat16;
  const auto *halves = static_cast<const uint16_t *>(matrix.const_data_ptr());
  const auto *floats = static_cast<const float *>(matrix.const_data_ptr());
  at::parallel_for(0, Packed::blocks_of(elements), 256, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; block++) {
      const int64_t start = block * NF4_BLOCK, count = std::min(NF4_BLOCK, elements - start);
      float values[NF4_BLOCK] = {};
      if (half) rows().widen(halves + start, values, count);
      else std::copy_n(floats + start, count, values);
      ops.from_float(values, middles, 1, codes + block * BYTES, scales + block);
    }
  });
}

const Nf4Blocks &chosen(int set) {
  const Nf4Blocks *found = set < 0 ? &nf4_blocks() : nf4_blocks(static_cast<InstructionSet>(set));
  TORCH_CHECK(found, "this processor does not have the instruction set ", set);
  return *found;
}

} // namespace

extern "C" {

// Whether this processor has an instruction set.
int shim_nf4_has(int set) { return nf4_blocks(static_cast<InstructionSet>(set)) != nullptr; }

// Fills a contiguous float32 or bf16 matrix; on a CPU, `set` is an instruction set, -1 the best one.
int shim_nf4_dequantize(const Nf4Parts *parts, int set, Tensor *to) {
  return guarded([&] {
    check_kind(*to);
    TORCH_CHECK(to->is_contiguous() && to->dim() == 2, "dequantization fills a contiguous matrix");
    if (by_kernel(*to)) return nf4_by_kernel(*parts, *to);
    const int64_t width = to->size(1);
    Packed packed(list(*parts), to->numel(), chosen(set));
    at::parallel_for(0, to->size(0), std::max<int64_t>(1, 65536 / std::max<int64_t>(1, width)),
                     [&](int64_t begin, int64_t end) {
                       at::NoGradGuard guard;
                       unpack(packed, to->narrow(0, begin, end - begin), begin, 0, width);
                     });
  });
}

// Codes and float32 scales of a contiguous float32 or bf16 matrix; `middles` are the values between the levels.
int shim_nf4_quantize(Tensor *matrix, Tensor *middles, int set, Tensor *codes, Tensor *scales) {
  return guarded([&] {
    const int64_t blocks = Packed::blocks_of(matrix->numel());
    check_kind(*matrix);
    TORCH_CHECK(matrix->is_cpu() && matrix->is_contiguous() && middles->numel() == 15 && codes->numel() == blocks * BYTES &&
                    scales->numel() == blocks,
                "quantization needs a contiguous matrix and space for ", blocks, " blocks");
    quantize(*matrix, middles->data_ptr<float>(), codes->data_ptr<uint8_t>(), scales->data_ptr<float>(),
             chosen(set));
  });
}

// x · Wᵀ + b; `bias` is empty if there is none.
int shim_nf4_linear(Tensor *x, const Nf4Parts *parts, Tensor *bias, int64_t out, Tensor **y) {
  return guarded([&] {
    check_kind(*x);
    *y = new Tensor(Nf4Linear::apply(*x, *bias, out, at::TensorList(list(*parts))));
  });
}
}
