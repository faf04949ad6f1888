// Operations on one row of float32, compiled for several instruction sets. No libtorch here: these are loops that the
// compiler vectorizes.
#pragma once
#include <cstdint>

// Constants of a step of AdamW.
struct AdamRow {
  // The gradient is multiplied by this first.
  float factor;
  // 1 - beta1, beta2, 1 - beta2.
  float toward, hold, add;
  // rate * weight decay, rate / (1 - beta1^t), sqrt(1 - beta2^t).
  float decay, step, correction;
  float epsilon;
};

// Finds the nearest of 256 sorted levels in [-1, 1] by the sixteen highest bits of a value and few comparisons.
struct NearestLevel {
  float levels[256];
  // Between a level and the next; infinite after the last.
  float middles[256];
  // The code of the least value with these bits.
  uint8_t least[1 << 16];

  explicit NearestLevel(const float *sorted);
};

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
  // One step; `first` and `second` are the moments.
  void (*adamw)(float *weight, const float *gradient, float *first, float *second, const AdamRow &adam,
                int64_t n);
  // State in 8 bits times its scale.
  void (*unpack)(const uint8_t *codes, float scale, const NearestLevel &nearest, float *to, int64_t n);
  // Back; returns the scale. At most 256 values. Of `roots` only zero becomes zero.
  float (*pack)(const float *from, const NearestLevel &nearest, bool roots, uint8_t *codes, int64_t n);
  // To bf16 at random, so that the expected value is exact; `place` is the number of the first element.
  void (*narrow_at_random)(const float *from, int64_t seed, int64_t place, uint16_t *to, int64_t n);
};

// The functions for this processor.
const Rows &rows();
