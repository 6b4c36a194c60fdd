// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibration_state.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"

namespace kvcodec::calibration {
namespace {

constexpr char kMagic[] = "kvcodec calibration state 2\n";

template <typename T>
void put_all(ByteWriter& out, const std::vector<T>& values) {
  out.put<uint64_t>(values.size());
  out.put_bytes(std::as_bytes(std::span(values)));
}

// False where another number of values is stored, or the bytes end.
template <typename T>
bool get_all(ByteReader& in, std::vector<T>& values, size_t expected) {
  const auto count = in.get<uint64_t>();
  if (count != expected) return false;
  const auto bytes = in.get_bytes(count * sizeof(T));
  if (bytes.size() != count * sizeof(T)) return false;
  values.resize(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return true;
}

void put_moments(ByteWriter& out, const Moments& moments) {
  out.put<uint64_t>(moments.tokens());
  put_all(out, moments.shift());
  put_all(out, moments.sum());
  // The lower triangle, row by row.
  const size_t n = moments.channels();
  for (size_t i = 0; i < n; ++i)
    out.put_bytes(std::as_bytes(std::span(&moments.products()[i * n], i + 1)));
}

bool get_moments(ByteReader& in, Moments& moments) {
  const size_t n = moments.channels();
  Moments::State state;
  state.tokens = in.get<uint64_t>();
  if (!get_all(in, state.shift, n) || !get_all(in, state.sum, n)) return false;
  state.products.resize(n * n);
  for (size_t i = 0; i < n; ++i) {
    const auto row = in.get_bytes((i + 1) * sizeof(float));
    if (row.empty()) return false;
    std::memcpy(&state.products[i * n], row.data(), row.size());
  }
  moments.restore(std::move(state));
  return true;
}

void put_heads(ByteWriter& out, const HeadMoments& heads) {
  out.put<uint64_t>(heads.tokens());
  put_all(out, heads.sums());
}

bool get_heads(ByteReader& in, HeadMoments& heads) {
  const auto tokens = in.get<uint64_t>();
  std::vector<float> sums;
  if (!get_all(in, sums, heads.sums().size())) return false;
  heads.restore(tokens, std::move(sums));
  return true;
}

bool read_body(ByteReader& in, CalibrationState& state) {
  state.windows_done = in.get<uint64_t>();
  state.gradients = in.get<uint8_t>() != 0;
  for (Moments& moments : state.moments)
    if (!get_moments(in, moments)) return false;
  for (HeadMoments& costs : state.costs)
    if (!get_heads(in, costs)) return false;
  if (!get_heads(in, state.queries)) return false;
  for (auto& costs : state.injected.costs) {
    const auto count = in.get<uint64_t>();
    for (uint64_t i = 0; i < count && in.ok(); ++i) costs.push_back(in.get<double>());
  }
  const auto points = in.get<uint64_t>();
  for (uint64_t i = 0; i < points && in.ok(); ++i) {
    StepPoint& p = state.points.emplace_back();
    p.step = in.get<double>();
    p.kl = in.get<double>();
    p.bits_per_value = in.get<double>();
  }
  return in.ok();
}

}  // namespace

CalibrationState::CalibrationState(const Digest& of, const KvShape& shape,
                                   std::span<const GroupPlace> groups)
    : fingerprint(of), queries(shape, KvKind::key) {
  for (const GroupPlace& g : groups)
    moments.emplace_back(size_t{g.layers} * shape.channels(g.kind));
  for (int half = 0; half < 2; ++half)
    for (KvKind kind : kKvKinds) costs.emplace_back(shape, kind);
}

Status save_state(const std::string& path, const CalibrationState& state) {
  ByteWriter out;
  out.put_bytes(std::as_bytes(std::span(kMagic, sizeof kMagic - 1)));
  out.put_bytes(state.fingerprint.bytes);
  out.put<uint64_t>(state.windows_done);
  out.put<uint8_t>(state.gradients ? 1 : 0);
  for (const Moments& moments : state.moments) put_moments(out, moments);
  for (const HeadMoments& costs : state.costs) put_heads(out, costs);
  put_heads(out, state.queries);
  for (const auto& costs : state.injected.costs) {
    out.put<uint64_t>(costs.size());
    for (double cost : costs) out.put(cost);
  }
  out.put<uint64_t>(state.points.size());
  for (const StepPoint& p : state.points) {
    out.put(p.step);
    out.put(p.kl);
    out.put(p.bits_per_value);
  }
  out.put<uint64_t>(checksum64(out.bytes()));

  const std::string aside = path + ".part";
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(out.bytes().data()),
             static_cast<std::streamsize>(out.size()));
  file.close();
  std::error_code error;
  if (file) std::filesystem::rename(aside, path, error);
  if (!file || error)
    return make_error(ErrorCode::io, "calibration state {}: cannot be written: {}", path,
                      error ? error.message() : "short write");
  return ok_status();
}

Result<bool> load_state(const std::string& path, CalibrationState& state) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return false;
  std::ifstream file(path, std::ios::binary);
  // The head first: a state of other inputs need not be read.
  constexpr size_t kHead = sizeof kMagic - 1 + sizeof(Digest::bytes);
  std::vector<std::byte> bytes(kHead);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), kHead) ||
      std::memcmp(bytes.data(), kMagic, sizeof kMagic - 1) != 0)
    return make_error(ErrorCode::corrupt, "{}: not a calibration state; remove it", path);
  if (std::memcmp(bytes.data() + sizeof kMagic - 1, state.fingerprint.bytes.data(),
                  state.fingerprint.bytes.size()) != 0)
    return false;
  bytes.resize(size);
  const auto rest = static_cast<std::streamsize>(size - kHead);
  if (!file.read(reinterpret_cast<char*>(bytes.data()) + kHead, rest))
    return make_error(ErrorCode::io, "calibration state {}: cannot be read", path);
  const auto body = std::span(bytes).first(std::max(size, kHead + 8) - 8);
  CalibrationState found = state;
  ByteReader in(body.subspan(kHead));
  if (size < kHead + 8 || checksum64(body) != load_le<uint64_t>(bytes.data() + size - 8) ||
      !read_body(in, found))
    return make_error(ErrorCode::corrupt,
                      "calibration state {}: {} bytes, damaged; remove it to start anew", path,
                      size);
  state = std::move(found);
  return true;
}

}  // namespace kvcodec::calibration
