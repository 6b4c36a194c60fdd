// SPDX-License-Identifier: Apache-2.0
#include "hevc/nvdec_session.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "hevc/cabac_tables.h"
#include "hevc/stream.h"

namespace kvcodec::hevc {
namespace {

constexpr int kMinDepth = 2, kMaxDepth = 8;
// Surface 0 is the flat picture; slot i decodes into surface 1 + i.
constexpr int kFlatSurface = 0;
// Pictures mapped at once: one being used, one being waited for.
constexpr int kOutputSurfaces = 2;
constexpr int kOtherSurfaces = 1 + kOutputSurfaces;
// Bits of st_ref_pic_set() in picture_header() for picture order count 1: ue(1), ue(0), ue(0),
// u(1).
constexpr int kRefPicSetBits = 6;

uint32_t coded(uint32_t side) { return blocks_of(side) * kBlock; }

// A decoded or mapped surface: NV12, rows padded to what drivers align to.
uint64_t surface_bytes(uint32_t width, uint32_t height) {
  return (uint64_t{width} + 255) / 256 * 256 * height * 3 / 2;
}

// What never changes in the parameter sets of stream.h (7.4.3.2, 7.4.3.3).
void set_tools(CUVIDHEVCPICPARAMS& hevc, const StreamParameters& parameters) {
  hevc.pic_width_in_luma_samples = static_cast<int>(coded(parameters.width));
  hevc.pic_height_in_luma_samples = static_cast<int>(coded(parameters.height));
  hevc.log2_min_luma_coding_block_size_minus3 = 2;
  hevc.log2_min_transform_block_size_minus2 = 0;
  hevc.log2_diff_max_min_transform_block_size = 3;
  hevc.log2_max_pic_order_cnt_lsb_minus4 = 12;
  hevc.init_qp_minus26 = static_cast<signed char>(kSliceQp - 26);
  hevc.transquant_bypass_enabled_flag = 1;
  hevc.cabac_init_present_flag = 1;
  hevc.pps_deblocking_filter_disabled_flag = 1;
  hevc.sps_range_extension_flag = parameters.persistent_rice ? 1 : 0;
  hevc.persistent_rice_adaptation_enabled_flag = parameters.persistent_rice ? 1 : 0;
}

}  // namespace

NvdecSession::~NvdecSession() {
  destroy();
  for (Slot& slot : slots_) {
    if (slot.used != nullptr) driver_.cuda().cuEventDestroy(slot.used);
  }
  if (stream_ != nullptr) driver_.cuda().cuStreamDestroy(stream_);
}

void NvdecSession::destroy() {
  for (Slot& slot : slots_) {
    if (slot.mapped != 0) driver_.cuvid().cuvidUnmapVideoFrame(decoder_, slot.mapped);
    slot.mapped = 0;
  }
  if (decoder_ != nullptr) driver_.cuvid().cuvidDestroyDecoder(decoder_);
  decoder_ = nullptr;
}

Status NvdecSession::configure(const StreamParameters& parameters, bool& created) {
  KVCODEC_CHECK(check_parameters(parameters));
  const uint32_t width = coded(parameters.width), height = coded(parameters.height);
  const NvdecInfo& info = driver_.info();
  if (width > info.max_width || height > info.max_height) {
    return make_error(ErrorCode::unsupported, "NVDEC: expected pictures up to {}x{}, found {}x{}",
                      info.max_width, info.max_height, width, height);
  }
  created = decoder_ == nullptr || width > max_width_ || height > max_height_;
  const bool resize =
      created || coded(parameters_.width) != width || coded(parameters_.height) != height;
  if (created) KVCODEC_CHECK(create(width, height));
  if (width != width_ || height != height_) KVCODEC_CHECK(reconfigure(width, height));
  parameters_ = parameters;
  header_ = picture_header(parameters, 1);
  // Both profiles share the flat picture, which needs no residual.
  return resize ? decode(kFlatSurface, flat_picture_unit(parameters), true) : ok_status();
}

int NvdecSession::fitting_depth(uint32_t width, uint32_t height) const {
  const uint64_t surfaces = max_bytes_ / surface_bytes(width, height);
  return static_cast<int>(std::min<uint64_t>(surfaces, kMaxDepth + kOtherSurfaces)) -
         kOtherSurfaces;
}

Status NvdecSession::create(uint32_t width, uint32_t height) {
  destroy();
  // Room for all sizes so far, so that going back to one is a reconfiguration.
  largest_.include(width, height);
  if (const uint32_t w = largest_.width, h = largest_.height; fitting_depth(w, h) >= kMinDepth) {
    max_width_ = w;
    max_height_ = h;
  } else {
    max_width_ = width;
    max_height_ = height;
  }
  depth_ = std::min(fitting_depth(max_width_, max_height_), kMaxDepth);
  if (depth_ < kMinDepth) {
    return make_error(
        ErrorCode::out_of_memory,
        "NVDEC: a picture of {}x{} needs {} bytes of device memory, the limit leaves {}", width,
        height, surface_bytes(width, height) * (kMinDepth + kOtherSurfaces), max_bytes_);
  }
  CUVIDDECODECREATEINFO info = {};
  info.CodecType = cudaVideoCodec_HEVC;
  info.ChromaFormat = cudaVideoChromaFormat_420;
  info.OutputFormat = cudaVideoSurfaceFormat_NV12;
  info.DeinterlaceMode = cudaVideoDeinterlaceMode_Weave;
  info.ulCreationFlags = cudaVideoCreate_PreferCUVID;
  info.ulNumDecodeSurfaces = static_cast<tcu_ulong>(depth_) + 1;
  info.ulNumOutputSurfaces = kOutputSurfaces;
  // Mapped surfaces stay as large as they are created: a driver that is reconfigured to a larger
  // size (within the maxima) maps rows that are too short, without an error.
  info.ulWidth = info.ulTargetWidth = info.ulMaxWidth = max_width_;
  info.ulHeight = info.ulTargetHeight = info.ulMaxHeight = max_height_;
  KVCODEC_CHECK(
      driver_.check(driver_.cuvid().cuvidCreateDecoder(&decoder_, &info), "cuvidCreateDecoder"));
  if (stream_ == nullptr) {
    KVCODEC_TRY(stream_, driver_.driver().new_stream(stream_priority_));
  }
  while (static_cast<int>(slots_.size()) < depth_) {
    slots_.emplace_back();
    KVCODEC_CHECK(
        driver_.check(driver_.cuda().cuEventCreate(&slots_.back().used, CU_EVENT_DISABLE_TIMING),
                      "cuEventCreate"));
  }
  return ok_status();
}

Status NvdecSession::reconfigure(uint32_t width, uint32_t height) {
  CUVIDRECONFIGUREDECODERINFO info = {};
  info.ulWidth = info.ulTargetWidth = width;
  info.ulHeight = info.ulTargetHeight = height;
  info.ulNumDecodeSurfaces = static_cast<unsigned>(depth_ + 1);
  KVCODEC_CHECK(driver_.check(driver_.cuvid().cuvidReconfigureDecoder(decoder_, &info),
                              "cuvidReconfigureDecoder"));
  width_ = width;
  height_ = height;
  return ok_status();
}

Status NvdecSession::submit(int slot, std::span<const uint8_t> slice_data) {
  input_.resize(header_.size() + slice_data.size());
  std::memcpy(input_.data(), header_.data(), header_.size());
  std::memcpy(input_.data() + header_.size(), slice_data.data(), slice_data.size());
  return decode(1 + slot, input_, false);
}

Status NvdecSession::decode(int surface, std::span<const uint8_t> data, bool flat) {
  CUVIDPICPARAMS picture = {};
  picture.PicWidthInMbs = static_cast<int>(coded(parameters_.width) / 16);
  picture.FrameHeightInMbs = static_cast<int>(coded(parameters_.height) / 16);
  picture.CurrPicIdx = surface;
  data = data.subspan(1);  // the driver wants the start code's three bytes, without zero_byte
  picture.nBitstreamDataLen = static_cast<unsigned>(data.size());
  picture.pBitstreamData = data.data();
  const unsigned offset = 0;
  picture.nNumSlices = 1;
  picture.pSliceDataOffsets = &offset;
  picture.ref_pic_flag = 1;
  picture.intra_pic_flag = flat ? 1 : 0;
  CUVIDHEVCPICPARAMS& hevc = picture.CodecSpecific.hevc;
  set_tools(hevc, parameters_);
  hevc.IrapPicFlag = hevc.IdrPicFlag = flat ? 1 : 0;
  std::fill(std::begin(hevc.RefPicIdx), std::end(hevc.RefPicIdx), -1);
  if (!flat) {
    hevc.CurrPicOrderCntVal = 1;
    hevc.NumBitsForShortTermRPSInSlice = kRefPicSetBits;
    hevc.NumPocTotalCurr = hevc.NumPocStCurrBefore = 1;
    hevc.RefPicIdx[0] = kFlatSurface;
  }
  return driver_.check(driver_.cuvid().cuvidDecodePicture(decoder_, &picture),
                       "cuvidDecodePicture");
}

Result<DevicePicture> NvdecSession::map(int slot) {
  CUVIDPROCPARAMS process = {};
  process.progressive_frame = 1;
  process.output_stream = stream_;
  CUdeviceptr samples = 0;
  unsigned pitch = 0;
  KVCODEC_CHECK(driver_.check(
      driver_.cuvid().cuvidMapVideoFrame(decoder_, 1 + slot, &samples, &pitch, &process),
      "cuvidMapVideoFrame"));
  slots_[static_cast<size_t>(slot)].mapped = samples;
  CUVIDGETDECODESTATUS status = {};
  KVCODEC_CHECK(driver_.check(driver_.cuvid().cuvidGetDecodeStatus(decoder_, 1 + slot, &status),
                              "cuvidGetDecodeStatus"));
  if (status.decodeStatus == cuvidDecodeStatus_Error ||
      status.decodeStatus == cuvidDecodeStatus_Error_Concealed) {
    return make_error(ErrorCode::corrupt, "decoded picture: NVDEC reports an error (status {})",
                      static_cast<int>(status.decodeStatus));
  }
  if (pitch < parameters_.width) {
    return make_error(ErrorCode::device, "cuvidMapVideoFrame: rows of {} samples, {} bytes apart",
                      parameters_.width, pitch);
  }
  return DevicePicture{samples, pitch, parameters_.width, parameters_.height};
}

Status NvdecSession::mark(int slot) {
  return driver_.check(
      driver_.cuda().cuEventRecord(slots_[static_cast<size_t>(slot)].used, stream_),
      "cuEventRecord");
}

Status NvdecSession::unmap(int slot) {
  Slot& at = slots_[static_cast<size_t>(slot)];
  KVCODEC_CHECK(driver_.check(driver_.cuda().cuEventSynchronize(at.used), "cuEventSynchronize"));
  const CUdeviceptr mapped = std::exchange(at.mapped, 0);
  return driver_.check(driver_.cuvid().cuvidUnmapVideoFrame(decoder_, mapped),
                       "cuvidUnmapVideoFrame");
}

}  // namespace kvcodec::hevc
