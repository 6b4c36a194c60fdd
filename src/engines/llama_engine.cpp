// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "base/error.h"
#include "engines/llama_engine_impl.h"
#include "engines/llama_traits.h"

namespace kvcodec {
namespace {

constexpr llama_seq_id kSequence = 0;
// llama.cpp counts positions in int32.
constexpr uint32_t kMaxContextTokens = uint32_t{1} << 30;

bool stop_requested(void* token) {
  return static_cast<const std::stop_token*>(token)->stop_requested();
}

llama_context_params context_params(const LlamaOptions& options, int threads) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context_tokens;
  params.n_batch = params.n_ubatch = options.batch_tokens;
  params.n_seq_max = 1;
  params.n_outputs_max = std::min(options.logit_tokens, options.batch_tokens);
  params.n_threads = params.n_threads_batch = threads;
  // Values are stored row by row only with flash attention; AUTO could choose either.
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.type_k = params.type_v = llama_kv_type(options.kv_dtype);
  params.offload_kqv = params.op_offload = false;
  params.no_perf = true;
  return params;
}

}  // namespace

Status LlamaEngine::Impl::load(const gguf_context& gguf, const LlamaOptions& options) {
  LlamaErrors errors;
  llama_model_params model_params = llama_model_default_params();
  ggml_backend_dev_t no_devices[] = {nullptr};
  model_params.devices = no_devices;
  model_params.n_gpu_layers = 0;
  model.reset(llama_model_load_from_file(path.c_str(), model_params));
  if (!model)
    return make_error(ErrorCode::corrupt, "model {}: llama.cpp cannot load it: {}", path,
                      errors.text());
  KVCODEC_CHECK(check_llama_model(*model, path));

  threads = options.threads > 0
                ? options.threads
                : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  llama_context_params params = context_params(options, threads);
  params.abort_callback = stop_requested;
  params.abort_callback_data = &stop;
  context.reset(llama_init_from_model(model.get(), params));
  if (!context)
    return make_error(ErrorCode::unsupported,
                      "model {}: no context of {} tokens with {} KV and flash attention: {}", path,
                      options.context_tokens, dtype_name(options.kv_dtype), errors.text());
  vocab = llama_model_get_vocab(model.get());
  context_tokens = llama_n_ctx_seq(context.get());
  batch_tokens = llama_n_ubatch(context.get());
  logit_tokens = std::min(options.logit_tokens, batch_tokens);

  shape = llama_kv_shape(gguf, *model, options.kv_dtype);
  name = llama_model_name(gguf, path, context_tokens);
  LlamaRope known = llama_rope(gguf, llama_model_rope_type(model.get()), shape.key_dim);
  rope = std::move(known.rope);
  rope_note = std::move(known.note);
  return ok_status();
}

Status LlamaEngine::Impl::compute_batch(std::span<const int32_t> tokens, Outputs wanted) {
  std::vector<llama_token> ids(tokens.begin(), tokens.end());
  std::vector<llama_pos> positions(tokens.size());
  std::vector<int8_t> outputs(tokens.size(), wanted == Outputs::all);
  for (size_t i = 0; i < tokens.size(); ++i) positions[i] = static_cast<llama_pos>(position + i);
  outputs.back() = wanted != Outputs::none;
  // Without sequence ids every token belongs to sequence 0.
  llama_batch batch = {};
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  batch.token = ids.data();
  batch.pos = positions.data();
  batch.logits = outputs.data();

  LlamaErrors errors;
  const int32_t code = llama_decode(context.get(), batch);
  if (code == 0) {
    position += static_cast<uint32_t>(tokens.size());
    has_logits = wanted != Outputs::none;
    return ok_status();
  }
  if (code == 2 && stop.stop_requested())
    return make_error(ErrorCode::cancelled, "llama.cpp: stopped at position {}", position);
  return make_error(ErrorCode::internal,
                    "llama.cpp: {} tokens at position {}: llama_decode: {}: {}", tokens.size(),
                    position, code, errors.text());
}

