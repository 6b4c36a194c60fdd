// SPDX-License-Identifier: Apache-2.0
// Targets of vectors that are no types to be members, and one that our baseline makes needless.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "hevc/decoder_lanes.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <memory>
#include <new>
#include <vector>

#include "hevc/decoder_variants.h"
#include "hevc/lane_ops-inl.h"
#include "hevc/lane_tables.h"
#include "hevc/slice_walk.h"

// The same syntax as decoder_reference.cpp, which explains it; as many pictures at once as a vector
// has lanes of 32 bits. Every lane is at a sub-block of its own that is coded: so none idles
// because another's is not, and a lane whose picture ends takes the next one. Sub-blocks are
// decoded together, what lies between them lane by lane.
#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace kvcodec::hevc::HWY_NAMESPACE {

// 9.3.4.3 of all lanes. As in CabacReader, ivlOffset is the upper 9 bits of value, and range is
// scaled to it.
struct LaneCabac {
  V value, range;
  V waiting;  // bits below the offset
  V next;     // position of the first bit not in value
  const uint8_t* bytes;

  static constexpr uint32_t kWindow = 23;
  static constexpr uint32_t kMaxShift = 6;  // of a context bin: no LPS range is below 6

  HWY_INLINE void refill() {
    const V more = hn::Shl(gather_bits(bytes, hn::ShiftRight<3>(next)), hn::And(next, set(7)));
    value = hn::Or(value, hn::Shr(more, hn::Add(waiting, set(9))));
    next = hn::Add(next, hn::Sub(set(kWindow), waiting));
    waiting = set(kWindow);
  }
  // Before `bins` context bins.
  HWY_INLINE void need(uint32_t bins) {
    if (any(hn::Lt(waiting, set(kMaxShift * bins)))) refill();
  }

  // One bin of every lane where `active` is all ones, else nothing happens; `state` becomes the
  // context's next state. The bin is 0 or 1, in inactive lanes anything.
  template <bool all>
  HWY_INLINE V get(V& state, V active) {
    const V eights = hn::And(hn::ShiftRight<26>(range), set(24));
    V lps = lps_of(lps_words(state), eights);
    if (!all) lps = hn::And(lps, active);
    const V mps = hn::Sub(range, lps);
    const M more_probable = hn::Lt(value, mps);
    const V less = next_lps(state), more = next_mps(state);
    value = hn::Min(value, hn::Sub(value, mps));  // wraps where it must not be taken
    range = select(more_probable, mps, lps);
    const V shift = leading_zeros(range);
    range = hn::Shl(range, shift);
    value = hn::Shl(value, shift);
    waiting = hn::Sub(waiting, shift);
    const V bin = hn::And(select(more_probable, state, hn::Not(state)), set(1));
    state = select(more_probable, more, less);
    return bin;
  }
};

// The bypass bins of a sub-block: strings of kString bins, left aligned in high and low, each a
// division (see CabacReader::peek_bypass()).
struct LaneBypass {
  static constexpr int kString = 42;
  V high, low;
  V left;  // bins left
  V64 offset0, offset1, string0, string1;

  HWY_INLINE void peek(const LaneCabac& cabac, V offset, V position) {
    const V at = hn::ShiftRight<3>(position), shift = hn::And(position, set(7));
    const V first = gather_bits(cabac.bytes, at),
            second = gather_bits(cabac.bytes, hn::Add(at, set(4)));
    const V range = hn::ShiftRight<23>(cabac.range);
    divide(widen_low(offset), widen_low(first), widen_low(second), widen_low(shift),
           widen_low(range), offset0, string0);
    divide(widen_high(offset), widen_high(first), widen_high(second), widen_high(shift),
           widen_high(range), offset1, string1);
    high = narrow(hn::ShiftRight<kString - 32>(string0), hn::ShiftRight<kString - 32>(string1));
    low = hn::ShiftLeft<64 - kString>(narrow(string0, string1));
    left = set(kString);
  }

  static HWY_INLINE void divide(V64 offset, V64 first, V64 second, V64 shift, V64 range,
                                V64& longer, V64& string) {
    const V64 bits = hn::Shl(hn::Or(hn::ShiftLeft<32>(first), second), shift);
    longer = hn::Or(hn::ShiftLeft<kString>(offset), hn::ShiftRight<64 - kString>(bits));
    string = floor_to_integer(hn::Div(to_double(longer), to_double(range)));
  }

