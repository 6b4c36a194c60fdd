// SPDX-License-Identifier: Apache-2.0
#include <cfloat>

#include "publish/publish_arguments.h"
#include "restore/kv_cuda.cuh"
#include "transform/product_cuda.cuh"

// The formulas of the CPU's encoders with every rounding and every order of sums where they have
// it: what is published from here is byte for byte what encode_chunk publishes. Compiled with
// --fmad=false.
namespace kvcodec::publish {
namespace {

constexpr uint32_t kRow = kTileTokens + 1;

// A block of the element kernels: one head of one layer and kTileTokens tokens.
struct Tile {
  uint32_t token0, tokens, head, layer, lane, group, groups;
  __device__ explicit Tile(uint32_t all)
      : token0(blockIdx.x * kTileTokens),
        tokens(min(kTileTokens, all - token0)),
        head(blockIdx.y),
        layer(blockIdx.z),
        lane(threadIdx.x % kTileTokens),
        group(threadIdx.x / kTileTokens),
        groups(blockDim.x / kTileTokens) {}
};

// Calls take(token of the tile, dim, bits) for the elements of a tile, read along the head.
template <typename Take>
__device__ void for_each_element(const GroupSource& s, const Tile& at, const Take& take) {
  for (uint32_t i = threadIdx.x; i < at.tokens * s.dim; i += blockDim.x) {
    const uint32_t t = i / s.dim, d = i % s.dim;
    take(t, d,
         restore::load(restore::place(s.cache, s.first_layer + at.layer, at.token0 + t, at.head, d),
                       s.cache.element_bytes));
  }
}

// Calls turn(first, second, cosine, sine) for the pairs of a lane's token.
template <typename Turn>
__device__ void for_each_pair(const float* cosines, const float* sines, uint32_t pairs,
                              uint32_t interleaved, uint32_t all, const Tile& at,
                              const Turn& turn) {
  if (at.lane >= at.tokens) return;
  for (uint32_t pair = at.group; pair < pairs; pair += at.groups) {
    const uint32_t first = interleaved != 0 ? 2 * pair : pair;
    const uint32_t second = interleaved != 0 ? 2 * pair + 1 : pair + pairs;
    const uint64_t i = static_cast<uint64_t>(pair) * all + at.token0 + at.lane;
    turn(first * kRow + at.lane, second * kRow + at.lane, cosines[i], sines[i]);
  }
}

__device__ void unrotate(float& x, float& y, float cosine, float sine) {
  const float x0 = x, y0 = y;
  x = x0 * cosine + y0 * sine;
  y = y0 * cosine - x0 * sine;
}

__device__ void rotate(float& x, float& y, float cosine, float sine) {
  const float x0 = x, y0 = y;
  x = x0 * cosine - y0 * sine;
  y = x0 * sine + y0 * cosine;
}

__device__ bool is_finite(float x) { return (__float_as_uint(x) & 0x7fffffffu) < 0x7f800000u; }

// transform::add_lanes() of eight neighbouring threads.
__device__ double add_lanes(double x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  x += __shfl_xor_sync(0xffffffff, x, 2);
  return x + __shfl_xor_sync(0xffffffff, x, 4);
}
template <typename T>
__device__ T max_lanes(T x) {
  for (uint32_t i = 1; i < kRowLanes; i *= 2) x = max(x, __shfl_xor_sync(0xffffffff, x, i));
  return x;
}
__device__ uint32_t sum_lanes(uint32_t x) {
  for (uint32_t i = 1; i < kRowLanes; i *= 2) x += __shfl_xor_sync(0xffffffff, x, i);
  return x;
}

// The row of eight threads; all of a warp stay, so that they can exchange.
struct RowLanes {
  uint32_t row, lane;
  bool inside;
  __device__ explicit RowLanes(uint32_t rows)
      : row((blockIdx.x * blockDim.x + threadIdx.x) / kRowLanes), lane(threadIdx.x % kRowLanes) {
    inside = row < rows;
    if (!inside) row = rows - 1;
  }
};

}  // namespace

extern "C" __global__ void gather_elements(ElementsArguments a) {
  extern __shared__ uint32_t bits_of[];  // [dim][kRow]
  const GroupSource& s = a.source;
  const Tile at(s.tokens);
  for_each_element(s, at,
                   [&](uint32_t t, uint32_t d, uint32_t bits) { bits_of[d * kRow + t] = bits; });
  __syncthreads();
  if (at.lane >= at.tokens) return;
  for (uint32_t d = at.group; d < s.dim; d += at.groups) {
    const uint64_t row = (static_cast<uint64_t>(at.layer) * s.heads + at.head) * s.dim + d;
    const uint64_t i = row * s.tokens + at.token0 + at.lane;
    const uint32_t bits = bits_of[d * kRow + at.lane];
    if (s.cache.element_bytes == 2) {
      reinterpret_cast<uint16_t*>(a.elements)[i] = static_cast<uint16_t>(bits);
    } else {
      reinterpret_cast<uint32_t*>(a.elements)[i] = bits;
    }
  }
}

// A block is one sink token of one layer.
extern "C" __global__ void gather_sinks(SinksArguments a) {
  const GroupSource& s = a.source;
  const uint32_t token = blockIdx.x, layer = blockIdx.y, channels = s.heads * s.dim;
  for (uint32_t c = threadIdx.x; c < channels; c += blockDim.x) {
    const uint32_t bits =
        restore::load(restore::place(s.cache, s.first_layer + layer, token, c / s.dim, c % s.dim),
                      s.cache.element_bytes);
    restore::store(a.sinks + layer * a.layer_bytes +
                       (static_cast<uint64_t>(token) * channels + c) * s.cache.element_bytes,
                   s.cache.element_bytes, bits);
  }
}

extern "C" __global__ void gather_values(ValuesArguments a) {
  extern __shared__ float tile[];  // [dim][kRow]
  const GroupSource& s = a.source;
  const Tile at(s.tokens);
  bool bad = false;
  for_each_element(s, at, [&](uint32_t t, uint32_t d, uint32_t bits) {
    const bool sink = at.token0 + t < s.sinks;
    const float value = sink ? 0.0f : restore::to_float(bits, s.dtype);
    bad |= !is_finite(value);
    tile[d * kRow + t] = value;
  });
  __syncthreads();
  for_each_pair(a.cosines, a.sines, a.pairs, a.interleaved, s.tokens, at,
                [&](uint32_t x, uint32_t y, float cosine, float sine) {
                  unrotate(tile[x], tile[y], cosine, sine);
                });
  __syncthreads();
  if (at.lane < at.tokens) {
    const uint32_t token = at.token0 + at.lane;
    for (uint32_t d = at.group; d < s.dim; d += at.groups) {
      const uint64_t row = (static_cast<uint64_t>(at.layer) * s.heads + at.head) * s.dim + d;
      const float value = token < s.sinks ? 0.0f : tile[d * kRow + at.lane];
      bad |= !is_finite(value);
      a.values[row * s.tokens + token] = value;
    }
  }
  if (bad) atomicOr(a.bad, 1u);
}

// A warp a row: the median by halving its range, bit by bit.
extern "C" __global__ void row_keys(RowKeysArguments a) {
  const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= a.rows) return;
  const uint64_t first = static_cast<uint64_t>(row) * a.tokens;
  const auto top_byte = [&](uint32_t t) {
    if (a.element_bytes == 2) {
      const uint32_t x = reinterpret_cast<const uint16_t*>(a.elements)[first + t];
      return (x << 1 | x >> 15) >> 8 & 0xff;
    }
    const uint32_t x = reinterpret_cast<const uint32_t*>(a.elements)[first + t];
    return (x << 1 | x >> 31) >> 24;
  };
  uint32_t key = 0;
  for (uint32_t bit = 128; bit != 0; bit /= 2) {
    uint32_t below = 0;
    for (uint32_t t = lane; t < a.tokens; t += 32) below += top_byte(t) < (key | bit) ? 1 : 0;
    for (uint32_t i = 1; i < 32; i *= 2) below += __shfl_xor_sync(0xffffffff, below, i);
    if (below <= a.tokens / 2) key |= bit;
  }
  if (lane == 0) a.keys[row] = static_cast<uint8_t>(key);
}

