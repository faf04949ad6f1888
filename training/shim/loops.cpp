// Implements the backend on a CPU, over all threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "backend.h"
#include "rows.h"

using at::Tensor;

#ifdef __x86_64__
extern const Rows rows_plain, rows_avx2;
const Rows &rows() {
  static const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return avx2 ? rows_avx2 : rows_plain;
}
#else
extern const Rows rows_plain;
const Rows &rows() { return rows_plain; }
#endif

namespace {

// The rows of a contiguous float32 or bf16 tensor as float32.
class Matrix {
  char *data;
  bool half;

public:
  const int64_t count, width;

  explicit Matrix(const Tensor &tensor)
      : data(static_cast<char *>(checked(tensor).data_ptr())),
        half(tensor.scalar_type() == at::kBFloat16), count(tensor.numel() / tensor.size(-1)),
        width(tensor.size(-1)) {}
  // A row; converted in `room` if necessary.
  const float *read(int64_t row, float *room) const {
    if (!half) return place<float>(row);
    rows().widen(place<uint16_t>(row), room, width);
    return room;
  }
  // Where to write a row, and the function that completes the write.
  float *begin(int64_t row, float *room) const { return half ? room : place<float>(row); }
  void end(int64_t row, const float *room) const {
    if (half) rows().narrow(room, place<uint16_t>(row), width);
  }

private:
  static const Tensor &checked(const Tensor &tensor) {
    auto kind = tensor.scalar_type();
    TORCH_CHECK(tensor.is_cpu() && (kind == at::kFloat || kind == at::kBFloat16) &&
                    tensor.is_contiguous() && tensor.dim() > 0 && tensor.size(-1) > 0,
                "a fused operation needs contiguous rows of float32 or bf16 on the CPU");
    return tensor;
  }
  template <typename T> T *place(int64_t row) const {
    return reinterpret_cast<T *>(data) + row * width;
  }
};

// Calls `work(row, room)` for all rows, on all threads. `room` has space for four rows.
template <typename Work> void each_row(const Matrix &matrix, Work work) {
  int64_t grain = std::max<int64_t>(1, 16384 / matrix.width);
  at::parallel_for(0, matrix.count, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> room(4 * matrix.width);
    for (int64_t row = begin; row < end; row++) work(row, room.data());
  });
}

struct Loops : Backend {
  std::pair<Tensor, Tensor> norm(const Tensor &x, const Tensor &weight, double epsilon) const override {
    Tensor scales = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    Matrix from(x);
    float *scale = scales.data_ptr<float>();
    each_row(from, [&](int64_t row, float *room) {
      scale[row] = rows().rms(from.read(row, room), from.width, static_cast<float>(epsilon));
    });
    return {norm_again(x, weight, scales), scales};
  }

  Tensor norm_again(const Tensor &x, const Tensor &weight, const Tensor &scales) const override {
    Tensor y = at::empty_like(x), factors = weight.to(at::kFloat).contiguous();
    Matrix from(x), to(y);
    const float *scale = scales.data_ptr<float>(), *factor = factors.data_ptr<float>();
    each_row(from, [&](int64_t row, float *room) {
      float *out = to.begin(row, room + from.width);
      rows().rms_norm(from.read(row, room), factor, scale[row], out, from.width);
      to.end(row, out);
    });
    return y;
  }

  Tensor norm_backward(const Tensor &x, const Tensor &weight, const Tensor &scales,
                       const Tensor &dy) const override {
    Tensor factors = weight.to(at::kFloat).contiguous();
    Matrix from(x), back(dy);
    // Each thread has its own sum.
    int64_t parts = std::clamp<int64_t>(from.count, 1, at::get_num_threads());
    Tensor sums = at::zeros({parts, from.width}, factors.options());
    const float *scale = scales.data_ptr<float>(), *factor = factors.data_ptr<float>();
    float *sum = sums.data_ptr<float>();
    at::parallel_for(0, parts, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> room(2 * from.width);
      float *second = room.data() + from.width;
      for (int64_t part = begin; part < end; part++)
        for (int64_t row = part * from.count / parts; row < (part + 1) * from.count / parts; row++) {
          float *out = back.begin(row, second);
          const float *above = back.read(row, second);
          rows().rms_norm_backward(from.read(row, room.data()), factor, scale[row], above, out,
                                   sum + part * from.width, from.width);
          back.end(row, out);
        }
    });
    return sums.sum(0).to(weight.scalar_type());
  }

  Tensor gated(const Tensor &gate, const Tensor &up) const override {
    Tensor y = at::empty_like(gate);
    Matrix a(gate), b(up), to(y);
    each_row(a, [&](int64_t row, float *room) {
      float *out = to.begin(row, room + 2 * a.width);
      rows().swiglu(a.read(row, room), b.read(row, room + a.width), out, a.width);
      to.end(row, out);
    });
    return y;
  }

  Tensor gated_backward(const Tensor &gate, const Tensor &up, const Tensor &dy) const override {
    Tensor dgate = at::empty_like(gate);
    Matrix a(gate), b(up), da(dgate), db(dy);
    each_row(a, [&](int64_t row, float *room) {
      float *second = room + a.width, *third = second + a.width, *fourth = third + a.width;
      float *to_gate = da.begin(row, fourth), *to_up = db.begin(row, third);
      rows().swiglu_backward(a.read(row, room), b.read(row, second), db.read(row, third), to_gate,
                             to_up, a.width);
      da.end(row, to_gate);
      db.end(row, to_up);
    });
    return dgate;
  }

  Tensor rotated(const Tensor &x, const Tensor &cos, const Tensor &sin, float sign) const override {
    Tensor y = at::empty_like(x);
    Matrix from(x), to(y), cosines(cos), sines(sin);
    int64_t dim = cosines.width;
    each_row(from, [&](int64_t row, float *room) {
      float *out = to.begin(row, room + from.width);
      rows().rotate(from.read(row, room), cosines.read(row, nullptr), sines.read(row, nullptr), sign,
                    out, from.width / dim, dim);
      to.end(row, out);
    });
    return y;
  }

  void cross_entropy(const Tensor &logits, const Tensor &tokens, const Tensor &weights, double scale,
                     const Tensor &losses) const override {
    const int64_t *token = tokens.data_ptr<int64_t>();
    const float *weight = weights.data_ptr<float>();
    double *loss = losses.data_ptr<double>();
    Matrix all(logits);
    at::parallel_for(0, all.count, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> room(all.width);
      for (int64_t row = begin; row < end; row++) {
        float *values = all.begin(row, room.data());
        all.read(row, room.data());
        loss[row] = weight[row] * rows().cross_entropy(values, all.width, token[row],
                                                       static_cast<float>(weight[row] * scale));
        all.end(row, values);
      }
    });
  }
};

const Loops own_loops;

} // namespace

const Backend &loops = own_loops;
