// Row operations, implemented on a CPU (loops.cpp) and by kernels (kernels.cpp). Tensors are contiguous float32 or
// bf16, `[rows, width]` unless stated otherwise.
#pragma once
#include <ATen/ATen.h>

struct Backend {
  // RMSNorm, and the factor of each row before the weight (float32).
  virtual std::pair<at::Tensor, at::Tensor> norm(const at::Tensor &x, const at::Tensor &weight,
                                                 double epsilon) const = 0;
  // The same with known factors.
  virtual at::Tensor norm_again(const at::Tensor &x, const at::Tensor &weight,
                                const at::Tensor &scales) const = 0;
  // Overwrites `dy` by the gradient of x, and returns that of the weight.
  virtual at::Tensor norm_backward(const at::Tensor &x, const at::Tensor &weight,
                                   const at::Tensor &scales, const at::Tensor &dy) const = 0;
  // silu(gate) * up.
  virtual at::Tensor gated(const at::Tensor &gate, const at::Tensor &up) const = 0;
  // Overwrites `dy` by the gradient of `up`, and returns that of `gate`.
  virtual at::Tensor gated_backward(const at::Tensor &gate, const at::Tensor &up,
                                    const at::Tensor &dy) const = 0;
  // Rotary positions of x, one row of heads per token; `cos` and `sin` are float32, one row of `dim` per token. `sign` -1
  // rotates backward.
  virtual at::Tensor rotated(const at::Tensor &x, const at::Tensor &cos, const at::Tensor &sin,
                             float sign) const = 0;
  // Stores weight * -log softmax(logits)[token] of each row in `losses` (float64) and, with a scale, overwrites the
  // logits by the gradient times that.
  virtual void cross_entropy(const at::Tensor &logits, const at::Tensor &tokens,
                             const at::Tensor &weights, double scale,
                             const at::Tensor &losses) const = 0;
  virtual ~Backend() = default;
};

extern const Backend &loops, &kernels;
