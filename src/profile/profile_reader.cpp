// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/bytes.h"
#include "base/error.h"
#include "kvcodec/profile.h"
#include "profile/profile_metadata.h"
#include "profile/safetensors.h"
#include "transform/float_convert.h"

namespace kvcodec {
namespace {

using profile::Tensor;
using profile::TensorFile;

// One group's tensors, taken out of the file: what is left at the end does not belong there.
class GroupReader {
 public:
  GroupReader(TensorFile& file, const KvShape& shape, KvKind kind, size_t index)
      : file_(file),
        shape_(shape),
        prefix_(fmt::format("{}.{}.", kind == KvKind::key ? "k" : "v", index)) {
    group_.kind = kind;
  }

  bool present() const { return file_.tensors.count(prefix_ + "mean") > 0; }

  // first_layer: where the group before ended.
  Result<ProfileGroup> read(uint32_t first_layer) {
    KVCODEC_CHECK(read_layers(first_layer));
    KVCODEC_CHECK(read_basis());
    KVCODEC_CHECK(read_metric());
    KVCODEC_TRY(group_.variance, floats("variance", {group_.components}));
    KVCODEC_TRY(const std::vector<float> noise, floats("expected_noise", {3}));
    std::copy(noise.begin(), noise.end(), group_.expected_noise.begin());
    KVCODEC_CHECK(check_not_negative("variance", group_.variance));
    KVCODEC_CHECK(check_not_negative("expected_noise", noise));
    KVCODEC_CHECK(check_units());
    return std::move(group_);
  }

 private:
  uint64_t channels() const { return group_.mean.size(); }

  template <typename Expected, typename Found>
  Error bad(const char* name, const Expected& expected, const Found& found) const {
    return make_error(ErrorCode::corrupt, "profile tensor '{}{}': expected {}, found {}", prefix_,
                      name, expected, found);
  }

  Result<Tensor> take(const char* name) {
    auto node = file_.tensors.extract(prefix_ + name);
    if (node.empty()) return bad(name, "a tensor", "none");
    return std::move(node.mapped());
  }

  static std::string text(const std::vector<uint64_t>& shape) {
    return fmt::format("shape [{}]", fmt::join(shape, ", "));
  }

  // Finite numbers, F32 or F16.
  Result<std::vector<float>> convert(const char* name, const Tensor& tensor) const {
    if (tensor.type != "F32" && tensor.type != "F16") return bad(name, "F32 or F16", tensor.type);
    const DType dtype = tensor.type == "F32" ? DType::f32 : DType::f16;
    std::vector<float> out(tensor.bytes.size() / dtype_bytes(dtype));
    transform::to_floats(dtype, tensor.bytes.data(), out.size(), out.data());
    for (size_t i = 0; i < out.size(); ++i)
      if (!std::isfinite(out[i])) return bad(name, fmt::format("finite numbers, at {}", i), out[i]);
    return out;
  }

  Result<std::vector<float>> floats(const char* name, const std::vector<uint64_t>& shape) {
    KVCODEC_TRY(const Tensor tensor, take(name));
    if (tensor.shape != shape) return bad(name, text(shape), text(tensor.shape));
    return convert(name, tensor);
  }

  Status check_not_negative(const char* name, const std::vector<float>& numbers) const {
    for (size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] < 0) return bad(name, fmt::format("at least 0, at {}", i), numbers[i]);
    return ok_status();
  }

  Status read_layers(uint32_t first_layer) {
    KVCODEC_TRY(const Tensor first, take("first_layer"));
    if (first.type != "I32" || first.bytes.size() != sizeof(int32_t))
      return bad("first_layer", "one I32", fmt::format("{} {}", first.type, text(first.shape)));
    const auto found = load_le<int32_t>(first.bytes.data());
    if (int64_t{found} != int64_t{first_layer}) return bad("first_layer", first_layer, found);
    KVCODEC_TRY(const Tensor mean, take("mean"));
    const uint64_t channels = shape_.channels(group_.kind), left = shape_.layers - first_layer;
    const uint64_t count = mean.shape.size() == 1 ? mean.shape[0] : 0;
    if (count == 0 || count % channels != 0 || count / channels > left) {
      return bad("mean", fmt::format("{} channels a layer, of at most {} layers", channels, left),
                 text(mean.shape));
    }
    group_.first_layer = first_layer;
    group_.layers = static_cast<uint32_t>(count / channels);
    KVCODEC_TRY(group_.mean, convert("mean", mean));
    for (float& number : group_.mean) number += 0.0f;  // no zero has a sign: docs/format.md
    return ok_status();
  }

  Status read_basis() {
    KVCODEC_TRY(const Tensor basis, take("basis"));
    const auto& dims = basis.shape;
    if (dims.size() != 2 || dims[0] > channels() || dims[1] != channels()) {
      return bad("basis", fmt::format("shape [1 to {0}, {0}]", channels()), text(dims));
    }
    group_.components = static_cast<uint32_t>(dims[0]);
    KVCODEC_TRY(group_.basis, convert("basis", basis));
    KVCODEC_TRY(const std::vector<float> scale, floats("scale", {channels()}));
    for (size_t c = 0; c < scale.size(); ++c)
      if (scale[c] <= 0) return bad("scale", fmt::format("above 0, at {}", c), scale[c]);
    for (size_t row = 0; row < group_.components; ++row)
      for (size_t c = 0; c < scale.size(); ++c) group_.basis[row * scale.size() + c] *= scale[c];
    return ok_status();
  }