Status LlamaEngine::Impl::check_tokens(std::span<const int32_t> tokens) const {
  if (tokens.empty() || tokens.size() > context_tokens - position)
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: {} tokens at position {}: expected 1 to {}", tokens.size(),
                      position, context_tokens - position);
  const int32_t vocabulary = llama_vocab_n_tokens(vocab);
  const auto bad = std::find_if(tokens.begin(), tokens.end(), [vocabulary](int32_t token) {
    return token < 0 || token >= vocabulary;
  });
  if (bad != tokens.end())
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: token {} at index {}: expected 0 to {}", *bad,
                      bad - tokens.begin(), vocabulary - 1);
  return ok_status();
}

Status LlamaEngine::Impl::compute(std::span<const int32_t> tokens, const Progress& progress) {
  KVCODEC_CHECK(check_tokens(tokens));
  const uint32_t begin = position;
  for (size_t done = 0; done < tokens.size();) {
    const size_t count = std::min<size_t>(batch_tokens, tokens.size() - done);
    const Outputs wanted = done + count == tokens.size() ? Outputs::last : Outputs::none;
    Status status = compute_batch(tokens.subspan(done, count), wanted);
    if (!status.ok()) {
      // An abort leaves the cells of what it computed; drop them with the batches before.
      KVCODEC_CHECK(truncate(begin));
      return status;
    }
    done += count;
    if (progress) progress(done, tokens.size());
  }
  return ok_status();
}

Status LlamaEngine::Impl::score(std::span<const int32_t> tokens,
                                const std::function<void(size_t, std::span<const float>)>& each) {
  KVCODEC_CHECK(check_tokens(tokens));
  const uint32_t begin = position;
  const auto vocabulary = static_cast<size_t>(llama_vocab_n_tokens(vocab));
  for (size_t done = 0; done < tokens.size();) {
    const size_t count =
        std::min<size_t>(std::min(batch_tokens, logit_tokens), tokens.size() - done);
    Status status = compute_batch(tokens.subspan(done, count), Outputs::all);
    for (size_t i = 0; status.ok() && i < count; ++i) {
      const float* logits = llama_get_logits_ith(context.get(), static_cast<int32_t>(i));
      if (logits == nullptr)
        status = make_error(ErrorCode::internal, "llama.cpp: no logits at position {}",
                            begin + done + i);
      else
        each(done + i, std::span(logits, vocabulary));
    }
    if (!status.ok()) {
      KVCODEC_CHECK(truncate(begin));
      return status;
    }
    done += count;
  }
  return ok_status();
}

Status LlamaEngine::Impl::truncate(uint32_t tokens) {
  has_logits = false;
  if (tokens == 0) {
    reset();
    return ok_status();
  }
  if (!llama_memory_seq_rm(llama_get_memory(context.get()), kSequence,
                           static_cast<llama_pos>(tokens), -1)) {
    reset();
    return make_error(ErrorCode::internal,
                      "llama.cpp: cannot drop positions from {} on; the sequence is now empty",
                      tokens);
  }
  position = tokens;
  return ok_status();
}

void LlamaEngine::Impl::reset() {
  // The data too: a NaN left in an unused cell would reach attention through 0 * NaN.
  llama_memory_clear(llama_get_memory(context.get()), true);
  position = 0;
  has_logits = false;
}

LlamaEngine::LlamaEngine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LlamaEngine::LlamaEngine(LlamaEngine&&) noexcept = default;
LlamaEngine& LlamaEngine::operator=(LlamaEngine&&) noexcept = default;
LlamaEngine::~LlamaEngine() = default;

