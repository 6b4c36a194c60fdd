// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "hevc/stream.h"
#include "unit/hevc/hevc_pictures.h"

namespace kvcodec::hevc {
namespace {

// Reads the codes of 7.2 and 9.2 from a NAL unit's payload.
class BitReader {
 public:
  explicit BitReader(std::span<const uint8_t> payload) {
    int zeros = 0;
    for (uint8_t byte : payload) {
      if (zeros >= 2 && byte == 3) {
        zeros = 0;
        continue;
      }
      bytes_.push_back(byte);
      zeros = byte == 0 ? zeros + 1 : 0;
    }
  }
  uint32_t bits(int n) {
    uint32_t value = 0;
    for (int i = 0; i < n; ++i, ++at_) {
      const uint32_t bit = at_ / 8 < bytes_.size() ? bytes_[at_ / 8] >> (7 - at_ % 8) & 1 : 0;
      value = value << 1 | bit;
    }
    return value;
  }
  uint32_t ue() {
    int zeros = 0;
    while (bits(1) == 0 && zeros < 32) ++zeros;
    return (1u << zeros) - 1 + bits(zeros);
  }
  int32_t se() {
    const uint32_t code = ue();
    return code % 2 != 0 ? static_cast<int32_t>(code / 2 + 1) : -static_cast<int32_t>(code / 2);
  }
  // A one, zeros up to the end of the byte, and nothing after it.
  bool at_trailing_bits() {
    if (bits(1) != 1) return false;
    while (at_ % 8 != 0) {
      if (bits(1) != 0) return false;
    }
    return at_ == bytes_.size() * 8;
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t at_ = 0;
};

struct Nal {
  int type;
  std::vector<uint8_t> payload;
};

// Cuts an Annex B stream at its four-byte start codes.
std::vector<Nal> cut(const std::vector<uint8_t>& stream) {
  std::vector<size_t> starts;
  for (size_t i = 0; i + 4 <= stream.size(); ++i) {
    if (stream[i] == 0 && stream[i + 1] == 0 && stream[i + 2] == 0 && stream[i + 3] == 1) {
      starts.push_back(i);
    }
  }
  std::vector<Nal> nals;
  for (size_t i = 0; i < starts.size(); ++i) {
    const size_t end = i + 1 < starts.size() ? starts[i + 1] : stream.size();
    EXPECT_EQ(stream[starts[i] + 4] & 0x81, 0);  // forbidden_zero_bit, nuh_layer_id
    EXPECT_EQ(stream[starts[i] + 5], 1);         // nuh_layer_id, nuh_temporal_id_plus1
    nals.push_back({stream[starts[i] + 4] >> 1,
                    {stream.begin() + static_cast<ptrdiff_t>(starts[i] + 6),
                     stream.begin() + static_cast<ptrdiff_t>(end)}});
  }
  return nals;
}

struct Profile {
  uint32_t idc, compatibility, level;
};

Profile read_profile(BitReader& in) {  // 7.3.3
  Profile profile;
  EXPECT_EQ(in.bits(2), 0u);
  EXPECT_EQ(in.bits(1), 1u);
  profile.idc = in.bits(5);
  profile.compatibility = in.bits(32);
  EXPECT_EQ(in.bits(4), 0b1001u);
  if (profile.idc == 4) {
    EXPECT_EQ(in.bits(9), 0b111000001u);
    EXPECT_EQ(in.bits(32), 0u);
    EXPECT_EQ(in.bits(3), 0u);
  } else {
    EXPECT_EQ(in.bits(32), 0u);
    EXPECT_EQ(in.bits(12), 0u);
  }
  profile.level = in.bits(8);
  return profile;
}

void expect_buffering(BitReader& in) {
  EXPECT_EQ(in.bits(1), 1u);
  EXPECT_EQ(in.ue(), 1u);  // two pictures
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.ue(), 0u);
}

struct Sequence {
  Profile profile;
  uint32_t width, height, crop_right = 0, crop_bottom = 0;
  bool persistent_rice = false;
};

Sequence read_sequence(const Nal& nal) {  // 7.3.2.2
  BitReader in(nal.payload);
  Sequence sequence;
  EXPECT_EQ(in.bits(8), 1u);  // VPS 0, one sub-layer, temporal_id_nesting
  sequence.profile = read_profile(in);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.ue(), 1u);  // 4:2:0
  sequence.width = in.ue();
  sequence.height = in.ue();
  if (in.bits(1) != 0) {
    EXPECT_EQ(in.ue(), 0u);
    sequence.crop_right = in.ue();
    EXPECT_EQ(in.ue(), 0u);
    sequence.crop_bottom = in.ue();
  }
  EXPECT_EQ(in.ue(), 0u);  // 8 bits
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.ue(), 12u);  // 16 bits of picture order count
  expect_buffering(in);
  for (const uint32_t expected : {2u, 0u, 0u, 3u, 0u, 0u}) EXPECT_EQ(in.ue(), expected);
  EXPECT_EQ(in.bits(4), 0u);  // scaling lists, AMP, SAO, PCM
  EXPECT_EQ(in.ue(), 0u);     // reference picture sets
  EXPECT_EQ(in.bits(4), 0u);  // long-term, temporal MVP, smoothing, VUI
  if (in.bits(1) != 0) {
    EXPECT_EQ(in.bits(8), 0x80u);
    EXPECT_EQ(in.bits(9), 2u);
    sequence.persistent_rice = true;
  }
  EXPECT_TRUE(in.at_trailing_bits());
  return sequence;
}