// Thread k counts rows of smaller keys, then gives those of key k their places.
extern "C" __global__ void sort_rows(SortArguments a) {
  __shared__ uint32_t counts[256];
  const uint32_t key = threadIdx.x;
  uint32_t count = 0;
  for (uint32_t row = 0; row < a.rows; ++row) count += a.keys[row] == key ? 1 : 0;
  counts[key] = count;
  __syncthreads();
  if (count == 0) return;
  uint32_t place = 0;
  for (uint32_t k = 0; k < key; ++k) place += counts[k];
  for (uint32_t row = 0; row < a.rows; ++row)
    if (a.keys[row] == key) a.places[row] = place++;
}

extern "C" __global__ void split_rows(SplitArguments a) {
  const uint32_t row = blockIdx.x;
  const uint64_t first = static_cast<uint64_t>(row) * a.tokens;
  const uint32_t place = a.places[row];
  uint8_t* samples = a.samples + static_cast<uint64_t>(place) * a.width;
  uint8_t* low = a.low + static_cast<uint64_t>(place) * a.low_row_bytes;
  const uint32_t planes = a.low_bits / 8, rest = a.low_bits % 8;
  const uint32_t centre = a.keys[row] >> a.key_shift;
  const auto rotated = [&](uint32_t t) {
    if (a.bits == 16) {
      const uint32_t x = reinterpret_cast<const uint16_t*>(a.elements)[first + t];
      return (x << 1 | x >> 15) & 0xffff;
    }
    const uint32_t x = reinterpret_cast<const uint32_t*>(a.elements)[first + t];
    return x << 1 | x >> 31;
  };
  for (uint32_t t = threadIdx.x; t < a.tokens; t += blockDim.x) {
    const uint32_t x = rotated(t);
    samples[t] = a.sample_of[((x >> a.low_bits) - centre) & 0xff];
    for (uint32_t plane = 0; plane < planes; ++plane)
      low[static_cast<uint64_t>(plane) * a.tokens + t] = static_cast<uint8_t>(x >> 8 * plane);
  }
  if (rest == 0) return;
  // Bits of eight tokens are `rest` bytes.
  uint8_t* packed = low + static_cast<uint64_t>(planes) * a.tokens;
  for (uint32_t eight = threadIdx.x; eight < (a.tokens + 7) / 8; eight += blockDim.x) {
    const uint32_t n = min(8u, a.tokens - eight * 8);
    uint32_t word = 0;
    for (uint32_t i = 0; i < n; ++i)
      word |= (rotated(eight * 8 + i) >> 8 * planes & ((1u << rest) - 1)) << rest * i;
    for (uint32_t byte = 0; byte < (rest * n + 7) / 8; ++byte)
      packed[eight * rest + byte] = static_cast<uint8_t>(word >> 8 * byte);
  }
}

