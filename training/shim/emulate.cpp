// The kernels as C++, for tests. A block is a few threads that synchronize; blocks run one after another.
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include <pthread.h>

#include "arguments.h"
#include "kernels.h"

thread_local bool emulating = false;

namespace {

struct Index {
  unsigned int x;
};
thread_local Index threadIdx, blockIdx;
Index blockDim{4}, gridDim;
pthread_barrier_t together;

unsigned int __float_as_uint(float value) {
  unsigned int bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
float __uint_as_float(unsigned int bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
float __fmul_rn(float a, float b) { return a * b; }
float __fadd_rn(float a, float b) { return a + b; }
void __syncthreads() { pthread_barrier_wait(&together); }

#define __global__
#define __device__
// One block runs at a time, so shared memory may be static.
#define __shared__ static
#include "kernels.cu"

template <typename... P, size_t... I>
void call(void (*kernel)(P...), void **arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_reference_t<P> *>(arguments[I])...);
}
template <typename... P> std::function<void(void **)> called(void (*kernel)(P...)) {
  return [=](void **arguments) { call(kernel, arguments, std::index_sequence_for<P...>()); };
}

const std::unordered_map<std::string, std::function<void(void **)>> kernels{
#define KERNEL(...) {#__VA_ARGS__, called(__VA_ARGS__)},
    KERNELS(KERNEL)};

} // namespace

void run_emulated(const Launch &launch) {
  static std::mutex alone;
  std::lock_guard<std::mutex> lock(alone);
  auto found = kernels.find(launch.kernel);
  if (found == kernels.end()) throw std::runtime_error(std::string("no kernel ") + launch.kernel);
  gridDim.x = static_cast<unsigned int>(launch.blocks);
  pthread_barrier_init(&together, nullptr, blockDim.x);
  std::vector<std::thread> threads;
  for (unsigned int number = 0; number < blockDim.x; number++)
    threads.emplace_back([&, number] {
      threadIdx.x = number;
      for (unsigned int block = 0; block < gridDim.x; block++) {
        blockIdx.x = block;
        found->second(launch.arguments);
        __syncthreads();
      }
    });
  for (std::thread &thread : threads) thread.join();
  pthread_barrier_destroy(&together);
}
