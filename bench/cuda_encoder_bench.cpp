// SPDX-License-Identifier: Apache-2.0
// Encoding on a GPU by how many pictures a call has, beside the processor's encoder on all cores,
// interleaved. Slices of both must be equal.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "codec/chunk_decoder.h"
#include "hevc/cuda_encoder.h"
#include "hevc/persistent_rice.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kUsage =
    "usage: cuda_encoder_bench [--json FILE] [--object NAME:FILE ...] [--counts N,N,...]\n"
    "Pictures are those of stored chunks (exact, int8), or planes of the tests' data, repeated.\n";

[[noreturn]] void fail(const std::string& message) {
  fmt::print(stderr, "cuda_encoder_bench: {}\n", message);
  std::exit(1);
}
template <typename T>
T must(Result<T> result) {
  if (!result.ok()) fail(result.error().message);
  return *std::move(result);
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("cannot read " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Picture {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> samples;
  hevc::PictureView view() const { return {samples.data(), width, height, width}; }
};
struct Set {
  std::string name;
  std::vector<Picture> pictures;
};

// A plane of real codes, repeated to the size that chunks have.
Set tiled(const std::string& name) {
  constexpr uint32_t kWidth = 160, kHeight = 192;
  const auto plane = read_file(KVCODEC_HEVC_DATA "/" + name + "_160x192.raw");
  Picture picture{256, 1920, std::vector<uint8_t>(256 * 1920)};
  for (uint32_t y = 0; y < picture.height; ++y) {
    for (uint32_t x = 0; x < picture.width; ++x)
      picture.samples[y * picture.width + x] =
          plane[y % kHeight * kWidth + (x + y / kHeight * 37) % kWidth];
  }
  return {name + " 256x1920", {std::move(picture)}};
}

Set from_object(const std::string& name, const std::string& path) {
  const auto bytes = read_file(path);
  const auto object = std::as_bytes(std::span(bytes));
  format::Header header = must(read_whole(object, {}));
  const DecodedChunk chunk = must(decode_pictures(object, header, {}));
  Set set;
  for (size_t i = 0; i < header.pictures.size(); ++i) {
    const format::Picture& from = header.pictures[i];
    if (from.plane != format::Plane::symbols) continue;
    Picture picture{from.width, from.height, {}};
    picture.samples.assign(size_t{from.width} * from.height, 128);
    const PictureContent& content = chunk.contents[i];
    for (uint32_t row = 0; row < from.rows; ++row)
      std::copy_n(content.samples.data() + row * content.stride, header.tokens,
                  picture.samples.data() + size_t{row} * from.width);
    set.pictures.push_back(std::move(picture));
  }
  set.name = fmt::format("{} {}x{}", name, set.pictures[0].width, set.pictures[0].height);
  return set;
}

double seconds_of(const auto& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Row {
  double bits, gpu, cpu;  // bits a sample, bytes of samples a second
};

Row measure(hevc::CudaEncoder& encoder, const Set& set, size_t count) {
  std::vector<std::vector<uint8_t>> on_gpu(count), on_cpu(count);
  std::vector<hevc::EncodeJob> gpu_jobs, cpu_jobs;
  double samples = 0, bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    const Picture& picture = set.pictures[i % set.pictures.size()];
    const bool rice = hevc::persistent_rice_pays(picture.view());
    gpu_jobs.push_back({picture.view(), rice, &on_gpu[i]});
    cpu_jobs.push_back({picture.view(), rice, &on_cpu[i]});
    samples += static_cast<double>(picture.samples.size());
  }
  Row row{0, 1e9, 1e9};
  for (int i = 0; i < 3; ++i) {
    row.gpu = std::min(row.gpu, seconds_of([&] {
                         const Status status = encoder.encode(gpu_jobs);
                         if (!status.ok()) fail(status.error().message);
                       }));
    row.cpu = std::min(row.cpu, seconds_of([&] { hevc::encode_pictures(cpu_jobs, 0); }));
  }
  for (size_t i = 0; i < count; ++i) {
    if (on_gpu[i] != on_cpu[i]) fail(fmt::format("{}: picture {} differs", set.name, i));
    bytes += static_cast<double>(on_gpu[i].size());
  }
  return {8 * bytes / samples, samples / row.gpu, samples / row.cpu};
}

int run(int argc, char** argv) {
  std::string json;
  std::vector<Set> sets;
  std::vector<size_t> counts = {1, 32, 128, 512, 1024, 2048};
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) fail(kUsage);
    const std::string value = argv[i + 1];
    if (option == "--json") {
      json = value;
    } else if (option == "--object") {
      const size_t colon = value.find(':');
      sets.push_back(from_object(value.substr(0, colon), value.substr(colon + 1)));
    } else if (option == "--counts") {
      counts.clear();
      for (size_t at = 0; at < value.size();) {
        size_t used = 0;
        counts.push_back(std::stoul(value.substr(at), &used));
        at += used + 1;
      }
    } else {
      fail(kUsage);
    }
  }
  if (sets.empty())
    for (const char* name : {"exact_key", "exact_value", "int8_key", "int8_value"})
      sets.push_back(tiled(name));
  const auto encoder = must(hevc::CudaEncoder::create({.max_device_bytes = uint64_t{4} << 30}));
  fmt::print("{:<24} {:>6} {:>8} {:>10} {:>10}\n", "pictures", "bits", "a call", "GPU MB/s",
             "CPU MB/s");
  std::string rows;
  for (const Set& set : sets) {
    for (const size_t count : counts) {
      const Row row = measure(*encoder, set, count);
      fmt::print("{:<24} {:>6.2f} {:>8} {:>10.1f} {:>10.1f}\n", set.name, row.bits, count,
                 row.gpu / 1e6, row.cpu / 1e6);
      std::fflush(stdout);
      rows += fmt::format(
          "{}{{\"pictures\": \"{}\", \"bits\": {:.3f}, \"count\": {}, \"gpu_mb_per_second\": "
          "{:.1f}, "
          "\"cpu_mb_per_second\": {:.1f}}}",
          rows.empty() ? "" : ",\n  ", set.name, row.bits, count, row.gpu / 1e6, row.cpu / 1e6);
    }
  }
  if (!json.empty())
    std::ofstream(json) << "{\"gpu\": \"" << encoder->gpu() << "\", \"rows\": [\n  " << rows
                        << "\n]}\n";
  return 0;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