  HWY_INLINE void take(V bits) {
    high = hn::Or(hn::Shl(high, bits), hn::Shr(hn::ShiftRight<1>(low), hn::Sub(set(31), bits)));
    low = hn::Shl(low, bits);
    left = hn::Sub(left, bits);
  }

  // Offset and position after what was taken.
  HWY_INLINE void end(const LaneCabac& cabac, V& offset, V& position) const {
    const V64 left0 = widen_low(left), left1 = widen_high(left);
    const V longer = narrow(hn::Shr(offset0, left0), hn::Shr(offset1, left1));
    const V taken = narrow(hn::Shr(string0, left0), hn::Shr(string1, left1));
    offset = hn::Sub(longer, hn::Mul(taken, hn::ShiftRight<23>(cabac.range)));
    position = hn::Add(position, hn::Sub(set(kString), left));
  }
};

class LaneDecoder {
 public:
  void decode(JobSource& source) {
    source_ = &source;
    active_ = 0;
    // Idle lanes run along: their contexts must be states, their values anything.
    std::memset(contexts_, 0, sizeof contexts_);
    std::memset(statistic_, 0, sizeof statistic_);
    std::memset(persistent_rice_, 0, sizeof persistent_rice_);
    std::memset(seen_, 0, sizeof seen_);
    for (int lane = 0; lane < kLanes; ++lane) begin_picture(lane);
    for (uint32_t round = 1; active_ != 0; ++round) {
      decode_sub_blocks();
      step_lanes();
      if (round % kLookEvery == 0) fill_idle_lanes();
    }
  }

 private:
  // Lane by lane: what vectors take from and give to the rest.
  using Reader = CabacReader<uint32_t, kLanes>;

  uint32_t base(int lane) const {
    return static_cast<uint32_t>(walks_[lane].window().bytes() - bytes());
  }
  const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(walks_); }

  Reader reader(int lane) {
    const uint32_t position = next_[lane] - waiting_[lane] - 8 * base(lane);
    return {walks_[lane].window().bytes(), position, range_[lane] >> 23, value_[lane] >> 23,
            &contexts_[0][lane]};
  }
  void put_back(int lane, const Reader& cabac) {
    value_[lane] = cabac.offset() << 23;
    range_[lane] = cabac.range() << 23;
    waiting_[lane] = 0;
    next_[lane] = cabac.position() + 8 * base(lane);
  }

  // Others may have brought pictures since a lane found none.
  static constexpr uint32_t kLookEvery = 64;
  void fill_idle_lanes() {
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((active_ >> lane & 1) == 0) begin_picture(lane);
    }
  }

  // Takes pictures until one has a sub-block to decode.
  void begin_picture(int lane) {
    SliceWalk& walk = walks_[lane];
    while (SliceJob* job = source_->take()) {
      walk.begin(*job);
      const ContextStates states = initial_contexts(SliceType::p);
      for (int i = 0; i < kContextCount; ++i) contexts_[i][lane] = states[i];
      statistic_[lane] = 0;
      persistent_rice_[lane] = job->parameters.persistent_rice ? ~0u : 0;
      Reader cabac(walk.window().bytes(), 9, 510, walk.first_offset(), &contexts_[0][lane]);
      if (walk.begin_block(cabac)) {
        active_ |= 1u << lane;
        put_back(lane, cabac);
        ready(lane);
        return;
      }
      source_->finish(*job);
    }
    active_ &= ~(1u << lane);
    idle(lane);
  }

  // A lane without a picture: it has no coefficients, and reads where there is memory.
  void idle(int lane) {
    value_[lane] = 0;
    range_[lane] = 510u << 23;
    waiting_[lane] = 0;
    next_[lane] = 8 * base(lane);
    start_[lane] = 0;
    mask_[lane] = 0;
    pattern_[lane] = 0xaaaaaaaa;
    other_[lane] = ~0u;
    flag_[lane] = 0;
  }

  void ready(int lane) {
    const SliceWalk& walk = walks_[lane];
    const bool other = walk.sub_block() > 0;
    start_[lane] = static_cast<uint32_t>(walk.start());
    mask_[lane] = 1u << walk.start() & 0xffff;
    if (walk.begins_block()) seen_[lane] = 0;
    flag_[lane] = ~0u;
    other_[lane] = other ? ~0u : 0;
    pattern_[lane] = kLaneTables.patterns[other ? 1 : 0][walk.neighbours()];
  }

  void decode_sub_blocks();
  HWY_INLINE V significance(LaneCabac& cabac);
  HWY_INLINE void levels(LaneCabac& cabac, V mask);
  HWY_INLINE void signs_and_remaining(LaneCabac& cabac, V count, V greater1, V rest, V first);
  void coded_flags(uint32_t lanes);
  void write_block(int lane);
  void step_lanes();
  void finish_picture(int lane) {
    source_->finish(walks_[lane].job());
    begin_picture(lane);
  }

  JobSource* source_ = nullptr;
  uint32_t active_ = 0;  // lanes that have a picture
  alignas(64) uint32_t value_[kLanes], range_[kLanes], waiting_[kLanes], next_[kLanes];
  alignas(64) uint32_t start_[kLanes], mask_[kLanes], pattern_[kLanes], other_[kLanes];
  alignas(64) uint32_t seen_[kLanes], statistic_[kLanes], persistent_rice_[kLanes];
  alignas(64) uint32_t bad_[kLanes], coded_[kLanes], flag_[kLanes], second_[kLanes];
  alignas(64) uint32_t contexts_[kContextCount][kLanes];
  alignas(64) uint32_t levels_[4 * kLanes];
  SliceWalk walks_[kLanes];
};

