// SPDX-License-Identifier: Apache-2.0
#include "hevc/rate_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>

#include "hevc/block_tables.h"
#include "hevc/cabac_tables.h"
#include "hevc/remaining_code.h"

namespace kvcodec::hevc {
namespace {

// Bits of a context bin that is one (or zero) with probability i / 128, independently, in the
// stationary state of the context variable: at i = 0 the range that the LPS keeps, then the
// entropy and 2 to 18 % for adapting. From the Markov chain of 9.3.4.3.2 with the range's
// logarithm uniform; rate_model_test encodes such bins.
constexpr std::array<float, 65> kBinBits = {
    0.02911f, 0.07777f, 0.12419f, 0.16830f, 0.21005f, 0.24946f, 0.28660f, 0.32160f, 0.35459f,
    0.38573f, 0.41521f, 0.44317f, 0.46977f, 0.49515f, 0.51942f, 0.54268f, 0.56502f, 0.58650f,
    0.60718f, 0.62712f, 0.64636f, 0.66494f, 0.68288f, 0.70022f, 0.71698f, 0.73319f, 0.74887f,
    0.76403f, 0.77869f, 0.79287f, 0.80657f, 0.81980f, 0.83257f, 0.84489f, 0.85675f, 0.86815f,
    0.87910f, 0.88960f, 0.89963f, 0.90920f, 0.91832f, 0.92698f, 0.93519f, 0.94296f, 0.95029f,
    0.95718f, 0.96366f, 0.96974f, 0.97542f, 0.98071f, 0.98564f, 0.99021f, 0.99443f, 0.99831f,
    1.00185f, 1.00506f, 1.00795f, 1.01050f, 1.01272f, 1.01461f, 1.01616f, 1.01737f, 1.01823f,
    1.01876f, 1.01893f};

// Of a coding tree unit with residual: its flags, and the last position, near the corner.
constexpr double kUnitBits = 8;
// Of one without: three bins.
constexpr double kSkippedUnitBits = 3 * kBinBits[0];

constexpr int kRices = kMaxRice + 1;
constexpr int kCoefficients = 16;  // of a sub-block

// Levels (magnitudes that are not zero) of a source.
struct LevelSource {
  double above[129] = {};  // P(level > k)
  // By base - 1 and Rice parameter: bits of a remaining level, times the probability that there is
  // one, and the probability that it makes the parameter grow.
  double bits[3][kRices] = {}, grows[3][kRices] = {};

