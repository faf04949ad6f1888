// AdamW on a CPU in one pass over memory, with the steps of the kernel in kernels.cu.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <vector>

#include "adamw.h"
#include "rows.h"

NearestLevel::NearestLevel(const float *sorted) {
  std::copy_n(sorted, 256, levels);
  for (int code = 0; code < 255; code++) middles[code] = (levels[code] + levels[code + 1]) / 2.0f;
  middles[255] = std::numeric_limits<float>::infinity();
  for (uint32_t key = 0; key < 1u << 16; key++) {
    // Of negative values those with more bits are less.
    uint32_t bits = key << 16 | (key >> 15 ? 0xffff : 0);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    least[key] = static_cast<uint8_t>(std::lower_bound(middles, middles + 255, value) - middles);
  }
}

namespace {

constexpr int64_t BLOCK = 256;

// The search in a table of levels; there are two of them in a process.
const NearestLevel &nearest_of(const float *levels) {
  static std::mutex alone;
  static std::vector<std::unique_ptr<NearestLevel>> known;
  std::lock_guard<std::mutex> lock(alone);
  for (const auto &one : known)
    if (std::equal(levels, levels + 256, one->levels)) return *one;
  return *known.emplace_back(std::make_unique<NearestLevel>(levels));
}

// A state of the optimizer, block by block in float32.
class State {
  const Moment moment;
  const bool roots;
  const NearestLevel *nearest;

public:
  State(const Moment &moment, bool roots)
      : moment(moment), roots(roots), nearest(moment.whole ? nullptr : &nearest_of(moment.levels)) {}

  // The values of a block; unpacked in `room` if necessary.
  float *read(int64_t block, int64_t n, float *room) const {
    if (moment.whole) return moment.whole + block * BLOCK;
    rows().unpack(moment.codes + block * BLOCK, moment.scales[block], *nearest, room, n);
    if (roots)
      for (int64_t i = 0; i < n; i++) room[i] *= room[i];
    return room;
  }
  void write(int64_t block, int64_t n, float *values) const {
    if (moment.whole) return;
    if (roots)
      for (int64_t i = 0; i < n; i++) values[i] = std::sqrt(values[i]);
    moment.scales[block] = rows().pack(values, *nearest, roots, moment.codes + block * BLOCK, n);
  }
};

AdamRow row_of(const Adam &adam, float steps) {
  double first = 1.0 - std::pow(adam.beta1, steps), second = 1.0 - std::pow(adam.beta2, steps);
  return {static_cast<float>(adam.factor),
          static_cast<float>(1.0 - adam.beta1),
          static_cast<float>(adam.beta2),
          static_cast<float>(1.0 - adam.beta2),
          static_cast<float>(adam.rate * adam.decay),
          static_cast<float>(adam.rate) / static_cast<float>(first),
          static_cast<float>(std::sqrt(second)),
          static_cast<float>(adam.epsilon)};
}

} // namespace

void adamw_on_cpu(const at::Tensor &weight, const at::Tensor &gradient, float *master, const Moment &first,
                  const Moment &second, float steps, const Adam &adam) {
  const State means(first, false), squares(second, true);
  const AdamRow row = row_of(adam, steps);
  const int64_t count = weight.numel();
  const bool half = weight.scalar_type() == at::kBFloat16;
  auto *halves = static_cast<uint16_t *>(weight.data_ptr());
  auto *floats = static_cast<float *>(weight.data_ptr());
  const bool half_gradient = gradient.scalar_type() == at::kBFloat16;
  at::parallel_for(0, (count + BLOCK - 1) / BLOCK, 64, [&](int64_t begin, int64_t end) {
    float room[4][BLOCK];
    for (int64_t block = begin; block < end; block++) {
      const int64_t start = block * BLOCK, n = std::min(BLOCK, count - start);
      const float *g = static_cast<const float *>(gradient.data_ptr()) + start;
      if (half_gradient) {
        rows().widen(static_cast<const uint16_t *>(gradient.data_ptr()) + start, room[0], n);
        g = room[0];
      }
      float *w = master ? master + start : half ? room[1] : floats + start;
      if (w == room[1]) rows().widen(halves + start, w, n);
      float *m = means.read(block, n, room[2]), *v = squares.read(block, n, room[3]);
      rows().adamw(w, g, m, v, row, n);
      means.write(block, n, m);
      squares.write(block, n, v);
      if (half && adam.seed >= 0) rows().narrow_at_random(w, adam.seed, adam.place + start, halves + start, n);
      else if (half) rows().narrow(w, halves + start, n);
      else if (master) std::copy_n(w, n, floats + start);
    }
  });
}
