// SPDX-License-Identifier: Apache-2.0
// How much an engine's work slows down while chunks are restored beside it, in one process: a
// matrix product of 8192^3 bf16 numbers by cuBLAS (loaded at run time), and a copy of a gigabyte
// within device memory. Each in turn with nothing beside it and with the restorer busy.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda.h"
#include "bench_chunks.h"
#include "kvcodec/device.h"

namespace kvcodec::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "usage: interference_bench [--json FILE] [--rounds N] [--priority N] [--profile FILE]\n"
    "                          [--object NAME:FILE ...] [--tile NAME:LAYERSxHEADSxDIM:TIER:FILE "
    "...]\n";

struct Item {
  std::string name;
  Bytes object;
  std::shared_ptr<const Profile> profile;  // null: the one of --profile
};

// cublasGemmEx of column-major bf16 matrices, summed in binary32.
class Matmul {
 public:
  static constexpr int kSide = 8192;
  static std::optional<Matmul> open(const CudaDriver& driver) {
    void* library = nullptr;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if (library == nullptr) library = dlopen(name, RTLD_NOW);
    if (library == nullptr) return std::nullopt;
    Matmul matmul;
    const auto create = reinterpret_cast<int (*)(void**)>(dlsym(library, "cublasCreate_v2"));
    const auto set_stream =
        reinterpret_cast<int (*)(void*, CUstream)>(dlsym(library, "cublasSetStream_v2"));
    matmul.multiply_ = reinterpret_cast<Multiply>(dlsym(library, "cublasGemmEx"));
    if (create == nullptr || set_stream == nullptr || matmul.multiply_ == nullptr)
      return std::nullopt;
    if (create(&matmul.handle_) != 0) return std::nullopt;
    must_ok(driver.check(driver.cuda().cuStreamCreate(&matmul.stream_, CU_STREAM_NON_BLOCKING),
                         "cuStreamCreate"));
    set_stream(matmul.handle_, matmul.stream_);
    for (DeviceBuffer& matrix : matmul.matrices_)
      matrix = must(DeviceBuffer::allocate(driver, size_t{kSide} * kSide * 2));
    // Numbers like 1.0 to 1.99: zeros would draw less power.
    std::vector<uint16_t> numbers(size_t{kSide} * kSide);
    for (size_t i = 0; i < numbers.size(); ++i)
      numbers[i] =
          static_cast<uint16_t>(0x3f80 + (i * 2654435761u >> 13) % 128 + (i % 3 == 0) * 0x8000);
    for (DeviceBuffer& matrix : matmul.matrices_)
      must_ok(driver.check(driver.cuda().cuMemcpyHtoD(matrix.data(), numbers.data(), matrix.size()),
                           "cuMemcpyHtoD"));
    return matmul;
  }
  CUstream stream() const { return stream_; }
  void enqueue() const {
    constexpr int kBf16 = 14, kFloatSums = 68;
    const float one = 1, zero = 0;
    const auto at = [&](int i) { return reinterpret_cast<void*>(matrices_[i].data()); };
    if (multiply_(handle_, 0, 0, kSide, kSide, kSide, &one, at(0), kBf16, kSide, at(1), kBf16,
                  kSide, &zero, at(2), kBf16, kSide, kFloatSums, -1) != 0)
      fail("cublasGemmEx");
  }

 private:
  using Multiply = int (*)(void* handle, int, int, int m, int n, int k, const void* alpha,
                           const void* a, int a_type, int lda, const void* b, int b_type, int ldb,
                           const void* beta, void* c, int c_type, int ldc, int compute, int algo);
  void* handle_ = nullptr;
  Multiply multiply_ = nullptr;
  CUstream stream_ = nullptr;
  DeviceBuffer matrices_[3];
};

// A copy within device memory, which is as a decode step's reading of weights is: bound by memory.
class Copy {
 public:
  static constexpr size_t kBytes = size_t{1} << 30;
  explicit Copy(const CudaDriver& driver)
      : driver_(driver),
        from_(must(DeviceBuffer::allocate(driver, kBytes))),
        to_(must(DeviceBuffer::allocate(driver, kBytes))) {
    must_ok(driver.check(driver.cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                         "cuStreamCreate"));
  }
  CUstream stream() const { return stream_; }
  void enqueue() const {
    must_ok(
        driver_.check(driver_.cuda().cuMemcpyDtoDAsync(to_.data(), from_.data(), kBytes, stream_),
                      "cuMemcpyDtoDAsync"));
  }

 private:
  const CudaDriver& driver_;
  DeviceBuffer from_, to_;
  CUstream stream_ = nullptr;
};

struct Row {
  std::string work, beside;
  double alone_ms, busy_ms, kv_gb_per_second;
};

class Bench {
 public:
  Bench(int rounds, int priority, const Profile* profile)
      : rounds_(rounds),
        profile_(profile),
        driver_(must(CudaDriver::open(0))),
        restorer_(must(DeviceRestorer::create({.stream_priority = priority}))) {}

  const CudaDriver& driver() const { return *driver_; }