  explicit LevelSource(const MagnitudeCounts& counts) {
    double total = 0;
    for (size_t k = 1; k < counts.size(); ++k) total += counts[k];
    double sum = 0;
    for (size_t k = counts.size(); k-- > 1;) {
      above[k] = sum / total;
      sum += counts[k];
    }
    above[0] = 1;
    for (size_t base = 1; base <= 3; ++base) {
      for (int rice = 0; rice < kRices; ++rice) {
        double all = 0;
        for (size_t k = base; k < counts.size(); ++k)
          all += static_cast<double>(counts[k]) * (kRemaining.at[rice][k - base] >> 16);
        bits[base - 1][rice] = all / total;
        grows[base - 1][rice] = above[std::max<size_t>(base - 1, std::min(128, 3 << rice))];
      }
    }
  }
};

// Expected bits of the remaining levels of a sub-block that starts with Rice parameter `rice`,
// which grows to at most `max_rice`; at_least[j]: the probability of more than j levels.
double remaining_bits(const LevelSource& source, const std::array<double, kCoefficients>& at_least,
                      int rice, int max_rice) {
  // By Rice parameter, before and after the first level above 1 among those with flags.
  std::array<double, kRices + 1> before{}, after{};
  before[static_cast<size_t>(rice)] = 1;
  double bits = 0;
  const double greater1 = source.above[1];
  for (size_t j = 0; j < kCoefficients; ++j) {
    std::array<double, kRices + 1> next_before{}, next_after{};
    const size_t base = j < 8 ? 2 : 1;
    for (int r = rice; r <= max_rice; ++r) {
      const auto at = static_cast<size_t>(r), up = static_cast<size_t>(std::min(r + 1, max_rice));
      const auto code = [&](double share, size_t of_base, double present) {
        bits += at_least[j] * share * source.bits[of_base - 1][at];
        const double grown = source.grows[of_base - 1][at];
        next_after[up] += share * grown;
        next_after[at] += share * (present - grown);
      };
      code(after[at], base, 1);
      if (j < 8) {
        next_before[at] += before[at] * (1 - greater1);
        code(before[at], 3, greater1);
      } else {
        code(before[at], 1, 1);
      }
    }
    before = next_before;
    after = next_after;
  }
  return bits;
}

// Shares of the Rice parameters that sub-blocks start with under persistent_rice: StatCoeff / 4 of
// a birth and death process, whose steps the first remaining level of a sub-block makes.
std::array<double, kRices> starting_rices(const LevelSource& source) {
  // The first remaining level is one above 2, the first above 1, or a later one above 1.
  const double greater1 = source.above[1], greater2 = source.above[2];
  const double share3 = greater2, share2 = greater1 - greater2;
  const auto first_above = [&](double remaining) {  // P(remaining >= that many), given there is one
    const auto above = [&](double level) {
      return source.above[static_cast<size_t>(std::clamp(level, 0.0, 128.0))];
    };
    const double with3 = greater2 > 0 ? above(remaining + 2) / greater2 : 0;
    const double with2 = greater1 > 0 ? above(remaining + 1) / greater1 : 0;
    const double with1 = above(remaining);
    // Without levels above 1 among the flagged the ninth is the first.
    const double shares = share3 + share2;
    const double none = std::pow(1 - greater1, 8);
    return none * with1 +
           (shares > 0 ? (1 - none) * (share3 * with3 + share2 * with2) / shares : 0);
  };
  std::array<double, kRices> shares{};
  double weight = 1, sum = 0;
  for (int statistic = 0; statistic < 4 * kRices; ++statistic) {
    const int rice = statistic / 4;
    shares[static_cast<size_t>(rice)] += weight;
    sum += weight;
    const double up = first_above(3 << rice);
    const int next_rice = (statistic + 1) / 4;
    const double down = 1 - first_above(std::ceil((1 << next_rice) / 2.0));
    if (statistic + 1 == 4 * kRices || (up == 0 && down > 0)) break;
    if (down > 0) {
      weight *= up / down;
    } else {  // it never comes back from there
      shares = {};
      sum = 0;
      weight = 1;
    }
  }
  for (double& share : shares) share /= sum;
  return shares;
}

// Samples of coding tree units of like spread.
struct SpreadClass {
  uint32_t counts[2][256] = {};  // by sample; two, as equal neighbours would wait for each other
  uint32_t units = 0;

  MagnitudeCounts magnitudes() const {
    MagnitudeCounts result{};
    for (int sample = 0; sample < 256; ++sample) {
      result[static_cast<size_t>(std::abs(sample - 128))] += counts[0][sample] + counts[1][sample];
    }
    return result;
  }
};
// Two classes an octave of the sum of magnitudes, which is at most 2^17; [0] is zero.
constexpr size_t kClasses = 36;
size_t class_of(uint32_t sum) {
  if (sum == 0) return 0;
  const auto octave = static_cast<uint32_t>(std::bit_width(sum)) - 1;
  const bool upper = uint64_t{sum} * sum >= uint64_t{2} << 2 * octave;
  return 1 + 2 * octave + (upper ? 1 : 0);
}

uint32_t sum_magnitudes(const uint8_t* samples, size_t stride, uint32_t columns, uint32_t rows) {
  uint32_t sum = 0;
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t x = 0; x < columns; ++x)
      sum += static_cast<uint32_t>(std::abs(samples[y * stride + x] - 128));
  }
  return sum;
}

void count_samples(const uint8_t* samples, size_t stride, uint32_t columns, uint32_t rows,
                   SpreadClass& to) {
  for (uint32_t y = 0; y < rows; ++y) {
    for (uint32_t x = 0; x < columns; x += 8) {  // widths are multiples of 8
      const uint64_t eight = load64(samples + y * stride + x);
      for (int i = 0; i < 64; i += 16) {
        ++to.counts[0][eight >> i & 255];
        ++to.counts[1][eight >> (i + 8) & 255];
      }
    }
  }
}

}  // namespace