extern "C" __global__ void row_statistics(StatisticsArguments a) {
  const RowLanes at(a.rows);
  const uint32_t n = a.tokens - a.sinks;
  const float* row = a.values + static_cast<uint64_t>(at.row) * a.tokens + a.sinks;
  double sum = 0;
  float low = FLT_MAX, high = -FLT_MAX;
  for (uint32_t i = at.lane; i < n; i += kRowLanes) {
    sum += static_cast<double>(row[i]);
    low = fminf(low, row[i]);
    high = fmaxf(high, row[i]);
  }
  sum = add_lanes(sum);
  high = max_lanes(high);
  low = -max_lanes(-low);
  const double mean = n == 0 ? 0 : sum / static_cast<double>(n);
  double squares = 0;
  for (uint32_t i = at.lane; i < n; i += kRowLanes) squares += (row[i] - mean) * (row[i] - mean);
  squares = add_lanes(squares);
  if (!at.inside || at.lane != 0) return;
  a.rows_out[at.row] = {mean, n == 0 ? 0 : fmax(high - mean, mean - low), squares};
}

// A block a layer. The sum of squares is over rows in order: one thread's, the others bring them.
extern "C" __global__ void fit_steps(StepsArguments a) {
  __shared__ double squares_of[kBlockThreads], peaks[kBlockThreads], means[kBlockThreads];
  __shared__ float step_of_layer;
  const RowStatistics* rows = a.rows + static_cast<uint64_t>(blockIdx.x) * a.channels;
  const uint32_t i = threadIdx.x;
  double peak = 0, peak_mean = 0, squares = 0;
  for (uint32_t first = 0; first < a.channels; first += kBlockThreads) {
    const uint32_t n = min(kBlockThreads, a.channels - first);
    if (i < n) {
      const RowStatistics row = rows[first + i];
      squares_of[i] = row.squares;
      peak = fmax(peak, row.peak);
      peak_mean = fmax(peak_mean, fabs(row.mean));
    }
    __syncthreads();
    if (i == 0)
      for (uint32_t r = 0; r < n; ++r) squares += squares_of[r];
    __syncthreads();
  }
  peaks[i] = peak;
  means[i] = peak_mean;
  __syncthreads();
  if (i == 0) {
    for (uint32_t k = 1; k < kBlockThreads; ++k) {
      peak = fmax(peak, peaks[k]);
      peak_mean = fmax(peak_mean, means[k]);
    }
    const double count = static_cast<double>(a.tokens - a.sinks) * static_cast<double>(a.channels);
    const double rms = count == 0 ? 0 : sqrt(squares / count);
    double wanted = 0;
    if (peak != 0) {
      const double by_peak = peak / a.per_peak, by_rms = rms / a.per_rms;
      wanted = by_rms < by_peak ? by_rms : by_peak;
    }
    wanted = fmax(wanted, peak_mean / 32767);
    step_of_layer = wanted == 0 ? 1.0f : fmaxf(static_cast<float>(wanted), FLT_MIN);
    a.steps[blockIdx.x] = step_of_layer;
  }
  __syncthreads();
  for (uint32_t r = i; r < a.channels; r += kBlockThreads) {
    const double in_steps = rint(rows[r].mean / static_cast<double>(step_of_layer));
    a.offsets[static_cast<uint64_t>(blockIdx.x) * a.channels + r] =
        static_cast<int16_t>(fmin(fmax(in_steps, -32767.0), 32767.0));
  }
}

