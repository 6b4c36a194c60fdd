// SPDX-License-Identifier: Apache-2.0
// Decoding rate and latency of NVDEC through the pool, pictures staying in device memory.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <latch>
#include <string>
#include <vector>

#include "hevc/encoder.h"
#include "hevc/nvdec.h"
#include "hevc/persistent_rice.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;
using hevc::PictureView;

constexpr const char* kUsage =
    "usage: nvdec_bench [--json FILE] [--seconds S] --planes NAME:WIDTHxHEIGHT:FILE ...\n"
    "A FILE holds raw 8-bit pictures of that size, one after another.\n";

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Plane {
  std::string name;
  hevc::StreamParameters parameters;
  std::vector<std::vector<uint8_t>> slices;
  double bits = 0;  // a sample
};

Plane load_plane(const std::string& argument) {
  Plane plane;
  const size_t first = argument.find(':'), second = argument.find(':', first + 1);
  plane.name = argument.substr(0, first);
  unsigned width = 0, height = 0;
  if (second == std::string::npos ||
      std::sscanf(argument.c_str() + first + 1, "%ux%u:", &width, &height) != 2) {
    fmt::print(stderr, "{}", kUsage);
    std::exit(2);
  }
  std::ifstream file(argument.substr(second + 1), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const size_t samples = size_t{width} * height;
  if (bytes.size() < samples) {
    fmt::print(stderr, "nvdec_bench: {} holds no picture of {}x{}\n", argument.substr(second + 1),
               width, height);
    std::exit(3);
  }
  std::vector<PictureView> views;
  for (size_t at = 0; at + samples <= bytes.size(); at += samples) {
    views.push_back({reinterpret_cast<const uint8_t*>(bytes.data()) + at, width, height, width});
  }
  plane.parameters = {width, height, hevc::persistent_rice_pays(views[0])};
  plane.slices.resize(views.size());
  hevc::best_encoder().encode(plane.parameters, views, plane.slices);
  size_t total = 0;
  for (const auto& slice : plane.slices) total += slice.size();
  plane.bits = 8.0 * static_cast<double>(total) / static_cast<double>(samples * views.size());
  return plane;
}

// Submits `count` pictures at once and waits; seconds.
double decode(hevc::NvdecPool& pool, const Plane& plane, size_t count) {
  std::latch left(static_cast<ptrdiff_t>(count));
  const auto start = Clock::now();
  for (size_t i = 0; i < count; ++i) {
    hevc::NvdecJob job;
    job.parameters = plane.parameters;
    job.slice_data = plane.slices[i % plane.slices.size()];
    job.use = [](const hevc::DevicePicture&, void*) { return ok_status(); };
    job.done = [&left](Status status) {
      if (!status.ok()) fmt::print(stderr, "nvdec_bench: {}\n", status.error().message);
      left.count_down();
    };
    pool.submit(std::move(job));
  }
  left.wait();
  return since(start);
}

int run(int argc, char** argv) {
  std::string json;
  double seconds = 1;
  std::vector<Plane> planes;
  for (int i = 1; i < argc; i += 2) {
    const std::string argument = argv[i];
    if (i + 1 == argc) {
      fmt::print(stderr, "{}", kUsage);
      return 2;
    }
    if (argument == "--json") {
      json = argv[i + 1];
    } else if (argument == "--seconds") {
      seconds = std::atof(argv[i + 1]);
    } else if (argument == "--planes") {
      planes.push_back(load_plane(argv[i + 1]));
    } else {
      fmt::print(stderr, "{}", kUsage);
      return 2;
    }
  }
  std::string rows;
  fmt::print("{:<14} {:>11} {:>6} {:>5} {:>8} {:>10} {:>10} {:>9} {:>9}\n", "plane", "size", "bits",
             "rice", "sessions", "GB/s", "payload", "first ms", "alone ms");
  for (const int sessions : {1, 4, 7, 8}) {
    for (const Plane& plane : planes) {
      auto pool = hevc::NvdecPool::create({.sessions = sessions});
      if (!pool.ok()) {
        fmt::print(stderr, "nvdec_bench: {}\n", pool.error().message);
        return 1;
      }
      const double first = decode(**pool, plane, 1);
      decode(**pool, plane, static_cast<size_t>(sessions) * 8);  // every session is there
      double alone = 1e9;
      for (int i = 0; i < 20; ++i) alone = std::min(alone, decode(**pool, plane, 1));
      const size_t probe = static_cast<size_t>(sessions) * 16;
      const double each = decode(**pool, plane, probe) / static_cast<double>(probe);
      const size_t count = std::max(probe, static_cast<size_t>(seconds / each));
      const double elapsed = decode(**pool, plane, count);
      const double samples =
          static_cast<double>(count) * plane.parameters.width * plane.parameters.height;
      const double rate = samples / elapsed / 1e9;
      fmt::print("{:<14} {:>11} {:>6.3f} {:>5} {:>8} {:>10.3f} {:>10.1f} {:>9.2f} {:>9.3f}\n",
                 plane.name, fmt::format("{}x{}", plane.parameters.width, plane.parameters.height),
                 plane.bits, plane.parameters.persistent_rice ? "yes" : "no", sessions, rate,
                 rate * plane.bits / 8 * 1e3, first * 1e3, alone * 1e3);
      std::fflush(stdout);
      rows += fmt::format(
          "{}{{\"plane\": \"{}\", \"width\": {}, \"height\": {}, \"bits\": {:.4f}, \"rice\": {}, "
          "\"sessions\": {}, \"gb_per_second\": {:.4f}, \"first_ms\": {:.3f}, \"alone_ms\": "
          "{:.4f}, "
          "\"gpu\": \"{}\"}}",
          rows.empty() ? "" : ",\n  ", plane.name, plane.parameters.width, plane.parameters.height,
          plane.bits, plane.parameters.persistent_rice, sessions, rate, first * 1e3, alone * 1e3,
          (*pool)->info().gpu);
    }
  }
  if (!json.empty()) std::ofstream(json) << "{\"rows\": [\n  " << rows << "\n]}\n";
  return 0;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