double context_bin_bits(double probability) {
  const double at = std::min(probability, 1 - probability) * 128;
  const auto i = static_cast<size_t>(std::clamp(at, 0.0, 63.0));
  return kBinBits[i] + (at - static_cast<double>(i)) * (kBinBits[i + 1] - kBinBits[i]);
}

Rates sample_bits(const MagnitudeCounts& counts) {
  double samples = 0;
  for (uint32_t count : counts) samples += count;
  if (samples == 0) return {};
  const double zero = counts[0] / samples;
  if (zero == 1)
    return {kSkippedUnitBits / (kBlock * kBlock), kSkippedUnitBits / (kBlock * kBlock)};
  const LevelSource source(counts);

  // Of a sub-block: coded_sub_block_flag, and of one that is coded its flags and signs.
  const double coded = 1 - std::pow(zero, kCoefficients);
  const double significant = (1 - zero) / coded;
  double bits = context_bin_bits(coded) + coded * kCoefficients * context_bin_bits(significant);
  std::array<double, kCoefficients> at_least{};  // P(more than j levels)
  double exactly = std::pow(zero, kCoefficients), more = 1 - exactly;
  for (size_t j = 0; j < kCoefficients; ++j) {
    at_least[j] = more;
    // The next term of the binomial distribution; without zeros it has the last one only.
    const auto n = static_cast<double>(j);
    exactly = zero > 0 ? exactly * (kCoefficients - n) / (n + 1) * (1 - zero) / zero : 0;
    more = std::max(0.0, more - exactly);
  }
  double levels = 0, flags = 0;
  for (size_t j = 0; j < kCoefficients; ++j) {
    levels += at_least[j];
    if (j < 8) flags += at_least[j];
  }
  double any_greater = 0, before = 1;
  for (size_t j = 0; j < 8; ++j) {
    any_greater += at_least[j] * before * source.above[1];
    before *= 1 - source.above[1];
  }
  bits += flags * context_bin_bits(source.above[1]) + levels;
  if (source.above[1] > 0)
    bits += any_greater * context_bin_bits(source.above[2] / source.above[1]);

  const double unit = kUnitBits / (kBlock * kBlock);
  Rates rates;
  rates.plain = (bits + remaining_bits(source, at_least, 0, 4)) / kCoefficients + unit;
  double rice_bits = 0;
  const std::array<double, kRices> shares = starting_rices(source);
  for (size_t rice = 0; rice < shares.size(); ++rice) {
    if (shares[rice] < 1e-4) continue;
    rice_bits += shares[rice] * remaining_bits(source, at_least, static_cast<int>(rice), kMaxRice);
  }
  rates.rice = (bits + rice_bits) / kCoefficients + unit;
  return rates;
}

Rates picture_bytes(const PictureView& picture) {
  thread_local std::unique_ptr<std::array<SpreadClass, kClasses>> kept;
  if (!kept) kept = std::make_unique<std::array<SpreadClass, kClasses>>();
  std::array<SpreadClass, kClasses>& classes = *kept;
  for (SpreadClass& one : classes) {
    if (one.units > 0) one = {};
  }
  for (uint32_t top = 0; top < picture.height; top += kBlock) {
    for (uint32_t left = 0; left < picture.width; left += kBlock) {
      const uint8_t* samples = picture.samples + top * picture.stride + left;
      const uint32_t columns = std::min(kBlock, picture.width - left);
      const uint32_t rows = std::min(kBlock, picture.height - top);
      SpreadClass& to = classes[class_of(sum_magnitudes(samples, picture.stride, columns, rows))];
      ++to.units;
      if (&to != &classes[0]) count_samples(samples, picture.stride, columns, rows, to);
    }
  }
  Rates bits{classes[0].units * kSkippedUnitBits, classes[0].units * kSkippedUnitBits};
  for (size_t i = 1; i < kClasses; ++i) {
    if (classes[i].units == 0) continue;
    const MagnitudeCounts counts = classes[i].magnitudes();
    double samples = 0;
    for (uint32_t count : counts) samples += count;
    const Rates each = sample_bits(counts);
    bits.plain += samples * each.plain;
    bits.rice += samples * each.rice;
  }
  return {bits.plain / 8, bits.rice / 8};
}

}  // namespace kvcodec::hevc