HWY_INLINE M mask_of(V all_ones) { return hn::MaskFromVec(all_ones); }
HWY_INLINE V vec_of(M mask) { return hn::VecFromMask(kD, mask); }

V LaneDecoder::significance(LaneCabac& cabac) {
  const V start = load(start_), pattern = load(pattern_), other = load(other_);
  const M in_first = hn::Not(mask_of(other));
  const auto row = [&](int i) HWY_ATTR { return contexts_[kSignificant + i]; };
  V mask = hn::Zero(kD);
  const V whole = set(16);
  if (hn::AllTrue(kD, hn::Eq(pattern, set(0xaaaaaaaa))) && !any(in_first) &&
      hn::AllTrue(kD, hn::Eq(start, whole))) {
    // All in the middle of dense blocks: one context.
    V state = load(row(5));
    const V all = set(~0u);
    for (int i = 0; i < 5; ++i) {
      cabac.need(3);
      for (int k = 0; k < 3; ++k) {
        mask = hn::Or(hn::Add(mask, mask), cabac.get<true>(state, all));
      }
    }
    const M known = hn::Eq(mask, hn::Zero(kD));
    const V active = vec_of(hn::Not(known));
    cabac.need(3);
    V last = state;
    const V bin = cabac.get<false>(last, active);
    state = select(known, state, last);
    mask = hn::Or(hn::Add(mask, mask), select(known, set(1), bin));
    hn::Store(state, kD, row(5));
    return mask;
  }
  V states[3];
  for (int k = 0; k < 3; ++k) states[k] = select(in_first, load(row(k)), load(row(3 + k)));
  for (int i = 15; i > 0; --i) {
    const M active = hn::Gt(start, set(static_cast<uint32_t>(i)));
    const M one = hn::TestBit(pattern, set(1u << 2 * i));
    const M two = hn::TestBit(pattern, set(2u << 2 * i));
    V state = select(two, states[2], select(one, states[1], states[0]));
    if (i % 3 == 0) cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    mask = hn::Or(mask, hn::ShiftLeftSame(bin, i));
    states[2] = select(hn::And(active, two), state, states[2]);
    states[1] = select(hn::And(active, one), state, states[1]);
    states[0] = select(hn::AndNot(hn::Or(one, two), active), state, states[0]);
  }
  {
    const M known =
        hn::And(hn::And(hn::Eq(start, whole), mask_of(other)), hn::Eq(mask, hn::Zero(kD)));
    const M active = hn::AndNot(known, hn::Gt(start, hn::Zero(kD)));
    const M two = hn::TestBit(pattern, set(2));
    const M one = hn::TestBit(pattern, set(1));
    const V direct = load(contexts_[kSignificantDc]);
    V state = select(two, states[2], select(one, states[1], states[0]));
    state = select(in_first, direct, state);
    cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    mask = hn::Or(mask, select(known, set(1), bin));
    hn::Store(select(hn::And(active, in_first), state, direct), kD, contexts_[kSignificantDc]);
    const M here = hn::AndNot(in_first, active);
    states[2] = select(hn::And(here, two), state, states[2]);
    states[1] = select(hn::And(here, one), state, states[1]);
    states[0] = select(hn::AndNot(hn::Or(one, two), here), state, states[0]);
  }
  for (int k = 0; k < 3; ++k) {
    hn::Store(select(in_first, states[k], load(row(k))), kD, row(k));
    hn::Store(select(in_first, load(row(3 + k)), states[k]), kD, row(3 + k));
  }
  return hn::Or(mask, load(mask_));
}

