// SPDX-License-Identifier: Apache-2.0
// Size and speed of the lossless HEVC coding of planes, on one core. All speeds are samples
// (bytes) a second of processor time, the best of --repeat runs, variants taking turns.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "hevc/decoder.h"
#include "hevc/encoder.h"
#include "hevc/persistent_rice.h"
#include "hevc/stream.h"
#include "hevc_x265.h"

namespace kvcodec::bench {
namespace {

using hevc::PictureView;

constexpr const char* kUsage =
    "usage: hevc_bench [--json FILE] [--repeat N] [--no-x265] [--planes WIDTHxHEIGHT:FILE ...]\n"
    "A FILE holds raw 8-bit pictures of that size, one after another. Without --planes: the real\n"
    "planes of tests/unit/hevc/data, each as 32 pictures of 160x1920.\n";

struct Plane {
  std::string name;
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> samples;

  std::vector<PictureView> pictures() const {
    std::vector<PictureView> views;
    for (size_t at = 0; at < samples.size(); at += size_t{width} * height) {
      views.push_back({samples.data() + at, width, height, width});
    }
    return views;
  }
};

// By encoder; [0] is the reference.
struct Speed {
  std::string name;
  double mb_per_second = 0;      // all pictures in one call, as every table shows it
  std::vector<double> by_count;  // the first kCounts[i] pictures in one call
};
constexpr size_t kCounts[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};

struct Measurement {
  std::string name;
  uint32_t width = 0, height = 0;
  size_t pictures = 0;
  double sigma = 0, entropy = 0;
  bool persistent_rice = false;
  double bits = 0, other_bits = 0;  // a sample; other: with the other choice of persistent_rice
  std::vector<Speed> encoders;
  double one_thread = 0, two_threads = 0;  // encode_pictures(), MB/s of wall-clock time
  double decode_mb_per_second = 0;
  bool decoded_equal = false;
  double x265_bits = 0, x265_mb_per_second = 0;  // 0: not run
};

struct Options {
  std::string json;
  int repeat = 5;
  bool x265 = true;
  std::vector<Plane> planes;
};

double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double wall_seconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// The best of several runs of each body, one after another so that all meet the same noise.
template <typename Clock, typename Body>
std::vector<double> best_seconds(int repeat, size_t bodies, const Clock& clock, const Body& body) {
  std::vector<double> best(bodies, INFINITY);
  for (int i = 0; i < repeat; ++i) {
    for (size_t b = 0; b < bodies; ++b) {
      const double start = clock();
      body(b);
      best[b] = std::min(best[b], clock() - start);
    }
  }
  return best;
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Parses WIDTHxHEIGHT:FILE and reads it.
std::optional<Plane> read_plane(const std::string& argument) {
  Plane plane;
  int used = 0;
  if (std::sscanf(argument.c_str(), "%ux%u:%n", &plane.width, &plane.height, &used) != 2 ||
      used == 0) {
    return std::nullopt;
  }
  const std::string path = argument.substr(static_cast<size_t>(used));
  plane.name = path.substr(path.find_last_of('/') + 1);
  plane.samples = read_file(path);
  const size_t picture = size_t{plane.width} * plane.height;
  if (!hevc::check_parameters({plane.width, plane.height, false}).ok() || plane.samples.empty() ||
      plane.samples.size() % picture != 0) {
    return std::nullopt;
  }
  return plane;
}

// 32 pictures a plane, each of the same rows from another one on: lanes then meet unlike data, and
// x265 finds no motion (it searches 57 rows).
std::vector<Plane> fixture_planes() {
  constexpr uint32_t kWidth = 160, kRows = 192, kHeight = 1920, kPictures = 32;
  std::vector<Plane> planes;
  for (const std::string name : {"exact_key", "exact_value", "int8_key", "int8_value"}) {
    const std::vector<uint8_t> once =
        read_file(std::string(KVCODEC_HEVC_DATA) + "/" + name + "_160x192.raw");
    Plane plane{name, kWidth, kHeight, {}};
    for (uint32_t i = 0; i < kPictures; ++i) {
      for (uint32_t y = 0; y < kHeight; ++y) {
        const auto row = once.begin() + (y + i * 83) % kRows * kWidth;
        plane.samples.insert(plane.samples.end(), row, row + kWidth);
      }
    }
    planes.push_back(std::move(plane));
  }
  return planes;
}

bool parse_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--no-x265") {
      options.x265 = false;
    } else if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (argument == "--repeat" && i + 1 < argc) {
      options.repeat = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--planes" && i + 1 < argc) {
      while (i + 1 < argc && argv[i + 1][0] != '-') {
        auto plane = read_plane(argv[++i]);
        if (!plane) {
          fmt::print(stderr, "hevc_bench: {}: not WIDTHxHEIGHT:FILE of whole pictures\n", argv[i]);
          return false;
        }
        options.planes.push_back(std::move(*plane));
      }
    } else {
      fmt::print(stderr, "{}", kUsage);
      return false;
    }
  }
  if (options.planes.empty()) options.planes = fixture_planes();
  return true;
}

