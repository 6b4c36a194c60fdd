// SPDX-License-Identifier: Apache-2.0
#include "hevc/cabac_tables.h"

#include <algorithm>

namespace kvcodec::hevc {
namespace {

// initValue of each context by initType (Tables 9-5 to 9-37): 0 in I slices, 1 in P slices, 2 in P
// slices with cabac_init_flag. 154 where a slice type has no such context.
constexpr uint8_t kInitValues[kContextCount][3] = {
    {154, 154, 154},                                    // cu_transquant_bypass_flag
    {154, 197, 197}, {154, 185, 185}, {154, 201, 201},  // cu_skip_flag
    {154, 149, 134},                                    // pred_mode_flag
    {184, 154, 154},                                    // part_mode
    {154, 110, 154},                                    // merge_flag
    {184, 154, 183},                                    // prev_intra_luma_pred_flag
    {63, 152, 152},                                     // intra_chroma_pred_mode
    {141, 111, 111},                                    // cbf_luma
    {94, 149, 149},                                     // cbf_cb, cbf_cr
    {111, 110, 125}, {143, 111, 126}, {127, 111, 111},  // last_sig_coeff_x_prefix
    {111, 95, 111},  {79, 94, 79},    {111, 110, 125}, {143, 111, 126},
    {127, 111, 111},                                                     // last_sig_coeff_y_prefix
    {111, 95, 111},  {79, 94, 79},    {91, 121, 121},  {171, 140, 140},  // coded_sub_block_flag
    {111, 155, 170},                                                     // sig_coeff_flag, DC
    {107, 166, 166}, {125, 183, 183}, {141, 140, 140},  // sig_coeff_flag, first sub-block
    {179, 136, 136}, {153, 153, 153}, {125, 154, 154},  // sig_coeff_flag, others
    {140, 154, 154}, {92, 196, 196},  {137, 196, 167}, {138, 167, 167},  // greater1, set 0
    {140, 154, 154}, {152, 152, 152}, {138, 167, 167}, {139, 182, 182},  // set 1
    {153, 182, 182}, {74, 134, 134},  {149, 149, 149}, {92, 136, 136},   // set 2
    {139, 153, 153}, {107, 121, 121}, {122, 136, 136}, {152, 137, 122},  // set 3
    {138, 107, 107}, {153, 167, 167}, {136, 91, 91},   {167, 122, 107},  // greater2
};

}  // namespace

ContextStates initial_contexts(SliceType type) {
  const int init_type = type == SliceType::i ? 0 : kCabacInitFlag ? 2 : 1;
  ContextStates states;
  for (size_t i = 0; i < states.size(); ++i) {
    const int value = kInitValues[i][init_type];
    const int slope = (value >> 4) * 5 - 45, offset = ((value & 15) << 3) - 16;
    const int state = std::clamp(((slope * kSliceQp) >> 4) + offset, 1, 126);
    states[i] = static_cast<uint8_t>(state > 63 ? (state - 64) << 1 | 1 : (63 - state) << 1);
  }
  return states;
}

}  // namespace kvcodec::hevc
