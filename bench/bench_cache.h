// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kvcodec/kv.h"

// What the benchmarks of chunks share: caches from files, clocks, failing.
namespace kvcodec::bench {

struct Settings {
  std::string keys = KVCODEC_CODEC_DATA "/smollm2_gpl3.f16", values, profile,
              codes;  // no values: one file of both
  uint32_t layers = 2, heads = 3, dim = 64, chunk = 256, stride = 1, repeat = 3;
  double rope_base = 100000;
  int threads = 2;
  bool json = false;
};

struct Cache {
  KvGeometry geometry;
  std::vector<std::byte> memory;
};

[[noreturn]] inline void fail(const std::string& message) {
  fmt::print(stderr, "error: {}\n", message);
  std::exit(1);
}

template <typename T>
T value_or_fail(Result<T> result) {
  if (!result.ok()) fail(result.error().message);
  return *std::move(result);
}

inline void append_file(const std::string& path, std::vector<std::byte>& to) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail("cannot read " + path);
  const size_t at = to.size(), size = static_cast<size_t>(file.tellg());
  to.resize(at + size);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(to.data() + at), static_cast<std::streamsize>(size));
}

// f16, [layer][K, V][token][head][dim] in one file, or [layer][token][head][dim] in two.
inline Cache load_cache(const Settings& settings) {
  Cache cache;
  const KvShape shape{settings.layers, settings.heads, settings.dim, settings.dim, DType::f16};
  append_file(settings.keys, cache.memory);
  if (settings.values.empty()) {
    const auto tokens = static_cast<uint32_t>(cache.memory.size() / shape.token_bytes());
    cache.geometry = KvGeometry::contiguous(shape, tokens);
    return cache;
  }
  const size_t half = cache.memory.size(), row = shape.channels(KvKind::key) * size_t{2};
  append_file(settings.values, cache.memory);
  const size_t layer = half / shape.layers, head = settings.dim * size_t{2};
  cache.geometry.shape = shape;
  cache.geometry.tokens = static_cast<uint32_t>(layer / row);
  cache.geometry.key = {0, layer, row, head, 2};
  cache.geometry.value = {half, layer, row, head, 2};
  if (!cache.geometry.validate(cache.memory.size()).ok()) fail("file sizes and shape do not match");
  return cache;
}

// Processor time of the process, which other processes do not lengthen, or wall-clock time.
enum class Clock { processor, wall };

inline double now(Clock clock) {
  timespec time{};
  clock_gettime(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// The shortest of several runs: the machine's noise only ever adds.
inline double seconds(Clock clock, uint32_t repeat, const std::function<void()>& body) {
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t i = 0; i < repeat; ++i) {
    const double start = now(clock);
    body();
    best = std::min(best, now(clock) - start);
  }
  return best;
}

inline Settings parse_settings(int argc, char** argv, const char* usage) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") {
      settings.json = true;
      continue;
    }
    if (i + 1 == argc) fail(std::string("usage:\n") + usage);
    const std::string value = argv[++i];
    const double number = std::atof(value.c_str());
    const auto count = static_cast<uint32_t>(std::max(1.0, number));
    if (name == "--threads")
      settings.threads = static_cast<int>(count);
    else if (name == "--repeat")
      settings.repeat = count;
    else if (name == "--chunk")
      settings.chunk = count;
    else if (name == "--every")
      settings.stride = count;
    else if (name == "--keys")
      settings.keys = value;
    else if (name == "--values")
      settings.values = value;
    else if (name == "--profile")
      settings.profile = value;
    else if (name == "--codes")
      settings.codes = value;
    else if (name == "--layers")
      settings.layers = count;
    else if (name == "--heads")
      settings.heads = count;
    else if (name == "--dim")
      settings.dim = count;
    else if (name == "--rope-base")
      settings.rope_base = number;
    else
      fail(std::string("usage:\n") + usage);
  }
  return settings;
}

}  // namespace kvcodec::bench
