// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "model.h"

namespace kvcodec::tools {

// What publish and fetch ask of a model and its text.
inline void add_model_options(CLI::App& command, ModelArgs& args) {
  command.add_option("--model", args.model, "GGUF model");
  command.add_option("--text", args.text, "file with the shared prefix");
  command.add_option("--salt", args.salt, "tenant; separates caches");
  command.add_option("--chunk-tokens", args.chunk_tokens, "tokens a chunk")
      ->capture_default_str()
      ->check(CLI::Range(1, 8192));
}

}  // namespace kvcodec::tools
