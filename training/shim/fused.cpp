// Operations of the forward pass on a CPU, each with a backward pass that keeps as little as it can:
// what is cheap to compute from its inputs is computed again. Float32 or bf16, float32 inside.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "guarded.h"
#include "rows.h"

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

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

// The rows of a contiguous float32 or bf16 tensor, seen as float32.
class Matrix {
  char *data;
  bool half;

public:
  const int64_t count, width;

  explicit Matrix(const Tensor &tensor)
      : data(static_cast<char *>(checked(tensor).data_ptr())),
        half(tensor.scalar_type() == at::kBFloat16), count(tensor.numel() / tensor.size(-1)),
        width(tensor.size(-1)) {}
  // A row, in `room` where it must be converted.
  const float *read(int64_t row, float *room) const {
    if (!half) return place<float>(row);
    rows().widen(place<uint16_t>(row), room, width);
    return room;
  }
  // Where a row is to be written, and that it has been.
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

// Calls `work(row, room)` for all rows, on all threads; `room` has space for four rows.
template <typename Work> void each_row(const Matrix &matrix, Work work) {
  int64_t grain = std::max<int64_t>(1, 16384 / matrix.width);
  at::parallel_for(0, matrix.count, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> room(4 * matrix.width);
    for (int64_t row = begin; row < end; row++) work(row, room.data());
  });
}

Tensor flat(const Tensor &tensor) { return tensor.reshape({-1, tensor.size(-1)}).contiguous(); }

// The size of `like` with another last dimension.
std::vector<int64_t> resized(const Tensor &like, int64_t last) {
  std::vector<int64_t> size = like.sizes().vec();
  size.back() = last;
  return size;
}

// --- RMSNorm -------------------------------------------------------------------------------------

// What each row is multiplied by before the weight, float32.
Tensor scales(const Tensor &x, const Tensor &weight, double epsilon) {
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == x.size(1), "the weight of a norm has ",
              weight.numel(), " elements for rows of ", x.size(1));
  Tensor all = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
  Matrix from(x);
  float *scale = all.data_ptr<float>();
  each_row(from, [&](int64_t row, float *room) {
    scale[row] = rows().rms(from.read(row, room), from.width, static_cast<float>(epsilon));
  });
  return all;
}

Tensor normalise(const Tensor &x, const Tensor &weight, const Tensor &scales) {
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

// Puts the gradient of x where `dy` lies, and gives that of the weight.
Tensor normalise_backward(const Tensor &x, const Tensor &weight, const Tensor &scales,
                          const Tensor &dy) {
  Tensor factors = weight.to(at::kFloat).contiguous();
  Matrix from(x), back(dy);
  // Each part of the rows sums for itself.
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

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext *context, Tensor x, Tensor weight, double epsilon) {
    Tensor rows = flat(x), scale = scales(rows, weight, epsilon);
    context->save_for_backward({x, weight, scale});
    return normalise(rows, weight, scale).view(x.sizes());
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor dx = flat(gradients[0]).clone();
    Tensor dweight = normalise_backward(flat(saved[0]), saved[1], saved[2], dx);
    return {dx.view(saved[0].sizes()), dweight, Tensor()};
  }
};

// --- matrices ------------------------------------------------------------------------------------

// Whether oneDNN multiplies float32 matrices here: MKL has kernels for Intel's vectors, and a slower
// one for everybody else.
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

// x · wᵀ. Few rows are not worth the order that oneDNN puts a matrix in.
Tensor product(const Tensor &x, const Tensor &w) {
  bool many = std::min(x.size(0), w.size(0)) >= 32 && x.size(1) > 0;
  return many && x.scalar_type() == at::kFloat && by_onednn() ? onednn_product(x, w) : x.mm(w.t());
}

// The gradient of a matrix in y = x · Wᵀ. Where there is one of an earlier part of the step, it is
// added there at once, and autograd gets nothing to add.
Tensor matrix_gradient(Tensor weight, const Tensor &dy, const Tensor &x) {
  Tensor made = product(dy.t(), x.t());
  Tensor &before = weight.mutable_grad();
  if (!before.defined()) return made;
  before.add_(made);
  return Tensor();
}

struct Linear : Function<Linear> {
  // `bias` may be without elements.
  static Tensor forward(AutogradContext *context, Tensor x, Tensor matrix, Tensor bias) {
    context->save_for_backward({x, matrix, bias});
    Tensor y = product(flat(x), matrix);
    if (bias.numel()) y.add_(bias);
    return y.view(resized(x, matrix.size(0)));
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor dy = flat(gradients[0]), matrix = saved[1], dmatrix, dbias;
    if (context->needs_input_grad(1)) dmatrix = matrix_gradient(matrix, dy, flat(saved[0]));
    if (context->needs_input_grad(2)) dbias = dy.sum(0);
    return {product(dy, matrix.t()).view(saved[0].sizes()), dmatrix, dbias};
  }
};