  Status read_metric() {
    const uint64_t dim = shape_.head_dim(group_.kind);
    const std::vector<uint64_t> blocks = {uint64_t{group_.layers} * shape_.kv_heads, dim, dim};
    KVCODEC_TRY(const Tensor metric, take("metric"));
    const bool diagonal = metric.shape == std::vector<uint64_t>{channels()};
    if (!diagonal && metric.shape != blocks) {
      return bad("metric", fmt::format("shape [{}] or [{}]", channels(), fmt::join(blocks, ", ")),
                 text(metric.shape));
    }
    KVCODEC_TRY(group_.metric, convert("metric", metric));
    for (uint64_t c = 0; c < channels(); ++c) {
      const float weight = diagonal ? group_.metric[c] : group_.metric[c * dim + c % dim];
      if (weight <= 0) return bad("metric", fmt::format("above 0, for channel {}", c), weight);
    }
    return ok_status();
  }

  // s M s of a row of the basis.
  double unit_of(size_t row) const {
    const float* s = &group_.basis[row * channels()];
    const size_t dim = shape_.head_dim(group_.kind);
    double sum = 0;
    for (size_t c = 0; c < channels(); ++c) {
      if (!group_.block_metric()) {
        sum += double{s[c]} * s[c] * group_.metric[c];
        continue;
      }
      const size_t block = c / dim * dim;
      double column = 0;
      for (size_t i = 0; i < dim; ++i) column += double{group_.metric[c * dim + i]} * s[block + i];
      sum += s[c] * column;
    }
    return sum;
  }

  // S M S^T = I is what makes analysis and synthesis inverse. Its diagonal is checked: cheap, and
  // wrong where basis and metric are not of one calibration.
  Status check_units() const {
    const size_t step = group_.block_metric() ? std::max<size_t>(1, group_.components / 16) : 1;
    for (size_t row = 0; row < group_.components; row += step) {
      const double unit = unit_of(row);
      if (!(std::abs(unit - 1) <= 0.02))
        return bad("basis", fmt::format("rows of length 1 under the metric, at {}", row), unit);
    }
    return ok_status();
  }

  TensorFile& file_;
  const KvShape& shape_;
  const std::string prefix_;
  ProfileGroup group_;
};

Status read_groups(TensorFile& file, ProfileFields& fields) {
  for (KvKind kind : kKvKinds) {
    if (fields.shape.channels(kind) == 0) continue;
    uint32_t layer = 0;
    for (size_t index = 0; layer < fields.shape.layers; ++index) {
      GroupReader reader(file, fields.shape, kind, index);
      if (!reader.present()) {
        return make_error(ErrorCode::corrupt, "profile groups of {}: expected {} layers, found {}",
                          kv_kind_name(kind), fields.shape.layers, layer);
      }
      KVCODEC_TRY(ProfileGroup group, reader.read(layer));
      layer += group.layers;
      fields.groups.push_back(std::move(group));
    }
  }
  return ok_status();
}

}  // namespace

Result<Profile> Profile::parse(std::span<const std::byte> bytes, const ProfileLimits& limits) {
  if (bytes.size() > limits.max_bytes) {
    return make_error(ErrorCode::corrupt, "profile: expected at most {} bytes, found {}",
                      limits.max_bytes, bytes.size());
  }
  KVCODEC_TRY(TensorFile file, profile::parse_safetensors(bytes));
  KVCODEC_TRY(ProfileFields fields, profile::read_metadata(file.metadata));
  if (fields.kind == ProfileFields::Kind::calibrated) KVCODEC_CHECK(read_groups(file, fields));
  if (!file.tensors.empty()) {
    return make_error(ErrorCode::corrupt, "profile tensor '{}': expected none of this name",
                      file.tensors.begin()->first);
  }
  return Profile(std::move(fields), sha256(bytes));
}

Result<Profile> Profile::load(const std::string& path, const ProfileLimits& limits) {
  const auto named = [&](Error error) {
    error.message = fmt::format("{}: {}", path, error.message);
    return error;
  };
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) return make_error(ErrorCode::not_found, "{}: no profile can be read here", path);
  const auto size = static_cast<int64_t>(in.tellg());
  if (size < 0 || static_cast<uint64_t>(size) > limits.max_bytes) {
    return make_error(ErrorCode::corrupt, "{}: expected a profile of at most {} bytes, found {}",
                      path, limits.max_bytes, size);
  }
  std::vector<std::byte> bytes(static_cast<size_t>(size));
  in.seekg(0);
  if (!in.read(reinterpret_cast<char*>(bytes.data()), size))
    return make_error(ErrorCode::io, "{}: reading {} bytes failed", path, size);
  auto profile = parse(bytes, limits);
  if (!profile.ok()) return named(std::move(profile.error()));
  return profile;
}

}  // namespace kvcodec
