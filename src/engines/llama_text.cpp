// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "base/error.h"
#include "engines/llama_engine_impl.h"

// The methods of LlamaEngine that turn text into tokens and back.
namespace kvcodec {

Result<std::vector<int32_t>> LlamaEngine::tokenize(std::string_view text,
                                                   const LlamaTokenizeOptions& options) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    return make_error(ErrorCode::invalid_argument,
                      "tokenize: {} bytes of text: expected below 2^31", text.size());
  const auto run = [&](std::vector<int32_t>& tokens) {
    return llama_tokenize(impl_->vocab, text.data(), static_cast<int32_t>(text.size()),
                          tokens.data(), static_cast<int32_t>(tokens.size()), options.add_special,
                          options.parse_special);
  };
  // A first guess of 4 bytes a token; a negative answer is the size it needs.
  std::vector<int32_t> tokens(text.size() / 4 + 16);
  int32_t count = run(tokens);
  if (count < 0 && count != std::numeric_limits<int32_t>::min()) {
    tokens.resize(static_cast<size_t>(-count));
    count = run(tokens);
  }
  if (count < 0)
    return make_error(ErrorCode::internal, "tokenize: llama.cpp failed on {} bytes of text",
                      text.size());
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

Result<std::string> LlamaEngine::detokenize(std::span<const int32_t> tokens, bool special) const {
  std::string text;
  std::string piece(64, '\0');
  for (const int32_t token : tokens) {
    if (token < 0 || token >= llama_vocab_n_tokens(impl_->vocab))
      return make_error(ErrorCode::invalid_argument, "detokenize: token {}: expected 0 to {}",
                        token, llama_vocab_n_tokens(impl_->vocab) - 1);
    const auto run = [&] {
      return llama_token_to_piece(impl_->vocab, token, piece.data(),
                                  static_cast<int32_t>(piece.size()), 0, special);
    };
    int32_t bytes = run();
    if (bytes < 0) {
      piece.resize(static_cast<size_t>(-bytes));
      bytes = run();
    }
    if (bytes < 0)
      return make_error(ErrorCode::internal, "detokenize: llama.cpp failed on token {}", token);
    text.append(piece, 0, static_cast<size_t>(bytes));
  }
  return text;
}

bool LlamaEngine::ends_generation(int32_t token) const {
  return token >= 0 && token < llama_vocab_n_tokens(impl_->vocab) &&
         llama_vocab_is_eog(impl_->vocab, token);
}

}  // namespace kvcodec
