// SPDX-License-Identifier: Apache-2.0
#include "restore/kv_cuda.cuh"
#include "transform/product_cuda.cuh"

// The formulas of docs/format.md with every rounding where they have it: what these kernels store
// is bit for bit what the CPU stores. Compiled with --fmad=false; intrinsics say where one is
// fused.
namespace kvcodec::restore {
namespace {

__device__ float to_value(int32_t code, int32_t offset, float step) {
  return static_cast<float>(static_cast<int64_t>(code) + offset) * step;
}

// transform::component_of_code.
__device__ float component_of_code(int32_t code, float step, const float (&delta)[2]) {
  if (code == 0) return 0.0f;
  const float magnitude = static_cast<float>(code < 0 ? -static_cast<int64_t>(code) : code);
  const float shifted = magnitude + delta[code == 1 || code == -1 ? 0 : 1];
  const float value = shifted * step;
  return code < 0 ? -value : value;
}

__device__ uint64_t rotate_xor(uint64_t x, uint32_t lane_mask) {
  return __shfl_xor_sync(0xffffffff, x, lane_mask);
}

constexpr uint64_t kPrime32_1 = 0x9E3779B1, kPrime32_2 = 0x85EBCA77, kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87, kPrime64_2 = 0xC2B2AE3D27D4EB4F,
                   kPrime64_3 = 0x165667B19E3779F9, kPrime64_4 = 0x85EBCA77C2B2AE63,
                   kPrime64_5 = 0x27D4EB2F165667C5;

__device__ uint64_t load_word(const uint8_t* at) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(at[i]) << 8 * i;
  return word;
}

__device__ uint64_t read_word(const uint8_t* at) {
  return reinterpret_cast<uint64_t>(at) % 8 == 0 ? *reinterpret_cast<const uint64_t*>(at)
                                                 : load_word(at);
}

// What one lane (accumulator lane % 8) adds for its word of a stripe of 64 bytes: the product of
// the word, and the plain word of its neighbour.
__device__ uint64_t stripe_term(uint64_t data, uint64_t secret) {
  const uint64_t mixed = data ^ secret;
  return (mixed & 0xffffffff) * (mixed >> 32) + rotate_xor(data, 1);
}

}  // namespace

extern "C" __global__ void turn_table(TurnArguments a) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.pairs * a.tokens) return;
  const uint64_t phase = (a.position + i % a.tokens) * a.phase_steps[i / a.tokens];
  const uint64_t quarter = (phase + (uint64_t{1} << 61)) >> 62;
  const int64_t rest = static_cast<int64_t>(phase - (quarter << 62));
  const double x = static_cast<double>(rest >> 8) * 0x1.921fb54442d18p-54;
  const double z = x * x;
  double p = 0x1.6124613a86d09p-33;
  p = -0x1.ae64567f544e4p-26 + z * p;
  p = 0x1.71de3a556c734p-19 + z * p;
  p = -0x1.a01a01a01a01ap-13 + z * p;
  p = 0x1.1111111111111p-7 + z * p;
  p = -0x1.5555555555555p-3 + z * p;
  const float sine = static_cast<float>(x + (x * z) * p);
  double q = -0x1.93974a8c07c9dp-37;
  q = 0x1.1eed8eff8d898p-29 + z * q;
  q = -0x1.27e4fb7789f5cp-22 + z * q;
  q = 0x1.a01a01a01a01ap-16 + z * q;
  q = -0x1.6c16c16c16c17p-10 + z * q;
  q = 0x1.5555555555555p-5 + z * q;
  q = -0x1.0000000000000p-1 + z * q;
  const float cosine = static_cast<float>(1 + z * q);
  a.cosines[i] = quarter == 0 ? cosine : quarter == 1 ? -sine : quarter == 2 ? -cosine : sine;
  a.sines[i] = quarter == 0 ? sine : quarter == 1 ? cosine : quarter == 2 ? -sine : -cosine;
}

