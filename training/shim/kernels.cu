// GPU kernels of the fused operations, on rows of float32 or bf16 with float32 arithmetic. NVRTC compiles this text
// at run time. For tests it is compiled as C++, where blocks run one after another with a few threads each
// (emulate.cpp).

// Maximum number of threads of a block; the number is a power of two.
#define THREADS 256

__device__ inline float wide(float value) { return value; }
__device__ inline float wide(bf16 value) { return __uint_as_float((u32)value << 16); }

// To nearest, ties to even; NaN stays NaN.
__device__ inline void narrow(float value, float &to) { to = value; }
__device__ inline void narrow(float value, bf16 &to) {
  u32 bits = __float_as_uint(value);
  to = value != value ? 0x7fc0 : (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// N elements that are moved by one instruction.
template <typename T, int N> struct alignas(N * sizeof(T)) Pack {
  T at[N];
};

template <int N, typename T> __device__ inline Pack<T, N> load(const T *from) {
  return *reinterpret_cast<const Pack<T, N> *>(from);
}
template <int N, typename T> __device__ inline void store(T *to, const Pack<T, N> &pack) {
  *reinterpret_cast<Pack<T, N> *>(to) = pack;
}

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Most {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// The same value for all threads of a block.
template <typename Operation> __device__ float reduce(float value, Operation operation) {
  __shared__ float part[THREADS];
  part[threadIdx.x] = value;
  __syncthreads();
  for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      part[threadIdx.x] = operation(part[threadIdx.x], part[threadIdx.x + half]);
    __syncthreads();
  }
  float all = part[0];
  __syncthreads();
  return all;
}

// The first of every N columns of this thread.
#define COLUMNS(i, width) for (i64 i = (i64)threadIdx.x * N; i < width; i += (i64)blockDim.x * N)

// One block per row: y = x * scale * weight, with scale = 1 / sqrt(mean of squares + epsilon), which is stored in
// `scales`, or read from there if it is `known`.
template <typename T, int N>
__global__ void rms_norm(const T *x, const T *weight, float *scales, int known, float epsilon, T *y,
                         i64 width) {
  x += blockIdx.x * width, y += blockIdx.x * width;
  float scale;
  if (known) {
    scale = scales[blockIdx.x];
  } else {
    float sum = 0;
    COLUMNS(i, width) {
      auto a = load<N>(x + i);
      for (int k = 0; k < N; k++) sum += wide(a.at[k]) * wide(a.at[k]);
    }
    scale = 1.0f / sqrtf(reduce(sum, Sum()) / (float)width + epsilon);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
  }
  COLUMNS(i, width) {
    auto a = load<N>(x + i), w = load<N>(weight + i);
    for (int k = 0; k < N; k++) narrow(wide(a.at[k]) * scale * wide(w.at[k]), a.at[k]);
    store<N>(y + i, a);
  }
}

// The gradient of x overwrites `dy`. Each block sums the gradient of the weight over its rows, in its own row of
// `dweight`.
template <typename T, int N>
__global__ void rms_norm_backward(const T *x, const T *weight, const float *scales, T *dy,
                                  float *dweight, i64 count, i64 width) {
  dweight += blockIdx.x * width;
  for (i64 row = blockIdx.x; row < count; row += gridDim.x) {
    const T *from = x + row * width;
    T *back = dy + row * width;
    float scale = scales[row], dot = 0;
    COLUMNS(i, width) {
      auto a = load<N>(from + i), d = load<N>(back + i), w = load<N>(weight + i);
      for (int k = 0; k < N; k++) {
        float product = wide(a.at[k]) * wide(d.at[k]);
        dot += product * wide(w.at[k]);
        dweight[i + k] += product * scale;
      }
    }
    float along = reduce(dot, Sum()) * scale * scale / (float)width;
    COLUMNS(i, width) {
      auto a = load<N>(from + i), d = load<N>(back + i), w = load<N>(weight + i);
      for (int k = 0; k < N; k++)
        narrow(scale * (wide(w.at[k]) * wide(d.at[k]) - wide(a.at[k]) * along), d.at[k]);
      store<N>(back + i, d);
    }
  }
}

// The sum over all blocks.
#define ELEMENTS(i, count)                                                                         \
  for (i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * N; i < count;                        \
       i += (i64)gridDim.x * blockDim.x * N)

// y = gate / (1 + exp(-gate)) * up.
template <typename T, int N>
__global__ void swiglu(const T *gate, const T *up, T *y, i64 count) {
  ELEMENTS(i, count) {
    auto a = load<N>(gate + i), b = load<N>(up + i);
    for (int k = 0; k < N; k++) {
      float g = wide(a.at[k]);
      narrow(g / (1.0f + expf(-g)) * wide(b.at[k]), a.at[k]);
    }
    store<N>(y + i, a);
  }
}

// The gradient of `up` overwrites `dy`.
template <typename T, int N>
__global__ void swiglu_backward(const T *gate, const T *up, T *dy, T *dgate, i64 count) {
  ELEMENTS(i, count) {
    auto a = load<N>(gate + i), b = load<N>(up + i), d = load<N>(dy + i);
    for (int k = 0; k < N; k++) {
      float g = wide(a.at[k]), above = wide(d.at[k]);
      float sigmoid = 1.0f / (1.0f + expf(-g)), silu = g * sigmoid;
      narrow(above * wide(b.at[k]) * (sigmoid + silu * (1.0f - sigmoid)), a.at[k]);
      narrow(above * silu, d.at[k]);
    }
    store<N>(dgate + i, a);
    store<N>(dy + i, d);
  }
}

// One block per token: rotates the pair (i, i + dim / 2) of every head, backward with `sign` -1. `cos` and `sin` have
// one row of `dim` per token.
template <typename T, int N>
__global__ void rotate(const T *x, const float *cos, const float *sin, float sign, T *y, i64 heads,
                       i64 dim) {
  i64 half = dim / 2;
  x += blockIdx.x * heads * dim, y += blockIdx.x * heads * dim;
  cos += blockIdx.x * dim, sin += blockIdx.x * dim;
  COLUMNS(place, heads * half) {
    i64 i = place % half, first = place / half * dim + i;
    auto a = load<N>(x + first), b = load<N>(x + first + half);
    for (int k = 0; k < N; k++) {
      float p = wide(a.at[k]), q = wide(b.at[k]), c = cos[i + k], s = sign * sin[i + k];
      narrow(p * c - q * s, a.at[k]);
      narrow(q * c + p * s, b.at[k]);
    }
    store<N>(y + first, a);
    store<N>(y + first + half, b);
  }
}

// One block per row: `losses` gets weight * -log softmax(logits)[token]. With a scale, the gradient times that
// overwrites the logits.
template <typename T, int N>
__global__ void cross_entropy(T *logits, const i64 *tokens, const float *weights, float scale,
                              double *losses, i64 width) {
  logits += blockIdx.x * width;
  i64 token = tokens[blockIdx.x];
  float chosen = wide(logits[token]), most = -3.4e38f, sum = 0;
  COLUMNS(i, width) {
    auto a = load<N>(logits + i);
    float before = most;
    for (int k = 0; k < N; k++) most = Most()(wide(a.at[k]), most);
    sum *= expf(before - most);
    for (int k = 0; k < N; k++) sum += expf(wide(a.at[k]) - most);
  }
  float all = reduce(most, Most());
  sum = reduce(sum * expf(most - all), Sum());
  float weight = weights[blockIdx.x];
  if (threadIdx.x == 0) losses[blockIdx.x] = weight * (log((double)sum) + ((double)all - chosen));
  if (scale == 0.0f) return;
  float factor = weight * scale / sum;
  COLUMNS(i, width) {
    auto a = load<N>(logits + i);
    for (int k = 0; k < N; k++) {
      float own = i + k == token ? weight * scale : 0.0f;
      narrow(expf(wide(a.at[k]) - all) * factor - own, a.at[k]);
    }
    store<N>(logits + i, a);
  }
}

// The same bits as nf4_blocks.cpp: no multiplication is fused with an addition.
__device__ inline float nf4_scale(const Nf4 &from, i64 block) {
  if (from.whole) return from.whole[block];
  float step = from.ranges[block / 256] / 127.0f;
  float scale = __fadd_rn(__fmul_rn((float)from.scales[block], step), *from.mean);
  return scale < 0.0f ? 0.0f : scale;
}

// Each thread writes the elements of four bytes.
template <typename T> __global__ void nf4_dequantize(Nf4 from, T *to, i64 count) {
  const int N = 8;
  __shared__ float levels[16];
  for (u32 i = threadIdx.x; i < 16; i += blockDim.x) levels[i] = from.levels[i];
  __syncthreads();
  ELEMENTS(i, count) {
    float scale = nf4_scale(from, i / 64);
    auto bytes = load<N / 2>(from.codes + i / 2);
    Pack<T, N> values;
    for (int k = 0; k < N; k++) {
      int code = k % 2 ? bytes.at[k / 2] & 15 : bytes.at[k / 2] >> 4;
      narrow(levels[code] * scale, values.at[k]);
    }
    if (i + N <= count) store<N>(to + i, values);
    else for (int k = 0; i + k < count; k++) to[i + k] = values.at[k];
  }
}

// The code of a value in [-1, 1] or [0, 1]: the nearest of 256 sorted levels.
__device__ inline u8 nearest(const float *levels, float value) {
  int low = 0, high = 255;
  while (low < high) {
    int middle = (low + high) / 2;
    if (value > (levels[middle] + levels[middle + 1]) / 2.0f) low = middle + 1;
    else high = middle;
  }
  return (u8)low;
}

__device__ inline u32 noise(i64 seed, i64 place) {
  u64 z = (u64)seed + (u64)place * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return (u32)((z ^ (z >> 31)) & 0xffff);
}

__device__ inline void put(float value, i64, i64, float &to) { to = value; }
__device__ inline void put(float value, i64 seed, i64 place, bf16 &to) {
  if (seed < 0 || !(fabsf(value) < 3.3e38f)) return narrow(value, to);
  to = (bf16)((__float_as_uint(value) + noise(seed, place)) >> 16);
}

// One block per 256 elements. `weight` is a rounded copy of `master` if that is not null. In 8 bits the root of the
// second state is stored. `steps` includes this step.
template <typename W, typename G>
__global__ void adamw(W *weight, const G *gradient, float *master, Moment first, Moment second,
                      const float *steps, Adam adam, i64 count) {
  __shared__ float corrections[2];
  __shared__ float firsts[THREADS], seconds[THREADS];
  if (threadIdx.x == 0) {
    corrections[0] = (float)(1.0 - pow(adam.beta1, (double)steps[0]));
    corrections[1] = (float)sqrt(1.0 - pow(adam.beta2, (double)steps[0]));
  }
  __syncthreads();
  i64 start = (i64)blockIdx.x * THREADS, end = start + THREADS < count ? start + THREADS : count;
  float largest = 0, widest = 0;
  for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
    float g = wide(gradient[i]) * (float)adam.factor;
    float w = master ? master[i] : wide(weight[i]);
    float m = first.whole ? first.whole[i] : first.levels[first.codes[i]] * first.scales[blockIdx.x];
    float v;
    if (second.whole) {
      v = second.whole[i];
    } else {
      float root = second.levels[second.codes[i]] * second.scales[blockIdx.x];
      v = root * root;
    }
    w -= (float)(adam.rate * adam.decay) * w;
    m += (float)(1.0 - adam.beta1) * (g - m);
    v = (float)adam.beta2 * v + (float)(1.0 - adam.beta2) * g * g;
    float step = (float)adam.rate / corrections[0];
    w -= step * m / (sqrtf(v) / corrections[1] + (float)adam.epsilon);
    if (master) master[i] = w;
    put(w, adam.seed, adam.place + i, weight[i]);
    if (first.whole) first.whole[i] = m;
    if (second.whole) second.whole[i] = v;
    firsts[i - start] = m;
    seconds[i - start] = sqrtf(v);
    largest = Most()(fabsf(m), largest);
    widest = Most()(sqrtf(v), widest);
  }
  if (first.whole) return;
  largest = reduce(largest, Most());
  widest = reduce(widest, Most());
  const float least = 1.17549435e-38f;
  for (i64 i = start + threadIdx.x; i < end; i += blockDim.x) {
    first.codes[i] = nearest(first.levels, firsts[i - start] / Most()(largest, least));
    u8 code = nearest(second.levels, seconds[i - start] / Most()(widest, least));
    // Only zero becomes zero, because the step divides by it.
    second.codes[i] = code == 0 && seconds[i - start] > 0 ? 1 : code;
  }
  if (threadIdx.x == 0) {
    first.scales[blockIdx.x] = largest;
    second.scales[blockIdx.x] = widest;
  }
}
