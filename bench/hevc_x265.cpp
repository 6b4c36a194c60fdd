// SPDX-License-Identifier: Apache-2.0
#include "hevc_x265.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kvcodec::bench {
namespace {

namespace fs = std::filesystem;

// Start-up takes x265 as long as about 0.5 MB of samples: sets are repeated up to this, at most.
constexpr uint64_t kEnoughBytes = 4 << 20;
constexpr uint64_t kMaxTimes = 8;

// Repetitions start at other rows, further apart than x265 searches for equal blocks.
void write_yuv(const fs::path& path, std::span<const hevc::PictureView> pictures, uint64_t times) {
  std::ofstream file(path, std::ios::binary);
  for (uint64_t i = 0; i < times * pictures.size(); ++i) {
    const hevc::PictureView& picture = pictures[i % pictures.size()];
    const uint64_t first_row = i / pictures.size() * picture.height / times;
    for (uint32_t y = 0; y < picture.height; ++y) {
      const uint64_t row = (first_row + y) % picture.height;
      file.write(reinterpret_cast<const char*>(picture.samples + row * picture.stride),
                 picture.width);
    }
    const std::string chroma(size_t{picture.width} * picture.height / 2, '\x80');
    file.write(chroma.data(), static_cast<std::streamsize>(chroma.size()));
  }
}

// Runs a program found on PATH, silenced; its processor time, or nothing where it failed.
std::optional<double> run_program(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  rusage usage = {};
  if (error != 0 || wait4(child, &status, 0, &usage) != child || status != 0) return std::nullopt;
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

std::optional<X265Result> run_x265(std::span<const hevc::PictureView> pictures) {
  const size_t picture_bytes = size_t{pictures[0].width} * pictures[0].height;
  const uint64_t times =
      std::clamp<uint64_t>(kEnoughBytes / (picture_bytes * pictures.size()), 1, kMaxTimes);
  std::string folder = (fs::temp_directory_path() / "kvcodec-x265-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return std::nullopt;
  const fs::path in = fs::path(folder) / "in.yuv", out = fs::path(folder) / "out.hevc";
  write_yuv(in, pictures, times);
  const std::string size = fmt::format("{}x{}", pictures[0].width, pictures[0].height);
  const auto seconds =
      run_program({"x265", "--lossless", "--preset", "superfast", "--input-res", size, "--fps", "1",
                   "--pools", "none", "--frame-threads", "1", "--no-info", "--keyint", "1",
                   "--input", in.string(), "-o", out.string()});
  std::error_code ignored;
  const uintmax_t bytes = fs::file_size(out, ignored);
  fs::remove_all(folder, ignored);
  if (!seconds || bytes == static_cast<uintmax_t>(-1)) return std::nullopt;
  const auto runs = static_cast<double>(times);
  return X265Result{static_cast<double>(bytes) / runs, *seconds / runs};
}

}  // namespace kvcodec::bench
