// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "kvcodec/result.h"

namespace kvcodec::tools {

// Exit codes: 0 done, 1 a check failed (verify, differing answers), 2 wrong usage, and
// kErrorExit + the ErrorCode for everything else. Listed in `kvcodec --help`.
inline constexpr int kCheckFailedExit = 1;
inline constexpr int kUsageExit = 2;
inline constexpr int kErrorExit = 10;

// Prints the error to stderr, as JSON to stdout too where asked, and returns its exit code.
int report_error(const Error& error, bool json);
// 0, or that of the error, reported.
int exit_code(const Status& status, bool json);

// Rows of cells, columns padded to align; the first row is the heading. Cells that look like
// numbers are right-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> heading) { rows_.push_back(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string human_bytes(uint64_t bytes);  // "1.5 MiB"
void print_json(const nlohmann::json& value);

// A bar on stderr, redrawn in place; silent where stderr is no terminal.
std::function<void(size_t done, size_t total)> progress_bar(std::string label);

// Whole files. Writing goes through a temporary name, so that a file is there whole or not at all.
Result<std::vector<std::byte>> read_file(const std::string& path);
Status write_file(const std::string& path, std::span<const std::byte> bytes);

}  // namespace kvcodec::tools
