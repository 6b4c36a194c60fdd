// SPDX-License-Identifier: Apache-2.0
#include "restore/group_launcher.h"

#include "kvcodec/profile.h"
#include "transform/exact_split.h"

namespace kvcodec::restore {
namespace {

// Device addresses are integers to the host.
// NOLINTBEGIN(performance-no-int-to-ptr)
template <typename T>
T* at(const ChunkLaunch& chunk, uint64_t offset) {
  return reinterpret_cast<T*>(chunk.memory + offset);
}

template <typename T>
T* in_scratch(const ChunkLaunch& chunk, uint64_t offset) {
  return reinterpret_cast<T*>(chunk.scratch + offset);
}

TargetArguments target_arguments(const ChunkLaunch& chunk, KvKind kind) {
  const KvGeometry& geometry = *chunk.target.geometry;
  const KvGeometry::Strides& strides = geometry.strides(kind);
  TargetArguments a = {};
  a.memory = reinterpret_cast<uint8_t*>(chunk.target.memory);
  a.offset = strides.offset;
  a.layer = strides.layer;
  a.token = strides.token;
  a.head = strides.head;
  a.dim = strides.dim;
  a.block_stride = geometry.block_stride;
  a.block_table =
      chunk.image.has_block_table ? at<const uint32_t>(chunk, chunk.image.block_table) : nullptr;
  a.block_tokens = geometry.block_tokens;
  a.first_token = chunk.first_token;
  a.element_bytes = static_cast<uint32_t>(dtype_bytes(geometry.shape.dtype));
  return a;
}

Status launch_exact(const CudaKernels& kernels, const ChunkLaunch& chunk, const GroupImage& group,
                    CUstream stream) {
  const format::Header& header = chunk.header;
  const KvKind kind = group.plan.kind;
  const auto how = transform::ExactSplit::of(
      header.shape.dtype, header.symbol_mantissa_bits[static_cast<size_t>(kind)]);
  ExactArguments a = {};
  a.samples = at<const uint8_t>(chunk, group.samples);
  a.low = at<const uint8_t>(chunk, group.low_bits);
  a.layout_row = at<const uint32_t>(chunk, group.layout_row);
  a.centres = at<const uint8_t>(chunk, group.centres);
  a.offset_of = at<const uint8_t>(chunk, chunk.image.offset_of);
  a.bad = at<const uint32_t>(chunk, chunk.image.results);
  a.target = target_arguments(chunk, kind);
  a.layers = group.plan.layers.count;
  a.first_layer = group.plan.layers.first;
  a.heads = header.shape.kv_heads;
  a.dim = header.shape.head_dim(kind);
  a.tokens = header.tokens;
  a.bits = how.bits;
  a.symbol_bits = how.symbol_bits;
  a.low_bits = how.low_bits;
  a.low_row_bytes = static_cast<uint32_t>(how.low_row_bytes(header.tokens));
  return kernels.run(a, stream);
}

Status launch_layer_values(const CudaKernels& kernels, const ChunkLaunch& chunk,
                           const GroupImage& group, EscapeArguments escapes, CUstream stream) {
  LayerValuesArguments a = {};
  a.samples = at<const uint8_t>(chunk, group.samples);
  a.layout_row = at<const uint32_t>(chunk, group.layout_row);
  a.steps = at<const float>(chunk, group.steps);
  a.offsets = at<const int16_t>(chunk, group.offsets);
  a.values = in_scratch<float>(chunk, chunk.image.values);
  a.rows = group.plan.rows.rows;
  a.channels = chunk.header.shape.channels(group.plan.kind);
  a.tokens = chunk.header.tokens;
  KVCODEC_CHECK(kernels.run(a, stream));
  escapes.steps = a.steps;
  escapes.offsets = a.offsets;
  escapes.values = a.values;
  escapes.channels = a.channels;
  return kernels.run(escapes, stream);
}

Status launch_basis(const CudaKernels& kernels, const ChunkLaunch& chunk, const GroupImage& group,
                    size_t index, EscapeArguments escapes, CUstream stream) {
  const format::BasisGroup& basis = chunk.header.groups[index];
  const DeviceProfile::Group& profile = chunk.profile->groups[index];
  if (group.escape_count == 0) {
    CodesProductArguments a = {};
    a.basis = reinterpret_cast<const float*>(profile.basis.data());
    a.mean = reinterpret_cast<const float*>(profile.mean.data());
    a.samples = at<const uint8_t>(chunk, group.samples);
    a.values = in_scratch<float>(chunk, chunk.image.values);
    a.step = basis.step;
    a.delta[0] = basis.delta[0];
    a.delta[1] = basis.delta[1];
    a.rows = group.plan.layers.count * chunk.header.shape.channels(group.plan.kind);
    a.depth = basis.live_rows;
    a.tokens = chunk.header.tokens;
    return kernels.run(a, stream);
  }
  ComponentValuesArguments a = {};
  a.samples = at<const uint8_t>(chunk, group.samples);
  a.values = in_scratch<float>(chunk, chunk.image.components);
  a.step = escapes.step = basis.step;
  a.delta[0] = escapes.delta[0] = basis.delta[0];
  a.delta[1] = escapes.delta[1] = basis.delta[1];
  a.rows = basis.live_rows;
  a.tokens = chunk.header.tokens;
  KVCODEC_CHECK(kernels.run(a, stream));
  escapes.values = a.values;
  KVCODEC_CHECK(kernels.run(escapes, stream));
  ProductArguments product = {};
  product.basis = reinterpret_cast<const float*>(profile.basis.data());
  product.mean = reinterpret_cast<const float*>(profile.mean.data());
  product.components = a.values;
  product.values = in_scratch<float>(chunk, chunk.image.values);
  product.rows = group.plan.layers.count * chunk.header.shape.channels(group.plan.kind);
  product.depth = basis.live_rows;
  product.tokens = a.tokens;
  return kernels.run(product, stream);
}
// NOLINTEND(performance-no-int-to-ptr)

Status launch_finish(const CudaKernels& kernels, const ChunkLaunch& chunk, const GroupImage& group,
                     CUstream stream) {
  const format::Header& header = chunk.header;
  const KvShape& shape = header.shape;
  FinishArguments a = {};
  a.values = in_scratch<const float>(chunk, chunk.image.values);
  a.cosines = at<const float>(chunk, chunk.image.cosines);
  a.sines = at<const float>(chunk, chunk.image.sines);
  a.sinks = at<const uint8_t>(chunk, group.sinks);
  a.sink_layer = uint64_t{header.sink_tokens} *
                 (shape.channels(KvKind::key) + shape.channels(KvKind::value)) *
                 dtype_bytes(shape.dtype);
  a.bad = at<const uint32_t>(chunk, chunk.image.results);
  a.target = target_arguments(chunk, group.plan.kind);
  a.layers = group.plan.layers.count;
  a.first_layer = group.plan.layers.first;
  a.heads = shape.kv_heads;
  a.dim = shape.head_dim(group.plan.kind);
  a.tokens = header.tokens;
  a.pairs = group.plan.kind == KvKind::key ? chunk.image.pairs : 0;
  a.sink_tokens = header.sink_tokens;
  a.interleaved = header.rope.style == Rope::Style::interleaved ? 1 : 0;
  a.dtype = static_cast<uint32_t>(shape.dtype);
  return kernels.run(a, stream);
}

}  // namespace

Result<DeviceProfile> upload_profile(const CudaDriver& driver, const Profile& profile) {
  const auto upload = [&driver](const std::vector<float>& values) -> Result<DeviceBuffer> {
    KVCODEC_TRY(auto buffer, DeviceBuffer::allocate(driver, values.size() * sizeof(float)));
    KVCODEC_CHECK(driver.check(
        driver.cuda().cuMemcpyHtoD(buffer.data(), values.data(), values.size() * sizeof(float)),
        "cuMemcpyHtoD"));
    return buffer;
  };
  DeviceProfile device;
  for (const ProfileGroup& group : profile.groups()) {
    KVCODEC_TRY(auto basis, upload(group.basis));
    KVCODEC_TRY(auto mean, upload(group.mean));
    device.groups.push_back({std::move(basis), std::move(mean)});
  }
  return device;
}

Status launch_start(const CudaKernels& kernels, const ChunkLaunch& chunk, CUstream stream) {
  TurnArguments a = {};
  a.phase_steps = at<const uint64_t>(chunk, chunk.image.phase_steps);
  a.position = chunk.position;
  a.pairs = chunk.image.pairs;
  a.tokens = chunk.header.tokens;
  a.cosines = at<float>(chunk, chunk.image.cosines);
  a.sines = at<float>(chunk, chunk.image.sines);
  return kernels.run(a, stream);
}

Status launch_checks(const CudaKernels& kernels, const ChunkLaunch& chunk, CUstream stream) {
  const ChunkImage& image = chunk.image;
  if (image.checks == 0) return ok_status();
  const GroupImage& first = image.groups.front();  // the groups' arrays follow each other
  ChecksumArguments checks = {};
  checks.samples = at<const uint8_t>(chunk, 0);
  checks.offsets = at<const uint64_t>(chunk, first.check_offsets);
  checks.bytes = at<const uint64_t>(chunk, first.check_bytes);
  checks.expected = at<const uint64_t>(chunk, first.check_expected);
  checks.found = at<uint64_t>(chunk, first.check_found);
  checks.secret = at<const uint64_t>(chunk, image.secret);
  checks.bad = at<uint32_t>(chunk, image.results);
  checks.pictures = image.checks;
  return kernels.run(checks, stream);
}

Status launch_group(const CudaKernels& kernels, const ChunkLaunch& chunk, size_t index,
                    CUstream stream) {
  const GroupImage& group = chunk.image.groups[index];
  if (chunk.header.tier == Tier::exact) return launch_exact(kernels, chunk, group, stream);
  EscapeArguments escapes = {};
  escapes.escapes = at<const EscapeEntry>(chunk, group.escapes);
  escapes.count = group.escape_count;
  escapes.tokens = chunk.header.tokens;
  KVCODEC_CHECK(chunk.header.has_row_keys()
                    ? launch_layer_values(kernels, chunk, group, escapes, stream)
                    : launch_basis(kernels, chunk, group, index, escapes, stream));
  return launch_finish(kernels, chunk, group, stream);
}

}  // namespace kvcodec::restore
