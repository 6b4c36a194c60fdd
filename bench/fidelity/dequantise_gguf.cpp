// SPDX-License-Identifier: Apache-2.0
// dequantise_gguf IN OUT: the same model with its weights as 32-bit floats.
//
// llama.cpp rounds activations to 8 bits before it multiplies them with quantised weights. The
// least change of a KV cache then flips some of these roundings, and predictions move as far as
// between two draws of that noise: a floor under every KL. With f32 weights nothing is rounded.
#include <llama.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: dequantise_gguf IN.gguf OUT.gguf\n");
    return 2;
  }
  llama_backend_init();
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = LLAMA_FTYPE_ALL_F32;
  params.output_tensor_type = params.token_embedding_type = GGML_TYPE_F32;
  params.allow_requantize = true;
  const uint32_t failed = llama_model_quantize(argv[1], argv[2], &params);
  if (failed != 0) std::fprintf(stderr, "dequantise_gguf: %s: error %u\n", argv[1], failed);
  return failed == 0 ? 0 : 1;
}
