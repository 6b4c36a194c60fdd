// SPDX-License-Identifier: Apache-2.0
// Restoring stored chunks into paged KV memory on a GPU, beside what NVDEC alone does with the
// same pictures. Objects are in host memory; every rate is of one run over many chunks.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <latch>
#include <optional>
#include <string>
#include <vector>

#include "base/cuda.h"
#include "format/header.h"
#include "hevc/nvdec.h"
#include "kvcodec/device.h"
#include "kvcodec/profile.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Bytes = std::vector<std::byte>;

constexpr const char* kUsage =
    "usage: device_bench [--json FILE] [--seconds S] [--profile FILE] [--object NAME:FILE ...]\n"
    "                    [--tile NAME:LAYERSxHEADSxDIM:TIER:FILE ...]\n"
    "--object restores a stored chunk as it is, --profile goes with calibrated ones. --tile "
    "decodes\n"
    "a stored chunk, repeats its channels to fill another shape, encodes that and restores it.\n";

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "device_bench: {}\n", message);
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) fail(result.error().message);
  return *std::move(result);
}
void must_ok(const Status& status) {
  if (!status.ok()) fail(status.error().message);
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Bytes read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  size_t from = 0;
  for (size_t at = 0; (at = text.find(by, from)) != std::string::npos; from = at + 1)
    parts.push_back(text.substr(from, at - from));
  parts.push_back(text.substr(from));
  return parts;
}

struct Item {
  std::string name;
  Bytes object;
};

// Another model's cache with a real one's statistics: channel by channel, layer by layer, repeated.
Bytes tile(const Bytes& object, const KvShape& shape, Tier tier) {
  const ChunkInfo info = must(read_chunk_info(object));
  if (info.shape.dtype != shape.dtype) fail("--tile keeps the dtype");
  const KvGeometry from = KvGeometry::contiguous(info.shape, info.tokens);
  const KvGeometry to = KvGeometry::contiguous(shape, info.tokens);
  Bytes source(from.contiguous_bytes()), target(to.contiguous_bytes());
  must_ok(decode_chunk(object, {source, &from}, 0));
  const size_t element = dtype_bytes(shape.dtype);
  for (const KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < info.tokens; ++token) {
        for (uint32_t channel = 0; channel < shape.channels(kind); ++channel) {
          const uint32_t real = channel % info.shape.channels(kind);
          const uint32_t dim = info.shape.head_dim(kind);
          std::memcpy(
              target.data() + to.element_offset(kind, layer, token, channel / shape.head_dim(kind),
                                                channel % shape.head_dim(kind)),
              source.data() + from.element_offset(kind, layer % info.shape.layers, token,
                                                  real / dim, real % dim),
              element);
        }
      }
    }
  }
  EncodeOptions options;
  options.tier = tier;
  options.verify = false;
  return must(encode_chunk({target, &to}, {0, info.tokens}, {}, options));
}

// A paged cache as vLLM's FlashAttention backend has it, K and V of a layer apart, blocks of 16.
KvGeometry paged(const KvShape& shape, uint32_t tokens) {
  constexpr uint32_t kBlock = 16;
  const size_t e = dtype_bytes(shape.dtype), d = shape.key_dim, h = shape.kv_heads;
  const uint32_t blocks = (tokens + kBlock - 1) / kBlock;
  KvGeometry geometry;
  geometry.shape = shape;
  geometry.tokens = tokens;
  geometry.block_tokens = kBlock;
  geometry.block_stride = kBlock * h * d * e;
  const size_t half = blocks * geometry.block_stride, layer = 2 * half;
  geometry.key = {0, layer, h * d * e, d * e, e};
  geometry.value = {half, layer, h * d * e, d * e, e};
  for (uint32_t i = 0; i < blocks; ++i) geometry.block_table.push_back((i * 7 + 3) % blocks);
  return geometry;
}

// Seconds in which NVDEC decodes the chunk's pictures `copies` times, into nothing.
double decode_alone(hevc::NvdecPool& pool, const Bytes& object, size_t copies, uint64_t& samples) {
  const format::Header header = must(format::read_header(object, {}));
  std::vector<hevc::NvdecJob> jobs;
  samples = 0;
  for (const format::Picture& picture : header.pictures) {
    if (picture.coding == format::Coding::raw) continue;
    hevc::NvdecJob job;
    job.parameters = {picture.width, picture.height, picture.coding == format::Coding::hevc_rice};
    job.slice_data = {reinterpret_cast<const uint8_t*>(object.data()) + picture.offset,
                      picture.bytes};
    job.use = [](const hevc::DevicePicture&, void*) { return ok_status(); };
    jobs.push_back(std::move(job));
    samples += uint64_t{picture.width} * picture.height;
  }
  samples *= copies;
  std::latch left(static_cast<ptrdiff_t>(jobs.size() * copies));
  const auto start = Clock::now();
  for (size_t copy = 0; copy < copies; ++copy) {
    for (hevc::NvdecJob job : jobs) {
      job.done = [&left](Status status) {
        must_ok(status);
        left.count_down();
      };
      pool.submit(std::move(job));
    }
  }
  left.wait();
  return since(start);
}

struct Measured {
  double seconds = 0, alone_seconds = 0, first_ms = 0;
  size_t copies = 0;
  uint64_t samples = 0;
};

class Bench {
 public:
  Bench(double seconds, const Profile* profile)
      : seconds_(seconds),
        profile_(profile),
        driver_(must(CudaDriver::open(0))),
        restorer_(must(DeviceRestorer::create())),
        pool_(must(hevc::NvdecPool::create())) {}

