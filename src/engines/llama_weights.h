// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kvcodec/calibrate.h"
#include "kvcodec/kv.h"

namespace kvcodec {

// The weights of a GGUF file as binary32, read from it where they are asked for. unsupported where
// the model is not a plain decoder of the llama kind (architectures llama and qwen2 with no
// further tensors, as their computation is then known), or its rotation is unknown.
Result<std::unique_ptr<DecoderWeights>> open_llama_weights(const std::string& path,
                                                           const KvShape& shape, const Rope& rope);

}  // namespace kvcodec
