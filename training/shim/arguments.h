// What kernels are called with, for both sides: NVRTC gets this text before that of kernels.cu.
#ifndef ARGUMENTS
#define ARGUMENTS

typedef long long i64;
typedef unsigned short bf16;
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// A moment in float32, or in a byte an element with a scale for 256 and a table of levels.
struct Moment {
  float *whole;
  u8 *codes;
  float *scales;
  const float *levels;
};

struct Adam {
  double rate, beta1, beta2, decay, epsilon, factor;
  // Below 0: to the nearest; otherwise up or down at random.
  i64 seed;
  // Where the first element lies in its parameter: the same one is rounded alike wherever it is.
  i64 place;
};

#endif