  const std::string& gpu() const { return restorer_->gpu(); }

  Measured run(const Item& item) {
    const ChunkInfo info = must(read_chunk_info(item.object));
    constexpr uint32_t kSlots = 8;  // chunks that the target has room for, used in turn
    geometry_ = paged(info.shape, info.tokens * kSlots);
    const size_t bytes = info.shape.token_bytes() * info.tokens * kSlots;
    if (memory_.size() != bytes) memory_ = must(DeviceBuffer::allocate(*driver_, bytes));
    Measured m;
    restore(item, info, 2 * kSlots);
    uint64_t ignored = 0;
    decode_alone(*pool_, item.object, 2, ignored);
    m.first_ms = 1e9;
    for (int i = 0; i < 10; ++i) m.first_ms = std::min(m.first_ms, restore(item, info, 1) * 1e3);
    const double each = restore(item, info, 16) / 16;
    m.copies = std::max<size_t>(32, static_cast<size_t>(seconds_ / each));
    // Side by side, and the better of two, as the clocks move.
    m.seconds = m.alone_seconds = 1e9;
    for (int i = 0; i < 2; ++i) {
      m.alone_seconds =
          std::min(m.alone_seconds, decode_alone(*pool_, item.object, m.copies, m.samples));
      m.seconds = std::min(m.seconds, restore(item, info, m.copies));
    }
    return m;
  }

 private:
  double restore(const Item& item, const ChunkInfo& info, size_t copies) {
    std::vector<DeviceRestoreJob> jobs(copies);
    for (size_t i = 0; i < copies; ++i) {
      jobs[i].object = item.object;
      jobs[i].target = {memory_.data(), memory_.size(), &geometry_};
      jobs[i].first_token = static_cast<uint32_t>(i % 8) * info.tokens;
      jobs[i].options.profile = profile_;
    }
    const auto start = Clock::now();
    restorer_->restore(jobs);
    const double seconds = since(start);
    for (const DeviceRestoreJob& job : jobs) must_ok(job.status);
    return seconds;
  }

  const double seconds_;
  const Profile* profile_;
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<DeviceRestorer> restorer_;
  std::unique_ptr<hevc::NvdecPool> pool_;
  DeviceBuffer memory_;
  KvGeometry geometry_;
};

Item tiled_item(const std::string& argument) {
  const std::vector<std::string> parts = split(argument, ':');
  KvShape shape;
  unsigned layers = 0, heads = 0, dim = 0;
  if (parts.size() != 4 || std::sscanf(parts[1].c_str(), "%ux%ux%u", &layers, &heads, &dim) != 3)
    fail(kUsage);
  shape.layers = layers;
  shape.kv_heads = heads;
  shape.key_dim = shape.value_dim = dim;
  return {parts[0] + " " + parts[2],
          tile(read_file(parts[3]), shape, must(tier_from_name(parts[2])))};
}

int run(int argc, char** argv) {
  std::string json;
  double seconds = 1;
  std::optional<Profile> profile;
  std::vector<Item> items;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) fail(kUsage);
    const std::string value = argv[i + 1];
    if (option == "--json") {
      json = value;
    } else if (option == "--seconds") {
      seconds = std::atof(value.c_str());
    } else if (option == "--profile") {
      profile.emplace(must(Profile::load(value)));
    } else if (option == "--object") {
      const size_t colon = value.find(':');
      items.push_back({value.substr(0, colon), read_file(value.substr(colon + 1))});
    } else if (option == "--tile") {
      items.push_back(tiled_item(value));
    } else {
      fail(kUsage);
    }
  }
  Bench bench(seconds, profile ? &*profile : nullptr);
  std::string rows;
  fmt::print("{:<24} {:>8} {:>8} {:>9} {:>10} {:>11} {:>10} {:>9}\n", "chunk", "MB", "bits",
             "KV GB/s", "tokens/s", "NVDEC GB/s", "of alone", "first ms");
  for (const Item& item : items) {
    const ChunkInfo info = must(read_chunk_info(item.object));
    const Measured m = bench.run(item);
    const double tokens = static_cast<double>(info.tokens) * static_cast<double>(m.copies);
    const double kv = tokens * static_cast<double>(info.shape.token_bytes()) / m.seconds / 1e9;
    const double nvdec = static_cast<double>(m.samples) / m.alone_seconds / 1e9;
    fmt::print("{:<24} {:>8.3f} {:>8.3f} {:>9.2f} {:>10.0f} {:>11.3f} {:>9.1f}% {:>9.2f}\n",
               item.name, static_cast<double>(item.object.size()) / 1e6, info.bits_per_value(), kv,
               tokens / m.seconds, nvdec, 100 * m.alone_seconds / m.seconds, m.first_ms);
    std::fflush(stdout);
    rows += fmt::format(
        "{}{{\"chunk\": \"{}\", \"object_bytes\": {}, \"bits_per_value\": {:.4f}, "
        "\"kv_gb_per_second\": {:.4f}, \"tokens_per_second\": {:.1f}, "
        "\"nvdec_gb_per_second\": {:.4f}, \"of_nvdec_alone\": {:.4f}, \"first_ms\": {:.3f}}}",
        rows.empty() ? "" : ",\n  ", item.name, item.object.size(), info.bits_per_value(), kv,
        tokens / m.seconds, nvdec, m.alone_seconds / m.seconds, m.first_ms);
  }
  if (!json.empty())
    std::ofstream(json) << "{\"gpu\": \"" << bench.gpu() << "\", \"rows\": [\n  " << rows
                        << "\n]}\n";
  return 0;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