// Several matrices of one normalised input. The normalised rows are not kept.
struct NormLinears : Function<NormLinears> {
  // `linears` are `count` matrices, then a bias for each whose bit is set in `biased`.
  static variable_list forward(AutogradContext *context, Tensor x, Tensor weight, double epsilon,
                               int64_t count, int64_t biased, at::TensorList linears) {
    Tensor rows = flat(x), scale = scales(rows, weight, epsilon);
    Tensor h = normalise(rows, weight, scale);
    variable_list saved{x, weight, scale}, all;
    saved.insert(saved.end(), linears.begin(), linears.begin() + count);
    context->save_for_backward(saved);
    context->saved_data["biased"] = biased;
    const Tensor *bias = linears.begin() + count;
    for (int64_t i = 0; i < count; i++) {
      Tensor y = product(h, linears[i]);
      if (biased >> i & 1) y.add_(*bias++);
      all.push_back(y.view(resized(x, linears[i].size(0))));
    }
    return all;
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    int64_t biased = context->saved_data["biased"].toInt();
    Tensor rows = flat(saved[0]), weight = saved[1], scale = saved[2], dh;
    Tensor h = normalise(rows, weight, scale);
    size_t count = gradients.size();
    variable_list dmatrices(count), dbiases;
    for (size_t i = 0; i < count; i++) {
      Tensor dy = flat(gradients[i]), matrix = saved[3 + i];
      if (context->needs_input_grad(2 + i)) dmatrices[i] = matrix_gradient(matrix, dy, h);
      if (biased >> i & 1) dbiases.push_back(dy.sum(0));
      Tensor part = product(dy, matrix.t());
      dh = dh.defined() ? dh.add_(part) : part;
      gradients[i].reset();
    }
    h.reset();
    Tensor dweight = normalise_backward(rows, weight, scale, dh);
    // Numbers among the arguments have no gradient.
    variable_list all{dh.view(saved[0].sizes()), dweight, Tensor(), Tensor(), Tensor()};
    all.insert(all.end(), dmatrices.begin(), dmatrices.end());
    all.insert(all.end(), dbiases.begin(), dbiases.end());
    return all;
  }
};

// --- SwiGLU --------------------------------------------------------------------------------------

Tensor gated(const Tensor &gate, const Tensor &up) {
  TORCH_CHECK(gate.sizes() == up.sizes(), "a gated layer needs two arrays of one size");
  Tensor y = at::empty_like(gate);
  Matrix a(gate), b(up), to(y);
  each_row(a, [&](int64_t row, float *room) {
    float *out = to.begin(row, room + 2 * a.width);
    rows().swiglu(a.read(row, room), b.read(row, room + a.width), out, a.width);
    to.end(row, out);
  });
  return y;
}

// The matrix behind the gated layer, whose product with it is not kept.
struct SwigluLinear : Function<SwigluLinear> {
  static Tensor forward(AutogradContext *context, Tensor gate, Tensor up, Tensor matrix) {
    context->save_for_backward({gate, up, matrix});
    return product(gated(flat(gate), flat(up)), matrix).view(resized(gate, matrix.size(0)));
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor gate = flat(saved[0]), up = flat(saved[1]), matrix = saved[2];
    Tensor dy = flat(gradients[0]), dmatrix;
    if (context->needs_input_grad(2)) dmatrix = matrix_gradient(matrix, dy, gated(gate, up));
    // The gradient of `up` is put where that of the product was.
    Tensor dup = product(dy, matrix.t()), dgate = at::empty_like(gate);
    Matrix a(gate), b(up), da(dgate), db(dup);
    each_row(a, [&](int64_t row, float *room) {
      float *second = room + a.width, *third = second + a.width, *fourth = third + a.width;
      float *to_gate = da.begin(row, fourth), *to_up = db.begin(row, third);
      rows().swiglu_backward(a.read(row, room), b.read(row, second), db.read(row, third), to_gate,
                             to_up, a.width);
      da.end(row, to_gate);
      db.end(row, to_up);
    });
    return {dgate.view(saved[0].sizes()), dup.view(saved[1].sizes()), dmatrix};
  }
};

// --- rotary positions ----------------------------------------------------------------------------

