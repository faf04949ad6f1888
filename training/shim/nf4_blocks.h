// Blocks of 64 elements in 4-bit NormalFloat, compiled for several instruction sets. No libtorch here.
#pragma once
#include <cstdint>

constexpr int64_t NF4_BLOCK = 64;

// Every function gives the same bits under every instruction set.
struct Nf4Blocks {
  // Level times scale of each element. Two codes per byte, the first in the high bits; 16 levels; one scale per block.
  void (*to_float)(const uint8_t *codes, const float *levels, const float *scales, int64_t blocks, float *to);
  // The same, rounded to the nearest bf16.
  void (*to_bf16)(const uint8_t *codes, const float *levels, const float *scales, int64_t blocks, uint16_t *to);
  // The codes of the nearest levels, and the largest magnitude of each block as its scale. `middles` are the 15 values
  // between neighboring levels.
  void (*from_float)(const float *values, const float *middles, int64_t blocks, uint8_t *codes, float *scales);
  // Scales in 8 bits: code * step + mean, at least 0.
  void (*scales_of)(const int8_t *codes, float step, float mean, int64_t count, float *scales);
};

enum class InstructionSet { Portable, Avx2, Avx512 };

// The functions for an instruction set; null if this processor does not have it.
const Nf4Blocks *nf4_blocks(InstructionSet set);
// The functions for this processor.
const Nf4Blocks &nf4_blocks();
