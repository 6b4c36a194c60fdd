// SPDX-License-Identifier: Apache-2.0
#include "eval_method.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor_file.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

template <typename... Args>
Error error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

std::string rope_text(const Rope& rope) {
  static constexpr const char* kStyles[] = {"none", "interleaved", "neox"};
  json steps = json::array();
  for (uint64_t step : rope.phase_steps) steps.push_back(fmt::format("{:016x}", step));
  return json{{"style", kStyles[static_cast<int>(rope.style)]},
              {"rotary_dims", rope.rotary_dims},
              {"phase_steps", steps}}
      .dump();
}

std::string case_path(const std::string& folder, const std::string& name) {
  return fmt::format("{}/{}.safetensors", folder, name);
}

bool is_not_finite(const std::byte* at, DType dtype) {
  uint32_t bits = 0;
  std::memcpy(&bits, at, dtype_bytes(dtype));
  static constexpr uint32_t kExponent[] = {0, 0x7c00, 0x7f80, 0x7f800000};
  const uint32_t mask = kExponent[static_cast<int>(dtype)];
  return (bits & mask) == mask;
}

// A NaN or an infinity in an external cache is its program's fault, not damage to be measured.
Status check_finite(const std::string& path, const KvFile& kv) {
  const KvShape& shape = kv.geometry.shape;
  for (KvKind kind : kKvKinds) {
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < kv.geometry.tokens; ++token) {
        for (uint32_t channel = 0; channel < shape.channels(kind); ++channel) {
          const uint32_t head = channel / shape.head_dim(kind),
                         dim = channel % shape.head_dim(kind);
          const size_t at = kv.geometry.element_offset(kind, layer, token, head, dim);
          if (is_not_finite(kv.memory.data() + at, shape.dtype)) {
            return error(ErrorCode::invalid_argument,
                         "{}: {} of layer {}, token {}, head {}, dim {} is not finite", path,
                         kv_kind_name(kind), layer, token, head, dim);
          }
        }
      }
    }
  }
  return ok_status();
}

Result<std::string> metadata_of(const std::string& path, const KvFile& kv,
                                const std::string& name) {
  const auto found = kv.metadata.find(name);
  if (found == kv.metadata.end()) {
    return error(ErrorCode::invalid_argument, "{}: no metadata '{}'", path, name);
  }
  return found->second;
}

Result<EvalSize> read_external(const EvalMethod& method, const EvalRequest& request,
                               const KvTarget& target) {
  const std::string path = case_path(method.path, request.case_name);
  KVCODEC_TRY(const KvFile kv, read_kv_file(path));
  KVCODEC_TRY(const std::string weights, metadata_of(path, kv, "weights"));
  if (weights != to_hex(request.weights)) {
    return error(ErrorCode::invalid_argument,
                 "{}: the KV of another model: weights {}, expected {}", path, weights,
                 to_hex(request.weights));
  }
  const KvShape& found = kv.geometry.shape;
  const KvShape& expected = target.geometry->shape;
  if (found != expected) {
    return error(
        ErrorCode::invalid_argument,
        "{}: {} layers of {} heads of {} and {} in {}, expected {} of {} of {} and {} in {}", path,
        found.layers, found.kv_heads, found.key_dim, found.value_dim, dtype_name(found.dtype),
        expected.layers, expected.kv_heads, expected.key_dim, expected.value_dim,
        dtype_name(expected.dtype));
  }
  if (!std::equal(kv.tokens.begin(), kv.tokens.end(), request.tokens.begin(),
                  request.tokens.end())) {
    return error(ErrorCode::invalid_argument,
                 "{}: the {} token ids are not the {} of case {}; dump again", path,
                 kv.tokens.size(), request.tokens.size(), request.case_name);
  }
  KVCODEC_TRY(const std::string text, metadata_of(path, kv, "bits"));
  uint64_t bits = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), bits);
  if (failed != std::errc{} || end != text.data() + text.size() || bits == 0) {
    return error(ErrorCode::invalid_argument,
                 "{}: metadata 'bits': expected a positive number, found '{}'", path, text);
  }
  KVCODEC_CHECK(check_finite(path, kv));
  copy_tokens(kv.source(), target, kv.geometry.tokens);
  return EvalSize{.bits = bits};
}

