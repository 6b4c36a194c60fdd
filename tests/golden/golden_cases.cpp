// SPDX-License-Identifier: Apache-2.0
#include "golden/golden_cases.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace kvcodec {

namespace {

// SplitMix64 (Steele et al., 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

struct FloatLayout {
  int exponent_bits, mantissa_bits;
};
FloatLayout layout_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return {5, 10};
    case DType::bf16: return {8, 7};
    case DType::f32: return {8, 23};
  }
  std::abort();
}

// A finite number near 2^scale, small ones less often.
uint32_t ordinary_bits(DType dtype, int scale, uint64_t random) {
  const auto [exponent_bits, mantissa_bits] = layout_of(dtype);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bias + scale - std::min(6, std::countr_zero(random | 1u << 20));
  const auto mantissa = static_cast<uint32_t>(random >> 32) & ((1u << mantissa_bits) - 1);
  const auto sign = static_cast<uint32_t>(random >> 31) & 1;
  return sign << (exponent_bits + mantissa_bits) |
         static_cast<uint32_t>(exponent) << mantissa_bits | mantissa;
}

// Zeros, infinities, NaNs with payloads, denormals, the largest numbers.
uint32_t special_bits(DType dtype, uint64_t random) {
  const auto [exponent_bits, mantissa_bits] = layout_of(dtype);
  const uint32_t top = (1u << exponent_bits) - 1, mantissa = (1u << mantissa_bits) - 1;
  const uint32_t choices[] = {0,
                              top << mantissa_bits,
                              top << mantissa_bits | 1,
                              top << mantissa_bits | ((mantissa >> 1) + 1),
                              top << mantissa_bits | (static_cast<uint32_t>(random) & mantissa) | 1,
                              1,
                              mantissa,
                              (top - 1) << mantissa_bits | mantissa};
  const uint32_t sign = static_cast<uint32_t>(random >> 40) & 1;
  return sign << (exponent_bits + mantissa_bits) | choices[(random >> 41) % std::size(choices)];
}

struct Values {
  uint64_t seed = 0;
  uint32_t special_every = 0, outlier_every = 0;  // 0: never
  bool noise = false;                             // any bits, all equally likely
};

std::vector<std::byte> make_values(const KvShape& shape, uint32_t tokens, const Values& how) {
  Random random(how.seed);
  std::vector<std::byte> bytes;
  const size_t element = dtype_bytes(shape.dtype);
  size_t n = 0;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (KvKind kind : kKvKinds) {
      for (uint32_t i = 0; i < tokens * shape.channels(kind); ++i, ++n) {
        const uint32_t channel = i % shape.channels(kind);
        int scale = static_cast<int>(Random(channel + 1000 * layer).next() % 5) - 3;
        if (how.outlier_every > 0 && n % how.outlier_every == 0) scale += 7;
        uint32_t bits = ordinary_bits(shape.dtype, scale, random.next());
        if (how.special_every > 0 && n % how.special_every == 0)
          bits = special_bits(shape.dtype, random.next());
        if (how.noise) bits = static_cast<uint32_t>(random.next());
        const auto* from = reinterpret_cast<const std::byte*>(&bits);
        bytes.insert(bytes.end(), from, from + element);
      }
    }
  }
  return bytes;
}

ChunkId make_id(uint8_t number, uint32_t first_token) {
  ChunkId id;
  id.ns.bytes.fill(std::byte{0x11});
  id.key.bytes.fill(std::byte{number});
  id.first_token = first_token;
  return id;
}

// Each pair turns half as fast as the one before; the first a radian a token.
Rope halving_rope(Rope::Style style, uint32_t rotary_dims) {
  Rope rope{style, rotary_dims, {}};
  for (uint32_t i = 0; i < rotary_dims / 2; ++i)
    rope.phase_steps.push_back(0x28BE60DB9391054A >> i);
  return rope;
}

// Of SmolLM2: base 100000, 64 dims, every one rotated.
const std::vector<uint64_t> kSmollm2Steps = {
    0x28be60db9391054a, 0x1c6ea3140b9f22aa, 0x13d7416a896a28aa, 0x0dd875b948b28eac,
    0x09a96eb80f7efaf2, 0x06be096eb1f3b9de, 0x04b47b368f3b0d40, 0x0348861db6ff0ba2,
    0x024a8b144acc0654, 0x01994ece8966ef84, 0x011da0a5b82a7c86, 0x00c751d2f830ac98,
    0x008b176173e0158c, 0x00610feb56054bf2, 0x0043bba356e4aa54, 0x002f442137d117ba,
    0x0020fbd73341c2f4, 0x0017045ec834ef16, 0x00100fe04cd6d8fa, 0x000b356498a7511a,
    0x0007d259a450a48a, 0x0005754d1a81587e, 0x0003cf145a59a47a, 0x0002a870b7855620,
    0x0001dad5016848fe, 0x00014b5a323ccb4c, 0x0000e73a506b10e8, 0x0000a15b9a548734,
    0x00007099b56a9540, 0x00004e93760cb712, 0x000036d52f1b06a2, 0x00002643938a0568};