Result<LlamaEngine> LlamaEngine::open(const std::string& model_path, const LlamaOptions& options) {
  if (options.batch_tokens == 0 || options.logit_tokens == 0 ||
      options.context_tokens > kMaxContextTokens)
    return make_error(ErrorCode::invalid_argument,
                      "model {}: batch_tokens {}, logit_tokens {} and context_tokens {}: expected "
                      "1 or more, 1 or more, and at most {}",
                      model_path, options.batch_tokens, options.logit_tokens,
                      options.context_tokens, kMaxContextTokens);
  start_llama_runtime();
  KVCODEC_TRY(const GgufPtr gguf, open_gguf(model_path));
  auto impl = std::make_unique<Impl>();
  impl->path = model_path;
  KVCODEC_CHECK(impl->load(*gguf, options));
  KVCODEC_CHECK(impl->probe());
  if (options.weights) {
    impl->weights = *options.weights;
  } else {
    KVCODEC_TRY(impl->weights, sha256_file(model_path));
  }
  return LlamaEngine(std::move(impl));
}

const KvShape& LlamaEngine::shape() const { return impl_->shape; }
const Rope& LlamaEngine::rope() const { return impl_->rope; }
const std::string& LlamaEngine::rope_note() const { return impl_->rope_note; }
const Digest& LlamaEngine::weights_digest() const { return impl_->weights; }
const std::string& LlamaEngine::model_name() const { return impl_->name; }
uint32_t LlamaEngine::context_tokens() const { return impl_->context_tokens; }
uint32_t LlamaEngine::batch_tokens() const { return impl_->batch_tokens; }
int LlamaEngine::threads() const { return impl_->threads; }
uint32_t LlamaEngine::position() const { return impl_->position; }

NamespaceFields LlamaEngine::namespace_fields(std::string_view salt) const {
  NamespaceFields fields;
  fields.model = impl_->name;
  fields.weights = impl_->weights;
  fields.shape = impl_->shape;
  fields.rope = impl_->rope;
  fields.salt = salt;
  return fields;
}

Status LlamaEngine::prefill(std::span<const int32_t> tokens, const Progress& progress,
                            std::stop_token stop) {
  impl_->stop = std::move(stop);
  Status status = impl_->compute(tokens, progress);
  impl_->stop = {};
  return status;
}

Result<std::vector<float>> LlamaEngine::logits() const {
  if (!impl_->has_logits)
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: no logits at position {}: compute a token first",
                      impl_->position);
  const float* values = llama_get_logits_ith(impl_->context.get(), -1);
  if (values == nullptr)
    return make_error(ErrorCode::internal, "llama.cpp: no logits at position {}", impl_->position);
  return std::vector<float>(values, values + llama_vocab_n_tokens(impl_->vocab));
}

Status LlamaEngine::score(std::span<const int32_t> tokens,
                          const std::function<void(size_t, std::span<const float>)>& each) {
  return impl_->score(tokens, each);
}

Result<std::vector<int32_t>> LlamaEngine::greedy_decode(
    uint32_t max_tokens, const std::function<bool(int32_t token)>& on_token) {
  if (max_tokens > impl_->context_tokens - impl_->position)
    return make_error(ErrorCode::invalid_argument,
                      "llama.cpp: {} more tokens at position {}: expected at most {}", max_tokens,
                      impl_->position, impl_->context_tokens - impl_->position);
  const uint32_t begin = impl_->position;
  std::vector<int32_t> tokens;
  while (tokens.size() < max_tokens) {
    KVCODEC_TRY(const auto values, logits());
    const auto best = std::max_element(values.begin(), values.end());
    const auto token = static_cast<int32_t>(best - values.begin());
    if (ends_generation(token)) break;
    tokens.push_back(token);
    const bool more = !on_token || on_token(token);
    if (Status status = impl_->compute(std::span(&tokens.back(), 1), {}); !status.ok()) {
      KVCODEC_CHECK(impl_->truncate(begin));
      return std::move(status.error());
    }
    if (!more) break;
  }
  return tokens;
}

Status LlamaEngine::truncate(uint32_t tokens) {
  if (tokens > impl_->position)
    return make_error(ErrorCode::invalid_argument, "llama.cpp: keep {} tokens: {} are present",
                      tokens, impl_->position);
  return tokens == impl_->position ? ok_status() : impl_->truncate(tokens);
}

void LlamaEngine::reset() { impl_->reset(); }

}  // namespace kvcodec