void LaneDecoder::decode_sub_blocks() {
  LaneCabac cabac{load(value_), load(range_), load(waiting_), load(next_), bytes()};
  cabac.refill();
  V mask = significance(cabac);
  // Idle lanes have none.
  mask = hn::And(mask, load(flag_));
  hn::Store(mask, kD, mask_);
  levels(cabac, mask);
  hn::Store(cabac.value, kD, value_);
  hn::Store(cabac.range, kD, range_);
  hn::Store(cabac.waiting, kD, waiting_);
  hn::Store(cabac.next, kD, next_);
}

void LaneDecoder::levels(LaneCabac& cabac, V mask) {
  const V count = hn::PopulationCount(mask), seen = load(seen_);
  const M set1 = mask_of(seen), in_first = hn::Not(mask_of(load(other_)));
  const V one = set(1);
  V states[4];
  const bool any_first = any(in_first);
  const auto row = [&](int s, int k) HWY_ATTR { return contexts_[kGreater1 + 4 * s + k]; };
  for (int k = 0; k < 4; ++k) {
    states[k] = select(set1, load(row(3, k)), load(row(2, k)));
    if (any_first)
      states[k] = select(in_first, select(set1, load(row(1, k)), load(row(0, k))), states[k]);
  }
  V greater1 = hn::Zero(kD);
  for (int i = 0; i < 8; ++i) {
    const M active = hn::Gt(count, set(static_cast<uint32_t>(i)));
    if (!any(active)) break;
    const int k = i < 2 ? i + 1 : 3;
    const M greater = hn::Ne(greater1, hn::Zero(kD));
    V state = select(greater, states[0], states[k]);
    if (i % 3 == 0) cabac.need(3);
    const V bin = hn::And(cabac.get<false>(state, vec_of(active)), vec_of(active));
    states[0] = select(hn::And(greater, active), state, states[0]);
    states[k] = select(hn::AndNot(greater, active), state, states[k]);
    greater1 = hn::Or(greater1, hn::ShiftLeftSame(bin, i));
  }
  for (int k = 0; k < 4; ++k) {
    if (any_first) {
      hn::Store(select(hn::AndNot(set1, in_first), states[k], load(row(0, k))), kD, row(0, k));
      hn::Store(select(hn::And(set1, in_first), states[k], load(row(1, k))), kD, row(1, k));
    }
    hn::Store(select(hn::Or(set1, in_first), load(row(2, k)), states[k]), kD, row(2, k));
    hn::Store(select(hn::AndNot(in_first, set1), states[k], load(row(3, k))), kD, row(3, k));
  }
  const M greater = hn::Ne(greater1, hn::Zero(kD));
  hn::Store(select(hn::Gt(count, hn::Zero(kD)), vec_of(greater), seen), kD, seen_);
  V rest = greater1;
  const V lowest = hn::And(greater1, hn::Sub(hn::Zero(kD), greater1));
  if (any(greater)) {
    const auto row2 = [&](int s) HWY_ATTR { return contexts_[kGreater2 + s]; };
    V state = select(set1, load(row2(3)), load(row2(2)));
    state = select(in_first, select(set1, load(row2(1)), load(row2(0))), state);
    cabac.need(3);
    const V bin = cabac.get<false>(state, vec_of(greater));
    for (int s = 0; s < 4; ++s) {
      M here = greater;
      here = s < 2 ? hn::And(here, in_first) : hn::AndNot(in_first, here);
      here = s % 2 != 0 ? hn::And(here, set1) : hn::AndNot(set1, here);
      hn::Store(select(here, state, load(row2(s))), kD, row2(s));
    }
    rest = select(hn::Eq(bin, one), rest, hn::AndNot(lowest, rest));
  }
  signs_and_remaining(cabac, count, greater1, rest, lowest);
}

