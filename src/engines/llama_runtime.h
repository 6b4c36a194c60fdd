// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gguf.h>
#include <llama.h>

#include <memory>
#include <string>

namespace kvcodec {

template <auto destroy>
struct CDeleter {
  template <typename T>
  void operator()(T* object) const {
    destroy(object);
  }
};
using LlamaModelPtr = std::unique_ptr<llama_model, CDeleter<llama_model_free>>;
using LlamaContextPtr = std::unique_ptr<llama_context, CDeleter<llama_free>>;
using GgufPtr = std::unique_ptr<gguf_context, CDeleter<gguf_free>>;

// Once a process, before any other call into llama.cpp: its backend, and a log callback that keeps
// what is reported as an error and drops the rest. Thread-safe.
void start_llama_runtime();

// What llama.cpp reports as errors on this thread from the construction of the object on.
class LlamaErrors {
 public:
  LlamaErrors();
  // The lines, separated by "; ", or "no reason given".
  std::string text() const;
};

}  // namespace kvcodec