Result<EvalSize> code_chunks(const EvalMethod& method, const EvalRequest& request,
                             const KvTarget& target) {
  const auto tokens = static_cast<uint32_t>(request.tokens.size());
  EncodeOptions encode;
  encode.tier = method.tier;
  encode.profile = method.profile.get();
  if (!is_calibrated(method.tier)) encode.rope = request.rope;
  encode.noise_factor = request.noise_factor;
  encode.sink_tokens = request.sink_tokens;
  encode.threads = request.threads;
  encode.verify = false;  // what is decoded is what is scored
  DecodeOptions decode;
  decode.profile = method.profile.get();
  decode.threads = request.threads;
  EvalSize size;
  ChunkId id;
  for (uint32_t first = 0; first < tokens; first += request.chunk_tokens) {
    const uint32_t count = std::min(request.chunk_tokens, tokens - first);
    id.first_token = first;
    id.key = chunk_key(id.key, request.tokens.subspan(first, count));
    KVCODEC_TRY(const std::vector<std::byte> object,
                encode_chunk(request.source, {first, count}, id, encode));
    KVCODEC_TRY(const ChunkInfo info, read_chunk_info(object));
    KVCODEC_CHECK(decode_chunk(object, target, first, decode));
    size.bits += 8 * object.size();
    ++size.objects;
    size.finer += info.tier != method.tier;
  }
  return size;
}

}  // namespace

Result<EvalMethod> parse_eval_method(const std::string& text,
                                     const std::shared_ptr<const Profile>& profile) {
  static constexpr std::string_view kExternal = "external:";
  EvalMethod method;
  method.name = text;
  if (text == "raw") return method;
  const size_t equals = text.find('=');
  const bool named = equals != std::string::npos && equals > 0 && equals + 1 < text.size();
  const std::string path = named ? text.substr(equals + 1) : "";
  if (text.starts_with(kExternal)) {
    if (!named || equals == kExternal.size()) {
      return error(ErrorCode::invalid_argument, "method '{}': expected external:NAME=FOLDER", text);
    }
    method.kind = EvalMethod::Kind::external;
    method.name = text.substr(kExternal.size(), equals - kExternal.size());
    method.path = path;
    return method;
  }
  method.kind = EvalMethod::Kind::tier;
  KVCODEC_TRY(method.tier, tier_from_name(text.substr(0, equals)));
  if (!is_calibrated(method.tier)) {
    if (equals == std::string::npos) return method;
    return error(ErrorCode::invalid_argument, "method '{}': tier {} takes no profile", text,
                 tier_name(method.tier));
  }
  method.profile = profile;
  if (named) {
    KVCODEC_TRY(Profile own, Profile::load(path));
    method.profile = std::make_shared<const Profile>(std::move(own));
    method.name =
        fmt::format("{}:{}", tier_name(method.tier), std::filesystem::path(path).stem().string());
  }
  if (method.profile == nullptr) {
    return error(ErrorCode::invalid_argument, "method '{}': needs a profile", text);
  }
  return method;
}

Result<EvalSize> apply_method(const EvalMethod& method, const EvalRequest& request,
                              const KvTarget& target) {
  switch (method.kind) {
    case EvalMethod::Kind::tier: return code_chunks(method, request, target);
    case EvalMethod::Kind::external: return read_external(method, request, target);
    case EvalMethod::Kind::raw: break;
  }
  const auto tokens = static_cast<uint32_t>(request.tokens.size());
  copy_tokens(request.source, target, tokens);
  return EvalSize{.bits = 8 * uint64_t{request.source.geometry->shape.token_bytes()} * tokens};
}

Status dump_case(const std::string& folder, const EvalRequest& request) {
  KvFile kv;
  kv.geometry = KvGeometry::contiguous(request.source.geometry->shape,
                                       static_cast<uint32_t>(request.tokens.size()));
  kv.memory.resize(kv.geometry.contiguous_bytes());
  copy_tokens(request.source, {kv.memory, &kv.geometry}, kv.geometry.tokens);
  kv.tokens.assign(request.tokens.begin(), request.tokens.end());
  kv.metadata = {{"case", request.case_name},
                 {"weights", to_hex(request.weights)},
                 {"rope", rope_text(request.rope)}};
  return write_kv_file(case_path(folder, request.case_name), kv);
}

void copy_tokens(const KvSource& from, const KvTarget& to, uint32_t tokens) {
  const KvShape& shape = from.geometry->shape;
  const size_t element = dtype_bytes(shape.dtype);
  for (KvKind kind : kKvKinds) {
    const uint32_t dims = shape.head_dim(kind);
    const bool dense =
        from.geometry->strides(kind).dim == element && to.geometry->strides(kind).dim == element;
    const uint32_t run = dense ? dims : 1;
    for (uint32_t layer = 0; layer < shape.layers; ++layer) {
      for (uint32_t token = 0; token < tokens; ++token) {
        for (uint32_t head = 0; head < shape.kv_heads; ++head) {
          for (uint32_t dim = 0; dim < dims; dim += run) {
            std::memcpy(
                to.memory.data() + to.geometry->element_offset(kind, layer, token, head, dim),
                from.memory.data() + from.geometry->element_offset(kind, layer, token, head, dim),
                run * element);
          }
        }
      }
    }
  }
}

}  // namespace kvcodec::tools