EncodeOptions exact(uint32_t max_picture_height = 2048) {
  EncodeOptions options;
  options.tier = Tier::exact;
  options.max_picture_height = max_picture_height;
  return options;
}

EncodeOptions int8(Rope rope = {}, uint32_t sink_tokens = 4, uint32_t max_picture_height = 2048) {
  EncodeOptions options;
  options.tier = Tier::int8;
  options.rope = std::move(rope);
  options.sink_tokens = sink_tokens;
  options.max_picture_height = max_picture_height;
  return options;
}

// Dims 0 to 15 of head 0 of the real cache of 3 layers, 48 tokens, 3 heads and 64 dims.
std::vector<std::byte> cut_smollm2(const std::vector<std::byte>& values) {
  std::vector<std::byte> cut;
  for (size_t i = 0; i < values.size(); i += 3 * 64 * 2) {
    const auto from = values.begin() + static_cast<ptrdiff_t>(i);
    cut.insert(cut.end(), from, from + 16 * 2);
  }
  return cut;
}

// Format version 2. `smollm2`: the values of smollm2_exact.
void add_calibrated(const std::string& folder, const std::vector<std::byte>& smollm2,
                    std::vector<GoldenCase>& cases) {
  const auto load = [&](const char* name) {
    return std::make_shared<const Profile>(read_golden_profile(folder, name));
  };
  const auto add = [&](const char* name, Tier tier, std::shared_ptr<const Profile> profile,
                       DType dtype, uint32_t tokens, uint32_t first_token,
                       std::vector<std::byte> values) {
    const auto number = static_cast<uint8_t>(cases.size() + 1);
    KvShape shape = profile->shape();
    shape.dtype = dtype;
    EncodeOptions options;
    options.tier = tier;
    options.profile = profile.get();
    options.noise_factor = 0;
    cases.push_back({name, shape, tokens, make_id(number, first_token), options, std::move(values),
                     std::move(profile)});
  };
  const auto made = [](const KvShape& of, DType dtype, uint32_t tokens, const Values& how) {
    KvShape shape = of;
    shape.dtype = dtype;
    return make_values(shape, tokens, how);
  };
  const auto cut = load("smollm2_cut"), neox = load("neox_partial"), no_values = load("no_values");
  const std::vector<std::byte> real = cut_smollm2(smollm2);
  add("high_smollm2", Tier::high, cut, DType::f16, 48, 512, real);
  add("balanced_smollm2", Tier::balanced, cut, DType::f16, 48, 512, real);
  add("small_sinks", Tier::small, cut, DType::f16, 48, 2, real);
  // Values far below a step: no component is live, and there are no pictures.
  add("small_no_pictures", Tier::small, no_values, DType::f32, 1, 9, [&] {
    std::vector<std::byte> means;
    const std::span<const float> mean = no_values->groups()[0].mean;
    const auto bytes = std::as_bytes(mean);
    means.assign(bytes.begin(), bytes.end());
    return means;
  }());
  add("high_bf16_neox_partial", Tier::high, neox, DType::bf16, 70, 1000,
      made(neox->shape(), DType::bf16, 70, {.seed = 1}));
  add("high_f32_escapes", Tier::high, no_values, DType::f32, 33, 5,
      made(no_values->shape(), DType::f32, 33, {.seed = 2, .outlier_every = 41}));
  add("balanced_one_token", Tier::balanced, neox, DType::f16, 1, 77,
      made(neox->shape(), DType::f16, 1, {.seed = 3}));
  add("small_all_sinks", Tier::small, neox, DType::f16, 3, 1,
      made(neox->shape(), DType::f16, 3, {.seed = 4, .special_every = 7}));
  const KvShape f16 = {5, 2, 16, 12, DType::f16};
  const auto identity = std::make_shared<const Profile>(
      *Profile::identity(f16, halving_rope(Rope::Style::interleaved, 16)));
  add("balanced_identity", Tier::balanced, identity, DType::f16, 40, 3,
      made(f16, DType::f16, 40, {.seed = 5, .outlier_every = 97}));
  cases.back().options.max_picture_height = 144;
}

}  // namespace

