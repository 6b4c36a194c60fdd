// SPDX-License-Identifier: Apache-2.0
// Publishing chunks from a paged cache on a GPU: with pictures coded by the processor, and by the
// GPU, beside encode_chunk of the same cache in host memory, all in one run. Objects must be equal.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda.h"
#include "bench_chunks.h"
#include "kvcodec/device.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: device_publish_bench [--json FILE] [--calls N] [--chunks N]\n"
    "                            [--profile FILE --cache NAME:TIER:FILE ...]\n"
    "                            [--tile NAME:LAYERSxHEADSxDIM:TIER:FILE ...]\n"
    "Caches are what stored chunks restore to; --calls publish at once (4), --chunks in all "
    "(16).\n";

struct Item {
  std::string name;
  Tier tier = Tier::exact;
  HostCache cache;
};

struct Rates {
  double host = 0, device_host = 0, device = 0;  // bytes of KV a second
  double one_ms = 0;                             // one call alone, coded on the device
  size_t object_bytes = 0;
};

class Bench {
 public:
  Bench(size_t calls, size_t chunks, const Profile* profile)
      : calls_(calls),
        chunks_(chunks),
        profile_(profile),
        driver_(must(CudaDriver::open(0))),
        cpu_coded_(must(DevicePublisher::create(
            {.unproven_calibrated = true, .max_device_bytes = uint64_t{8} << 30}))),
        gpu_coded_(must(DevicePublisher::create({.encode_on_device = true,
                                                 .unproven_calibrated = true,
                                                 .max_device_bytes = uint64_t{8} << 30}))) {}

  const std::string& gpu() const { return cpu_coded_->gpu(); }

  Rates run(const Item& item) {
    const auto memory = must(DeviceBuffer::allocate(*driver_, item.cache.memory.size()));
    {
      const CudaScope scope(*driver_);
      must_ok(driver_->check(driver_->cuda().cuMemcpyHtoD(memory.data(), item.cache.memory.data(),
                                                          item.cache.memory.size()),
                             "cuMemcpyHtoD"));
    }
    const DeviceSource source = {memory.data(), memory.size(), &item.cache.geometry};
    const TokenRange range = {0, item.cache.geometry.tokens};
    EncodeOptions options;
    options.tier = item.tier;
    options.verify = false;
    options.profile = profile_;
    const auto on_host = [&] {
      return must(encode_chunk({item.cache.memory, &item.cache.geometry}, range, {}, options));
    };
    const auto with = [&](DevicePublisher& publisher) {
      return must(publisher.encode(source, range, {}, options));
    };
    const Bytes expected = on_host();
    if (with(*cpu_coded_) != expected || with(*gpu_coded_) != expected)
      fail(item.name + ": the GPU's object differs");
    Rates rates;
    rates.object_bytes = expected.size();
    rates.one_ms = 1e9;
    for (int i = 0; i < 3; ++i) {
      const auto start = Clock::now();
      with(*gpu_coded_);
      rates.one_ms = std::min(rates.one_ms, 1e3 * since(start));
      rates.host = std::max(rates.host, rate(item, std::min<size_t>(chunks_, 4), 1, on_host));
      rates.device_host =
          std::max(rates.device_host, rate(item, chunks_, calls_, [&] { with(*cpu_coded_); }));
      rates.device =
          std::max(rates.device, rate(item, chunks_, calls_, [&] { with(*gpu_coded_); }));
    }
    return rates;
  }

 private:
  static double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  template <typename Publish>
  static double rate(const Item& item, size_t chunks, size_t calls, const Publish& publish) {
    std::atomic<size_t> next = 0;
    const auto start = Clock::now();
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < calls; ++t)
        threads.emplace_back([&] {
          while (next++ < chunks) publish();
        });
    }
    return static_cast<double>(item.cache.memory.size() * chunks) / since(start);
  }

  const size_t calls_, chunks_;
  const Profile* profile_;
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<DevicePublisher> cpu_coded_, gpu_coded_;
};

int run(int argc, char** argv) {
  std::string json;
  size_t calls = 4, chunks = 16;
  std::optional<Profile> profile;
  std::vector<Item> items;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) fail(kUsage);
    const std::string value = argv[i + 1];
    const std::vector<std::string> parts = split(value, ':');
    if (option == "--json") {
      json = value;
    } else if (option == "--calls") {
      calls = std::stoul(value);
    } else if (option == "--chunks") {
      chunks = std::stoul(value);
    } else if (option == "--profile") {
      profile.emplace(must(Profile::load(value)));
    } else if (option == "--cache" && parts.size() == 3 && profile) {
      const Bytes object = read_file(parts[2]);
      const ChunkInfo info = must(read_chunk_info(object));
      Item item{parts[0],
                must(tier_from_name(parts[1])),
                {KvGeometry::contiguous(info.shape, info.tokens), {}}};
      item.cache.memory.resize(item.cache.geometry.contiguous_bytes());
      DecodeOptions decode;
      decode.profile = &*profile;
      must_ok(decode_chunk(object, {item.cache.memory, &item.cache.geometry}, 0, decode));
      items.push_back(std::move(item));
    } else if (option == "--tile" && parts.size() == 4) {
      const Tier tier = must(tier_from_name(parts[2]));
      items.push_back({parts[0] + " " + parts[2], tier,
                       tiled_cache(read_file(parts[3]), parse_shape(parts[1]))});
    } else {
      fail(kUsage);
    }
  }
  Bench bench(calls, chunks, profile ? &*profile : nullptr);
  fmt::print("{:<24} {:>8} {:>12} {:>14} {:>12} {:>9}\n", "chunk", "MB", "CPU GB/s", "GPU+CPU GB/s",
             "GPU GB/s", "one ms");
  std::string rows;
  for (const Item& item : items) {
    const Rates r = bench.run(item);
    fmt::print("{:<24} {:>8.2f} {:>12.3f} {:>14.3f} {:>12.3f} {:>9.1f}\n", item.name,
               static_cast<double>(r.object_bytes) / 1e6, r.host / 1e9, r.device_host / 1e9,
               r.device / 1e9, r.one_ms);
    std::fflush(stdout);
    rows += fmt::format(
        "{}{{\"chunk\": \"{}\", \"object_bytes\": {}, \"host_gb_per_second\": {:.4f}, "
        "\"device_host_gb_per_second\": {:.4f}, \"device_gb_per_second\": {:.4f}, "
        "\"one_ms\": {:.2f}, \"calls\": {}}}",
        rows.empty() ? "" : ",\n  ", item.name, r.object_bytes, r.host / 1e9, r.device_host / 1e9,
        r.device / 1e9, r.one_ms, calls);
  }
  if (!json.empty())
    std::ofstream(json) << "{\"gpu\": \"" << bench.gpu() << "\", \"rows\": [\n  " << rows
                        << "\n]}\n";
  return 0;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
