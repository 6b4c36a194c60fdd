// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "kvcodec/result.h"
#include "store/posix_file.h"

namespace kvcodec {

// The folders of a file store (docs/stores.md, "Layout on disk"):
//   kvcodec-store        the marker: what this folder is, and the version of its layout
//   kvcodec-lock         locked while the set of objects changes; holds the UsageLedger
//   objects/<00..3f>/    one file an object, see object_path
//   tmp/                 files being written
// The marker is written before anything else but the lock, so that a creation that was cut short
// is told from a foreign folder, and nothing is ever removed from a folder that has no marker.
class StoreRoot {
 public:
  // Creates what is missing, durably. invalid_argument where `path` is a folder that holds
  // something else; unsupported where its layout is of a later version.
  static Result<StoreRoot> open(const std::string& path);

  // Where an object is, relative to objects(): "<shard>/<file>". In the file's name '/' becomes
  // '+', which no object's name has: no folder comes and goes with objects, and "a" and "a/b" can
  // both be objects.
  static std::string object_path(std::string_view name);
  static std::string shard_name(unsigned shard);
  static constexpr unsigned kShards = 64;
  // The object whose file has this name; empty where it is no object's.
  static std::string object_name_of_file(std::string_view file);

  const std::string& path() const { return path_; }
  std::string full_path(std::string_view relative) const {
    return path_ + "/" + std::string(relative);
  }
  int root() const { return root_.get(); }
  int objects() const { return objects_.get(); }
  int tmp() const { return tmp_.get(); }
  const std::string& tmp_path() const { return tmp_path_; }

 private:
  StoreRoot() = default;
  Status claim();
  Status create_marker();
  Result<bool> has_marker();
  Result<UniqueFd> open_folder(const char* name);
  Status make_shards();

  std::string path_, tmp_path_;
  UniqueFd root_, objects_, tmp_;
};

inline constexpr char kMarkerFile[] = "kvcodec-store";
inline constexpr char kLockFile[] = "kvcodec-lock";

}  // namespace kvcodec
