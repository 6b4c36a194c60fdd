// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_runtime.h"

#include <mutex>
#include <string_view>

namespace kvcodec {
namespace {

constexpr size_t kMaxErrorBytes = 1000;  // a broken file can report one line a tensor
thread_local std::string error_lines;
thread_local bool continues_error = false;

void keep_errors(ggml_log_level level, const char* text, void*) {
  if (level != GGML_LOG_LEVEL_CONT) continues_error = level == GGML_LOG_LEVEL_ERROR;
  if (!continues_error || text == nullptr || error_lines.size() >= kMaxErrorBytes) return;
  std::string_view line(text);
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.remove_suffix(1);
  if (line.empty()) return;
  if (!error_lines.empty()) error_lines += level == GGML_LOG_LEVEL_CONT ? " " : "; ";
  error_lines += line.substr(0, kMaxErrorBytes);
}

}  // namespace

void start_llama_runtime() {
  static std::once_flag once;
  std::call_once(once, [] {
    llama_log_set(keep_errors, nullptr);
    llama_backend_init();
  });
}

LlamaErrors::LlamaErrors() {
  error_lines.clear();
  continues_error = false;
}

std::string LlamaErrors::text() const {
  return error_lines.empty() ? "no reason given" : error_lines;
}

}  // namespace kvcodec
