// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "engines/llama_state.h"
#include "engines/llama_state_layout.h"

namespace kvcodec {
namespace {

// llama_kv_cell_ext: 2-D position of M-RoPE (8 bytes until v0.4), with the token id (12) since.
constexpr size_t kCellExtBytes[] = {8, 12};

const GgmlType* find_ggml_type(int32_t id) {
  const auto* at = std::find_if(std::begin(kGgmlTypes), std::end(kGgmlTypes),
                                [id](const GgmlType& type) { return type.id == id; });
  return at == std::end(kGgmlTypes) ? nullptr : at;
}

class Parser {
 public:
  Parser(std::span<const std::byte> state, const KvShape& shape)
      : reader_(state), size_(state.size()), shape_(shape) {}

  Result<LlamaState> parse() {
    KVCODEC_CHECK(read_preamble());
    KVCODEC_CHECK(read_cells());
    KVCODEC_CHECK(read_section());
    for (KvKind kind : kKvKinds) KVCODEC_CHECK(read_tensors(kind));
    if (reader_.remaining() != 0)
      return make_error(ErrorCode::corrupt,
                        "llama state: {} bytes after the last layer at byte {}: expected none",
                        reader_.remaining(), reader_.offset());
    LlamaState state;
    state.seq_id = seq_id_;
    state.geometry = ordered_llama_geometry(shape_, cells_);
    KVCODEC_CHECK(apply_cell_order(state.geometry));
    return state;
  }

 private:
  // Reads one field; *what* names it where the state ends inside it.
  template <typename T>
  Result<T> field(const char* what) {
    const size_t at = reader_.offset();
    const T value = reader_.get<T>();
    if (!reader_.ok())
      return make_error(ErrorCode::corrupt,
                        "llama state: {} at byte {}: the state ends at byte {}, expected {} more",
                        what, at, size_, sizeof(T));
    return value;
  }

  Status read_preamble() {
    KVCODEC_TRY(const auto magic, field<uint32_t>("magic"));
    if (magic != kLlamaStateMagic)
      return make_error(ErrorCode::corrupt,
                        "llama state: magic at byte 0: expected {:08x}, found {:08x} (no sequence "
                        "state, or of a llama.cpp before May 2026)",
                        kLlamaStateMagic, magic);
    KVCODEC_TRY(seq_id_, field<int32_t>("sequence id"));
    if (seq_id_ < 0)
      return make_error(ErrorCode::corrupt,
                        "llama state: sequence id at byte 4: expected 0 or more, found {}",
                        seq_id_);
    KVCODEC_TRY(const auto streams, field<uint32_t>("n_stream"));
    if (streams == 0)
      return make_error(ErrorCode::corrupt, "llama state: n_stream at byte 8: expected 1, found 0");
    if (streams > 1)
      return make_error(ErrorCode::unsupported,
                        "llama state: n_stream at byte 8: expected 1, found {}; set n_seq_max to 1 "
                        "or kv_unified",
                        streams);
    KVCODEC_TRY(cells_, field<uint32_t>("cell count"));
    if (cells_ == 0)
      return make_error(ErrorCode::invalid_argument,
                        "llama state: cell count at byte 12: the sequence is empty");
    if (cells_ > reader_.remaining() / kCellBytes)
      return make_error(ErrorCode::corrupt,
                        "llama state: cell count at byte 12: {} cells need {} bytes, found {}",
                        cells_, uint64_t{cells_} * kCellBytes, reader_.remaining());
    return ok_status();
  }

  // Fills cell_of_; an unreadable table that fits the extended layout is named as such.
  Status read_cells() {
    const size_t begin = reader_.offset();
    ByteReader whole = reader_;
    Status read = read_plain_cells();
    const bool plain = read.ok() && v_trans_follows();
    if (plain) return read;
    for (size_t ext : kCellExtBytes) {
      if (cells_fit_ext(whole, ext))
        return make_error(ErrorCode::unsupported,
                          "llama state: cells at byte {} carry {} bytes of extended position "
                          "(M-RoPE or n-gram models)",
                          begin, ext);
    }
    return read;
  }

  Status read_plain_cells() {
    constexpr uint32_t kNone = UINT32_MAX;
    cell_of_.assign(cells_, kNone);
    for (uint32_t cell = 0; cell < cells_; ++cell) {
      const size_t at = reader_.offset();
      const auto position = reader_.get<int32_t>();
      const auto sequences = reader_.get<uint32_t>();
      const auto sequence = reader_.get<int32_t>();
      if (sequences != 1)
        return make_error(ErrorCode::corrupt,
                          "llama state: cell {} at byte {}: expected 1 sequence, found {}", cell,
                          at, sequences);
      if (sequence != seq_id_)
        return make_error(ErrorCode::corrupt,
                          "llama state: cell {} at byte {}: expected sequence {}, found {}", cell,
                          at, seq_id_, sequence);
      if (position < 0)
        return make_error(ErrorCode::corrupt,
                          "llama state: cell {} at byte {}: expected a position of 0 or more, "
                          "found {}",
                          cell, at, position);
      if (static_cast<uint32_t>(position) >= cells_)
        return make_error(ErrorCode::unsupported,
                          "llama state: cell {} at byte {}: position {} with {} cells: positions "
                          "have gaps (a shifted context or a sliding window)",
                          cell, at, position, cells_);
      uint32_t& owner = cell_of_[static_cast<size_t>(position)];
      if (owner != kNone)
        return make_error(ErrorCode::corrupt,
                          "llama state: cell {} at byte {}: position {} is also that of cell {}",
                          cell, at, position, owner);
      owner = cell;
    }
    return ok_status();
  }