// One warp a picture. Within a block of 16 stripes the sums commute, so four groups of eight lanes
// share them; only the scrambling between blocks is a chain.
extern "C" __global__ void picture_checksums(ChecksumArguments a) {
  const uint32_t picture = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (picture >= a.pictures) return;
  const uint32_t lane = threadIdx.x % 32, word = lane % 8, part = lane / 8;
  const uint8_t* input = a.samples + a.offsets[picture];
  const uint64_t bytes = a.bytes[picture];
  const uint8_t* secret_bytes = reinterpret_cast<const uint8_t*>(a.secret);
  const uint64_t start[8] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                             kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  uint64_t sum = start[word];
  const uint64_t scramble = a.secret[16 + word];
  uint64_t secrets[4];
  for (uint32_t i = 0; i < 4; ++i) secrets[i] = a.secret[part * 4 + i + word];
  const uint64_t blocks = (bytes - 1) / 1024;
  // Memory is far: several blocks are under way before the first is summed.
  constexpr uint32_t kAhead = 8;
  uint64_t data[kAhead][4];
  const auto load = [&](uint64_t block, uint64_t(&to)[4]) {
    for (uint32_t i = 0; i < 4; ++i)
      to[i] = block < blocks ? read_word(input + block * 1024 + (part * 4 + i) * 64 + word * 8) : 0;
  };
#pragma unroll
  for (uint32_t ahead = 0; ahead < kAhead; ++ahead) load(ahead, data[ahead]);
  for (uint64_t block0 = 0; block0 < blocks; block0 += kAhead) {
#pragma unroll
    for (uint32_t ahead = 0; ahead < kAhead; ++ahead) {
      uint64_t terms = 0;
      for (uint32_t i = 0; i < 4; ++i) terms += stripe_term(data[ahead][i], secrets[i]);
      load(block0 + kAhead + ahead, data[ahead]);
      terms += rotate_xor(terms, 8);
      terms += rotate_xor(terms, 16);
      if (block0 + ahead < blocks) {
        sum += terms;
        sum = ((sum ^ sum >> 47) ^ scramble) * kPrime32_1;
      }
    }
  }
  const uint32_t stripes = static_cast<uint32_t>((bytes - 1 - blocks * 1024) / 64);
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) {
    sum += stripe_term(read_word(input + blocks * 1024 + stripe * 64 + word * 8),
                       a.secret[stripe + word]);
  }
  sum += stripe_term(read_word(input + bytes - 64 + word * 8),
                     load_word(secret_bytes + 121 + 8 * word));
  const uint64_t mixed = sum ^ load_word(secret_bytes + 11 + 8 * word);
  const uint64_t other = rotate_xor(mixed, 1);
  uint64_t folded = (mixed * other) ^ __umul64hi(mixed, other);
  folded += rotate_xor(folded, 2);
  folded += rotate_xor(folded, 4);
  uint64_t hash = bytes * kPrime64_1 + folded;
  hash = (hash ^ hash >> 37) * 0x165667919E3779F9;
  hash ^= hash >> 32;
  if (lane != 0) return;
  a.found[picture] = hash;
  if (hash != a.expected[picture]) atomicOr(a.bad, 1u);
}

extern "C" __global__ void layer_values(LayerValuesArguments a) {
  const uint32_t row = blockIdx.x;
  const uint8_t* samples = a.samples + static_cast<uint64_t>(a.layout_row[row]) * a.tokens;
  const float step = a.steps[row / a.channels];
  const int32_t offset = a.offsets[row];
  for (uint32_t t = threadIdx.x; t < a.tokens; t += blockDim.x)
    a.values[static_cast<uint64_t>(row) * a.tokens + t] =
        to_value(static_cast<int32_t>(samples[t]) - 128, offset, step);
}

extern "C" __global__ void component_values(ComponentValuesArguments a) {
  const uint64_t count = static_cast<uint64_t>(a.rows) * a.tokens;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<uint64_t>(gridDim.x) * blockDim.x)
    a.values[i] = component_of_code(static_cast<int32_t>(a.samples[i]) - 128, a.step, a.delta);
}

extern "C" __global__ void escape_values(EscapeArguments a) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= a.count) return;
  const EscapeEntry e = a.escapes[i];
  a.values[static_cast<uint64_t>(e.row) * a.tokens + e.token] =
      a.steps != nullptr ? to_value(e.code, a.offsets[e.row], a.steps[e.row / a.channels])
                         : component_of_code(e.code, a.step, a.delta);
}

// Of the whole group: values = mean + basis^T * components.
extern "C" __global__ void __launch_bounds__(transform::kTileThreads)
    basis_product(ProductArguments a) {
  transform::multiply_tiles<false>(
      {a.basis, 1, a.rows, a.components, a.mean, a.values, a.rows, a.depth, a.tokens});
}

extern "C" __global__ void __launch_bounds__(transform::kTileThreads)
    codes_product(CodesProductArguments a) {
  __shared__ float value_of[256];
  for (uint32_t i = threadIdx.x; i < 256; i += transform::kTileThreads)
    value_of[i] = component_of_code(static_cast<int32_t>(i) - 128, a.step, a.delta);
  __syncthreads();
  transform::multiply_tiles<false>(
      {a.basis, 1, a.rows, nullptr, a.mean, a.values, a.rows, a.depth, a.tokens},
      [&](uint64_t i) { return value_of[a.samples[i]]; });
}

