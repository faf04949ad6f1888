// Compiled once for each instruction set, with the name that build.rs defines as ROWS.
#include "rows.h"

#include <cmath>
#include <cstring>

namespace {

inline float from_bits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline uint32_t to_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// e^x with an error of two units in the last place, without branches so that loops vectorize: x = n ln 2 + r, and
// a polynomial for e^r (Cephes). Values out of range are clamped; NaN stays NaN.
inline float exponential(float x) {
  x = x < -87.3f ? -87.3f : x;
  x = x > 88.0f ? 88.0f : x;
  const float magic = 12582912.0f; // adding and subtracting it rounds to the nearest integer
  float n = (x * 1.44269504f + magic) - magic;
  float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return p * from_bits(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
}

void widen(const uint16_t *from, float *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) to[i] = from_bits(static_cast<uint32_t>(from[i]) << 16);
}

void narrow(const float *from, uint16_t *to, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    uint32_t bits = to_bits(from[i]);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    // Rounding up could turn a NaN into a number.
    to[i] = static_cast<uint16_t>(from[i] != from[i] ? 0x7fc0 : rounded);
  }
}

float rms(const float *x, int64_t n, float epsilon) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  return 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
}

void rms_norm(const float *x, const float *weight, float scale, float *y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

void rms_norm_backward(const float *x, const float *weight, float scale, const float *dy, float *dx,
                       float *dweight, int64_t n) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t i = 0; i < n; i++) {
    float product = x[i] * dy[i];
    dot += product * weight[i];
    dweight[i] += product * scale;
  }
  float back = dot * scale * scale / static_cast<float>(n);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) dx[i] = scale * (weight[i] * dy[i] - x[i] * back);
}

void swiglu(const float *gate, const float *up, float *y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) y[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

void swiglu_backward(const float *gate, const float *up, const float *dy, float *dgate, float *dup,
                     int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float sigmoid = 1.0f / (1.0f + exponential(-gate[i]));
    float silu = gate[i] * sigmoid;
    float d = dy[i];
    dgate[i] = d * up[i] * (sigmoid + silu * (1.0f - sigmoid));
    dup[i] = d * silu;
  }
}

void rotate(const float *x, const float *cos, const float *sin, float sign, float *y, int64_t heads,
            int64_t dim) {
  int64_t half = dim / 2;
  for (int64_t head = 0; head < heads; head++, x += dim, y += dim) {
#pragma omp simd
    for (int64_t i = 0; i < half; i++) {
      float a = x[i], b = x[i + half], s = sign * sin[i];
      y[i] = a * cos[i] - b * s;
      y[i + half] = b * cos[i] + a * s;
    }
  }
}

double cross_entropy(float *logits, int64_t n, int64_t target, float weight) {
  float most = logits[0];
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; i++) most = logits[i] > most ? logits[i] : most;
  float chosen = logits[target];
  double sum = 0;
  // In blocks: float32 loses precision over a whole vocabulary.
  for (int64_t start = 0; start < n; start += 1024) {
    int64_t end = start + 1024 < n ? start + 1024 : n;
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = start; i < end; i++) part += logits[i] = exponential(logits[i] - most);
    sum += part;
  }
  float factor = static_cast<float>(weight / sum);
#pragma omp simd
  for (int64_t i = 0; i < n; i++) logits[i] *= factor;
  logits[target] -= weight;
  return std::log(sum) + (static_cast<double>(most) - chosen);
}

void adamw(float *weight, const float *gradient, float *first, float *second, const AdamRow &adam,
           int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; i++) {
    float g = gradient[i] * adam.factor, w = weight[i];
    w -= adam.decay * w;
    float m = first[i] + adam.toward * (g - first[i]);
    float v = adam.hold * second[i] + adam.add * g * g;
    first[i] = m;
    second[i] = v;
    weight[i] = w - adam.step * m / (std::sqrt(v) / adam.correction + adam.epsilon);
  }
}

void unpack(const uint8_t *codes, float scale, const NearestLevel &nearest, float *to, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = nearest.levels[codes[i]] * scale;
}

float pack(const float *from, const NearestLevel &nearest, bool roots, uint8_t *codes, int64_t n) {
  float largest = 0, parts[256];
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; i++) largest = std::fabs(from[i]) > largest ? std::fabs(from[i]) : largest;
  const float divisor = largest > 1.17549435e-38f ? largest : 1.17549435e-38f;
#pragma omp simd
  for (int64_t i = 0; i < n; i++) parts[i] = from[i] / divisor;
  for (int64_t i = 0; i < n; i++) {
    uint8_t code = nearest.least[to_bits(parts[i]) >> 16];
    while (parts[i] > nearest.middles[code]) code++;
    codes[i] = roots && code == 0 && from[i] > 0 ? 1 : code;
  }
  return largest;
}

inline uint32_t noise(int64_t seed, int64_t place) {
  uint64_t z = static_cast<uint64_t>(seed) + static_cast<uint64_t>(place) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return static_cast<uint32_t>((z ^ (z >> 31)) & 0xffff);
}

void narrow_at_random(const float *from, int64_t seed, int64_t place, uint16_t *to, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    // Close to infinity a number could become one.
    if (std::fabs(from[i]) < 3.3e38f) to[i] = (to_bits(from[i]) + noise(seed, place + i)) >> 16;
    else narrow(from + i, to + i, 1);
  }
}

} // namespace

extern const Rows ROWS;
const Rows ROWS = {widen,         narrow, rms,    rms_norm, rms_norm_backward, swiglu,          swiglu_backward, rotate,
                   cross_entropy, adamw,  unpack, pack,     narrow_at_random};