// Of `[rows, width, heads * dim]`; `cos` and `sin` are float32 with a row of `dim` for each token.
Tensor rotated(const Tensor &x, const Tensor &cos, const Tensor &sin, float sign) {
  Tensor from_rows = x.contiguous(), y = at::empty_like(from_rows);
  Matrix from(from_rows), to(y), cosines(cos), sines(sin);
  int64_t dim = cosines.width;
  TORCH_CHECK(cosines.count == from.count && sin.sizes() == cos.sizes() && dim % 2 == 0 &&
                  from.width % dim == 0 && cos.scalar_type() == at::kFloat &&
                  sin.scalar_type() == at::kFloat,
              "one float32 row of cosines and sines for each token");
  each_row(from, [&](int64_t row, float *room) {
    float *out = to.begin(row, room + from.width);
    rows().rotate(from.read(row, room), cosines.read(row, nullptr), sines.read(row, nullptr), sign,
                  out, from.width / dim, dim);
    to.end(row, out);
  });
  return y;
}

struct Rotate : Function<Rotate> {
  static Tensor forward(AutogradContext *context, Tensor x, Tensor cos, Tensor sin) {
    context->save_for_backward({cos, sin});
    return rotated(x, cos, sin, 1);
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1], -1), Tensor(), Tensor()};
  }
};

// --- attention -----------------------------------------------------------------------------------

// Causal attention within documents, `[documents, 3]` int64 of row, first column and length. Queries
// are `[rows, heads, width, dim]`; several of their heads may share one of the keys'.
struct Attend : Function<Attend> {
  // A document's part with heads that share keys together: `[key heads, group, length, dim]`.
  static Tensor cut(const Tensor &x, const int64_t *document, int64_t keys, int64_t group) {
    Tensor part = x.select(0, document[0]).narrow(1, document[1], document[2]);
    return x.size(1) == keys && group > 1 ? part.unsqueeze(1).expand({-1, group, -1, -1})
                                          : part.unflatten(0, {keys, group});
  }
  // Room of that size, laid out as the matrices around attention want it: token by token.
  static Tensor room(const Tensor &like, const Tensor &documents) {
    std::vector<int64_t> size{like.size(0), like.size(2), like.size(1), like.size(3)};
    bool full = documents.select(1, 2).sum().item<int64_t>() == like.size(0) * like.size(2);
    Tensor made = full ? at::empty(size, like.options()) : at::zeros(size, like.options());
    return made.transpose(1, 2);
  }
  static Tensor forward(AutogradContext *context, Tensor q, Tensor k, Tensor v, Tensor documents) {
    TORCH_CHECK(q.dim() == 4 && k.dim() == 4 && k.size(1) > 0 && k.sizes() == v.sizes(),
                "attention needs heads of queries, keys and values");
    TORCH_CHECK(documents.is_cpu() && documents.is_contiguous() && documents.dim() == 2 &&
                    documents.size(1) == 3,
                "documents are rows of three numbers");
    Tensor out = room(q, documents);
    variable_list saved{q, k, v, documents, out};
    int64_t keys = k.size(1), group = q.size(1) / keys;
    for (int64_t i = 0; i < documents.size(0); i++) {
      const int64_t *document = documents.data_ptr<int64_t>() + 3 * i;
      auto part = [&](const Tensor &x) { return cut(x, document, keys, group); };
      auto [attended, sums] =
          at::_scaled_dot_product_flash_attention_for_cpu(part(q), part(k), part(v), 0.0, true);
      part(out).copy_(attended);
      saved.push_back(sums);
    }
    context->save_for_backward(saved);
    return out;
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor q = saved[0], k = saved[1], v = saved[2], documents = saved[3], out = saved[4];
    Tensor dq = room(q, documents), dk = room(k, documents), dv = room(v, documents);
    int64_t keys = k.size(1), group = q.size(1) / keys;
    for (int64_t i = 0; i < documents.size(0); i++) {
      const int64_t *document = documents.data_ptr<int64_t>() + 3 * i;
      auto part = [&](const Tensor &x) { return cut(x, document, keys, group); };
      auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(gradients[0]), part(q), part(k), part(v), part(out), saved[5 + i], 0.0, true);
      part(dq).copy_(gq);
      cut(dk, document, keys, 1).copy_(gk.sum({1}, /*keepdim=*/true));
      cut(dv, document, keys, 1).copy_(gv.sum({1}, /*keepdim=*/true));
    }
    return {dq, dk, dv, Tensor()};
  }
};

// --- embedding and loss --------------------------------------------------------------------------

// Rows of a table. Where its gradient is there already, as that of a tied output matrix is, the rows
// are added to it; a gradient as large as the table is made otherwise.
struct Embed : Function<Embed> {
  static Tensor forward(AutogradContext *context, Tensor table, Tensor ids) {
    context->save_for_backward({table, ids});
    return at::embedding(table, ids);
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor dy = flat(gradients[0]), ids = saved[1].reshape({-1});
    Tensor &before = saved[0].mutable_grad();
    if (!before.defined())
      return {at::embedding_dense_backward(dy, ids, saved[0].size(0), -1, false), Tensor()};
    before.index_add_(0, ids, dy);
    return {Tensor(), Tensor()};
  }
};