TEST(StreamStart, HoldsParameterSetsAndTheFlatPicture) {
  const auto nals = cut(stream_start({160, 192, false}));
  ASSERT_EQ(nals.size(), 4u);
  EXPECT_EQ(nals[0].type, 32);
  EXPECT_EQ(nals[1].type, 33);
  EXPECT_EQ(nals[2].type, 34);
  EXPECT_EQ(nals[3].type, 20);
  const Sequence sequence = read_sequence(nals[1]);
  EXPECT_EQ(sequence.profile.idc, 1u);
  EXPECT_EQ(sequence.profile.compatibility, 0x60000000u);
  EXPECT_EQ(sequence.profile.level, 186u);
  EXPECT_EQ(sequence.width, 160u);
  EXPECT_EQ(sequence.height, 192u);
  EXPECT_EQ(sequence.crop_right, 0u);
  EXPECT_EQ(sequence.crop_bottom, 0u);
  EXPECT_FALSE(sequence.persistent_rice);
}

TEST(StreamStart, PadsToBlocksAndCropsInChromaSamples) {
  const Sequence sequence = read_sequence(cut(stream_start({152, 144, false}))[1]);
  EXPECT_EQ(sequence.width, 160u);
  EXPECT_EQ(sequence.height, 160u);
  EXPECT_EQ(sequence.crop_right, 4u);
  EXPECT_EQ(sequence.crop_bottom, 8u);
}

TEST(StreamStart, PersistentRiceNeedsTheRangeExtensions) {
  const Sequence sequence = read_sequence(cut(stream_start({256, 1920, true}))[1]);
  EXPECT_EQ(sequence.profile.idc, 4u);
  EXPECT_EQ(sequence.profile.compatibility, 0x08000000u);
  EXPECT_TRUE(sequence.persistent_rice);
}

TEST(StreamStart, LevelFollowsThePictureSize) {  // Table A.8
  EXPECT_EQ(read_sequence(cut(stream_start({8192, 4352, false}))[1]).profile.level, 186u);
  EXPECT_EQ(read_sequence(cut(stream_start({8192, 4360, false}))[1]).profile.level, 189u);
  EXPECT_EQ(read_sequence(cut(stream_start({8192, 8192, true}))[1]).profile.level, 189u);
}

TEST(StreamStart, VideoParameterSet) {
  BitReader in(cut(stream_start({144, 144, false}))[0].payload);
  EXPECT_EQ(in.bits(16), 0b0000'11'000000'000'1u);
  EXPECT_EQ(in.bits(16), 0xffffu);
  EXPECT_EQ(read_profile(in).idc, 1u);
  expect_buffering(in);
  EXPECT_EQ(in.bits(6), 0u);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.bits(2), 0u);
  EXPECT_TRUE(in.at_trailing_bits());
}

TEST(StreamStart, PictureParameterSetAllowsLosslessUnitsAndNoLoopFilter) {  // 7.3.2.3
  BitReader in(cut(stream_start({144, 144, false}))[2].payload);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.bits(7), 0b0000001u);  // cabac_init_present_flag alone
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.se(), -26);  // QP 0
  EXPECT_EQ(in.bits(3), 0u);
  EXPECT_EQ(in.se(), 0);
  EXPECT_EQ(in.se(), 0);
  // Chroma offsets, weights (2), transquant_bypass, tiles, synchronisation, loop filter across
  // slices, deblocking control: present, not overridden, disabled; scaling lists, list order.
  EXPECT_EQ(in.bits(12), 0b000100010100u);
  EXPECT_EQ(in.ue(), 0u);
  EXPECT_EQ(in.bits(2), 0u);
  EXPECT_TRUE(in.at_trailing_bits());
}

TEST(PictureHeader, RefersToTheFlatPictureAlone) {
  for (const uint32_t poc : {1u, 2u, 3u, 128u, kMaxPicturesPerStart}) {
    const auto nals = cut(picture_header({144, 144, false}, poc));
    ASSERT_EQ(nals.size(), 1u);
    EXPECT_EQ(nals[0].type, 1);
    BitReader in(nals[0].payload);
    EXPECT_EQ(in.bits(1), 1u);
    EXPECT_EQ(in.ue(), 0u);
    EXPECT_EQ(in.ue(), 1u);  // P
    EXPECT_EQ(in.bits(16), poc);
    EXPECT_EQ(in.bits(1), 0u);
    EXPECT_EQ(in.ue(), 1u);
    EXPECT_EQ(in.ue(), 0u);
    EXPECT_EQ(in.ue(), poc - 1);
    EXPECT_EQ(in.bits(1), 1u);
    EXPECT_EQ(in.bits(2), 0u);
    EXPECT_EQ(in.ue(), 4u);  // MaxNumMergeCand 1
    EXPECT_EQ(in.se(), 0);
    EXPECT_TRUE(in.at_trailing_bits());
  }
}

TEST(CheckParameters, AcceptsMultiplesOf8InTheLimits) {
  EXPECT_TRUE(check_parameters({144, 144, false}).ok());
  EXPECT_TRUE(check_parameters({8192, 8192, true}).ok());
  const std::pair<uint32_t, uint32_t> wrong[] = {{0, 144}, {136, 144},   {144, 136},  {148, 144},
                                                 {144, 0}, {8200, 8192}, {8192, 8200}};
  for (const auto& [width, height] : wrong) {
    const Status status = check_parameters({width, height, false});
    ASSERT_FALSE(status.ok()) << width << "x" << height;
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  }
  EXPECT_EQ(check_parameters({148, 144, false}).error().message,
            "picture width: expected a multiple of 8 in [144, 8192], found 148");
}

}  // namespace
}  // namespace kvcodec::hevc
