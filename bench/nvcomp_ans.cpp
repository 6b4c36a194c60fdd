// SPDX-License-Identifier: Apache-2.0
#include "nvcomp_ans.h"

#include <dlfcn.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace kvcodec::bench {
namespace {

// nvcomp/ans.h, as far as it is used here.
struct CompressOptions {
  int type = 0;       // rANS
  int data_type = 1;  // unsigned bytes
  uint8_t tuning[3] = {};
  char reserved[53] = {};
};
struct DecompressOptions {
  int backend = 0;
  int data_type = 0xff;  // as the stream says
  uint8_t tuning[3] = {};
  char reserved[53] = {};
};
using CompressTempSize = int (*)(size_t chunks, size_t chunk_bytes, CompressOptions, size_t* bytes,
                                 size_t total, CUstream);
using MaxOutputSize = int (*)(size_t chunk_bytes, CompressOptions, size_t* bytes);
using Compress = int (*)(const void* const* from, const size_t* from_bytes, size_t chunk_bytes,
                         size_t chunks, void* temp, size_t temp_bytes, void* const* to,
                         size_t* to_bytes, CompressOptions, int* statuses, CUstream);
using DecompressTempSize = int (*)(size_t chunks, size_t chunk_bytes, DecompressOptions,
                                   size_t* bytes, size_t total, CUstream);
using Decompress = int (*)(const void* const* from, const size_t* from_bytes, const size_t* to_room,
                           size_t* to_bytes, size_t chunks, void* temp, size_t temp_bytes,
                           void* const* to, DecompressOptions, int* statuses, CUstream);

constexpr size_t kPiece = size_t{64} << 10;

// NOLINTBEGIN(performance-no-int-to-ptr): device addresses are integers to the host.
class Ans final : public NvcompAns {
 public:
  explicit Ans(const CudaDriver& driver) : driver_(driver) {}
  ~Ans() override {
    if (stream_ != nullptr) driver_.cuda().cuStreamDestroy(stream_);
  }

  Status load() {
    void* library = dlopen("libnvcomp.so.6", RTLD_NOW);
    if (library == nullptr)
      return make_error(ErrorCode::unsupported, "nvCOMP is not there: {}", dlerror());
    const auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    if (!find(compress_temp_, "nvcompBatchedANSCompressGetTempSize") ||
        !find(max_output_, "nvcompBatchedANSCompressGetMaxOutputChunkSize") ||
        !find(compress_, "nvcompBatchedANSCompressAsync") ||
        !find(decompress_temp_, "nvcompBatchedANSDecompressGetTempSize") ||
        !find(decompress_, "nvcompBatchedANSDecompressAsync"))
      return make_error(ErrorCode::unsupported, "nvCOMP lacks the batched ANS of its version 6");
    return driver_.check(driver_.cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING),
                         "cuStreamCreate");
  }

