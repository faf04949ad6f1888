// What the fused operations do row by row, on a CPU (loops.cpp) or by kernels (kernels.cpp). Tensors are
// contiguous float32 or bf16, `[rows, width]` where nothing else is said.
#pragma once
#include <ATen/ATen.h>

struct Backend {
  // RMSNorm, and what each row was multiplied by before the weight (float32).
  virtual std::pair<at::Tensor, at::Tensor> norm(const at::Tensor &x, const at::Tensor &weight,
                                                 double epsilon) const = 0;
  // The same with those known.
  virtual at::Tensor norm_again(const at::Tensor &x, const at::Tensor &weight,
                                const at::Tensor &scales) const = 0;
  // Puts the gradient of x where `dy` lies, and gives that of the weight.
  virtual at::Tensor norm_backward(const at::Tensor &x, const at::Tensor &weight,
                                   const at::Tensor &scales, const at::Tensor &dy) const = 0;
  // silu(gate) * up.
  virtual at::Tensor gated(const at::Tensor &gate, const at::Tensor &up) const = 0;
  // Puts the gradient of `up` where `dy` lies, and gives that of `gate`.
  virtual at::Tensor gated_backward(const at::Tensor &gate, const at::Tensor &up,
                                    const at::Tensor &dy) const = 0;
  // Rotary positions of x, a row of heads for each token; `cos` and `sin` are float32, a row of `dim`
  // for each token. `sign` -1 turns back.
  virtual at::Tensor rotated(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin,
                             float sign) const = 0;
  // Leaves weight * -log softmax(logits)[token] of each row in `losses` (float64), and, with a scale,
  // that multiple of its gradient in the place of the logits.
  virtual void cross_entropy(const at::Tensor &logits, const at::Tensor &tokens,
                             const at::Tensor &weights, double scale,
                             const at::Tensor &losses) const = 0;
  virtual ~Backend() = default;
};

extern const Backend &loops, &kernels;
