// What the fused operations do to one row of float32, compiled for each kind of processor that it is
// worth it for. No libtorch here: these are loops that a compiler turns into vector instructions.
#pragma once
#include <cstdint>

struct Rows {
  // bf16 to float32 and back, to the nearest, ties to even.
  void (*widen)(const uint16_t *from, float *to, int64_t n);
  void (*narrow)(const float *from, uint16_t *to, int64_t n);
  // 1 / sqrt(mean of squares + epsilon).
  float (*rms)(const float *x, int64_t n, float epsilon);
  // y = x * scale * weight.
  void (*rms_norm)(const float *x, const float *weight, float scale, float *y, int64_t n);
  // The gradient of x, which may lie where dy lies; dweight grows.
  void (*rms_norm_backward)(const float *x, const float *weight, float scale, const float *dy,
                            float *dx, float *dweight, int64_t n);
  // y = gate / (1 + exp(-gate)) * up.
  void (*swiglu)(const float *gate, const float *up, float *y, int64_t n);
  void (*swiglu_backward)(const float *gate, const float *up, const float *dy, float *dgate,
                          float *dup, int64_t n);
  // Turns each head's pair (i, i + dim / 2) by an angle; `sign` -1 turns back.
  void (*rotate)(const float *x, const float *cos, const float *sin, float sign, float *y,
                 int64_t heads, int64_t dim);
  // -log softmax(logits)[target]; leaves the gradient of `weight` times that in `logits`.
  double (*cross_entropy)(float *logits, int64_t n, int64_t target, float weight);
};

// Those for this processor.
const Rows &rows();
