// SPDX-License-Identifier: Apache-2.0
// Links the llama component and reaches libllama through it.
#include <kvcodec/llama.h>

#include <cstdio>

int main() {
  const auto engine = kvcodec::LlamaEngine::open("/nonexistent/model.gguf");
  if (engine.ok() || engine.error().code != kvcodec::ErrorCode::not_found) {
    std::fprintf(stderr, "opening a model that does not exist: expected not_found, got %s\n",
                 engine.ok() ? "an engine" : engine.error().message.c_str());
    return 1;
  }
  std::printf("llama component: %s\n", engine.error().message.c_str());
  return 0;
}
