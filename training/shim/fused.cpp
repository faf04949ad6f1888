// Fused operations of the forward pass. The backward pass recomputes what is cheap. Float32 or bf16, with
// float32 arithmetic.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "backend.h"
#include "guarded.h"
#include "kernels.h"
#include "product.h"

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

namespace {

// The backend for tensors like this one.
const Backend &of(const Tensor &like) { return like.is_cuda() || emulating ? kernels : loops; }

// --- RMSNorm -------------------------------------------------------------------------------------

// The weight has the length of a row.
void fits(const Tensor &weight, const Tensor &rows) {
  TORCH_CHECK(weight.dim() == 1 && weight.size(0) == rows.size(1), "the weight of a norm has ",
              weight.numel(), " elements for rows of ", rows.size(1));
}

struct RmsNorm : Function<RmsNorm> {
  static Tensor forward(AutogradContext *context, Tensor x, Tensor weight, double epsilon) {
    Tensor rows = flat(x);
    fits(weight, rows);
    auto [y, scales] = of(x).norm(rows, weight, epsilon);
    context->save_for_backward({x, weight, scales});
    return y.view(x.sizes());
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor dx = flat(gradients[0]).clone();
    Tensor dweight = of(dx).norm_backward(flat(saved[0]), saved[1], saved[2], dx);
    return {dx.view(saved[0].sizes()), dweight, Tensor()};
  }
};

// --- matrices ------------------------------------------------------------------------------------

// The gradient of the matrix in y = x · Wᵀ. If the parameter has a gradient already, the product is added to it
// directly, and autograd gets none.
Tensor matrix_gradient(Tensor weight, const Tensor &dy, const Tensor &x) {
  Tensor &before = weight.mutable_grad();
  if (!before.defined()) return product(dy.t(), x.t());
  add_product(before, dy.t(), x.t());
  return Tensor();
}

struct Linear : Function<Linear> {
  // `bias` may be empty.
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

// RMSNorm followed by several matrices. The normalized rows are not saved.
struct NormLinears : Function<NormLinears> {
  // `linears` contains `count` matrices, then the biases whose bits are set in `biased`.
  static variable_list forward(AutogradContext *context, Tensor x, Tensor weight, double epsilon,
                               int64_t count, int64_t biased, at::TensorList linears) {
    Tensor rows = flat(x);
    fits(weight, rows);
    auto [h, scales] = of(x).norm(rows, weight, epsilon);
    variable_list saved{x, weight, scales}, all;
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
    Tensor rows = flat(saved[0]), weight = saved[1], scales = saved[2], dh;
    Tensor h = of(rows).norm_again(rows, weight, scales);
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
    Tensor dweight = of(dh).norm_backward(rows, weight, scales, dh);
    // Scalar arguments have no gradient.
    variable_list all{dh.view(saved[0].sizes()), dweight, Tensor(), Tensor(), Tensor()};
    all.insert(all.end(), dmatrices.begin(), dmatrices.end());
    all.insert(all.end(), dbiases.begin(), dbiases.end());
    return all;
  }
};

// --- SwiGLU --------------------------------------------------------------------------------------

// silu(gate) * up, in rows.
Tensor gated(const Tensor &gate, const Tensor &up) {
  TORCH_CHECK(gate.sizes() == up.sizes(), "a gated layer needs two arrays of one size");
  return of(gate).gated(flat(gate), flat(up));
}

struct Swiglu : Function<Swiglu> {
  static Tensor forward(AutogradContext *context, Tensor gate, Tensor up) {
    context->save_for_backward({gate, up});
    return gated(gate, up).view(gate.sizes());
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    // The gradient of `up` overwrites a copy of that of the product.
    Tensor dup = flat(gradients[0]).clone();
    Tensor dgate = of(dup).gated_backward(flat(saved[0]), flat(saved[1]), dup);
    return {dgate.view(saved[0].sizes()), dup.view(saved[1].sizes())};
  }
};

// SwiGLU followed by a matrix. The product is not saved.
struct SwigluLinear : Function<SwigluLinear> {
  static Tensor forward(AutogradContext *context, Tensor gate, Tensor up, Tensor matrix) {
    context->save_for_backward({gate, up, matrix});
    return product(gated(gate, up), matrix).view(resized(gate, matrix.size(0)));
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    Tensor gate = flat(saved[0]), up = flat(saved[1]), matrix = saved[2];
    Tensor dy = flat(gradients[0]), dmatrix;
    const Backend &rows = of(gate);
    if (context->needs_input_grad(2)) dmatrix = matrix_gradient(matrix, dy, rows.gated(gate, up));
    // The gradient of `up` overwrites that of the product.
    Tensor dup = product(dy, matrix.t()), dgate = rows.gated_backward(gate, up, dup);
    return {dgate.view(saved[0].sizes()), dup.view(saved[1].sizes()), dmatrix};
  }
};

// --- rotary positions ----------------------------------------------------------------------------

// For `[rows, width, heads * dim]`; `cos` and `sin` are float32 with one row of `dim` per token.
Tensor rotated(const Tensor &x, const Tensor &cos, const Tensor &sin, float sign) {
  int64_t dim = cos.size(-1);
  TORCH_CHECK(cos.numel() / dim == x.numel() / x.size(-1) && sin.sizes() == cos.sizes() &&
                  dim % 2 == 0 && x.size(-1) % dim == 0 && cos.scalar_type() == at::kFloat &&
                  sin.scalar_type() == at::kFloat && cos.is_contiguous() && sin.is_contiguous(),
              "one float32 row of cosines and sines for each token");
  return of(x).rotated(x.contiguous(), cos, sin, sign);
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

// Causal attention within documents (int64 `[documents, 3]`: row, first column, length). Queries are
// `[rows, heads, width, dim]`; several query heads may share a key head.
struct Attend : Function<Attend> {
  // The rows of a document, with heads that share keys grouped: `[key heads, group, length, dim]`.
  static Tensor cut(const Tensor &x, const int64_t *document, int64_t keys, int64_t group) {
    Tensor part = x.select(0, document[0]).narrow(1, document[1], document[2]);
    return x.size(1) == keys && group > 1 ? part.unsqueeze(1).expand({-1, group, -1, -1})
                                          : part.unflatten(0, {keys, group});
  }
  // An uninitialized tensor in the layout of the matrices around attention: token by token.
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
      auto part = [&](const Tensor &x) { return operand(cut(x, document, keys, group)); };
      auto [attended, sums] =
          at::_scaled_dot_product_flash_attention_for_cpu(part(q), part(k), part(v), 0.0, true);
      cut(out, document, keys, group).copy_(attended);
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
      auto part = [&](const Tensor &x) { return operand(cut(x, document, keys, group)); };
      auto [gq, gk, gv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          part(gradients[0]), part(q), part(k), part(v), part(out), saved[5 + i], 0.0, true);
      cut(dq, document, keys, group).copy_(gq);
      cut(dk, document, keys, 1).copy_(gk.sum({1}, /*keepdim=*/true));
      cut(dv, document, keys, 1).copy_(gv.sum({1}, /*keepdim=*/true));
    }
    return {dq, dk, dv, Tensor()};
  }
};

// The tokens a window allows before and behind, as flash attention counts them; 0 means all.
std::optional<int64_t> before(int64_t window) {
  return window ? std::optional<int64_t>(window - 1) : std::nullopt;
}
std::optional<int64_t> behind(int64_t window) {
  return window ? std::optional<int64_t>(0) : std::nullopt;
}

// Replacement of flash attention where kernels are emulated. Queries `[tokens, heads, dim]` are the last tokens of
// sequences whose keys begin at `key_offsets`.
Tensor plain_attention(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &offsets,
                       const Tensor &key_offsets, int64_t window) {
  variable_list parts;
  int64_t group = q.size(1) / k.size(1);
  auto range = [](const Tensor &all, int64_t i) {
    int64_t begin = all[i].item<int64_t>();
    return std::pair(begin, all[i + 1].item<int64_t>() - begin);
  };
  for (int64_t i = 0; i + 1 < offsets.size(0); i++) {
    auto [begin, length] = range(offsets, i);
    auto [first, count] = range(key_offsets, i);
    auto of_keys = [&, first = first, count = count](const Tensor &x) {
      return x.narrow(0, first, count).transpose(0, 1).repeat_interleave(group, 0);
    };
    Tensor seen = at::ones({length, count}, q.options().dtype(at::kBool)).tril(count - length);
    if (window) seen = seen.triu(count - length + 1 - window);
    Tensor queries = q.narrow(0, begin, length).transpose(0, 1);
    parts.push_back(
        at::scaled_dot_product_attention(queries, of_keys(k), of_keys(v), seen).transpose(0, 1));
  }
  return at::cat(parts);
}

// Causal attention over consecutive sequences, by libtorch's flash attention for GPUs. Queries, keys and values are
// `[rows, heads, width, dim]`, used as `rows * width` tokens. `offsets` (int32) are the start of each sequence and
// the end of the last one. A token attends to `window` tokens including itself; 0 means all.
struct AttendPacked : Function<AttendPacked> {
  static Tensor tokens(const Tensor &x) { return x.transpose(1, 2).flatten(0, 1); }
  static Tensor heads(const Tensor &x, const Tensor &like) {
    return x.view({like.size(0), like.size(2), x.size(1), x.size(2)}).transpose(1, 2);
  }
  static Tensor forward(AutogradContext *context, Tensor q, Tensor k, Tensor v, Tensor offsets,
                        int64_t longest, int64_t window) {
    Tensor fq = tokens(q), fk = tokens(k), fv = tokens(v);
    variable_list saved{q, k, v, offsets};
    Tensor out;
    if (q.is_cuda()) {
      auto [made, sums, seed, unused, mask] = at::_flash_attention_forward(
          fq, fk, fv, offsets, offsets, longest, longest, 0.0, true, false, std::nullopt,
          before(window), behind(window));
      out = made;
      for (const Tensor &more : {made, sums, seed, unused}) saved.push_back(more);
    } else {
      out = plain_attention(fq, fk, fv, offsets, offsets, window);
    }
    context->save_for_backward(saved);
    context->saved_data["longest"] = longest;
    context->saved_data["window"] = window;
    return heads(out, q);
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    int64_t longest = context->saved_data["longest"].toInt();
    int64_t window = context->saved_data["window"].toInt();
    Tensor q = tokens(saved[0]), k = tokens(saved[1]), v = tokens(saved[2]), offsets = saved[3];
    Tensor dout = tokens(gradients[0]).contiguous(), dq, dk, dv;
    if (q.is_cuda()) {
      std::tie(dq, dk, dv) = at::_flash_attention_backward(
          dout, q, k, v, saved[4], saved[5], offsets, offsets, longest, longest, 0.0, true, saved[6],
          saved[7], std::nullopt, before(window), behind(window));
    } else {
      at::AutoGradMode on(true);
      variable_list leaves{q.detach(), k.detach(), v.detach()};
      for (Tensor &leaf : leaves) leaf.requires_grad_(true);
      torch::autograd::backward(
          {plain_attention(leaves[0], leaves[1], leaves[2], offsets, offsets, window)}, {dout});
      dq = leaves[0].grad(), dk = leaves[1].grad(), dv = leaves[2].grad();
    }
    return {heads(dq, saved[0]), heads(dk, saved[1]), heads(dv, saved[2]), Tensor(), Tensor(), Tensor()};
  }
};

// Attention of the last tokens of sequences over all of theirs, without gradients.
Tensor attend_cached(const Tensor &q, const Tensor &k, const Tensor &v, const Tensor &offsets,
                     const Tensor &key_offsets, int64_t longest, int64_t longest_keys, int64_t window) {
  if (!q.is_cuda()) return plain_attention(q, k, v, offsets, key_offsets, window);
  return std::get<0>(at::_flash_attention_forward(q, k, v, offsets, key_offsets, longest, longest_keys, 0.0,
                                                  true, false, std::nullopt, before(window),
                                                  behind(window)));
}

// --- embedding and loss --------------------------------------------------------------------------

// Rows of a table. If the table has a gradient already, as a tied output matrix has, the rows are added to it
// instead of allocating a gradient of the size of the table.
struct Embed : Function<Embed> {
  // Not a saved variable: the backward pass needs only the gradient of the table, whose values may have been freed and
  // gathered again since.
  static Tensor forward(AutogradContext *context, Tensor table, Tensor ids) {
    context->save_for_backward({ids});
    context->saved_data["table"] = table;
    return at::embedding(table, ids);
  }
  static variable_list backward(AutogradContext *context, variable_list gradients) {
    Tensor table = context->saved_data["table"].toTensor();
    Tensor dy = flat(gradients[0]), ids = context->get_saved_variables()[0].reshape({-1});
    Tensor &before = table.mutable_grad();
    if (!before.defined())
      return {at::embedding_dense_backward(dy, ids, table.size(0), -1, false), Tensor()};
    before.index_add_(0, ids, dy);
    return {Tensor(), Tensor()};
  }
};

// The weighted sum of -log softmax(hidden · headᵀ)[token] for `chunk` rows at a time. Logits are overwritten by their
// gradient. With `gradient`, that of `scale` times the sum is stored there for `hidden`, and added to that of the
// head.
double linear_cross_entropy(const Tensor &hidden, Tensor head, const Tensor &tokens,
                            const Tensor &weights, double scale, int64_t chunk, Tensor *gradient) {
  TORCH_CHECK(hidden.dim() == 2 && head.dim() == 2, "hidden states and their matrix have two sizes");
  int64_t count = hidden.size(0), vocabulary = head.size(0);
  if (count == 0) return 0;
  auto [least, most] = at::aminmax(tokens);
  for (int64_t token : {least.item<int64_t>(), most.item<int64_t>()})
    TORCH_CHECK(token >= 0 && token < vocabulary, "token ", token, " is not in a vocabulary of ",
                vocabulary);
  Tensor right = tokens.to(hidden.device()), counts = weights.to(hidden.device());
  Tensor losses = at::empty({count}, counts.options().dtype(at::kDouble));
  for (int64_t start = 0; start < count; start += chunk) {
    int64_t rows_here = std::min(chunk, count - start);
    auto part = [&](const Tensor &whole) { return whole.narrow(0, start, rows_here); };
    Tensor h = part(hidden), logits = product(h, head);
    of(logits).cross_entropy(logits, part(right), part(counts), gradient ? scale : 0, part(losses));
    if (!gradient) continue;
    part(*gradient).copy_(product(logits, head.t()));
    if (!head.requires_grad()) continue;
    // Accumulate directly: a separate gradient per chunk would be the largest tensor.
    Tensor &before = head.mutable_grad();
    if (before.defined())
      add_product(before, logits.t(), h.t(), true);
    else
      before = product(logits.t(), h.t());
  }
  return losses.sum().item<double>();
}

} // namespace

