// SPDX-License-Identifier: Apache-2.0
#include "publish/group_source.h"

namespace kvcodec::publish {

SourceTables plan_tables(const KvSource& source, const Rope& rope, uint32_t tokens,
                         ChunkMemory& memory) {
  SourceTables tables;
  const auto& block_table = source.geometry->block_table;
  tables.has_block_table = !block_table.empty();
  tables.block_table = memory.upload(std::as_bytes(std::span(block_table)));
  if (rope.style != Rope::Style::none) tables.pairs = rope.rotary_dims / 2;
  tables.phase_steps =
      memory.upload(std::as_bytes(std::span(rope.phase_steps).first(tables.pairs)));
  const uint64_t bytes = uint64_t{tables.pairs} * tokens * sizeof(float);
  tables.cosines = memory.scratch(bytes);
  tables.sines = memory.scratch(bytes);
  return tables;
}

Status make_tables(const PublishDevice& device, const ChunkMemory& memory,
                   const SourceTables& tables, uint64_t position, uint32_t tokens) {
  restore::TurnArguments a = {};
  a.phase_steps = memory.on_device<const uint64_t>(tables.phase_steps);
  a.position = position;
  a.pairs = tables.pairs;
  a.tokens = tokens;
  a.cosines = memory.on_device<float>(tables.cosines);
  a.sines = memory.on_device<float>(tables.sines);
  return device.restore_kernels().run(a, memory.stream());
}

GroupSource group_source(const KvSource& source, TokenRange range, const format::Header& header,
                         const GroupPlan& plan, const ChunkMemory& memory,
                         const SourceTables& tables) {
  const KvGeometry& geometry = *source.geometry;
  const KvGeometry::Strides& strides = geometry.strides(plan.kind);
  GroupSource a = {};
  // The kernels that have it only read.
  a.cache.memory = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(source.memory.data()));
  a.cache.offset = strides.offset;
  a.cache.layer = strides.layer;
  a.cache.token = strides.token;
  a.cache.head = strides.head;
  a.cache.dim = strides.dim;
  a.cache.block_stride = geometry.block_stride;
  a.cache.block_table =
      tables.has_block_table ? memory.on_device<const uint32_t>(tables.block_table) : nullptr;
  a.cache.block_tokens = geometry.block_tokens;
  a.cache.first_token = range.first;
  a.cache.element_bytes = static_cast<uint32_t>(dtype_bytes(geometry.shape.dtype));
  a.layers = plan.layers.count;
  a.first_layer = plan.layers.first;
  a.heads = geometry.shape.kv_heads;
  a.dim = geometry.shape.head_dim(plan.kind);
  a.tokens = range.count;
  a.sinks = header.sink_tokens;
  a.dtype = static_cast<uint32_t>(geometry.shape.dtype);
  return a;
}

ValuesArguments values_arguments(const GroupSource& source, const format::Header& header,
                                 const GroupPlan& plan, const ChunkMemory& memory,
                                 const SourceTables& tables) {
  ValuesArguments a = {};
  a.source = source;
  a.cosines = memory.on_device<const float>(tables.cosines);
  a.sines = memory.on_device<const float>(tables.sines);
  a.pairs = plan.kind == KvKind::key ? tables.pairs : 0;
  a.interleaved = header.rope.style == Rope::Style::interleaved ? 1 : 0;
  return a;
}

SinksArguments sinks_arguments(const GroupSource& source, const format::Header& header,
                               const GroupPlan& plan, uint8_t* sinks) {
  SinksArguments a = {};
  a.source = source;
  a.sinks = sinks + sink_offset(header, plan.kind, plan.layers.first, 0);
  a.layer_bytes = header.shape.token_bytes() / header.shape.layers * header.sink_tokens;
  return a;
}

Result<std::vector<std::byte>> fetch_elements(const PublishDevice& device,
                                              const GroupSource& source, CUstream stream) {
  const uint64_t bytes = uint64_t{source.layers} * source.heads * source.dim * source.tokens *
                         source.cache.element_bytes;
  KVCODEC_TRY(auto buffer, DeviceBuffer::allocate(device.driver(), bytes));
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const ElementsArguments a = {source, reinterpret_cast<uint8_t*>(buffer.data())};
  KVCODEC_CHECK(device.kernels().run(a, stream));
  const CudaFunctions& cuda = device.driver().cuda();
  KVCODEC_CHECK(device.driver().check(cuda.cuStreamSynchronize(stream), "cuStreamSynchronize"));
  std::vector<std::byte> elements(bytes);
  KVCODEC_CHECK(device.driver().check(cuda.cuMemcpyDtoH(elements.data(), buffer.data(), bytes),
                                      "cuMemcpyDtoH"));
  return elements;
}

}  // namespace kvcodec::publish