void measure_samples(const Plane& plane, Measurement& result) {
  std::vector<double> counts(256);
  double sum = 0, squares = 0;
  for (uint8_t sample : plane.samples) {
    ++counts[sample];
    sum += sample - 128;
    squares += (sample - 128) * (sample - 128);
  }
  const auto total = static_cast<double>(plane.samples.size());
  result.sigma = std::sqrt(squares / total - sum / total * (sum / total));
  for (double count : counts) {
    if (count > 0) result.entropy -= count / total * std::log2(count / total);
  }
}

double bits_a_sample(const Plane& plane, const std::vector<std::vector<uint8_t>>& slices) {
  size_t bytes = 0;
  for (const auto& slice : slices) bytes += slice.size();
  return 8.0 * static_cast<double>(bytes) / static_cast<double>(plane.samples.size());
}

double megabytes(std::span<const PictureView> pictures) {
  return 1e-6 * pictures[0].width * pictures[0].height * static_cast<double>(pictures.size());
}

void measure_encoders(const hevc::StreamParameters& parameters,
                      std::span<const PictureView> pictures, const Options& options,
                      std::vector<std::vector<uint8_t>>& slices, Measurement& result) {
  const auto variants = hevc::encoder_variants();
  for (const hevc::EncoderOps& encoder : variants) result.encoders.push_back({encoder.name, 0, {}});
  // The reference is slow, and one by one.
  const auto few = pictures.first(std::min<size_t>(pictures.size(), 4));
  result.encoders[0].mb_per_second =
      megabytes(few) / best_seconds(1, 1, processor_seconds, [&](size_t) {
        variants[0].encode(parameters, few, slices);
      })[0];
  const auto fast = variants.subspan(1);
  const auto seconds = best_seconds(options.repeat, fast.size(), processor_seconds, [&](size_t i) {
    fast[i].encode(parameters, pictures, slices);
  });
  for (size_t i = 0; i < fast.size(); ++i)
    result.encoders[i + 1].mb_per_second = megabytes(pictures) / seconds[i];
  for (size_t count : kCounts) {
    if (count > pictures.size()) break;
    const auto some = pictures.first(count);
    const auto each = best_seconds(options.repeat, fast.size(), processor_seconds,
                                   [&](size_t i) { fast[i].encode(parameters, some, slices); });
    for (size_t i = 0; i < fast.size(); ++i)
      result.encoders[i + 1].by_count.push_back(megabytes(some) / each[i]);
  }

  std::vector<hevc::EncodeJob> jobs;
  for (size_t i = 0; i < pictures.size(); ++i)
    jobs.push_back({pictures[i], parameters.persistent_rice, &slices[i]});
  const auto wall = best_seconds(options.repeat, 2, wall_seconds, [&](size_t i) {
    hevc::encode_pictures(jobs, static_cast<int>(i) + 1);
  });
  result.one_thread = megabytes(pictures) / wall[0];
  result.two_threads = megabytes(pictures) / wall[1];
}

void measure_decoder(const Plane& plane, const hevc::StreamParameters& parameters,
                     const std::vector<std::vector<uint8_t>>& slices, int repeat,
                     Measurement& result) {
  auto decoder = hevc::create_general_decoder(1);
  if (!decoder.ok()) return;
  std::vector<uint8_t> decoded(plane.samples.size());
  std::vector<hevc::DecodeJob> jobs(slices.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].parameters = parameters;
    jobs[i].slice_data = slices[i];
    jobs[i].target = {decoded.data() + i * plane.width * plane.height, plane.width, plane.height,
                      plane.width};
  }
  (*decoder)->decode(std::span(jobs).first(1));  // opens the session
  const auto seconds = best_seconds(std::min(repeat, 2), 1, processor_seconds,
                                    [&](size_t) { (*decoder)->decode(jobs); });
  result.decode_mb_per_second = 1e-6 * static_cast<double>(plane.samples.size()) / seconds[0];
  result.decoded_equal = decoded == plane.samples;
}

Measurement measure(const Plane& plane, const Options& options) {
  const std::vector<PictureView> pictures = plane.pictures();
  Measurement result;
  result.name = plane.name;
  result.width = plane.width;
  result.height = plane.height;
  result.pictures = pictures.size();
  measure_samples(plane, result);

  result.persistent_rice = hevc::persistent_rice_pays(pictures[0]);
  hevc::StreamParameters parameters{plane.width, plane.height, !result.persistent_rice};
  std::vector<std::vector<uint8_t>> slices(pictures.size());
  hevc::best_encoder(pictures.size()).encode(parameters, pictures, slices);
  result.other_bits = bits_a_sample(plane, slices);
  parameters.persistent_rice = result.persistent_rice;
  measure_encoders(parameters, pictures, options, slices, result);
  result.bits = bits_a_sample(plane, slices);
  measure_decoder(plane, parameters, slices, options.repeat, result);
  if (options.x265) {
    if (const auto x265 = run_x265(pictures)) {
      result.x265_bits = 8.0 * x265->bytes / static_cast<double>(plane.samples.size());
      result.x265_mb_per_second = megabytes(pictures) / x265->seconds;
    }
  }
  return result;
}

void print(const Measurement& m) {
  fmt::print("{} ({} of {}x{})\n", m.name, m.pictures, m.width, m.height);
  fmt::print("  sigma {:.2f}, order-0 entropy {:.4f} bits a sample\n", m.sigma, m.entropy);
  fmt::print("  kvcodec  {:.4f} bits, {:.4f} x entropy, persistent_rice {} (else {:.4f} bits)\n",
             m.bits, m.bits / m.entropy, m.persistent_rice ? "on" : "off", m.other_bits);
  for (const Speed& speed : m.encoders) {
    fmt::print("    encode {:<10} {:7.1f} MB/s; {} pictures: {:.1f}\n", speed.name,
               speed.mb_per_second,
               fmt::join(std::span(kCounts).first(speed.by_count.size()), ", "),
               fmt::join(speed.by_count, ", "));
  }
  fmt::print("    encode_pictures {:.1f} MB/s on one thread, {:.2f} x on two\n", m.one_thread,
             m.two_threads / m.one_thread);
  fmt::print("    decode libavcodec {:7.1f} MB/s, {}\n", m.decode_mb_per_second,
             m.decoded_equal ? "equal" : "WRONG");
  if (m.x265_bits > 0) {
    fmt::print("  x265     {:.4f} bits, {:.4f} x entropy (--lossless superfast)\n", m.x265_bits,
               m.x265_bits / m.entropy);
    fmt::print("    encode            {:7.1f} MB/s\n", m.x265_mb_per_second);
  }
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string to_json(const Measurement& m) {
  std::string encoders, by_count;
  for (const Speed& speed : m.encoders) {
    encoders += fmt::format("{}{}: {:.2f}", encoders.empty() ? "" : ", ", quoted(speed.name),
                            speed.mb_per_second);
    if (speed.by_count.empty()) continue;
    by_count += fmt::format("{}{}: [{:.1f}]", by_count.empty() ? "" : ", ", quoted(speed.name),
                            fmt::join(speed.by_count, ", "));
  }
  std::string x265 = "null";
  if (m.x265_bits > 0) {
    x265 = fmt::format("{{\"bits\": {:.5f}, \"encode_mb_per_second\": {:.2f}}}", m.x265_bits,
                       m.x265_mb_per_second);
  }
  return fmt::format(
      "{{\"name\": {}, \"width\": {}, \"height\": {}, \"pictures\": {}, \"sigma\": {:.4f}, "
      "\"entropy\": {:.5f}, \"bits\": {:.5f}, \"persistent_rice\": {}, \"other_bits\": {:.5f}, "
      "\"encode_mb_per_second\": {{{}}}, \"counts\": [{}], \"encode_by_count\": {{{}}}, "
      "\"threads_mb_per_second\": [{:.2f}, {:.2f}], \"decode_mb_per_second\": {:.2f}, "
      "\"equal\": {}, \"x265_superfast\": {}}}",
      quoted(m.name), m.width, m.height, m.pictures, m.sigma, m.entropy, m.bits, m.persistent_rice,
      m.other_bits, encoders, fmt::join(kCounts, ", "), by_count, m.one_thread, m.two_threads,
      m.decode_mb_per_second, m.decoded_equal, x265);
}

int run(int argc, char** argv) {
  Options options;
  if (!parse_options(argc, argv, options)) return 2;
  std::string json;
  bool all_equal = true;
  for (const Plane& plane : options.planes) {
    const Measurement measurement = measure(plane, options);
    print(measurement);
    json += (json.empty() ? "" : ",\n  ") + to_json(measurement);
    all_equal &= measurement.decoded_equal;
  }
  if (!options.json.empty()) {
    std::ofstream file(options.json);
    file << "{\"planes\": [\n  " << json << "\n]}\n";
    if (!file.flush()) {
      fmt::print(stderr, "hevc_bench: cannot write {}\n", options.json);
      return 1;
    }
  }
  return all_equal ? 0 : 1;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