void LaneDecoder::signs_and_remaining(LaneCabac& cabac, V count, V greater1, V rest, V lowest) {
  const V zero = hn::Zero(kD), one = set(1);
  V offset = hn::ShiftRight<23>(cabac.value), position = hn::Sub(cabac.next, cabac.waiting);
  LaneBypass bypass;
  bypass.peek(cabac, offset, position);
  V signs = bypass.high;
  bypass.take(count);

  const V persistent = load(persistent_rice_);
  V statistic = load(statistic_);
  V rice = hn::And(hn::ShiftRight<2>(statistic), persistent);
  const V max_rice = select(mask_of(persistent), set(16), set(4));
  M pending = mask_of(persistent);
  M bad = hn::Ne(zero, zero);
  V words = zero;
  int i = 0;
  for (; i < 16; ++i) {
    const M there = hn::Gt(count, set(static_cast<uint32_t>(i)));
    if (!any(there)) break;
    V level = one;
    M needs = there;
    if (i < 8) {
      level = hn::Add(level, hn::And(hn::ShiftRightSame(greater1, i), one));
      needs = hn::TestBit(rest, set(1u << i));
    }
    if (any(needs)) {
      if (any(hn::And(needs, hn::Lt(bypass.left, set(kMaxRemainingBits))))) {
        bypass.end(cabac, offset, position);
        bypass.peek(cabac, offset, position);
      }
      if (i < 8) {
        level =
            hn::Add(level, hn::And(vec_of(hn::And(needs, hn::TestBit(lowest, set(1u << i)))), one));
      }
      const V prefix = hn::Min(leading_zeros(hn::Or(hn::Not(bypass.high), one)), set(15));
      const V extra = hn::Sub(hn::Max(prefix, set(3)), set(3));
      const V suffix = hn::Min(hn::Add(rice, extra), set(16));
      const V bits = hn::Add(hn::Add(prefix, one), suffix);
      const V after = hn::Shl(hn::ShiftLeft<1>(bypass.high), prefix);
      const V tail = hn::Shr(hn::ShiftRight<1>(after), hn::Sub(set(31), suffix));
      const V head = hn::Sub(hn::Add(hn::Shl(one, extra), hn::Min(prefix, set(3))), one);
      const V value = hn::Add(hn::Shl(head, rice), tail);
      const V needed = vec_of(needs);
      bad = hn::Or(bad, hn::And(needs, hn::Gt(bits, set(kMaxRemainingBits))));
      bypass.take(hn::And(hn::Min(bits, set(kMaxRemainingBits)), needed));
      level = hn::Add(level, hn::And(value, needed));
      const M update = hn::And(needs, pending);
      if (any(update)) {
        const V start = hn::ShiftRight<2>(statistic);
        const M up = hn::And(update, hn::Gt(value, hn::Sub(hn::Shl(set(3), start), one)));
        const M down = hn::And(hn::And(update, hn::Lt(hn::Add(value, value), hn::Shl(one, start))),
                               hn::Ne(statistic, zero));
        statistic = hn::Add(statistic, hn::And(vec_of(up), one));
        statistic = hn::Sub(statistic, hn::And(vec_of(down), one));
        pending = hn::AndNot(needs, pending);
      }
      const M grows = hn::And(needs, hn::Gt(level, hn::Shl(set(3), rice)));
      rice = hn::Min(hn::Add(rice, hn::And(vec_of(grows), one)), max_rice);
    }
    const V sign = hn::ShiftRight<31>(signs);
    signs = hn::Add(signs, signs);
    bad = hn::Or(bad, hn::And(there, hn::Gt(level, hn::Add(sign, set(127)))));
    const V sample = hn::And(hn::Add(hn::Xor(level, hn::Sub(zero, sign)), sign), set(255));
    words = hn::Or(words, hn::ShiftLeftSame(sample, 8 * (i % 4)));
    if (i % 4 == 3) {
      hn::Store(words, kD, levels_ + i / 4 * kLanes);
      words = zero;
    }
  }
  if (i % 4 != 0) hn::Store(words, kD, levels_ + i / 4 * kLanes);
  hn::Store(statistic, kD, statistic_);
  hn::Store(vec_of(bad), kD, bad_);

  bypass.end(cabac, offset, position);
  cabac.value = hn::ShiftLeft<23>(offset);
  cabac.waiting = zero;
  cabac.next = position;
}

void LaneDecoder::write_block(int lane) {
  const hn::Full128<uint8_t> d8;
  alignas(16) uint32_t level[4];
  for (int i = 0; i < 4; ++i) level[i] = levels_[i * kLanes + lane];
  const uint32_t mask = mask_[lane];
  const auto order = hn::Add(hn::Load(d8, kLaneTables.expand_high[mask >> 8]),
                             hn::Load(d8, kLaneTables.expand_low[mask & 255]));
  const auto levels = hn::Load(d8, reinterpret_cast<const uint8_t*>(level));
  const auto samples = hn::Xor(hn::TableLookupBytesOr0(levels, order), hn::Set(d8, uint8_t{128}));
  alignas(16) uint8_t block[16];
  hn::Store(samples, d8, block);
  size_t stride;
  uint8_t* target = walks_[lane].target(stride);
  for (int y = 0; y < 4; ++y) std::memcpy(target + y * stride, block + 4 * y, 4);
}

