// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <deque>

#include "base/bytes.h"
#include "base/error.h"
#include "kvcodec/profile.h"
#include "profile/profile_metadata.h"
#include "profile/safetensors.h"
#include "transform/float_convert.h"

namespace kvcodec {
namespace {

// The tensors of a profile's groups, with the bytes they borrow.
class TensorPacker {
 public:
  explicit TensorPacker(const KvShape& shape) : shape_(shape) {}

  Status add(const ProfileGroup& group) {
    const size_t channels = size_t{group.layers} * shape_.channels(group.kind);
    const std::string prefix = fmt::format("{}.{}.", group.kind == KvKind::key ? "k" : "v",
                                           counts_[static_cast<size_t>(group.kind)]++);
    const size_t dim = shape_.head_dim(group.kind);
    if (channels == 0 || group.mean.size() != channels ||
        group.basis.size() != group.components * channels ||
        group.variance.size() != group.components ||
        (group.metric.size() != channels && group.metric.size() != channels * dim)) {
      return make_error(ErrorCode::invalid_argument,
                        "profile group {}: arrays do not fit {} layers and {} components", prefix,
                        group.layers, group.components);
    }
    const auto first = static_cast<int32_t>(group.first_layer);
    put(prefix + "first_layer", "I32", {1}, std::as_bytes(std::span(&first, 1)));
    put_floats(prefix + "mean", {channels}, group.mean);
    put_floats(prefix + "variance", {group.components}, group.variance);
    put_floats(prefix + "expected_noise", {3}, group.expected_noise);
    if (group.block_metric())
      put_floats(prefix + "metric", {channels / dim, dim, dim}, group.metric);
    else
      put_floats(prefix + "metric", {channels}, group.metric);
    put_basis(prefix, group, channels);
    return ok_status();
  }

  profile::TensorFile file;

 private:
  void put(const std::string& name, const char* type, const std::vector<uint64_t>& shape,
           std::span<const std::byte> bytes) {
    const auto& kept = kept_.emplace_back(bytes.begin(), bytes.end());
    file.tensors[name] = {type, shape, kept, 0};
  }
  void put_floats(const std::string& name, const std::vector<uint64_t>& shape,
                  std::span<const float> numbers) {
    put(name, "F32", shape, std::as_bytes(numbers));
  }

  // Columns are scaled to a peak of 1, where binary16 is finest.
  void put_basis(const std::string& prefix, const ProfileGroup& group, size_t channels) {
    std::vector<float> scale(channels, 0.0f);
    for (size_t i = 0; i < group.basis.size(); ++i)
      scale[i % channels] = std::max(scale[i % channels], std::abs(group.basis[i]));
    for (float& s : scale)
      if (!(s > 0)) s = 1;  // a column of zeros; NaN is found when the bytes are parsed
    std::vector<float> unit(group.basis.size());
    for (size_t i = 0; i < unit.size(); ++i) unit[i] = group.basis[i] / scale[i % channels];
    std::vector<std::byte> halves(unit.size() * sizeof(uint16_t));
    transform::from_floats(DType::f16, unit.data(), unit.size(), halves.data());
    put(prefix + "basis", "F16", {group.components, channels}, halves);
    put_floats(prefix + "scale", {channels}, scale);
  }

  const KvShape& shape_;
  size_t counts_[2] = {0, 0};
  std::deque<std::vector<std::byte>> kept_;  // addresses stay
};

// from_floats makes numbers of NaN and infinity, so they are looked for before.
Status check_finite(const ProfileGroup& group) {
  for (const float number : group.basis) {
    if (!std::isfinite(number))
      return make_error(ErrorCode::invalid_argument, "profile basis: expected finite numbers");
  }
  return ok_status();
}

}  // namespace

Result<std::vector<std::byte>> serialise_profile(const ProfileFields& fields) {
  TensorPacker packer(fields.shape);
  packer.file.metadata = profile::write_metadata(fields);
  if (fields.kind == ProfileFields::Kind::calibrated) {
    for (const ProfileGroup& group : fields.groups) {
      KVCODEC_CHECK(check_finite(group));
      KVCODEC_CHECK(packer.add(group));
    }
  }
  std::vector<std::byte> bytes = profile::write_safetensors(packer.file);
  auto parsed = Profile::parse(bytes, {UINT64_MAX});
  if (parsed.ok()) return bytes;
  return make_error(ErrorCode::invalid_argument, "{}", parsed.error().message);
}

}  // namespace kvcodec