std::vector<GoldenCase> golden_cases(const std::string& folder) {
  std::vector<GoldenCase> cases;
  auto add = [&](const char* name, KvShape shape, uint32_t tokens, uint32_t first_token,
                 EncodeOptions options, Values how) {
    const auto number = static_cast<uint8_t>(cases.size() + 1);
    how.seed = number;
    cases.push_back({name, shape, tokens, make_id(number, first_token), std::move(options),
                     make_values(shape, tokens, how)});
  };
  using Style = Rope::Style;
  const KvShape f16 = {2, 2, 16, 16, DType::f16};
  add("exact_f16", f16, 40, 0, exact(), {});
  add("exact_f16_special", f16, 21, 64, exact(), {.special_every = 3});
  add("exact_bf16", {2, 2, 16, 16, DType::bf16}, 40, 0, exact(), {});
  add("exact_bf16_special", {1, 4, 16, 8, DType::bf16}, 19, 0, exact(), {.special_every = 2});
  add("exact_f32_special", {2, 1, 16, 16, DType::f32}, 23, 7, exact(), {.special_every = 5});
  add("exact_one_token", {3, 2, 8, 8, DType::f16}, 1, 4294967294, exact(), {});
  add("exact_one_element", {1, 1, 1, 0, DType::f32}, 1, 5, exact(), {});
  add("exact_f16_noise", {1, 2, 16, 16, DType::f16}, 31, 0, exact(), {.noise = true});
  add("exact_no_values", {2, 1, 72, 0, DType::bf16}, 33, 0, exact(), {});
  add("exact_layer_groups", {5, 4, 16, 8, DType::f16}, 25, 0, exact(144), {});
  add("exact_tall_layers", {2, 5, 60, 40, DType::bf16}, 17, 0, exact(144), {});
  add("exact_rope_noted", f16, 9, 100,
      [] {
        EncodeOptions options = exact();
        options.rope = halving_rope(Rope::Style::neox, 12);
        return options;
      }(),
      {});
  add("int8_f16_interleaved", f16, 40, 0, int8(halving_rope(Style::interleaved, 16)),
      {.outlier_every = 97});
  add("int8_bf16_neox_partial", {2, 2, 24, 16, DType::bf16}, 37, 1000,
      int8(halving_rope(Style::neox, 16)), {.outlier_every = 101});
  add("int8_f32_escapes", {1, 2, 12, 20, DType::f32}, 50, 3, int8(), {.outlier_every = 11});
  add("int8_all_sinks", f16, 1, 0, int8(halving_rope(Style::neox, 16)), {});
  add("int8_no_values", {3, 1, 36, 0, DType::bf16}, 30, 20000,
      int8(halving_rope(Style::interleaved, 8)), {.outlier_every = 53});
  add("int8_tall_layers", {2, 5, 60, 40, DType::f16}, 20, 12,
      int8(halving_rope(Style::neox, 60), 4, 144), {});
  add("int8_layer_groups", {5, 4, 16, 8, DType::f32}, 22, 2,
      int8(halving_rope(Style::interleaved, 4), 4, 144), {.outlier_every = 211});

  // 3 layers, tokens 512 to 559 of a real cache (SmolLM2-135M, f16).
  const KvShape smollm2 = {3, 3, 64, 64, DType::f16};
  const std::vector<std::byte> values = read_golden(folder + "/good/smollm2_exact.raw");
  const Rope rope = {Style::interleaved, 64, kSmollm2Steps};
  cases.push_back({"smollm2_exact", smollm2, 48, make_id(0xE0, 512), exact(), values});
  cases.push_back({"smollm2_int8", smollm2, 48, make_id(0xE0, 512), int8(rope), values});
  add_calibrated(folder, values, cases);
  return cases;
}

Profile read_golden_profile(const std::string& folder, const std::string& name) {
  auto profile = Profile::parse(read_golden(folder + "/profiles/" + name + ".safetensors"));
  if (!profile.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), profile.error().message.c_str());
    std::exit(1);
  }
  return *std::move(profile);
}

std::vector<std::byte> read_golden(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(1);
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

Result<std::vector<std::byte>> encode_golden(const GoldenCase& golden) {
  const KvGeometry geometry = KvGeometry::contiguous(golden.shape, golden.tokens);
  const KvSource source = {golden.values, &geometry};
  return encode_chunk(source, {0, golden.tokens}, golden.id, golden.options);
}

Result<std::vector<std::byte>> decode_golden(const std::vector<std::byte>& object,
                                             const Profile* profile) {
  KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
  const KvGeometry geometry = KvGeometry::contiguous(info.shape, info.tokens);
  std::vector<std::byte> memory(geometry.contiguous_bytes());
  DecodeOptions options;
  options.profile = profile;
  KVCODEC_CHECK(decode_chunk(object, {memory, &geometry}, 0, options));
  return memory;
}

}  // namespace kvcodec