// A block is one head of one layer and kTileTokens tokens: read along tokens, turned in shared
// memory, stored along the head.
extern "C" __global__ void finish_values(FinishArguments a) {
  extern __shared__ float tile[];  // [dim][kTileTokens + 1]
  constexpr uint32_t kRow = kTileTokens + 1;
  if (*a.bad != 0) return;
  const uint32_t token0 = blockIdx.x * kTileTokens, head = blockIdx.y, layer = blockIdx.z;
  const uint32_t tokens = min(kTileTokens, a.tokens - token0);
  const uint32_t lane = threadIdx.x % kTileTokens, group = threadIdx.x / kTileTokens;
  const uint32_t groups = blockDim.x / kTileTokens;
  const float* values =
      a.values + (static_cast<uint64_t>(layer) * a.heads + head) * a.dim * a.tokens + token0;
  if (lane < tokens)
    for (uint32_t d = group; d < a.dim; d += groups)
      tile[d * kRow + lane] = values[static_cast<uint64_t>(d) * a.tokens + lane];
  __syncthreads();
  if (lane < tokens) {
    for (uint32_t pair = group; pair < a.pairs; pair += groups) {
      const uint32_t first = a.interleaved != 0 ? 2 * pair : pair;
      const uint32_t second = a.interleaved != 0 ? 2 * pair + 1 : pair + a.pairs;
      const float c = a.cosines[static_cast<uint64_t>(pair) * a.tokens + token0 + lane];
      const float s = a.sines[static_cast<uint64_t>(pair) * a.tokens + token0 + lane];
      const float x0 = tile[first * kRow + lane], y0 = tile[second * kRow + lane];
      tile[first * kRow + lane] = x0 * c - y0 * s;
      tile[second * kRow + lane] = x0 * s + y0 * c;
    }
  }
  __syncthreads();
  const uint32_t bytes = a.target.element_bytes;
  for (uint32_t i = threadIdx.x; i < tokens * a.dim; i += blockDim.x) {
    const uint32_t t = i / a.dim, d = i % a.dim, token = token0 + t;
    uint8_t* to = place(a.target, a.first_layer + layer, token, head, d);
    if (token < a.sink_tokens) {
      const uint8_t* sink =
          a.sinks + layer * a.sink_layer +
          (static_cast<uint64_t>(token) * a.heads * a.dim + head * a.dim + d) * bytes;
      for (uint32_t b = 0; b < bytes; ++b) to[b] = sink[b];
    } else {
      store(to, bytes, to_bits(tile[d * kRow + t], a.dtype));
    }
  }
}

extern "C" __global__ void exact_elements(ExactArguments a) {
  extern __shared__ uint32_t elements[];  // [dim][kTileTokens + 1]
  constexpr uint32_t kRow = kTileTokens + 1;
  if (*a.bad != 0) return;
  const uint32_t token0 = blockIdx.x * kTileTokens, head = blockIdx.y, layer = blockIdx.z;
  const uint32_t tokens = min(kTileTokens, a.tokens - token0);
  const uint32_t lane = threadIdx.x % kTileTokens, group = threadIdx.x / kTileTokens;
  const uint32_t groups = blockDim.x / kTileTokens;
  const uint32_t planes = a.low_bits / 8, rest = a.low_bits % 8;
  const uint32_t symbol_mask = (1u << a.symbol_bits) - 1;
  const uint32_t token = token0 + lane;
  if (lane < tokens) {
    for (uint32_t d = group; d < a.dim; d += groups) {
      const uint32_t natural = (layer * a.heads + head) * a.dim + d;
      const uint64_t row = a.layout_row[natural];
      const uint32_t symbol =
          (a.offset_of[a.samples[row * a.tokens + token]] + a.centres[natural]) & symbol_mask;
      const uint8_t* low = a.low + row * a.low_row_bytes;
      uint32_t rotated = symbol << a.low_bits;
      for (uint32_t plane = 0; plane < planes; ++plane)
        rotated |= static_cast<uint32_t>(low[static_cast<uint64_t>(plane) * a.tokens + token])
                   << 8 * plane;
      for (uint32_t bit = 0; bit < rest; ++bit) {
        const uint64_t at = static_cast<uint64_t>(token) * rest + bit;
        const uint32_t byte = low[static_cast<uint64_t>(planes) * a.tokens + at / 8];
        rotated |= (byte >> at % 8 & 1) << (8 * planes + bit);
      }
      elements[d * kRow + lane] = rotated >> 1 | (rotated & 1) << (a.bits - 1);
    }
  }
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < tokens * a.dim; i += blockDim.x) {
    const uint32_t t = i / a.dim, d = i % a.dim;
    store(place(a.target, a.first_layer + layer, token0 + t, head, d), a.target.element_bytes,
          elements[d * kRow + t]);
  }
}

}  // namespace kvcodec::restore