  Status compress(std::span<const uint8_t> bytes) override {
    plain_.assign(bytes.begin(), bytes.end());
    pieces_ = (bytes.size() + kPiece - 1) / kPiece;
    size_t room = 0, temp_bytes = 0;
    KVCODEC_CHECK(call(max_output_(kPiece, {}, &room), "GetMaxOutputChunkSize"));
    room = (room + 255) / 256 * 256;
    KVCODEC_CHECK(call(compress_temp_(pieces_, kPiece, {}, &temp_bytes, bytes.size(), stream_),
                       "CompressGetTempSize"));
    KVCODEC_TRY(from_, DeviceBuffer::allocate(driver_, pieces_ * kPiece));
    KVCODEC_TRY(packed_, DeviceBuffer::allocate(driver_, pieces_ * room));
    KVCODEC_TRY(to_, DeviceBuffer::allocate(driver_, pieces_ * kPiece));
    KVCODEC_TRY(auto temp, DeviceBuffer::allocate(driver_, std::max<size_t>(temp_bytes, 1)));
    KVCODEC_TRY(tables_, DeviceBuffer::allocate(driver_, pieces_ * 8 * 6 + 8));
    std::vector<uint64_t> tables(pieces_ * 4);
    for (size_t i = 0; i < pieces_; ++i) {
      tables[i] = from_.data() + i * kPiece;
      tables[pieces_ + i] = std::min(kPiece, bytes.size() - i * kPiece);
      tables[2 * pieces_ + i] = packed_.data() + i * room;
      tables[3 * pieces_ + i] = to_.data() + i * kPiece;
    }
    const CudaFunctions& cuda = driver_.cuda();
    KVCODEC_CHECK(
        driver_.check(cuda.cuMemcpyHtoD(from_.data(), bytes.data(), bytes.size()), "cuMemcpyHtoD"));
    KVCODEC_CHECK(driver_.check(cuda.cuMemcpyHtoD(tables_.data(), tables.data(), tables.size() * 8),
                                "cuMemcpyHtoD"));
    KVCODEC_CHECK(call(compress_(table<const void* const>(0), table<const size_t>(1), kPiece,
                                 pieces_, reinterpret_cast<void*>(temp.data()), temp_bytes,
                                 table<void* const>(2), table<size_t>(4), {}, statuses(), stream_),
                       "CompressAsync"));
    KVCODEC_CHECK(driver_.check(cuda.cuStreamSynchronize(stream_), "cuStreamSynchronize"));
    std::vector<uint64_t> sizes(pieces_);
    KVCODEC_CHECK(driver_.check(
        cuda.cuMemcpyDtoH(sizes.data(), tables_.data() + 4 * pieces_ * 8, pieces_ * 8),
        "cuMemcpyDtoH"));
    compressed_ = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
    KVCODEC_CHECK(call(decompress_temp_(pieces_, kPiece, {}, &temp_bytes_, bytes.size(), stream_),
                       "DecompressGetTempSize"));
    KVCODEC_TRY(temp_, DeviceBuffer::allocate(driver_, std::max<size_t>(temp_bytes_, 1)));
    return ok_status();
  }

  size_t compressed_bytes() const override { return compressed_; }
  CUstream stream() const override { return stream_; }

  Status decode() override {
    return call(
        decompress_(table<const void* const>(2), table<const size_t>(4), table<const size_t>(1),
                    nullptr, pieces_, reinterpret_cast<void*>(temp_.data()), temp_bytes_,
                    table<void* const>(3), {}, nullptr, stream_),
        "DecompressAsync");
  }

  Result<bool> is_right() override {
    std::vector<uint8_t> found(plain_.size());
    KVCODEC_CHECK(driver_.check(driver_.cuda().cuStreamSynchronize(stream_), "decoding"));
    KVCODEC_CHECK(driver_.check(driver_.cuda().cuMemcpyDtoH(found.data(), to_.data(), found.size()),
                                "cuMemcpyDtoH"));
    return found == plain_;
  }

 private:
  static Status call(int result, const char* name) {
    if (result == 0) return ok_status();
    return make_error(ErrorCode::device, "nvcompBatchedANS{}: error {}", name, result);
  }
  // Arrays of one number a piece: plain pointers, sizes, packed pointers, output pointers, packed
  // sizes, statuses.
  template <typename T>
  T* table(size_t index) const {
    return reinterpret_cast<T*>(tables_.data() + index * pieces_ * 8);
  }
  int* statuses() const { return table<int>(5); }

  const CudaDriver& driver_;
  CompressTempSize compress_temp_ = nullptr;
  MaxOutputSize max_output_ = nullptr;
  Compress compress_ = nullptr;
  DecompressTempSize decompress_temp_ = nullptr;
  Decompress decompress_ = nullptr;
  CUstream stream_ = nullptr;
  size_t pieces_ = 0, compressed_ = 0, temp_bytes_ = 0;
  std::vector<uint8_t> plain_;
  DeviceBuffer from_, packed_, to_, tables_, temp_;
};
// NOLINTEND(performance-no-int-to-ptr)

}  // namespace

Result<std::unique_ptr<NvcompAns>> NvcompAns::open(const CudaDriver& driver) {
  auto ans = std::make_unique<Ans>(driver);
  KVCODEC_CHECK(ans->load());
  return std::unique_ptr<NvcompAns>(std::move(ans));
}

}  // namespace kvcodec::bench