// coded_sub_block_flag of some lanes into coded_; second_: lanes whose neighbours are coded.
void LaneDecoder::coded_flags(uint32_t) {
  LaneCabac cabac{load(value_), load(range_), load(waiting_), load(next_), bytes()};
  cabac.need(1);
  const M active = mask_of(load(coded_)), second = mask_of(load(second_));
  const V row0 = load(contexts_[kCodedSubBlock]), row1 = load(contexts_[kCodedSubBlock + 1]);
  V state = select(second, row1, row0);
  const V bin = cabac.get<false>(state, vec_of(active));
  hn::Store(select(hn::And(active, second), state, row1), kD, contexts_[kCodedSubBlock + 1]);
  hn::Store(select(hn::AndNot(second, active), state, row0), kD, contexts_[kCodedSubBlock]);
  hn::Store(bin, kD, coded_);
  hn::Store(cabac.value, kD, value_);
  hn::Store(cabac.range, kD, range_);
  hn::Store(cabac.waiting, kD, waiting_);
  hn::Store(cabac.next, kD, next_);
}

// Every lane from the sub-block that was decoded to its next one.
void LaneDecoder::step_lanes() {
  uint32_t flags = 0, ends = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    coded_[lane] = 0;
    if ((active_ >> lane & 1) == 0) {
      idle(lane);
      continue;
    }
    SliceWalk& walk = walks_[lane];
    if (mask_[lane] != 0) write_block(lane);
    if (bad_[lane] != 0) {
      walk.fail(SliceFaultKind::general);
      finish_picture(lane);
    } else if (!walk.step()) {
      ends |= 1u << lane;
    } else if (walk.sub_block() == 0) {
      walk.set_coded();
      ready(lane);
    } else {
      flags |= 1u << lane;
      coded_[lane] = ~0u;
      second_[lane] = walk.neighbours() != 0 ? ~0u : 0;
    }
  }
  if (flags != 0) {
    coded_flags(flags);
    for (int lane = 0; lane < kLanes; ++lane) {
      if ((flags >> lane & 1) == 0) continue;
      if (coded_[lane] != 0) {
        walks_[lane].set_coded();
        ready(lane);
      } else {
        ends |= 1u << lane;
      }
    }
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    if ((ends >> lane & 1) == 0) continue;
    Reader cabac = reader(lane);
    if (walks_[lane].next(cabac)) {
      put_back(lane, cabac);
      ready(lane);
    } else {
      finish_picture(lane);
    }
  }
}

void decode_lanes(JobSource& source) {
  // The jobs of others are in there too, so no exception: one lane less wide needs no memory.
  const std::unique_ptr<LaneDecoder> decoder(new (std::nothrow) LaneDecoder);
  decoder != nullptr ? decoder->decode(source) : kScalarDecoder.decode(source);
}

}  // namespace kvcodec::hevc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET

#if HWY_ONCE
namespace kvcodec::hevc {

std::span<const DecoderOps> lane_decoders() {
  static const std::vector<DecoderOps> variants = [] {
    std::vector<DecoderOps> all;
    [[maybe_unused]] const int64_t targets = hwy::SupportedTargets();
#if HWY_TARGETS & HWY_NEON
    if (targets & HWY_NEON) all.push_back({"neon", 4, N_NEON::decode_lanes});
#endif
#if HWY_TARGETS & HWY_SSE4
    if (targets & HWY_SSE4) all.push_back({"sse4", 4, N_SSE4::decode_lanes});
#endif
#if HWY_TARGETS & HWY_AVX2
    if (targets & HWY_AVX2) all.push_back({"avx2", 8, N_AVX2::decode_lanes});
#endif
#if HWY_TARGETS & HWY_AVX3
    if ((targets & HWY_AVX3) && __builtin_cpu_supports("avx512cd"))
      all.push_back({"avx512", 16, N_AVX3::decode_lanes});
#endif
    return all;
  }();
  return variants;
}

}  // namespace kvcodec::hevc
#endif  // HWY_ONCE