// The weighted sum of -log softmax(hidden · headᵀ)[token], `chunk` rows at a time: logits become
// their own gradient where they lie. With `gradient`, that of `scale` times the sum is left there
// for `hidden` and added to the head's.
double linear_cross_entropy(const Tensor &hidden, Tensor head, const Tensor &tokens,
                            const Tensor &weights, double scale, int64_t chunk, Tensor *gradient) {
  TORCH_CHECK(hidden.dim() == 2 && head.dim() == 2, "hidden states and their matrix have two sizes");
  int64_t count = hidden.size(0), vocabulary = head.size(0);
  std::vector<double> losses(count);
  const int64_t *token = tokens.data_ptr<int64_t>();
  const float *weight = weights.data_ptr<float>();
  for (int64_t start = 0; start < count; start += chunk) {
    int64_t rows_here = std::min(chunk, count - start);
    Tensor h = hidden.narrow(0, start, rows_here), logits = product(h, head);
    Matrix all(logits);
    at::parallel_for(0, rows_here, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> room(vocabulary);
      for (int64_t row = begin; row < end; row++) {
        int64_t place = start + row;
        TORCH_CHECK(token[place] >= 0 && token[place] < vocabulary, "token ", token[place],
                    " is not in a vocabulary of ", vocabulary);
        float *values = all.begin(row, room.data());
        all.read(row, room.data());
        losses[place] = weight[place] *
                        rows().cross_entropy(values, vocabulary, token[place],
                                             static_cast<float>(weight[place] * scale));
        all.end(row, values);
      }
    });
    if (!gradient) continue;
    gradient->narrow(0, start, rows_here).copy_(product(logits, head.t()));
    if (!head.requires_grad()) continue;
    // Added at once: a table of its own for each chunk would be the largest tensor of all.
    Tensor &before = head.mutable_grad();
    if (before.defined())
      before.addmm_(logits.t(), h);
    else
      before = product(logits.t(), h.t());
  }
  double sum = 0;
  for (double loss : losses) sum += loss;
  return sum;
}

} // namespace

extern "C" {

int shim_rms_norm(Tensor *x, Tensor *weight, double epsilon, Tensor **y) {
  return guarded([&] { *y = new Tensor(RmsNorm::apply(*x, *weight, epsilon)); });
}

// `bias` is without elements where there is none.
int shim_linear(Tensor *x, Tensor *matrix, Tensor *bias, Tensor **y) {
  return guarded([&] { *y = new Tensor(Linear::apply(*x, *matrix, *bias)); });
}

// `linears` are `count` matrices, then as many biases, null where there is none.
int shim_norm_linears(Tensor *x, Tensor *weight, double epsilon, Tensor *const *linears, int count,
                      Tensor **outputs) {
  return guarded([&] {
    variable_list all;
    int64_t biased = 0;
    for (int i = 0; i < 2 * count; i++) {
      if (linears[i]) all.push_back(*linears[i]);
      if (linears[i] && i >= count) biased |= int64_t(1) << (i - count);
    }
    auto made =
        NormLinears::apply(*x, *weight, epsilon, int64_t(count), biased, at::TensorList(all));
    for (int i = 0; i < count; i++) outputs[i] = new Tensor(made[i]);
  });
}

int shim_swiglu_linear(Tensor *gate, Tensor *up, Tensor *matrix, Tensor **y) {
  return guarded([&] { *y = new Tensor(SwigluLinear::apply(*gate, *up, *matrix)); });
}

int shim_rotate(Tensor *x, Tensor *cos, Tensor *sin, Tensor **y) {
  return guarded([&] { *y = new Tensor(Rotate::apply(*x, *cos, *sin)); });
}

int shim_attend(Tensor *q, Tensor *k, Tensor *v, Tensor *documents, Tensor **y) {
  return guarded([&] { *y = new Tensor(Attend::apply(*q, *k, *v, *documents)); });
}

int shim_embed(Tensor *table, Tensor *ids, Tensor **y) {
  return guarded([&] { *y = new Tensor(Embed::apply(*table, *ids)); });
}

// `gradient` is room for that of `hidden`, or null where only the loss is wanted.
int shim_linear_cross_entropy(Tensor *hidden, Tensor *head, Tensor *tokens, Tensor *weights,
                              double scale, int64_t chunk, Tensor *gradient, double *loss) {
  return guarded([&] {
    at::NoGradGuard guard;
    *loss = linear_cross_entropy(*hidden, *head, *tokens, *weights, scale, chunk, gradient);
  });
}

// The backward pass from one tensor with its gradient.
int shim_backward(Tensor *tensor, Tensor *gradient) {
  return guarded([&] { torch::autograd::backward({*tensor}, {*gradient}); });
}
}
