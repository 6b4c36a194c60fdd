// SPDX-License-Identifier: Apache-2.0
#include "hevc/stream.h"

#include <array>
#include <bit>

#include "base/error.h"
#include "hevc/bit_writer.h"
#include "hevc/cabac_encoder.h"
#include "hevc/fast_cabac.h"

namespace kvcodec::hevc {
namespace {

// Table 7-1.
enum class NalType : uint8_t { trail_r = 1, idr_n_lp = 20, vps = 32, sps = 33, pps = 34 };

constexpr int kPocBits = 16;  // log2_max_pic_order_cnt_lsb: no picture's order count wraps
static_assert(kMaxPicturesPerStart < 1u << (kPocBits - 1));

constexpr int kLog2Block = std::countr_zero(kBlock);

// Start code, nal_unit_header (7.3.1.2) and payload.
void append_nal(std::vector<uint8_t>& out, NalType type, std::span<const uint8_t> payload) {
  const std::array<uint8_t, 6> head = {
      0, 0, 0, 1, static_cast<uint8_t>(static_cast<int>(type) << 1), 1};  // nuh_temporal_id_plus1
  out.insert(out.end(), head.begin(), head.end());
  const size_t from = out.size();
  out.insert(out.end(), payload.begin(), payload.end());
  insert_emulation_prevention(out, from);
}

// Smallest level of Table A.8 that allows the luma picture size, not below 6.2. What a level says
// of bit rates and decoding times means nothing here: the stream has no clock.
uint8_t level_idc(const StreamParameters& parameters) {
  constexpr uint32_t kMaxLumaPs62 = 35651584;  // levels 6 to 6.2; level 6.3: 80216064
  const uint64_t samples =
      uint64_t{blocks_of(parameters.width) * kBlock} * (blocks_of(parameters.height) * kBlock);
  return samples <= kMaxLumaPs62 ? 186 : 189;  // 30 times the level
}

// profile_tier_level (7.3.3): Main, or with persistent_rice Main 4:4:4 of the format range
// extensions (Table A.2), which allows 4:2:0 too and is the least that allows the tool.
void put_profile(BitWriter& out, const StreamParameters& parameters) {
  const uint32_t profile = parameters.persistent_rice ? 4 : 1;
  out.put(0, 2);        // general_profile_space
  out.put_flag(true);   // general_tier_flag: High
  out.put(profile, 5);  // general_profile_idc
  // general_profile_compatibility_flag[0..31]: Main streams are Main 10 streams too.
  out.put(1u << (31 - profile) | (profile == 1 ? 1u << (31 - 2) : 0), 32);
  out.put_flag(true);   // general_progressive_source_flag
  out.put_flag(false);  // general_interlaced_source_flag
  out.put_flag(false);  // general_non_packed_constraint_flag
  out.put_flag(true);   // general_frame_only_constraint_flag
  if (parameters.persistent_rice) {
    out.put(0b111, 3);    // general_max_12bit, _10bit, _8bit_constraint_flag
    out.put(0b000, 3);    // general_max_422chroma, _420chroma, _monochrome_constraint_flag
    out.put_flag(false);  // general_intra_constraint_flag
    out.put_flag(false);  // general_one_picture_only_constraint_flag
    out.put_flag(true);   // general_lower_bit_rate_constraint_flag
    out.put(0, 32);
    out.put(0, 2);  // general_reserved_zero_34bits
  } else {
    out.put(0, 32);
    out.put(0, 11);  // general_reserved_zero_43bits
  }
  out.put_flag(false);  // general_reserved_zero_bit
  out.put(level_idc(parameters), 8);
}

// Decoded picture buffer, for VPS and SPS: the flat picture and the current one, no reordering.
void put_buffering(BitWriter& out) {
  out.put_flag(true);  // sub_layer_ordering_info_present_flag
  out.put_ue(1);       // max_dec_pic_buffering_minus1
  out.put_ue(0);       // max_num_reorder_pics
  out.put_ue(0);       // max_latency_increase_plus1
}

std::vector<uint8_t> video_parameter_set(const StreamParameters& parameters) {  // 7.3.2.1
  BitWriter out;
  out.put(0, 4);        // vps_video_parameter_set_id
  out.put(0b11, 2);     // vps_base_layer_internal_flag, vps_base_layer_available_flag
  out.put(0, 6);        // vps_max_layers_minus1
  out.put(0, 3);        // vps_max_sub_layers_minus1
  out.put_flag(true);   // vps_temporal_id_nesting_flag
  out.put(0xffff, 16);  // vps_reserved_0xffff_16bits
  put_profile(out, parameters);
  put_buffering(out);
  out.put(0, 6);        // vps_max_layer_id
  out.put_ue(0);        // vps_num_layer_sets_minus1
  out.put_flag(false);  // vps_timing_info_present_flag
  out.put_flag(false);  // vps_extension_flag
  out.put_trailing_bits();
  return out.take();
}

std::vector<uint8_t> sequence_parameter_set(const StreamParameters& parameters) {  // 7.3.2.2
  const uint32_t width = blocks_of(parameters.width) * kBlock;
  const uint32_t height = blocks_of(parameters.height) * kBlock;
  BitWriter out;
  out.put(0, 4);       // sps_video_parameter_set_id
  out.put(0, 3);       // sps_max_sub_layers_minus1
  out.put_flag(true);  // sps_temporal_id_nesting_flag
  put_profile(out, parameters);
  out.put_ue(0);       // sps_seq_parameter_set_id
  out.put_ue(1);       // chroma_format_idc: 4:2:0
  out.put_ue(width);   // pic_width_in_luma_samples
  out.put_ue(height);  // pic_height_in_luma_samples
  const bool crop = width != parameters.width || height != parameters.height;
  out.put_flag(crop);  // conformance_window_flag
  if (crop) {          // in chroma samples
    out.put_ue(0);
    out.put_ue((width - parameters.width) / 2);  // conf_win_right_offset
    out.put_ue(0);
    out.put_ue((height - parameters.height) / 2);  // conf_win_bottom_offset
  }
  out.put_ue(0);             // bit_depth_luma_minus8
  out.put_ue(0);             // bit_depth_chroma_minus8
  out.put_ue(kPocBits - 4);  // log2_max_pic_order_cnt_lsb_minus4
  put_buffering(out);
  out.put_ue(kLog2Block - 3);  // log2_min_luma_coding_block_size_minus3
  out.put_ue(0);               // log2_diff_max_min_luma_coding_block_size
  out.put_ue(0);  // log2_min_luma_transform_block_size_minus2: must be below the coding block
  out.put_ue(kLog2Block - 2);                // log2_diff_max_min_luma_transform_block_size
  out.put_ue(0);                             // max_transform_hierarchy_depth_inter
  out.put_ue(0);                             // max_transform_hierarchy_depth_intra
  out.put_flag(false);                       // scaling_list_enabled_flag
  out.put_flag(false);                       // amp_enabled_flag
  out.put_flag(false);                       // sample_adaptive_offset_enabled_flag
  out.put_flag(false);                       // pcm_enabled_flag
  out.put_ue(0);                             // num_short_term_ref_pic_sets
  out.put_flag(false);                       // long_term_ref_pics_present_flag
  out.put_flag(false);                       // sps_temporal_mvp_enabled_flag
  out.put_flag(false);                       // strong_intra_smoothing_enabled_flag
  out.put_flag(false);                       // vui_parameters_present_flag
  out.put_flag(parameters.persistent_rice);  // sps_extension_present_flag
  if (parameters.persistent_rice) {
    out.put(0b1000'0000, 8);  // sps_range_extension_flag alone
    // sps_range_extension (7.3.2.2.2): persistent_rice_adaptation_enabled_flag alone.
    out.put(0b0'0000'0010, 9);
  }
  out.put_trailing_bits();
  return out.take();
}

std::vector<uint8_t> picture_parameter_set() {  // 7.3.2.3
  BitWriter out;
  out.put_ue(0);              // pps_pic_parameter_set_id
  out.put_ue(0);              // pps_seq_parameter_set_id
  out.put_flag(false);        // dependent_slice_segments_enabled_flag
  out.put_flag(false);        // output_flag_present_flag
  out.put(0, 3);              // num_extra_slice_header_bits
  out.put_flag(false);        // sign_data_hiding_enabled_flag
  out.put_flag(true);         // cabac_init_present_flag
  out.put_ue(0);              // num_ref_idx_l0_default_active_minus1
  out.put_ue(0);              // num_ref_idx_l1_default_active_minus1
  out.put_se(kSliceQp - 26);  // init_qp_minus26
  out.put_flag(false);        // constrained_intra_pred_flag
  out.put_flag(false);        // transform_skip_enabled_flag
  out.put_flag(false);        // cu_qp_delta_enabled_flag
  out.put_se(0);              // pps_cb_qp_offset
  out.put_se(0);              // pps_cr_qp_offset
  out.put_flag(false);        // pps_slice_chroma_qp_offsets_present_flag
  out.put_flag(false);        // weighted_pred_flag
  out.put_flag(false);        // weighted_bipred_flag
  out.put_flag(true);         // transquant_bypass_enabled_flag
  out.put_flag(false);        // tiles_enabled_flag
  out.put_flag(false);        // entropy_coding_sync_enabled_flag
  out.put_flag(false);        // pps_loop_filter_across_slices_enabled_flag
  out.put_flag(true);         // deblocking_filter_control_present_flag
  out.put_flag(false);        // deblocking_filter_override_enabled_flag
  out.put_flag(true);         // pps_deblocking_filter_disabled_flag
  out.put_flag(false);        // pps_scaling_list_data_present_flag
  out.put_flag(false);        // lists_modification_present_flag
  out.put_ue(0);              // log2_parallel_merge_level_minus2
  out.put_flag(false);        // slice_segment_header_extension_present_flag
  out.put_flag(false);        // pps_extension_present_flag
  out.put_trailing_bits();
  return out.take();
}

// The IDR picture: every block DC-predicted from nothing, which gives 128, without residual.
std::vector<uint8_t> flat_picture(const StreamParameters& parameters) {
  BitWriter header;        // slice_segment_header (7.3.6.1)
  header.put_flag(true);   // first_slice_segment_in_pic_flag
  header.put_flag(false);  // no_output_of_prior_pics_flag
  header.put_ue(0);        // slice_pic_parameter_set_id
  header.put_ue(2);        // slice_type: I
  header.put_se(0);        // slice_qp_delta
  header.put_trailing_bits();
  std::vector<uint8_t> out = header.take();

  CabacEncoder cabac(SliceType::i, out);
  const uint64_t blocks = uint64_t{blocks_of(parameters.width)} * blocks_of(parameters.height);
  for (uint64_t i = 0; i < blocks; ++i) {
    cabac.put(kCuTransquantBypass, true);
    cabac.put(kPartMode, true);  // 2Nx2N
    cabac.put(kPrevIntraLumaPred, true);
    cabac.put_bypass_bits(0b10, 2);      // mpm_idx 1: DC, among {planar, DC, vertical} (8.4.2)
    cabac.put(kIntraChromaPred, false);  // as luma
    cabac.put(kCbfChroma, false);        // cbf_cb
    cabac.put(kCbfChroma, false);        // cbf_cr
    cabac.put(kCbfLuma, false);
    cabac.put_terminate(i == blocks - 1);
  }
  cabac.finish();
  return out;
}

}  // namespace

Status check_parameters(const StreamParameters& parameters) {
  const auto check = [](const char* side, uint32_t samples) -> Status {
    if (samples < kMinPictureSide || samples > kMaxPictureSide || samples % kPictureSideStep != 0) {
      return make_error(ErrorCode::invalid_argument,
                        "picture {}: expected a multiple of {} in [{}, {}], found {}", side,
                        kPictureSideStep, kMinPictureSide, kMaxPictureSide, samples);
    }
    return ok_status();
  };
  KVCODEC_CHECK(check("width", parameters.width));
  return check("height", parameters.height);
}

uint64_t max_slice_data_bytes(const StreamParameters& parameters) {
  const uint64_t blocks = uint64_t{blocks_of(parameters.width)} * blocks_of(parameters.height);
  // At worst every third byte of the result is an emulation_prevention_three_byte.
  return (blocks * kMaxBlockBytes + 8) * 3 / 2;
}

std::vector<uint8_t> stream_start(const StreamParameters& parameters) {
  std::vector<uint8_t> out;
  append_nal(out, NalType::vps, video_parameter_set(parameters));
  append_nal(out, NalType::sps, sequence_parameter_set(parameters));
  append_nal(out, NalType::pps, picture_parameter_set());
  append_nal(out, NalType::idr_n_lp, flat_picture(parameters));
  return out;
}

std::vector<uint8_t> flat_picture_unit(const StreamParameters& parameters) {
  std::vector<uint8_t> out;
  append_nal(out, NalType::idr_n_lp, flat_picture(parameters));
  return out;
}

std::vector<uint8_t> picture_header(const StreamParameters&, uint32_t poc) {
  BitWriter header;                 // slice_segment_header (7.3.6.1)
  header.put_flag(true);            // first_slice_segment_in_pic_flag
  header.put_ue(0);                 // slice_pic_parameter_set_id
  header.put_ue(1);                 // slice_type: P
  header.put(poc, kPocBits);        // slice_pic_order_cnt_lsb
  header.put_flag(false);           // short_term_ref_pic_set_sps_flag
  header.put_ue(1);                 // num_negative_pics (7.3.7)
  header.put_ue(0);                 // num_positive_pics
  header.put_ue(poc - 1);           // delta_poc_s0_minus1: the flat picture
  header.put_flag(true);            // used_by_curr_pic_s0_flag
  header.put_flag(false);           // num_ref_idx_active_override_flag
  header.put_flag(kCabacInitFlag);  // cabac_init_flag
  header.put_ue(4);                 // five_minus_max_num_merge_cand
  header.put_se(0);                 // slice_qp_delta
  header.put_trailing_bits();
  std::vector<uint8_t> out;
  append_nal(out, NalType::trail_r, header.take());
  return out;
}

}  // namespace kvcodec::hevc
