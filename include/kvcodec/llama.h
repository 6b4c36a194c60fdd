// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "kvcodec/fetch.h"
#include "kvcodec/key.h"
#include "kvcodec/kv.h"
#include "kvcodec/result.h"

// llama.cpp as an engine: one model, one context, one sequence, on the CPU. Needs the library
// kvcodec::llama, which is built with KVCODEC_WITH_LLAMA=ON. To publish:
//
//   engine.prefill(document); kv = engine.export_kv();
//   publish_prefix(store, ns, document, kv.source(), options);
//
// and to answer from what was published, with ns = namespace_digest(engine.namespace_fields()):
//
//   n  = match_prefix(store, ns, prompt, rendition);  // below prompt.size(): see commit_restore
//   kv = engine.prepare_restore(n);
//   report = fetch_prefix(store, ns, prompt, kv.target(), options);
//   engine.commit_restore(std::move(kv), report.tokens_restored);
//   engine.prefill(the rest of prompt); engine.greedy_decode(32);
namespace kvcodec {

struct LlamaOptions {
  uint32_t context_tokens = 0;  // 0: what the model was trained for; rounded up to 256
  int threads = 0;              // 0: all cores
  // Tokens computed together. The last bits of a KV cache depend on it and on `threads`, so
  // comparisons to the bit need both equal, and chunk borders at multiples of it.
  uint32_t batch_tokens = kDefaultChunkTokens;
  // Most tokens of a batch whose logits score() keeps: each costs 4 bytes a vocabulary entry.
  uint32_t logit_tokens = 1;
  DType kv_dtype = DType::f16;
  // SHA-256 of the model file where the caller knows it; computed by open() otherwise.
  std::optional<Digest> weights = {};
};

struct LlamaTokenizeOptions {
  bool add_special = true;     // begin-of-text and the like, where the model asks for it
  bool parse_special = false;  // "<|im_start|>" in the text is a token, not text: trusted text only
};

// The KV of positions 0..tokens-1, in memory of its own, independent of the engine it came from.
// Movable; what source() and target() return stays valid while the object or the one it was moved
// into lives. Not thread-safe beyond that.
class LlamaKv {
 public:
  LlamaKv(LlamaKv&&) noexcept;
  LlamaKv& operator=(LlamaKv&&) noexcept;
  ~LlamaKv();

  uint32_t tokens() const;
  KvSource source() const;
  KvTarget target();  // the memory is the engine's state: write through the geometry only

 private:
  friend class LlamaEngine;
  struct Impl;
  explicit LlamaKv(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// One thread at a time uses an engine; tokenize, detokenize, ends_generation, prepare_restore and
// the accessors of what open() fixed may be called at any time, and several engines may be used at
// once. The process's llama.cpp log is silenced: what it reports as errors becomes part of Error
// messages. After an error the sequence is as before the call, or empty where the method says so
// or llama.cpp cannot go back; position() tells, and the engine stays usable.
class LlamaEngine {
 public:
  // Loads a GGUF file and computes four tokens, to check that the library linked here writes the
  // state layout that this code knows and turns keys as the file says. not_found or corrupt for
  // the file; unsupported for models that are not one plain KV cache of equal layers: recurrent,
  // hybrid, sliding-window, M-RoPE, encoders, MLA; and for models split over several files.
  static Result<LlamaEngine> open(const std::string& model_path, const LlamaOptions& options = {});
  LlamaEngine(LlamaEngine&&) noexcept;
  LlamaEngine& operator=(LlamaEngine&&) noexcept;
  ~LlamaEngine();

  const KvShape& shape() const;
  // Style none where the steps are not known exactly (YaRN, LongRoPE, factor tensors, models whose
  // layers differ); rope_note() then says why, and is empty otherwise.
  const Rope& rope() const;
  const std::string& rope_note() const;
  const Digest& weights_digest() const;
  const std::string& model_name() const;
  uint32_t context_tokens() const;
  uint32_t batch_tokens() const;
  int threads() const;
  // Ready for namespace_digest(). The name also tells apart contexts for which LongRoPE picks
  // other factors.
  NamespaceFields namespace_fields(std::string_view salt = "") const;

  Result<std::vector<int32_t>> tokenize(std::string_view text,
                                        const LlamaTokenizeOptions& options = {}) const;
  // Special tokens become text only where asked for.
  Result<std::string> detokenize(std::span<const int32_t> tokens, bool special = false) const;
  bool ends_generation(int32_t token) const;

  // Tokens in the sequence.
  uint32_t position() const;
  // Computes `tokens` at positions position().., in batches of batch_tokens counted from the
  // first, and keeps the logits of the last. cancelled where `stop` was requested, within a batch
  // too. Requires 1 <= tokens.size() <= context_tokens() - position().
  Status prefill(std::span<const int32_t> tokens, const Progress& progress = {},
                 std::stop_token stop = {});
  // Logits after the last token, one a vocabulary entry. invalid_argument where the last call that
  // changed the sequence computed no token.
  Result<std::vector<float>> logits() const;
  // Computes `tokens` as prefill does, in batches of the smaller of batch_tokens and logit_tokens,
  // and hands out the logits after each: each(i, logits) for i = 0.. in order; the span is valid
  // during the call. Requires what prefill requires.
  Status score(std::span<const int32_t> tokens,
               const std::function<void(size_t index, std::span<const float> logits)>& each);
  // Appends the most likely token (the lowest id among equals) up to max_tokens times and returns
  // them; stops before a token that ends generation. Needs logits and room in the context.
  // on_token is called as soon as a token is known, before it is computed; false stops after it.
  Result<std::vector<int32_t>> greedy_decode(
      uint32_t max_tokens, const std::function<bool(int32_t token)>& on_token = {});

  // Copies the KV of the whole sequence. invalid_argument where it is empty.
  Result<LlamaKv> export_kv() const;
  // Zeroed memory for `tokens` positions. Does not touch the sequence, so a fetch into it may run
  // beside other work. Requires 1 <= tokens <= context_tokens().
  Result<LlamaKv> prepare_restore(uint32_t tokens) const;
  // Replaces the sequence by the first valid_tokens positions of `kv` (0: by nothing). No logits
  // come with it, so at least one more token must be computed: commit fewer than the prompt has.
  // On error the sequence is empty, and prefill from the start gives the right answer.
  Status commit_restore(LlamaKv kv, uint32_t valid_tokens);

  // Keeps the first `tokens` of the sequence. Requires tokens <= position().
  Status truncate(uint32_t tokens);
  void reset();  // empties the sequence

 private:
  struct Impl;
  explicit LlamaEngine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvcodec
