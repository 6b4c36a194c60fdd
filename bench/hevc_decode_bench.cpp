// SPDX-License-Identifier: Apache-2.0
// Speed of decoding planes: every variant of our decoder and libavcodec, side by side, by number of
// pictures at once; and the decoder that the library uses, on 1 and 2 threads. Speeds are samples
// (bytes) a second: of processor time for one thread, of wall clock for the threads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "hevc/decoder.h"
#include "hevc/decoder_variants.h"
#include "hevc/encoder.h"
#include "hevc/persistent_rice.h"
#include "hevc/stream.h"

namespace kvcodec::bench {
namespace {

constexpr const char* kUsage =
    "usage: hevc_decode_bench [--json FILE] [--repeat N] [--planes NAME=WIDTHxHEIGHT:FILE,... "
    "...]\n"
    "A FILE holds raw 8-bit pictures of that size, one after another; those of all files of a "
    "plane\n"
    "are taken in turn.\n"
    "Without --planes: the real planes of tests/unit/hevc/data, and codes of one divided by 64, "
    "as\n"
    "pictures of 160x1920 with the rows in another order in each.\n";
constexpr size_t kCounts[] = {1, 3, 6, 12, 16, 32, 64};

struct Picture {
  uint32_t width = 0, height = 0;
  std::vector<uint8_t> samples;
  size_t size() const { return size_t{width} * height; }
};

struct Plane {
  std::string name;
  std::vector<Picture> pictures;
};

struct Row {
  std::string plane, decoder;
  size_t pictures = 0;
  int threads = 1;
  double bits = 0, mb_per_second = 0;
};

struct Options {
  std::string json;
  int repeat = 5;
  std::vector<Plane> planes;
};

double seconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<uint8_t> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// WIDTHxHEIGHT:FILE.
bool read_pictures(const std::string& argument, std::vector<Picture>& pictures) {
  Picture picture;
  int used = 0;
  if (std::sscanf(argument.c_str(), "%ux%u:%n", &picture.width, &picture.height, &used) != 2 ||
      used == 0)
    return false;
  const std::vector<uint8_t> samples = read_file(argument.substr(static_cast<size_t>(used)));
  if (!hevc::check_parameters({picture.width, picture.height, false}).ok() || samples.empty() ||
      samples.size() % picture.size() != 0)
    return false;
  const auto step = static_cast<ptrdiff_t>(picture.size());
  for (auto at = samples.begin(); at != samples.end(); at += step) {
    picture.samples.assign(at, at + step);
    pictures.push_back(picture);
  }
  return true;
}

std::optional<Plane> read_plane(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos) return std::nullopt;
  Plane plane{argument.substr(0, equals), {}};
  for (size_t from = equals + 1; from <= argument.size();) {
    const size_t comma = std::min(argument.find(',', from), argument.size());
    if (!read_pictures(argument.substr(from, comma - from), plane.pictures)) return std::nullopt;
    from = comma + 1;
  }
  return plane;
}

// 64 pictures of ten times a fixture's rows, rotated by another number in each; codes divided by
// `step` are those of a coarser quantiser.
Plane fixture_plane(const std::string& name, int step) {
  constexpr uint32_t kWidth = 160, kRows = 192, kTimes = 10;
  const std::vector<uint8_t> once =
      read_file(std::string(KVCODEC_HEVC_DATA) + "/" + name + "_160x192.raw");
  Plane plane{step == 1 ? name : fmt::format("{} / {}", name, step), {}};
  if (once.size() != size_t{kWidth} * kRows) return plane;
  for (uint32_t i = 0; i < 64; ++i) {
    std::vector<uint8_t> picture;
    for (uint32_t row = 0; row < kRows * kTimes; ++row) {
      const auto from = once.begin() + (row + 7 * i) % kRows * kWidth;
      picture.insert(picture.end(), from, from + kWidth);
    }
    for (uint8_t& sample : picture)
      sample = static_cast<uint8_t>(128 + std::lround((sample - 128) / static_cast<double>(step)));
    plane.pictures.push_back({kWidth, kRows * kTimes, std::move(picture)});
  }
  return plane;
}

bool parse_options(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json" && i + 1 < argc) {
      options.json = argv[++i];
    } else if (argument == "--repeat" && i + 1 < argc) {
      options.repeat = std::max(1, std::atoi(argv[++i]));
    } else if (argument == "--planes" && i + 1 < argc) {
      while (i + 1 < argc && argv[i + 1][0] != '-') {
        auto plane = read_plane(argv[++i]);
        if (!plane) {
          fmt::print(stderr,
                     "hevc_decode_bench: {}: not NAME=WIDTHxHEIGHT:FILE,... of whole pictures\n",
                     argv[i]);
          return false;
        }
        options.planes.push_back(std::move(*plane));
      }
    } else {
      fmt::print(stderr, "{}", kUsage);
      return false;
    }
  }
  if (!options.planes.empty()) return true;
  for (const char* name : {"exact_key", "exact_value", "int8_key", "int8_value", "high_key",
                           "balanced_key", "balanced_value", "small_key", "small_value"})
    options.planes.push_back(fixture_plane(name, 1));
  options.planes.push_back(fixture_plane("int8_key", 64));
  return true;
}

class List final : public hevc::JobSource {
 public:
  explicit List(std::vector<hevc::SliceJob>& jobs) : jobs_(jobs) {}
  hevc::SliceJob* take() override { return next_ < jobs_.size() ? &jobs_[next_++] : nullptr; }
  void finish(hevc::SliceJob&) override {}

 private:
  std::vector<hevc::SliceJob>& jobs_;
  size_t next_ = 0;
};

// The first `count` pictures of a plane, encoded, and room for them decoded.
class Coded {
 public:
  Coded(const Plane& plane, size_t count) : plane_(plane) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const Picture& picture = expected(i);
      const hevc::PictureView view = {picture.samples.data(), picture.width, picture.height,
                                      picture.width};
      parameters_.push_back({picture.width, picture.height, hevc::persistent_rice_pays(view)});
      slices_.emplace_back();
      hevc::best_encoder().encode(parameters_.back(), std::span(&view, 1),
                                  std::span(&slices_.back(), 1));
      bytes += slices_.back().size();
      samples_ += picture.size();
      decoded_.emplace_back(picture.size());
    }
    bits_ = 8.0 * static_cast<double>(bytes) / static_cast<double>(samples());
  }

  double bits() const { return bits_; }
  uint64_t samples() const { return samples_; }

  // Seconds of one run, whose samples must be right.
  template <typename Run>
  double time(clockid_t clock, const Run& run) {
    for (std::vector<uint8_t>& picture : decoded_) std::ranges::fill(picture, uint8_t{1});
    const double start = seconds(clock);
    run();
    const double took = seconds(clock) - start;
    for (size_t i = 0; i < decoded_.size(); ++i) {
      if (decoded_[i] == expected(i).samples) continue;
      fmt::print(stderr, "hevc_decode_bench: {}: picture {} decoded wrongly\n", plane_.name, i);
      std::exit(1);
    }
    return took;
  }
  double run(const hevc::DecoderOps& variant) {
    std::vector<hevc::SliceJob> jobs;
    for (size_t i = 0; i < slices_.size(); ++i)
      jobs.push_back({parameters_[i], slices_[i], target(i), {}});
    List list(jobs);
    return time(CLOCK_PROCESS_CPUTIME_ID, [&] { variant.decode(list); });
  }
  double run(hevc::Decoder& decoder, int threads, clockid_t clock) {
    std::vector<hevc::DecodeJob> jobs(slices_.size());
    for (size_t i = 0; i < slices_.size(); ++i) {
      jobs[i].parameters = parameters_[i];
      jobs[i].slice_data = slices_[i];
      jobs[i].target = target(i);
    }
    return time(clock, [&] { decoder.decode(jobs, threads); });
  }

 private:
  const Picture& expected(size_t i) const { return plane_.pictures[i % plane_.pictures.size()]; }
  hevc::PictureTarget target(size_t i) {
    const hevc::StreamParameters& p = parameters_[i];
    return {decoded_[i].data(), p.width, p.height, p.width};
  }

  const Plane& plane_;
  uint64_t samples_ = 0;
  std::vector<hevc::StreamParameters> parameters_;
  std::vector<std::vector<uint8_t>> slices_, decoded_;
  double bits_ = 0;
};

// All decoders in turn, `repeat` times: the best of each.
void measure(const Plane& plane, size_t count, const Options& options, std::vector<Row>& rows) {
  static const auto general = hevc::create_general_decoder(2);
  static const auto software = hevc::create_software_decoder(2);
  Coded coded(plane, count);
  struct Entry {
    std::string name;
    int threads;
    std::function<double()> run;
    double best = INFINITY;
  };
  std::vector<Entry> entries;
  if (general.ok()) {
    entries.push_back(
        {"libavcodec", 1, [&coded] { return coded.run(**general, 1, CLOCK_PROCESS_CPUTIME_ID); }});
  }
  const std::span<const hevc::DecoderOps> variants = hevc::decoder_variants();
  // The reference takes its time, and more pictures make it no faster.
  for (const hevc::DecoderOps& variant : count == 1 ? variants : variants.subspan(1))
    entries.push_back({variant.name, 1, [&coded, &variant] { return coded.run(variant); }});
  for (const int threads : {1, 2}) {
    const clockid_t clock = threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC;
    entries.push_back({"library", threads,
                       [&coded, threads, clock] { return coded.run(*software, threads, clock); }});
  }
  for (int i = 0; i < options.repeat; ++i) {
    for (Entry& entry : entries) {
      // Slow ones are steady; three runs tell.
      if (i < 3 || (entry.name != "reference" && entry.name != "libavcodec"))
        entry.best = std::min(entry.best, entry.run());
    }
  }
  for (const Entry& entry : entries) {
    const double speed = static_cast<double>(coded.samples()) / entry.best / 1e6;
    rows.push_back({plane.name, entry.name, count, entry.threads, coded.bits(), speed});
    fmt::print("{:14} {:6.3f} bits {:3} pictures {:11} {} thread{} {:8.1f} MB/s {:6.2f}x\n",
               plane.name, coded.bits(), count, entry.name, entry.threads,
               entry.threads == 1 ? " " : "s", speed, entries.front().best / entry.best);
    std::fflush(stdout);
  }
}

int run(int argc, char** argv) {
  Options options;
  if (!parse_options(argc, argv, options)) return 1;
  std::vector<Row> rows;
  for (const Plane& plane : options.planes) {
    if (plane.pictures.empty()) {
      fmt::print(stderr, "hevc_decode_bench: {}: cannot be read\n", plane.name);
      return 1;
    }
    for (const size_t count : kCounts) measure(plane, count, options, rows);
  }
  if (options.json.empty()) return 0;
  std::ofstream file(options.json);
  file << "{\"rows\": [\n";
  for (const Row& row : rows) {
    file << fmt::format(
        "  {{\"plane\": \"{}\", \"decoder\": \"{}\", \"pictures\": {}, \"threads\": {}, "
        "\"bits\": {:.4f}, \"mb_per_second\": {:.2f}}}{}\n",
        row.plane, row.decoder, row.pictures, row.threads, row.bits, row.mb_per_second,
        &row == &rows.back() ? "" : ",");
  }
  file << "]}\n";
  return file.good() ? 0 : 1;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
