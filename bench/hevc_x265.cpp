// SPDX-License-Identifier: Apache-2.0
#include "hevc_x265.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace kvcodec::bench {
namespace {

namespace fs = std::filesystem;

void write_yuv(const fs::path& path, std::span<const hevc::PictureView> pictures) {
  std::ofstream file(path, std::ios::binary);
  for (const hevc::PictureView& picture : pictures) {
    for (uint32_t y = 0; y < picture.height; ++y) {
      file.write(reinterpret_cast<const char*>(picture.samples + y * picture.stride),
                 picture.width);
    }
    const std::string chroma(size_t{picture.width} * picture.height / 2, '\x80');
    file.write(chroma.data(), static_cast<std::streamsize>(chroma.size()));
  }
}

// Runs a program found on PATH, silenced; its processor time, or nothing where it failed.
std::optional<double> run_program(std::vector<std::string> arguments) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
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
  std::string folder = (fs::temp_directory_path() / "kvcodec-x265-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return std::nullopt;
  const fs::path in = fs::path(folder) / "in.yuv", out = fs::path(folder) / "out.hevc";
  write_yuv(in, pictures);
  const std::string size = fmt::format("{}x{}", pictures[0].width, pictures[0].height);
  const auto run = [&](size_t frames, std::vector<std::string> choices) {
    std::vector<std::string> words = {"x265",
                                      "--lossless",
                                      "--preset",
                                      "superfast",
                                      "--input-res",
                                      size,
                                      "--fps",
                                      "1",
                                      "--frames",
                                      std::to_string(frames),
                                      "--pools",
                                      "none",
                                      "--frame-threads",
                                      "1",
                                      "--no-info",
                                      "--input",
                                      in.string(),
                                      "-o",
                                      out.string()};
    words.insert(words.end(), choices.begin(), choices.end());
    return run_program(std::move(words));
  };
  // P pictures are what it codes fastest, I pictures smallest (by 1 %, as they have nothing in
  // common). The difference of two runs leaves out the program's start.
  const std::vector<std::string> fast = {"--keyint", "-1", "--bframes", "0", "--no-scenecut"};
  const auto one = run(1, fast), all = run(pictures.size(), fast);
  const auto intra = run(pictures.size(), {"--keyint", "1"});
  std::error_code ignored;
  const uintmax_t bytes = fs::file_size(out, ignored);
  fs::remove_all(folder, ignored);
  if (!one || !all || !intra || bytes == static_cast<uintmax_t>(-1) || pictures.size() < 2) {
    return std::nullopt;
  }
  const auto count = static_cast<double>(pictures.size());
  return X265Result{static_cast<double>(bytes), (*all - *one) * count / (count - 1)};
}

}  // namespace kvcodec::bench
