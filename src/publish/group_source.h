// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "codec/chunk_plan.h"
#include "publish/publish_device.h"

namespace kvcodec::publish {

// What all groups of a chunk need to be read from the cache.
struct SourceTables {
  ChunkMemory::Place block_table, phase_steps, cosines, sines;
  bool has_block_table = false;
  uint32_t pairs = 0;
};
// Plans them; `rope`: as the keys are un-rotated.
SourceTables plan_tables(const KvSource& source, const Rope& rope, uint32_t tokens,
                         ChunkMemory& memory);
// Enqueues the rotation's table; `position`: of the chunk's first token.
Status make_tables(const PublishDevice& device, const ChunkMemory& memory,
                   const SourceTables& tables, uint64_t position, uint32_t tokens);

// The cache as kernels read a group. source.memory is device memory.
GroupSource group_source(const KvSource& source, TokenRange range, const format::Header& header,
                         const GroupPlan& plan, const ChunkMemory& memory,
                         const SourceTables& tables);
// Its values with the rotation undone.
ValuesArguments values_arguments(const GroupSource& source, const format::Header& header,
                                 const GroupPlan& plan, const ChunkMemory& memory,
                                 const SourceTables& tables);
// Its sinks, to Header::sinks at `sinks`.
SinksArguments sinks_arguments(const GroupSource& source, const format::Header& header,
                               const GroupPlan& plan, uint8_t* sinks);
// Elements of a group in host memory, as layout::gather_rows: for errors that name a value.
Result<std::vector<std::byte>> fetch_elements(const PublishDevice& device,
                                              const GroupSource& source, CUstream stream);

}  // namespace kvcodec::publish