__device__ inline void put_escape(EscapeEntry* escapes, uint32_t* count, uint32_t room,
                                  EscapeEntry escape) {
  const uint32_t at = atomicAdd(count, 1u);
  if (at < room) escapes[at] = escape;
}

extern "C" __global__ void quantise_rows(QuantiseArguments a) {
  const RowLanes at(a.rows);
  const uint64_t first = static_cast<uint64_t>(at.row) * a.tokens;
  const uint32_t n = a.tokens - a.sinks;
  const float* row = a.values + first + a.sinks;
  const float step = a.steps[at.row / a.channels];
  const int32_t offset = a.offsets[at.row];
  double squares = 0;
  for (uint32_t i = at.lane; i < n; i += kRowLanes) {
    constexpr float kRounder = 0x1.8p23f;
    const int32_t code = static_cast<int32_t>((row[i] / step + kRounder) - kRounder) - offset;
    squares += static_cast<double>(code) * static_cast<double>(code);
    const bool escape = code > 127 || code < -127;
    if (!at.inside) continue;
    a.samples[first + a.sinks + i] = static_cast<uint8_t>(escape ? 128 : code + 128);
    if (escape) put_escape(a.escapes, a.escape_count, a.escape_room, {at.row, a.sinks + i, code});
  }
  squares = add_lanes(squares);
  if (!at.inside) return;
  for (uint32_t t = at.lane; t < a.sinks; t += kRowLanes) a.samples[first + t] = 128;
  if (at.lane != 0 || a.keys == nullptr) return;
  const double mean_square = n == 0 ? 0 : squares / static_cast<double>(n);
  const int octave = mean_square == 0 ? 0 : max(ilogb(mean_square) + 8, 0);
  a.keys[at.row] = static_cast<uint8_t>(min(octave, 255));
}

extern "C" __global__ void place_rows(PlaceArguments a) {
  const uint8_t* from = a.samples + static_cast<uint64_t>(blockIdx.x) * a.tokens;
  uint8_t* to = a.pictures + static_cast<uint64_t>(a.places[blockIdx.x]) * a.width;
  for (uint32_t t = threadIdx.x; t < a.tokens; t += blockDim.x) to[t] = from[t];
}

extern "C" __global__ void centre_values(CentreArguments a) {
  const uint32_t c = blockIdx.x;
  float* row = a.values + static_cast<uint64_t>(c) * a.tokens;
  for (uint32_t t = threadIdx.x; t < a.tokens; t += blockDim.x) {
    float value = t < a.sinks ? 0.0f : row[t] - a.mean[c];
    if (a.metric != nullptr) value *= a.metric[c];
    row[t] = value;
  }
}

