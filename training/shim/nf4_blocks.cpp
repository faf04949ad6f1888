// Compiled once for each instruction set, with the name that build.rs defines as NF4_BLOCKS, and without fused
// multiplication and addition, which would change bits.
#include "nf4_blocks.h"

#include <cmath>
#include <cstring>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

constexpr int64_t BYTES = NF4_BLOCK / 2;

#if defined(__AVX512BW__)

// Level times scale of all 16 codes.
inline __m512 table_of(const float *levels, float scale) {
  return _mm512_mul_ps(_mm512_loadu_ps(levels), _mm512_set1_ps(scale));
}

// 16 codes at a time are indices of a permutation.
void block_to_float(const uint8_t *codes, const float *levels, float scale, float *to) {
  const __m512 table = table_of(levels, scale);
  for (int part = 0; part < 4; part++, codes += 8, to += 16) {
    __m512i pairs = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i *>(codes)));
    // The permutation reads only the four lowest bits of an index.
    __m512i places = _mm512_or_si512(_mm512_srli_epi64(pairs, 4), _mm512_slli_epi64(pairs, 32));
    _mm512_storeu_ps(to, _mm512_permutexvar_ps(places, table));
  }
}

// The table is rounded to bf16, and 32 codes at a time are indices of a permutation.
void block_to_bf16(const uint8_t *codes, const float *levels, float scale, uint16_t *to) {
  const __m512i bits = _mm512_castps_si512(table_of(levels, scale));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i raised = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  const __m256i half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(raised, 16));
  // Twice the same: the permutation reads the five lowest bits of an index, a code has four.
  const __m512i table = _mm512_broadcast_i64x4(half);
  for (int part = 0; part < 2; part++, codes += 16, to += 32) {
    __m512i pairs = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(codes)));
    __m512i places = _mm512_or_si512(_mm512_srli_epi32(pairs, 4), _mm512_slli_epi32(pairs, 16));
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, table));
  }
}

#else

void table_of(const float *levels, float scale, float *table) {
  for (int code = 0; code < 16; code++) table[code] = levels[code] * scale;
}

void rounded_table_of(const float *levels, float scale, uint16_t *table) {
  float whole[16];
  table_of(levels, scale, whole);
  for (int code = 0; code < 16; code++) {
    uint32_t bits;
    std::memcpy(&bits, whole + code, sizeof bits);
    table[code] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

#ifdef __AVX2__

// Eight codes at a time: each is shifted to the lowest bits of a lane, and selects from both halves of the table.
void block_to_float(const uint8_t *codes, const float *levels, float scale, float *to) {
  float whole[16];
  table_of(levels, scale, whole);
  const __m256 lower = _mm256_loadu_ps(whole), upper = _mm256_loadu_ps(whole + 8);
  const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
  for (int part = 0; part < 8; part++, codes += 4, to += 8) {
    int32_t four;
    std::memcpy(&four, codes, sizeof four);
    __m256i places = _mm256_srlv_epi32(_mm256_set1_epi32(four), shifts);
    __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(places, 28));
    __m256 found = _mm256_blendv_ps(_mm256_permutevar8x32_ps(lower, places),
                                    _mm256_permutevar8x32_ps(upper, places), second);
    _mm256_storeu_ps(to, found);
  }
}

// Sixteen codes at a time select the lower and the upper bytes of the rounded table.
void block_to_bf16(const uint8_t *codes, const float *levels, float scale, uint16_t *to) {
  uint16_t table[16];
  rounded_table_of(levels, scale, table);
  const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
  const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table + 8));
  const __m128i byte = _mm_set1_epi16(255), four = _mm_set1_epi8(15);
  const __m128i lower = _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(last, byte));
  const __m128i upper = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(last, 8));
  for (int part = 0; part < 2; part++, codes += 16) {
    __m128i pairs = _mm_loadu_si128(reinterpret_cast<const __m128i *>(codes));
    __m128i even = _mm_and_si128(_mm_srli_epi16(pairs, 4), four), odd = _mm_and_si128(pairs, four);
    const __m128i in_order[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
    for (__m128i places : in_order) {
      __m128i low = _mm_shuffle_epi8(lower, places), high = _mm_shuffle_epi8(upper, places);
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to), _mm_unpacklo_epi8(low, high));
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to + 8), _mm_unpackhi_epi8(low, high));
      to += 16;
    }
  }
}

#else

template <typename T> void look_up(const uint8_t *codes, const T *table, T *to) {
  for (int64_t i = 0; i < BYTES; i++) {
    to[2 * i] = table[codes[i] >> 4];
    to[2 * i + 1] = table[codes[i] & 15];
  }
}

void block_to_float(const uint8_t *codes, const float *levels, float scale, float *to) {
  float table[16];
  table_of(levels, scale, table);
  look_up(codes, table, to);
}

void block_to_bf16(const uint8_t *codes, const float *levels, float scale, uint16_t *to) {
  uint16_t table[16];
  rounded_table_of(levels, scale, table);
  look_up(codes, table, to);
}

#endif
#endif

void to_float(const uint8_t *codes, const float *levels, const float *scales, int64_t blocks, float *to) {
  for (int64_t block = 0; block < blocks; block++)
    block_to_float(codes + block * BYTES, levels, scales[block], to + block * NF4_BLOCK);
}

void to_bf16(const uint8_t *codes, const float *levels, const float *scales, int64_t blocks, uint16_t *to) {
  for (int64_t block = 0; block < blocks; block++)
    block_to_bf16(codes + block * BYTES, levels, scales[block], to + block * NF4_BLOCK);
}

void from_float(const float *values, const float *middles, int64_t blocks, uint8_t *codes, float *scales) {
  for (int64_t block = 0; block < blocks; block++, values += NF4_BLOCK, codes += BYTES) {
    float largest = 0, parts[NF4_BLOCK];
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < NF4_BLOCK; i++)
      largest = std::fabs(values[i]) > largest ? std::fabs(values[i]) : largest;
    const float divisor = largest > 1.17549435e-38f ? largest : 1.17549435e-38f;
    for (int64_t i = 0; i < NF4_BLOCK; i++) parts[i] = values[i] / divisor;
    // A code is the number of middles below the value.
    int32_t found[NF4_BLOCK] = {};
    for (int middle = 0; middle < 15; middle++)
      for (int64_t i = 0; i < NF4_BLOCK; i++) found[i] += parts[i] > middles[middle];
    for (int64_t i = 0; i < BYTES; i++) codes[i] = static_cast<uint8_t>(found[2 * i] << 4 | found[2 * i + 1]);
    scales[block] = largest;
  }
}

void scales_of(const int8_t *codes, float step, float mean, int64_t count, float *scales) {
  for (int64_t i = 0; i < count; i++) {
    float scale = static_cast<float>(codes[i]) * step + mean;
    // Rounding must not change signs.
    scales[i] = scale < 0 ? 0 : scale;
  }
}

} // namespace

extern const Nf4Blocks NF4_BLOCKS;
const Nf4Blocks NF4_BLOCKS = {to_float, to_bf16, from_float, scales_of};
