// SPDX-License-Identifier: Apache-2.0
// Writes tests/golden: make_golden FOLDER [KV]. Objects in good/ are pinned: what is there stays,
// and only what is missing is made. bad/ and its manifest follow from good/ and are written anew.
// KV: prefix of raw f16 caches KV.k and KV.v, [30 layers][4096 tokens][3 heads][64 dims], the
// source of good/smollm2_exact.raw; needed only where that file is missing.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "golden/golden_cases.h"

namespace kvcodec {
namespace {

void write_file(const std::string& path, const void* bytes, size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!file.flush()) {
    std::fprintf(stderr, "%s: cannot be written\n", path.c_str());
    std::exit(1);
  }
}

template <typename T>
T value_or_exit(Result<T> result, const std::string& what) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s: %s\n", what.c_str(), result.error().message.c_str());
  std::exit(1);
}

// 3 layers from the beginning, the middle and the end; tokens 512 to 559.
void cut_real_cache(const std::string& prefix, const std::string& path) {
  const std::vector<std::byte> kv[] = {read_golden(prefix + ".k"), read_golden(prefix + ".v")};
  const size_t token_bytes = 3 * 64 * 2, layer_bytes = 4096 * token_bytes;
  std::vector<std::byte> cut;
  for (size_t layer : {1, 15, 28}) {
    for (const auto& bytes : kv) {
      const auto from =
          bytes.begin() + static_cast<ptrdiff_t>(layer * layer_bytes + 512 * token_bytes);
      cut.insert(cut.end(), from, from + static_cast<ptrdiff_t>(48 * token_bytes));
    }
  }
  write_file(path, cut.data(), cut.size());
}

void make_good(const std::string& folder) {
  for (const GoldenCase& golden : golden_cases(folder)) {
    const std::string base = folder + "/good/" + golden.name;
    if (std::filesystem::exists(base + ".kvc")) continue;
    const auto object = value_or_exit(encode_golden(golden), golden.name);
    const auto restored = value_or_exit(decode_golden(object, golden.profile.get()), golden.name);
    write_file(base + ".kvc", object.data(), object.size());
    write_file(base + ".raw", restored.data(), restored.size());
    std::printf("%s: %zu bytes\n", golden.name.c_str(), object.size());
  }
}

void make_bad(const std::string& folder) {
  nlohmann::ordered_json manifest = nlohmann::ordered_json::array();
  for (const GoldenFault& fault : golden_faults(folder)) {
    const std::string file = fault.name + ".kvc";
    write_file(folder + "/bad/" + file, fault.object.data(), fault.object.size());
    nlohmann::ordered_json entry = {
        {"file", file}, {"code", error_code_name(fault.code)}, {"message", fault.message}};
    if (fault.foreign) {
      entry["expected"] = {{"namespace", to_hex(fault.expected.ns)},
                           {"key", to_hex(fault.expected.key)},
                           {"first_token", fault.expected.first_token}};
    }
    if (!fault.profile.empty()) entry["profile"] = fault.profile;
    manifest.push_back(entry);
  }
  const std::string text = manifest.dump(2) + "\n";
  write_file(folder + "/bad/manifest.json", text.data(), text.size());
}

}  // namespace
}  // namespace kvcodec

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: make_golden FOLDER [KV]\n");
    return 1;
  }
  const std::string folder = argv[1], real = folder + "/good/smollm2_exact.raw";
  if (!std::filesystem::exists(real)) {
    if (argc < 3) {
      std::fprintf(stderr, "%s is missing: name the real cache to cut it from\n", real.c_str());
      return 1;
    }
    kvcodec::cut_real_cache(argv[2], real);
  }
  kvcodec::make_good(folder);
  kvcodec::make_bad(folder);
}
