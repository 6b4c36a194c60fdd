// SPDX-License-Identifier: Apache-2.0
// Fetching of prefixes: overlap, adaptive renditions, faults.
#include "fetch_bench.h"

#include <cstring>
#include <nlohmann/json.hpp>

namespace kvcodec::bench {
namespace {

constexpr const char* kUsage =
    "  fetch_bench overlap|adaptive|faults... --kv FILE [--kv FILE...] [--profile FILE]\n"
    "              [--chunks N] [--repeat N] [--rope-base B] [--threads N] [--json FILE]\n";

Cache load_safetensors(const std::string& path) {
  std::vector<std::byte> file;
  append_file(path, file);
  const auto header_bytes = [&] {
    uint64_t value;
    std::memcpy(&value, file.data(), sizeof value);
    return value;
  }();
  const auto* text = reinterpret_cast<const char*>(file.data()) + 8;
  const auto header = nlohmann::json::parse(text, text + header_bytes);
  const auto shape_of = [&](const char* name) { return header[name]["shape"]; };
  const auto keys = shape_of("key"), values = shape_of("value");
  if (header["key"]["dtype"] != "F16") fail(path + ": expected F16");
  Cache cache;
  KvGeometry& g = cache.geometry;
  g.shape = {keys[0], keys[2], keys[3], values[3], DType::f16};
  g.tokens = keys[1];
  const auto strides = [&](const char* name, KvKind kind) {
    const size_t head = g.shape.head_dim(kind) * size_t{2};
    const size_t token = head * g.shape.kv_heads;
    const size_t offset = header[name]["data_offsets"][0];
    return KvGeometry::Strides{8 + header_bytes + offset, token * g.tokens, token, head, 2};
  };
  g.key = strides("key", KvKind::key);
  g.value = strides("value", KvKind::value);
  cache.memory = std::move(file);
  if (!g.validate(cache.memory.size()).ok()) fail(path + ": sizes and shape do not match");
  return cache;
}

}  // namespace

LongPrefix make_prefix(const FetchSettings& settings) {
  LongPrefix prefix;
  // Objects to restore from; the first chunk of a cache has sinks, which stay where they are.
  std::vector<std::vector<std::byte>> objects;
  std::vector<std::byte> first;
  for (const std::string& path : settings.kv) {
    const Cache cache = load_safetensors(path);
    const KvShape& shape = cache.geometry.shape;
    if (prefix.geometry.tokens == 0) {
      prefix.geometry = KvGeometry::contiguous(shape, settings.chunks * kDefaultChunkTokens);
      prefix.memory.resize(prefix.geometry.contiguous_bytes());
      prefix.rope =
          value_or_fail(make_rope(Rope::Style::interleaved, shape.key_dim, settings.rope_base));
    }
    EncodeOptions options;
    options.tier = Tier::int8;
    options.rope = prefix.rope;
    options.verify = false;
    options.max_picture_height = 512;
    for (uint32_t at = 0; at + kDefaultChunkTokens <= cache.geometry.tokens;
         at += kDefaultChunkTokens) {
      auto object = value_or_fail(encode_chunk({cache.memory, &cache.geometry},
                                               {at, kDefaultChunkTokens}, {{}, {}, at}, options));
      if (at > 0)
        objects.push_back(std::move(object));
      else if (first.empty())
        first = std::move(object);
    }
  }
  if (objects.empty()) fail("the caches given have fewer than two chunks of 256 tokens");
  for (uint32_t i = 0; i < settings.chunks; ++i) {
    const uint32_t at = i * kDefaultChunkTokens;
    DecodeOptions options;
    if (i > 0) options.position = at;
    const auto& object = i == 0 ? first : objects[i % objects.size()];
    const Status done = decode_chunk(object, {prefix.memory, &prefix.geometry}, at, options);
    if (!done.ok()) fail(done.error().message);
  }
  for (uint32_t i = 0; i < prefix.geometry.tokens; ++i)
    prefix.tokens.push_back(static_cast<int32_t>(i * 7919 % 49152));
  prefix.ns = sha256(std::as_bytes(std::span("fetch_bench")));
  return prefix;
}

std::unique_ptr<Store> publish(const LongPrefix& prefix, const FetchSettings& settings,
                               const Profile* profile, const std::vector<std::string>& renditions) {
  auto store = value_or_fail(open_store("mem:"));
  PublishOptions options;
  options.encode.rope = prefix.rope;
  options.encode.profile = profile;
  options.encode.verify = false;
  options.encode.threads = settings.threads;
  value_or_fail(publish_renditions(*store, prefix.ns, prefix.tokens,
                                   {prefix.memory, &prefix.geometry}, renditions, options));
  return store;
}

}  // namespace kvcodec::bench

int main(int argc, char** argv) {
  using namespace kvcodec::bench;
  using namespace kvcodec;
  FetchSettings settings;
  std::vector<std::string> parts;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      parts.push_back(name);
      continue;
    }
    if (i + 1 == argc) fail(std::string("usage:\n") + kUsage);
    const std::string value = argv[++i];
    if (name == "--kv")
      settings.kv.push_back(value);
    else if (name == "--profile")
      settings.profile = value;
    else if (name == "--chunks")
      settings.chunks = static_cast<uint32_t>(std::atoi(value.c_str()));
    else if (name == "--repeat")
      settings.repeat = static_cast<uint32_t>(std::atoi(value.c_str()));
    else if (name == "--threads")
      settings.threads = std::atoi(value.c_str());
    else if (name == "--rope-base")
      settings.rope_base = std::atof(value.c_str());
    else if (name == "--json")
      settings.json = value;
    else
      fail(std::string("usage:\n") + kUsage);
  }
  if (parts.empty()) fail(std::string("usage:\n") + kUsage);
  std::optional<Profile> profile;
  if (!settings.profile.empty()) profile.emplace(value_or_fail(Profile::load(settings.profile)));
  std::string json;
  LongPrefix prefix;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  for (const std::string& part : parts) {
    if (part != "faults" && prefix.tokens.empty()) prefix = make_prefix(settings);
    std::string result;
    if (part == "overlap")
      result = overlap(settings, prefix);
    else if (part == "adaptive")
      result = adaptive(settings, prefix, profile ? &*profile : nullptr);
    else if (part == "faults")
      result = faults(settings);
    else
      fail(std::string("usage:\n") + kUsage);
    json += fmt::format("{}\"{}\":{}", json.empty() ? "" : ",", part, result);
  }
  if (settings.json.empty()) return 0;
  std::ofstream(settings.json) << "{" << json << "}\n";
  return 0;
}
