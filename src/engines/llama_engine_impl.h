// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engines/llama_runtime.h"
#include "engines/llama_state.h"
#include "kvcodec/llama.h"

namespace kvcodec {

struct LlamaKv::Impl {
  LlamaStateBuffer state;
};

// The sequence has id 0 and holds positions 0..position-1 in cells 0..position-1 of the one
// stream. has_logits: the context's logits are those of position-1.
struct LlamaEngine::Impl {
  std::string path, name;
  KvShape shape;
  Rope rope;
  std::string rope_note;
  Digest weights;
  std::stop_token stop;  // what the context asks while it computes
  LlamaModelPtr model;   // outlives the context
  LlamaContextPtr context;
  const llama_vocab* vocab = nullptr;
  uint32_t context_tokens = 0, batch_tokens = 0, logit_tokens = 1;
  int threads = 0;
  uint32_t position = 0;
  bool has_logits = false;

  Status load(const gguf_context& gguf, const LlamaOptions& options);
  // Checks the linked library against llama_state and the file's rotation; leaves it empty.
  Status probe();

  enum class Outputs { none, last, all };  // tokens of a batch whose logits are kept
  Status check_tokens(std::span<const int32_t> tokens) const;
  Status compute(std::span<const int32_t> tokens, const Progress& progress);
  Status score(std::span<const int32_t> tokens,
               const std::function<void(size_t, std::span<const float>)>& each);
  Status compute_batch(std::span<const int32_t> tokens, Outputs wanted);
  Result<LlamaStateBuffer> export_state() const;
  Status restore_state(LlamaStateBuffer& state, uint32_t tokens);
  Status truncate(uint32_t tokens);
  void reset();
};

}  // namespace kvcodec
