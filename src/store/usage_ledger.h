// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kvcodec/result.h"
#include "store/posix_file.h"
#include "store/store_root.h"

namespace kvcodec {

// The lock that orders changes to a store between all its processes and threads, and the sum of
// the objects' sizes, kept in the lock file so that a put need not visit every object to know it.
//
// The sum is void (and must be counted again) while a change is under way, so also when whoever
// made it died, and after a restart of the machine, which may have lost some of the changes: the
// record names the boot it belongs to and has a checksum.
class UsageLedger {
 public:
  // Waits for the lock and holds it until the object goes away. Each one opens the file anew:
  // descriptors that share an open file, as after fork(), would not exclude each other.
  static Result<UsageLedger> lock(const StoreRoot& root);
  UsageLedger(UsageLedger&&) = default;
  UsageLedger& operator=(UsageLedger&&) = delete;
  ~UsageLedger();

  std::optional<uint64_t> total() const { return total_; }
  void set_total(uint64_t bytes) { total_ = bytes; }
  // To be called before a change to the objects, and after it: `removed` bytes went and `added`
  // came. Where end_change cannot write, the record stays void.
  Status begin_change();
  void end_change(uint64_t removed, uint64_t added);

 private:
  UsageLedger(UniqueFd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  UniqueFd fd_;
  std::string path_;
  std::optional<uint64_t> total_;
};

}  // namespace kvcodec