extern "C" __global__ void __launch_bounds__(transform::kTileThreads)
    analysis_product(AnalysisArguments a) {
  const uint64_t batch = blockIdx.z;
  transform::multiply_tiles<true>({a.a + batch * a.rows * a.depth, a.depth, 1,
                                   a.b + batch * a.depth * a.tokens, nullptr,
                                   a.out + batch * a.rows * a.tokens, a.rows, a.depth, a.tokens});
}

// As quantise_components(): in steps, and what the dead zone leaves of it.
__device__ int32_t component_size(float y, float step, float shift) {
  constexpr float kMost = 1 << 23;
  const float cell = fabsf(y) / step + shift;
  return static_cast<int32_t>(cell < kMost ? cell : kMost);
}

extern "C" __global__ void quantise_component_rows(ComponentsArguments a) {
  __shared__ uint32_t magnitudes[kMagnitudes];
  if (threadIdx.x < kMagnitudes) magnitudes[threadIdx.x] = 0;
  __syncthreads();
  const RowLanes at(a.components);
  const uint64_t first = static_cast<uint64_t>(at.row) * a.tokens;
  const float shift = 1 - a.dead_zone;
  int32_t peak = 0;
  for (uint32_t t = at.lane; at.inside && t < a.tokens; t += kRowLanes) {
    const float y = a.values[first + t];
    const int32_t size = component_size(y, a.step, shift);
    const int32_t code = y < 0 ? -size : size;
    peak = max(peak, size);
    const bool escape = size > 127;
    a.samples[first + t] = static_cast<uint8_t>(escape ? 128 : code + 128);
    if (escape) {
      put_escape(a.escapes, a.escape_count, a.escape_room, {at.row, t, code});
    } else if (size != 0) {
      atomicAdd(&magnitudes[min(static_cast<uint32_t>(size), kMagnitudes - 1)], 1u);
    }
  }
  peak = max_lanes(peak);
  if (at.inside && at.lane == 0) a.peaks[at.row] = peak;
  __syncthreads();
  if (threadIdx.x < kMagnitudes)
    a.magnitudes[blockIdx.x * kMagnitudes + threadIdx.x] = magnitudes[threadIdx.x];
}

// transform::lower_codes() of one code's magnitude, which is not 0.
__device__ int32_t lower(int32_t size, float at, const float* bits, float bit_worth) {
  if (size >= static_cast<int32_t>(kMagnitudes) - 1) return size;
  int32_t best = size;
  float least = FLT_MAX;
  for (int32_t k = size; k >= max(0, size - 2); --k) {
    const float off = at - static_cast<float>(k);
    const float cost = off * off + bit_worth * bits[k];
    if (cost < least) {
      least = cost;
      best = k;
    }
  }
  return best;
}

extern "C" __global__ void lower_component_rows(LowerArguments a) {
  const RowLanes at(a.components);
  const uint64_t first = static_cast<uint64_t>(at.row) * a.tokens;
  const float shift = 1 - a.dead_zone;
  const float* bits = a.bits + blockIdx.x * kMagnitudes;
  int32_t peak = 0;
  double sums[2] = {0, 0};
  uint32_t counts[2] = {0, 0};
  for (uint32_t t = at.lane; at.inside && t < a.tokens; t += kRowLanes) {
    const float y = a.values[first + t];
    int32_t size = component_size(y, a.step, shift);
    if (size == 0) continue;
    if (size <= 127) {
      size = lower(size, fabsf(y) / a.step, bits, a.bit_worth);
      a.samples[first + t] = static_cast<uint8_t>(128 + (y < 0 ? -size : size));
      if (size == 0) continue;
    }
    peak = max(peak, size);
    const uint32_t k = size > 1 ? 1 : 0;
    sums[k] += static_cast<double>(fabsf(y)) / static_cast<double>(a.step) - size;
    ++counts[k];
  }
  ComponentRow out = {};
  for (uint32_t k = 0; k < 2; ++k) {
    out.sums[k] = add_lanes(sums[k]);
    out.counts[k] = sum_lanes(counts[k]);
  }
  out.peak = max_lanes(peak);
  if (at.inside && at.lane == 0) a.rows_out[at.row] = out;
}

