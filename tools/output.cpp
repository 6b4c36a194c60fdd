// SPDX-License-Identifier: Apache-2.0
#include "output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace kvcodec::tools {

int report_error(const Error& error, bool json) {
  fmt::print(stderr, "kvcodec: {}: {}\n", error_code_name(error.code), error.message);
  if (json) print_json({{"error", error_code_name(error.code)}, {"message", error.message}});
  return kErrorExit + static_cast<int>(error.code);
}

int exit_code(const Status& status, bool json) {
  return status.ok() ? 0 : report_error(status.error(), json);
}

namespace {

bool looks_like_number(const std::string& cell) {
  return !cell.empty() &&
         (std::isdigit(static_cast<unsigned char>(cell[0])) || cell[0] == '-' || cell[0] == '+');
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      // A heading stands over its column the way the column's cells do.
      const std::string& sample = r == 0 && rows_.size() > 1 ? rows_[1][c] : rows_[r][c];
      line += looks_like_number(sample) ? fmt::format("{:>{}}", rows_[r][c], widths[c])
                                        : fmt::format("{:<{}}", rows_[r][c], widths[c]);
      if (c + 1 < rows_[r].size()) line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void print_json(const nlohmann::json& value) { fmt::print("{}\n", value.dump(2)); }

std::function<void(size_t, size_t)> progress_bar(std::string label) {
  if (isatty(STDERR_FILENO) == 0) return {};
  return [label = std::move(label)](size_t done, size_t total) {
    constexpr size_t kWidth = 32;
    const size_t filled = total == 0 ? kWidth : kWidth * done / total;
    fmt::print(stderr, "\r{} [{}{}] {}/{}{}", label, std::string(filled, '#'),
               std::string(kWidth - filled, '.'), done, total, done == total ? "\n" : "");
    std::fflush(stderr);
  };
}

Result<std::vector<std::byte>> read_file(const std::string& path) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) {
    const bool missing = failed == std::errc::no_such_file_or_directory;
    return Error{missing ? ErrorCode::not_found : ErrorCode::io,
                 fmt::format("{}: {}", path, failed.message())};
  }
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file || static_cast<size_t>(file.gcount()) != bytes.size()) {
    return Error{ErrorCode::io, fmt::format("{}: read failed", path)};
  }
  return bytes;
}

Status write_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, getpid());
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(temporary, path, failed);
  if (!file || failed) {
    const std::string why = failed ? failed.message() : std::string(std::strerror(errno));
    std::filesystem::remove(temporary, failed);
    return Error{ErrorCode::io, fmt::format("{}: write failed: {}", path, why)};
  }
  return ok_status();
}

}  // namespace kvcodec::tools
