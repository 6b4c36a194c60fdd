// SPDX-License-Identifier: Apache-2.0
// Runs a fuzzer's entry point without a fuzzing engine: replay [--mutations N] FILE-OR-FOLDER...
// Every file is run as it is and N times with a few bytes changed, the same ones in every run. An
// allocation larger than any that the inputs justify ends the program.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMaxAllocation = size_t{512} << 20;

std::vector<uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(1);
  }
  return {std::istreambuf_iterator<char>(file), {}};
}

void run(std::vector<uint8_t> bytes, int mutations, uint32_t seed) {
  // A copy of exactly the input's size, so that a read beyond it is one beyond its memory.
  const std::vector<uint8_t> exact(bytes);
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  std::mt19937 random(seed);
  for (int i = 0; i < mutations && !bytes.empty(); ++i) {
    std::vector<uint8_t> changed = bytes;
    // Half of the changes go where headers are.
    const size_t reach = i % 2 ? changed.size() : std::min<size_t>(changed.size(), 256);
    for (uint32_t n = 1 + random() % 4; n > 0; --n)
      changed[random() % reach] = static_cast<uint8_t>(random());
    if (random() % 8 == 0) changed.resize(random() % changed.size());
    changed.shrink_to_fit();
    LLVMFuzzerTestOneInput(changed.data(), changed.size());
  }
}

}  // namespace

// Not inlined: GCC would take malloc and operator delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (bytes > kMaxAllocation) {
    std::fprintf(stderr, "allocation of %zu bytes\n", bytes);
    std::abort();
  }
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  std::abort();
}
// std::stable_sort asks this way.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return operator new(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

int main(int argc, char** argv) {
  int mutations = 0;
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--mutations" && i + 1 < argc) {
      mutations = std::atoi(argv[++i]);
    } else if (std::filesystem::is_directory(argument)) {
      for (const auto& entry : std::filesystem::directory_iterator(argument))
        if (entry.is_regular_file()) files.push_back(entry.path());
    } else {
      files.emplace_back(argument);
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "usage: %s [--mutations N] FILE-OR-FOLDER...\n", argv[0]);
    return 1;
  }
  for (size_t i = 0; i < files.size(); ++i)
    run(read_file(files[i]), mutations, static_cast<uint32_t>(i));
  std::printf("%zu files, each as it is and with %d mutations\n", files.size(), mutations);
}