  bool v_trans_follows() const {
    ByteReader peek = reader_;
    return peek.get<uint32_t>() <= 1;
  }

  bool cells_fit_ext(ByteReader reader, size_t ext) const {
    for (uint32_t cell = 0; cell < cells_; ++cell) {
      const auto position = reader.get<int32_t>();
      const auto sequences = reader.get<uint32_t>();
      reader.get_bytes(ext);
      const auto sequence = reader.get<int32_t>();
      if (!reader.ok() || position < 0 || sequences != 1 || sequence != seq_id_) return false;
    }
    const auto v_trans = reader.get<uint32_t>();
    return reader.ok() && v_trans <= 1;
  }

  Status read_section() {
    const size_t at = reader_.offset();
    KVCODEC_TRY(const auto v_trans, field<uint32_t>("v_trans"));
    if (v_trans == 1)
      return make_error(ErrorCode::unsupported,
                        "llama state: v_trans at byte {}: values are stored transposed; enable "
                        "flash attention in the context that writes the state",
                        at);
    if (v_trans > 1)
      return make_error(ErrorCode::corrupt,
                        "llama state: v_trans at byte {}: expected 0 or 1, found {}", at, v_trans);
    KVCODEC_TRY(const auto layers, field<uint32_t>("layer count"));
    if (layers > reader_.remaining() / kTensorHeaderBytes)
      return make_error(ErrorCode::corrupt,
                        "llama state: layer count at byte {}: {} layers need {} bytes or more, "
                        "found {}",
                        at + 4, layers, uint64_t{layers} * kTensorHeaderBytes, reader_.remaining());
    if (layers != shape_.layers)
      return make_error(ErrorCode::invalid_argument,
                        "llama state: layer count at byte {}: expected {}, found {}", at + 4,
                        shape_.layers, layers);
    return ok_status();
  }

  // The rows of all layers of one kind. A cache without values has no such part at all.
  Status read_tensors(KvKind kind) {
    const uint64_t expected_row = llama_row_bytes(shape_, kind);
    if (expected_row == 0) return ok_status();
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      const size_t at = reader_.offset();
      KVCODEC_TRY(const auto type, field<int32_t>("tensor type"));
      KVCODEC_CHECK(check_type(kind, layer, at, type));
      KVCODEC_TRY(const auto row, field<uint64_t>("row size"));
      if (row != expected_row)
        return make_error(ErrorCode::invalid_argument,
                          "llama state: row size of {} layer {} at byte {}: expected {} ({} KV "
                          "heads of {} {} elements), found {}",
                          kv_kind_name(kind), layer, at + 4, expected_row, shape_.kv_heads,
                          shape_.head_dim(kind), dtype_name(shape_.dtype), row);
      if (cells_ > reader_.remaining() / row)
        return make_error(ErrorCode::corrupt,
                          "llama state: rows of {} layer {} at byte {}: the state ends at byte {}, "
                          "expected {} rows of {} bytes",
                          kv_kind_name(kind), layer, reader_.offset(), size_, cells_, row);
      reader_.get_bytes(cells_ * static_cast<size_t>(row));
    }
    return ok_status();
  }

  Status check_type(KvKind kind, uint32_t layer, size_t at, int32_t id) const {
    const GgmlType* type = find_ggml_type(id);
    if (type == nullptr)
      return make_error(ErrorCode::corrupt,
                        "llama state: type of {} layer {} at byte {}: {} is no KV cache type",
                        kv_kind_name(kind), layer, at, id);
    if (!type->dtype)
      return make_error(ErrorCode::unsupported,
                        "llama state: type of {} layer {} at byte {}: {} is quantised; use f16, "
                        "bf16 or f32",
                        kv_kind_name(kind), layer, at, type->name);
    if (*type->dtype != shape_.dtype)
      return make_error(ErrorCode::invalid_argument,
                        "llama state: type of {} layer {} at byte {}: expected {}, found {}",
                        kv_kind_name(kind), layer, at, dtype_name(shape_.dtype), type->name);
    return ok_status();
  }

  // Tokens reach their cells through a block table where cells are not in order of position.
  Status apply_cell_order(KvGeometry& geometry) {
    bool ordered = true;
    for (uint32_t position = 0; position < cells_ && ordered; ++position)
      ordered = cell_of_[position] == position;
    if (ordered) return ok_status();
    if (shape_.value_dim > 0 && geometry.value.token != geometry.key.token)
      return make_error(ErrorCode::unsupported,
                        "llama state: cells are not in order of position, and rows of keys ({} "
                        "bytes) and values ({} bytes) differ",
                        geometry.key.token, geometry.value.token);
    geometry.block_tokens = 1;
    geometry.block_stride = geometry.key.token;
    geometry.key.token = geometry.value.token = 0;
    geometry.block_table = std::move(cell_of_);
    return ok_status();
  }

  ByteReader reader_;
  size_t size_;
  const KvShape& shape_;
  int32_t seq_id_ = 0;
  uint32_t cells_ = 0;
  std::vector<uint32_t> cell_of_;  // by position
};

}  // namespace

Result<LlamaState> parse_llama_state(std::span<const std::byte> state, const KvShape& shape) {
  KVCODEC_CHECK(llama_state_bytes(shape, 1));  // rows of this shape have a size
  return Parser(state, shape).parse();
}

}  // namespace kvcodec