extern "C" __global__ void restore_errors(ErrorsArguments a) {
  extern __shared__ float tile[];  // [2][dim][kRow]: restored, then its error; exact
  const GroupSource& s = a.source;
  const Tile at(s.tokens);
  float* error = tile;
  float* exact = tile + s.dim * kRow;
  const uint64_t head_row = (static_cast<uint64_t>(at.layer) * s.heads + at.head) * s.dim;
  if (at.lane < at.tokens)
    for (uint32_t d = at.group; d < s.dim; d += at.groups)
      error[d * kRow + at.lane] = a.restored[(head_row + d) * s.tokens + at.token0 + at.lane];
  __syncthreads();
  for_each_pair(a.cosines, a.sines, a.pairs, a.interleaved, s.tokens, at,
                [&](uint32_t x, uint32_t y, float cosine, float sine) {
                  rotate(error[x], error[y], cosine, sine);
                });
  __syncthreads();
  for_each_element(s, at, [&](uint32_t t, uint32_t d, uint32_t bits) {
    const bool sink = at.token0 + t < s.sinks;
    const float x = restore::to_float(bits, s.dtype);
    const float restored =
        restore::to_float(restore::to_bits(error[d * kRow + t], s.dtype), s.dtype);
    exact[d * kRow + t] = sink ? 0.0f : x;
    error[d * kRow + t] = sink ? 0.0f : x - restored;
  });
  __syncthreads();
  for_each_pair(a.cosines, a.sines, a.pairs, a.interleaved, s.tokens, at,
                [&](uint32_t x, uint32_t y, float cosine, float sine) {
                  unrotate(error[x], error[y], cosine, sine);
                  unrotate(exact[x], exact[y], cosine, sine);
                });
  __syncthreads();
  if (at.lane >= at.tokens) return;
  for (uint32_t d = at.group; d < s.dim; d += at.groups) {
    const uint64_t i = (head_row + d) * s.tokens + at.token0 + at.lane;
    a.errors[i] = error[d * kRow + at.lane];
    a.values[i] = exact[d * kRow + at.lane];
  }
}

// blockIdx.y is the panel.
extern "C" __global__ void row_products(RowProductsArguments a) {
  const RowLanes at(a.rows);
  const uint32_t first = blockIdx.y * kPanel, end = min(first + kPanel, a.tokens);
  const uint64_t row = static_cast<uint64_t>(at.row) * a.tokens;
  double sum = 0;
  for (uint32_t t = first + at.lane; t < end; t += kRowLanes)
    sum += static_cast<double>(a.a[row + t]) * static_cast<double>(a.b[row + t]);
  sum = add_lanes(sum);
  if (at.inside && at.lane == 0)
    a.sums[static_cast<uint64_t>(at.row) * gridDim.y + blockIdx.y] = sum;
}

// A warp a panel: one lane adds, the others bring.
extern "C" __global__ void panel_sums(PanelSumsArguments a) {
  __shared__ double terms[kBlockThreads];
  const uint32_t panel = blockIdx.x, i = threadIdx.x;
  double total = 0;
  for (uint32_t first = 0; first < a.rows; first += kBlockThreads) {
    const uint32_t n = min(kBlockThreads, a.rows - first);
    if (i < n) {
      const double sum = a.sums[static_cast<uint64_t>(first + i) * a.panels + panel];
      terms[i] = a.metric != nullptr ? static_cast<double>(a.metric[first + i]) * sum : sum;
    }
    __syncthreads();
    if (i == 0)
      for (uint32_t r = 0; r < n; ++r) total += terms[r];
    __syncthreads();
  }
  if (i == 0) a.totals[panel] = total;
}

extern "C" __global__ void row_errors(RowErrorsArguments a) {
  const RowLanes at(a.rows);
  const uint64_t row = static_cast<uint64_t>(at.row) * a.tokens;
  const double centre = static_cast<double>(a.steps[at.row / a.channels]) * a.offsets[at.row];
  double noise = 0, energy = 0;
  for (uint32_t t = at.lane; t < a.tokens; t += kRowLanes) {
    if (t < a.sinks) continue;
    const double error = a.errors[row + t], value = a.values[row + t] - centre;
    noise += error * error;
    energy += value * value;
  }
  noise = add_lanes(noise);
  energy = add_lanes(energy);
  if (!at.inside || at.lane != 0) return;
  a.sums[2 * at.row] = noise;
  a.sums[2 * at.row + 1] = energy;
}

}  // namespace kvcodec::publish