extern "C" {

int shim_rms_norm(Tensor *x, Tensor *weight, double epsilon, Tensor **y) {
  return guarded([&] { *y = new Tensor(RmsNorm::apply(*x, *weight, epsilon)); });
}

int shim_widened_product(Tensor *x, Tensor *matrix, Tensor **y) {
  return guarded([&] { *y = new Tensor(widened_product(*x, *matrix)); });
}

// `bias` is empty if there is none.
int shim_linear(Tensor *x, Tensor *matrix, Tensor *bias, Tensor **y) {
  return guarded([&] { *y = new Tensor(Linear::apply(*x, *matrix, *bias)); });
}

// `linears` contains `count` matrices, then as many biases, null if there is none.
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

int shim_swiglu(Tensor *gate, Tensor *up, Tensor **y) {
  return guarded([&] { *y = new Tensor(Swiglu::apply(*gate, *up)); });
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

int shim_attend_packed(Tensor *q, Tensor *k, Tensor *v, Tensor *offsets, int64_t longest,
                       int64_t window, Tensor **y) {
  return guarded([&] {
    *y = new Tensor(AttendPacked::apply(*q, *k, *v, *offsets, longest, window));
  });
}

int shim_attend_cached(Tensor *q, Tensor *k, Tensor *v, Tensor *offsets, Tensor *key_offsets, int64_t longest,
                       int64_t longest_keys, int64_t window, Tensor **y) {
  return guarded([&] {
    at::NoGradGuard guard;
    *y = new Tensor(attend_cached(*q, *k, *v, *offsets, *key_offsets, longest, longest_keys, window));
  });
}

int shim_embed(Tensor *table, Tensor *ids, Tensor **y) {
  return guarded([&] { *y = new Tensor(Embed::apply(*table, *ids)); });
}

// `gradient` receives the gradient of `hidden`; null if only the loss is needed.
int shim_linear_cross_entropy(Tensor *hidden, Tensor *head, Tensor *tokens, Tensor *weights,
                              double scale, int64_t chunk, Tensor *gradient, double *loss) {
  return guarded([&] {
    at::NoGradGuard guard;
    *loss = linear_cross_entropy(*hidden, *head, *tokens, *weights, scale, chunk, gradient);
  });
}

// The backward pass from a tensor with a given gradient.
int shim_backward(Tensor *tensor, Tensor *gradient) {
  return guarded([&] { torch::autograd::backward({*tensor}, {*gradient}); });
}
}
