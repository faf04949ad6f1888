// Arguments of the kernels, for both sides: NVRTC gets this text before kernels.cu.
#ifndef ARGUMENTS
#define ARGUMENTS

typedef long long i64;
typedef unsigned short bf16;
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Optimizer state in float32, or in one byte per element with a scale per 256 elements and a table of levels.
struct Moment {
  float *whole;
  u8 *codes;
  float *scales;
  const float *levels;
};

// A matrix in NF4: 16 levels, two codes per byte, and one scale per 64 elements: `whole`, or code * range / 127 + mean
// with one range per 256 scales.
struct Nf4 {
  float levels[16];
  const u8 *codes;
  const float *whole;
  const signed char *scales;
  const float *ranges, *mean;
};

struct Adam {
  double rate, beta1, beta2, decay, epsilon, factor;
  // Below 0: round to nearest; otherwise at random.
  i64 seed;
  // Index of the first element in its parameter, so that rounding does not depend on the sharding.
  i64 place;
};

#endif
