// SPDX-License-Identifier: Apache-2.0
#include "link/link_trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "link/mix.h"

namespace kvcodec {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

bool parse_number(std::string_view text, double& value) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failed == std::errc{} && end == text.data() + text.size() && std::isfinite(value) &&
         value >= 0;
}

bool parse_rate(std::string_view text, double& bytes_per_second) {
  static constexpr std::string_view kUnits = "KMG";
  double scale = 1;
  if (!text.empty()) {
    if (const size_t unit = kUnits.find(text.back()); unit != std::string_view::npos) {
      scale = std::pow(1000.0, static_cast<double>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  if (!parse_number(text, bytes_per_second)) return false;
  bytes_per_second *= scale / 8;
  return true;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  line = line.substr(0, line.find('#'));
  for (size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

}  // namespace

WireTrace WireTrace::constant(double bits_per_second) {
  WireTrace trace;
  trace.pieces_.push_back({0, bits_per_second / 8});
  return trace;
}

Result<WireTrace> WireTrace::parse(std::string_view text, std::string_view where) {
  WireTrace trace;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    const auto words = words_of(line);
    if (words.empty()) continue;
    const auto is = [&](std::string_view word, size_t count) {
      return words[0] == word && words.size() == count;
    };
    double first = 0, second = 0;
    bool good = words.size() > 1;
    if (good && is("loop", 2)) {
      good = parse_number(words[1], trace.loop_s_) && trace.loop_s_ > 0;
    } else if (good && is("jitter", 3)) {
      good = parse_number(words[1], trace.jitter_) && trace.jitter_ < 1 &&
             parse_number(words[2], second) && second >= 1;
      trace.jitter_period_s_ = second / 1000;
    } else if (good && is("latency", 2)) {
      good = parse_number(words[1], first);
      trace.latency_s_ = first / 1000;
    } else if (good && is("seed", 2)) {
      good = parse_number(words[1], first);
      trace.seed_ = static_cast<uint64_t>(first);
    } else if (good && words.size() == 2 && parse_number(words[0], first)) {
      if (words[1] == "reset") {
        good = trace.resets_.empty() || first > trace.resets_.back();
        trace.resets_.push_back(first);
      } else {
        good = parse_rate(words[1], second) &&
               (trace.pieces_.empty() || first > trace.pieces_.back().begin);
        trace.pieces_.push_back({first, second});
      }
    } else {
      good = false;
    }
    if (!good) {
      return make_error(ErrorCode::invalid_argument,
                        "{}, line {}: expected SECONDS RATE or SECONDS reset in the order of time, "
                        "loop SECONDS, jitter FRACTION MS, latency MS or seed N; found '{:.60}'",
                        where, number, line);
    }
  }
  if (trace.pieces_.empty()) {
    return make_error(ErrorCode::invalid_argument, "{}: expected a rate, found none", where);
  }
  const double last =
      std::max(trace.pieces_.back().begin, trace.resets_.empty() ? 0 : trace.resets_.back());
  if (last >= trace.loop_s_) {
    return make_error(ErrorCode::invalid_argument, "{}: it loops after {} s, but goes on until {}",
                      where, trace.loop_s_, last);
  }
  return trace;
}

Result<WireTrace> WireTrace::load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::io, "open trace {}: it cannot be read", path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return parse(text, path);
}

double WireTrace::jitter_factor(double at) const {
  if (jitter_ == 0) return 1;
  const auto period = static_cast<uint64_t>(at / jitter_period_s_ + 1e-9);
  return 1 - jitter_ + 2 * jitter_ * unit_fraction(mix(seed_, period));
}

double WireTrace::rate(double at) const {
  const double within = std::isinf(loop_s_) ? at : std::fmod(at, loop_s_);
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), within,
                                      [](double t, const Piece& piece) { return t < piece.begin; });
  const Piece& piece = after == pieces_.begin() ? pieces_.front() : *(after - 1);
  return piece.bytes_per_second * jitter_factor(at);
}

double WireTrace::next_change(double at) const {
  const double turns = std::isinf(loop_s_) ? 0 : std::floor(at / loop_s_);
  const double base = std::isinf(loop_s_) ? 0 : turns * loop_s_;
  double next = std::isinf(loop_s_) ? kForever : base + loop_s_;
  for (const Piece& piece : pieces_) {
    if (base + piece.begin > at) {
      next = std::min(next, base + piece.begin);
      break;
    }
  }
  if (jitter_ > 0) {
    next = std::min(next, (std::floor(at / jitter_period_s_ + 1e-9) + 1) * jitter_period_s_);
  }
  return next;
}

double WireTrace::finish(double begin, double bytes) const {
  double at = begin;
  // A loop without any rate never ends: it is tried once round, and given up.
  double idle_since = begin;
  while (bytes > 0) {
    const double speed = rate(at), change = next_change(at);
    if (speed > 0) {
      const double need = bytes / speed;
      if (at + need <= change) return at + need;
      bytes -= speed * (change - at);
      idle_since = change;
    } else if (std::isinf(change) || change - idle_since > 2 * loop_s_) {
      return kForever;
    }
    at = change;
  }
  return at;
}

uint64_t WireTrace::resets(double at) const {
  const double turns = std::isinf(loop_s_) ? 0 : std::floor(at / loop_s_);
  const double within = at - (std::isinf(loop_s_) ? 0 : turns * loop_s_);
  const auto passed = std::upper_bound(resets_.begin(), resets_.end(), within) - resets_.begin();
  return static_cast<uint64_t>(turns) * resets_.size() + static_cast<uint64_t>(passed);
}

double WireTrace::peak() const {
  double most = 0;
  for (const Piece& piece : pieces_) most = std::max(most, piece.bytes_per_second);
  return most;
}

}  // namespace kvcodec
