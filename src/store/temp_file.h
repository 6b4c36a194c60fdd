// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kvcodec/result.h"
#include "store/posix_file.h"

namespace kvcodec {

// A file that is being written, under a name of its own in the temporary folder. It is removed
// when the object goes away, unless it was moved to its place.
//
// The writer holds an flock on it. A temporary that nobody has locked is therefore the leftover of
// a writer that died, whatever became of its process id (pids are reused, and mean nothing between
// containers), and sweep_temp_files may remove it.
class TempFile {
 public:
  // `dir` is the folder, which must outlive the object; `dir_path` is its name for messages.
  static Result<TempFile> create(int dir, std::string_view dir_path);
  TempFile(TempFile&& other) noexcept;
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile();

  // Writes `bytes` at the end and makes them durable.
  Status write(std::span<const std::byte> bytes);
  Status set_modified(const timespec& time);
  // Renames it, replacing what has that name; `to_path` is for messages. On failure it stays.
  Status move_to(int to_dir, const char* to_name, std::string_view to_path);

 private:
  TempFile(int dir, UniqueFd fd, std::string name, std::string path)
      : dir_(dir), fd_(std::move(fd)), name_(std::move(name)), path_(std::move(path)) {}

  int dir_;
  UniqueFd fd_;
  std::string name_;  // empty once moved
  std::string path_;
};

// Removes the temporaries of dead writers. Files that cannot be opened or removed (another user's,
// a read-only file system) are left: a later sweep with the right to do so takes them.
Status sweep_temp_files(int dir, std::string_view dir_path);

}  // namespace kvcodec