  Row run(const std::string& work, CUstream stream, const std::function<void()>& enqueue,
          const Item& item) {
    const ChunkInfo info = must(read_chunk_info(item.object));
    const KvGeometry geometry = paged(info.shape, info.tokens);
    const auto memory =
        must(DeviceBuffer::allocate(*driver_, info.shape.token_bytes() * info.tokens));
    std::atomic<uint64_t> chunks = 0;
    const auto restore = [&] {
      std::vector<DeviceRestoreJob> jobs(4);
      for (DeviceRestoreJob& job : jobs) {
        job.object = item.object;
        job.target = {memory.data(), memory.size(), &geometry};
        job.options.profile = item.profile != nullptr ? item.profile.get() : profile_;
      }
      restorer_->restore(jobs);
      for (const DeviceRestoreJob& job : jobs) must_ok(job.status);
      chunks += jobs.size();
    };
    std::atomic<bool> stop = false, busy = false;
    std::atomic<int> working = 0;
    std::vector<std::jthread> restoring;
    constexpr int kCallers = 4;  // so that there is always a next chunk
    for (int i = 0; i < kCallers; ++i) {
      restoring.emplace_back([&] {
        const CudaScope scope(*driver_);
        while (!stop) {
          if (!busy) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            continue;
          }
          ++working;
          restore();
          --working;
        }
      });
    }
    const auto wait_until_idle = [&] {
      busy = false;
      do std::this_thread::sleep_for(std::chrono::milliseconds(20));
      while (working != 0);
    };
    Row row{work, item.name, 1e9, 1e9, 0};
    time(stream, enqueue);
    // In turn, as clocks move with the temperature; medians of all.
    std::vector<double> alone, beside;
    double seconds = 0;
    uint64_t restored = 0;
    for (int round = 0; round < rounds_; ++round) {
      wait_until_idle();
      alone.push_back(time(stream, enqueue));
      busy = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      const uint64_t before = chunks;
      const auto start = Clock::now();
      beside.push_back(time(stream, enqueue));
      seconds += std::chrono::duration<double>(Clock::now() - start).count();
      restored += chunks - before;
    }
    wait_until_idle();
    stop = true;
    row.alone_ms = median(alone);
    row.busy_ms = median(beside);
    row.kv_gb_per_second = static_cast<double>(restored * info.tokens) *
                           static_cast<double>(info.shape.token_bytes()) / seconds / 1e9;
    return row;
  }

 private:
  static double median(std::vector<double> all) {
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  // Milliseconds of one, over a third of a second.
  double time(CUstream stream, const std::function<void()>& enqueue) const {
    const CudaFunctions& cuda = driver_->cuda();
    const auto run = [&](int n) {
      const auto start = Clock::now();
      for (int i = 0; i < n; ++i) enqueue();
      must_ok(driver_->check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize"));
      return 1e3 * std::chrono::duration<double>(Clock::now() - start).count() / n;
    };
    const double each = run(4);
    return run(std::max(8, static_cast<int>(300 / each)));
  }

  const int rounds_;
  const Profile* profile_;
  std::shared_ptr<const CudaDriver> driver_;
  std::unique_ptr<DeviceRestorer> restorer_;
};

int run(int argc, char** argv) {
  std::string json;
  int rounds = 5, priority = 0;
  std::optional<Profile> profile;
  std::vector<Item> items;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) fail(kUsage);
    const std::string value = argv[i + 1];
    const std::vector<std::string> parts = split(value, ':');
    if (option == "--json") {
      json = value;
    } else if (option == "--rounds") {
      rounds = std::stoi(value);
    } else if (option == "--priority") {
      priority = std::stoi(value);
    } else if (option == "--profile") {
      profile.emplace(must(Profile::load(value)));
    } else if (option == "--object" && parts.size() == 2) {
      items.push_back({parts[0], read_file(parts[1]), nullptr});
    } else if (option == "--tile" && parts.size() == 4) {
      items.push_back(
          {parts[0] + " " + parts[2],
           tile(read_file(parts[3]), parse_shape(parts[1]), must(tier_from_name(parts[2]))),
           nullptr});
    } else if (option == "--calibrated" && parts.size() == 4) {
      CalibratedChunk made = calibrated_chunk(read_file(parts[3]), parse_shape(parts[1]),
                                              static_cast<uint32_t>(std::stoul(parts[2])));
      items.push_back({parts[0], std::move(made.object),
                       std::make_shared<const Profile>(std::move(made.profile))});
    } else {
      fail(kUsage);
    }
  }
  Bench bench(rounds, priority, profile ? &*profile : nullptr);
  const CudaScope scope(bench.driver());
  const std::optional<Matmul> matmul = Matmul::open(bench.driver());
  if (!matmul) fmt::print("cuBLAS is not there: no matrix product\n");
  const Copy copy(bench.driver());
  std::vector<Row> rows;
  for (const Item& item : items) {
    if (matmul)
      rows.push_back(bench.run(
          "8192^3 bf16 product", matmul->stream(), [&] { matmul->enqueue(); }, item));
    rows.push_back(bench.run(
        "1 GiB copy", copy.stream(), [&] { copy.enqueue(); }, item));
  }
  std::string text;
  fmt::print("{:<22} {:<20} {:>9} {:>9} {:>8} {:>9}\n", "work", "beside it", "alone ms", "busy ms",
             "slower", "KV GB/s");
  for (const Row& r : rows) {
    fmt::print("{:<22} {:<20} {:>9.4f} {:>9.4f} {:>7.1f}% {:>9.2f}\n", r.work, r.beside, r.alone_ms,
               r.busy_ms, 100 * (r.busy_ms / r.alone_ms - 1), r.kv_gb_per_second);
    text += fmt::format(
        "{}{{\"work\": \"{}\", \"beside\": \"{}\", \"alone_ms\": {:.5f}, \"busy_ms\": {:.5f}, "
        "\"kv_gb_per_second\": {:.3f}}}",
        text.empty() ? "" : ",\n  ", r.work, r.beside, r.alone_ms, r.busy_ms, r.kv_gb_per_second);
  }
  if (!json.empty()) std::ofstream(json) << "{\"rows\": [\n  " << text << "\n]}\n";
  return 0;
}

}  // namespace
}  // namespace kvcodec::bench

int main(int argc, char** argv) { return kvcodec::bench::run(argc, argv); }
