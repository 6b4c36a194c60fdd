// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "engines/llama_engine_impl.h"
#include "engines/llama_traits.h"

// The KV of an engine as memory, and back.
namespace kvcodec {
namespace {

constexpr llama_seq_id kSequence = 0;

// Zeroes every row, so that what is left is the layout alone.
void clear_rows(std::span<std::byte> memory, const KvGeometry& geometry) {
  for (KvKind kind : kKvKinds) {
    const KvGeometry::Strides& strides = geometry.strides(kind);
    for (uint32_t layer = 0; layer < geometry.shape.layers && strides.token > 0; ++layer)
      std::memset(memory.data() + strides.offset + layer * strides.layer, 0,
                  geometry.tokens * strides.token);
  }
}

}  // namespace

LlamaKv::LlamaKv(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LlamaKv::LlamaKv(LlamaKv&&) noexcept = default;
LlamaKv& LlamaKv::operator=(LlamaKv&&) noexcept = default;
LlamaKv::~LlamaKv() = default;

uint32_t LlamaKv::tokens() const { return impl_->state.geometry.tokens; }
KvSource LlamaKv::source() const {
  return {.memory = impl_->state.bytes, .geometry = &impl_->state.geometry};
}
KvTarget LlamaKv::target() {
  return {.memory = impl_->state.bytes, .geometry = &impl_->state.geometry};
}

Result<LlamaStateBuffer> LlamaEngine::Impl::export_state() const {
  LlamaErrors errors;
  LlamaStateBuffer state;
  state.bytes.resize(llama_state_seq_get_size(context.get(), kSequence));
  const size_t written = llama_state_seq_get_data(
      context.get(), reinterpret_cast<uint8_t*>(state.bytes.data()), state.bytes.size(), kSequence);
  if (written == 0 || written != state.bytes.size())
    return make_error(ErrorCode::internal, "llama.cpp: state of {} bytes, {} written: {}",
                      state.bytes.size(), written, errors.text());
  KVCODEC_TRY(LlamaState parsed, parse_llama_state(state.bytes, shape));
  if (parsed.geometry.tokens != position)
    return make_error(ErrorCode::internal, "llama.cpp: state of {} tokens, expected {}",
                      parsed.geometry.tokens, position);
  state.geometry = std::move(parsed.geometry);
  return state;
}

Status LlamaEngine::Impl::restore_state(LlamaStateBuffer& state, uint32_t tokens) {
  if (position > 0) reset();
  if (tokens == 0) return ok_status();
  // llama.cpp aborts the process on some malformed states, so it never sees one unread: the
  // memory was writable by others.
  KVCODEC_TRY(const LlamaState parsed, parse_llama_state(state.bytes, shape));
  if (parsed.geometry.tokens != state.geometry.tokens)
    return make_error(ErrorCode::corrupt, "llama state: {} tokens, expected {}",
                      parsed.geometry.tokens, state.geometry.tokens);
  KVCODEC_CHECK(truncate_llama_state(state, tokens));

  LlamaErrors errors;
  const size_t read =
      llama_state_seq_set_data(context.get(), reinterpret_cast<const uint8_t*>(state.bytes.data()),
                               state.bytes.size(), kSequence);
  const llama_memory_t memory = llama_get_memory(context.get());
  const llama_pos first = llama_memory_seq_pos_min(memory, kSequence);
  const llama_pos last = llama_memory_seq_pos_max(memory, kSequence);
  if (read != state.bytes.size() || first != 0 || last != static_cast<llama_pos>(tokens) - 1) {
    reset();
    return make_error(
        ErrorCode::internal,
        "llama.cpp: restored {} of {} bytes, positions {} to {}, expected 0 to {}: {}", read,
        state.bytes.size(), first, last, tokens - 1, errors.text());
  }
  position = tokens;
  has_logits = false;
  return ok_status();
}

Status LlamaEngine::Impl::probe() {
  constexpr uint32_t kTokens = 4;
  if (context_tokens < kTokens)
    return make_error(ErrorCode::invalid_argument, "model {}: a context of {} tokens is too small",
                      path, context_tokens);
  const int32_t start = llama_vocab_bos(vocab);
  const std::vector<int32_t> tokens(kTokens, std::max(start, 0));
  KVCODEC_CHECK(compute(tokens, {}));
  auto written = export_state();
  if (!written.ok())
    return make_error(ErrorCode::unsupported, "model {}: its KV cache is not a plain one: {}", path,
                      written.error().message);
  if (rope.style != Rope::Style::none &&
      !keys_rotated_by(rope, written->bytes, written->geometry, kTokens - 1)) {
    rope = {};
    rope_note = "the keys of layer 0 are not rotated as the file says";
  }
  LlamaStateBuffer layout = *written;
  clear_rows(layout.bytes, layout.geometry);
  KVCODEC_TRY(const LlamaStateBuffer expected, make_llama_state(shape, kTokens, kSequence));
  if (layout.bytes != expected.bytes)
    return make_error(ErrorCode::unsupported,
                      "model {}: this build of llama.cpp ({}) writes another state layout", path,
                      llama_version());
  KVCODEC_CHECK(restore_state(*written, kTokens - 1));
  reset();
  return ok_status();
}

Result<LlamaKv> LlamaEngine::export_kv() const {
  if (impl_->position == 0)
    return make_error(ErrorCode::invalid_argument, "llama.cpp: export of an empty sequence");
  KVCODEC_TRY(LlamaStateBuffer state, impl_->export_state());
  return LlamaKv(std::make_unique<LlamaKv::Impl>(LlamaKv::Impl{std::move(state)}));
}

Result<LlamaKv> LlamaEngine::prepare_restore(uint32_t tokens) const {
  if (tokens == 0 || tokens > impl_->context_tokens)
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: restore of {} tokens: expected 1 to {}", tokens,
                      impl_->context_tokens);
  KVCODEC_TRY(LlamaStateBuffer state, make_llama_state(impl_->shape, tokens, kSequence));
  return LlamaKv(std::make_unique<LlamaKv::Impl>(LlamaKv::Impl{std::move(state)}));
}

Status LlamaEngine::commit_restore(LlamaKv kv, uint32_t valid_tokens) {
  LlamaStateBuffer& state = kv.impl_->state;
  const bool fits = valid_tokens <= state.geometry.tokens && valid_tokens <= impl_->context_tokens;
  if (!fits || state.geometry.shape != impl_->shape) {
    impl_->reset();
    if (!fits)
      return make_error(ErrorCode::invalid_argument,
                        "llama.cpp: restore of {} tokens: {} are there, and the context holds {}",
                        valid_tokens, state.geometry.tokens, impl_->context_tokens);
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: restore of {} layers, {} KV heads, {}: expected {}, {}, {}",
                      state.geometry.shape.layers, state.geometry.shape.kv_heads,
                      dtype_name(state.geometry.shape.dtype), impl_->shape.layers,
                      impl_->shape.kv_heads, dtype_name(impl_->shape.dtype));
  }
  return impl_->restore_state(state, valid_tokens);
}

}  // namespace kvcodec
