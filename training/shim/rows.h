// Operations on one row of float32, compiled for several instruction sets. No libtorch here: these are loops that the
// compiler vectorizes.
#pragma once
#include <cstdint>

struct Rows {
  // bf16 to float32 and back, to nearest, ties to even.
  void (*widen)(const uint16_t *from, float *to, int64_t n);
  void (*narrow)(const float *from, uint16_t *to, int64_t n);
  // 1 / sqrt(mean of squares + epsilon).
  float (*rms)(const float *x, int64_t n, float epsilon);
  // y = x * scale * weight.
  void (*rms_norm)(const float *x, const float *weight, float scale, float *y, int64_t n);
  // The gradient of x, which may overwrite dy; adds to dweight.
  void (*rms_norm_backward)(const float *x, const float *weight, float scale, const float *dy,
                            float *dx, float *dweight, int64_t n);
  // y = gate / (1 + exp(-gate)) * up.
  void (*swiglu)(const float *gate, const float *up, float *y, int64_t n);
  void (*swiglu_backward)(const float *gate, const float *up, const float *dy, float *dgate,
                          float *dup, int64_t n);
  // Rotates the pair (i, i + dim / 2) of each head; `sign` -1 rotates backward.
  void (*rotate)(const float *x, const float *cos, const float *sin, float sign, float *y,
                 int64_t heads, int64_t dim);
  // -log softmax(logits)[target]; overwrites `logits` by the gradient of `weight` times that.
  double (*cross_entropy)(float *logits, int64_t n, int64_t target, float weight);
};

// The functions for this processor.
const Rows &rows();
