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
#include "bench_chunks.h"
#include "format/header.h"
#include "hevc/nvdec.h"
#include "kvcodec/device.h"
#include "kvcodec/profile.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: device_bench [--json FILE] [--seconds S] [--profile FILE] [--object NAME:FILE ...]\n"
    "                    [--tile NAME:LAYERSxHEADSxDIM:TIER:FILE ...]\n"
    "                    [--calibrated NAME:LAYERSxHEADSxDIM:LAYERS A GROUP:FILE ...]\n"
    "                    [--device-bytes N] [--host-threads N] [--sessions N]\n"
    "--object restores a stored chunk as it is, --profile goes with calibrated ones. --tile "
    "decodes\n"
    "a stored chunk, repeats its channels to fill another shape, encodes that and restores it;\n"
    "--calibrated makes a profile of that shape and a chunk of FILE's codes.\n";

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Item {
  std::string name;
  Bytes object;
  std::shared_ptr<const Profile> profile;  // null: the one of --profile
};

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
  Bench(double seconds, const Profile* profile, const DeviceOptions& options)
      : seconds_(seconds),
        profile_(profile),
        driver_(must(CudaDriver::open(0))),
        restorer_(must(DeviceRestorer::create(options))),
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
      jobs[i].options.profile = item.profile != nullptr ? item.profile.get() : profile_;
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
  if (parts.size() != 4) fail(kUsage);
  return {parts[0] + " " + parts[2],
          tile(read_file(parts[3]), parse_shape(parts[1]), must(tier_from_name(parts[2]))),
          nullptr};
}

Item calibrated_item(const std::string& argument) {
  const std::vector<std::string> parts = split(argument, ':');
  if (parts.size() != 4) fail(kUsage);
  CalibratedChunk made = calibrated_chunk(read_file(parts[3]), parse_shape(parts[1]),
                                          static_cast<uint32_t>(std::stoul(parts[2])));
  return {parts[0] + " of " + parts[2], std::move(made.object),
          std::make_shared<const Profile>(std::move(made.profile))};
}

int run(int argc, char** argv) {
  std::string json;
  double seconds = 1;
  DeviceOptions device;
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
      items.push_back({value.substr(0, colon), read_file(value.substr(colon + 1)), nullptr});
    } else if (option == "--tile") {
      items.push_back(tiled_item(value));
    } else if (option == "--calibrated") {
      items.push_back(calibrated_item(value));
    } else if (option == "--device-bytes") {
      device.max_device_bytes = std::stoull(value);
    } else if (option == "--host-threads") {
      device.host_threads = std::stoi(value);
    } else if (option == "--sessions") {
      device.sessions = std::stoi(value);
    } else {
      fail(kUsage);
    }
  }
  Bench bench(seconds, profile ? &*profile : nullptr, device);
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
