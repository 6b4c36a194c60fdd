// SPDX-License-Identifier: Apache-2.0
#include "tensor_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <span>

#include "output.h"

namespace kvcodec::tools {

namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeader = 100 << 20;  // safetensors' own bound

template <typename... Args>
Error error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

struct Tensor {
  std::string type;
  std::vector<uint64_t> shape;
  uint64_t begin = 0, end = 0;  // in the file
};

std::optional<DType> dtype_of(const std::string& type) {
  if (type == "F16") return DType::f16;
  if (type == "BF16") return DType::bf16;
  if (type == "F32") return DType::f32;
  return std::nullopt;
}

// Bytes that shape and element size ask for, or nothing on overflow.
std::optional<uint64_t> tensor_bytes(const std::vector<uint64_t>& shape, uint64_t element) {
  uint64_t bytes = element;
  for (uint64_t n : shape) {
    if (n > UINT32_MAX || __builtin_mul_overflow(bytes, n, &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<Tensor> parse_tensor(const std::string& path, const std::string& name, const json& entry,
                            uint64_t data_start, uint64_t file_bytes) {
  Tensor tensor;
  const bool formed = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
                      entry.contains("shape") && entry["shape"].is_array() &&
                      entry.contains("data_offsets") && entry["data_offsets"].is_array() &&
                      entry["data_offsets"].size() == 2 &&
                      std::all_of(entry["shape"].begin(), entry["shape"].end(),
                                  [](const json& n) { return n.is_number_unsigned(); }) &&
                      entry["data_offsets"][0].is_number_unsigned() &&
                      entry["data_offsets"][1].is_number_unsigned();
  if (!formed) {
    return error(ErrorCode::corrupt, "{}: tensor '{}': expected dtype, shape and data_offsets",
                 path, name);
  }
  tensor.type = entry["dtype"];
  tensor.shape = entry["shape"].get<std::vector<uint64_t>>();
  const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
  const uint64_t data_bytes = file_bytes - data_start;
  if (begin > end || end > data_bytes) {
    return error(ErrorCode::corrupt, "{}: tensor '{}': data_offsets {}..{} outside the {} bytes",
                 path, name, begin, end, data_bytes);
  }
  tensor.begin = data_start + begin;
  tensor.end = data_start + end;
  return tensor;
}

Status check_size(const std::string& path, const std::string& name, const Tensor& tensor,
                  uint64_t element) {
  const auto bytes = tensor_bytes(tensor.shape, element);
  if (!bytes || *bytes != tensor.end - tensor.begin) {
    return error(ErrorCode::corrupt, "{}: tensor '{}': shape [{}] of {} needs {} bytes, found {}",
                 path, name, fmt::join(tensor.shape, ", "), tensor.type, bytes.value_or(0),
                 tensor.end - tensor.begin);
  }
  return ok_status();
}

// [layers, tokens, heads, dim] at `begin`, as strides.
KvGeometry::Strides strides_of(uint64_t begin, uint64_t tokens, uint64_t heads, uint64_t dim,
                               uint64_t element) {
  const uint64_t head = dim * element, token = heads * head;
  return {begin, tokens * token, token, head, element};
}

struct KvTensors {
  Tensor key, value;
};

Status fill_geometry(const std::string& path, const KvTensors& kv, KvFile& file) {
  const auto dtype = dtype_of(kv.key.type);
  if (!dtype || kv.value.type != kv.key.type) {
    return error(ErrorCode::unsupported,
                 "{}: expected key and value both F16, BF16 or F32, found {} and {}", path,
                 kv.key.type, kv.value.type);
  }
  const auto& k = kv.key.shape;
  const auto& v = kv.value.shape;
  if (k.size() != 4 || v.size() != 4 || !std::equal(k.begin(), k.begin() + 3, v.begin())) {
    return error(ErrorCode::unsupported,
                 "{}: expected key and value [layers, tokens, kv_heads, head_dim], equal but for "
                 "head_dim; found [{}] and [{}]",
                 path, fmt::join(k, ", "), fmt::join(v, ", "));
  }
  const uint64_t element = dtype_bytes(*dtype);
  KVCODEC_CHECK(check_size(path, "key", kv.key, element));
  KVCODEC_CHECK(check_size(path, "value", kv.value, element));
  file.geometry.shape = {static_cast<uint32_t>(k[0]), static_cast<uint32_t>(k[2]),
                         static_cast<uint32_t>(k[3]), static_cast<uint32_t>(v[3]), *dtype};
  file.geometry.tokens = static_cast<uint32_t>(k[1]);
  file.geometry.key = strides_of(kv.key.begin, k[1], k[2], k[3], element);
  file.geometry.value = strides_of(kv.value.begin, v[1], v[2], v[3], element);
  return ok_status();
}

// One [layers, 2, tokens, heads, dim] tensor.
Status fill_joint_geometry(const std::string& path, const Tensor& kv, DType dtype, KvFile& file) {
  const auto& s = kv.shape;
  if (s.size() != 5 || s[1] != 2) {
    return error(ErrorCode::unsupported,
                 "{}: expected [layers, 2, tokens, kv_heads, head_dim], found [{}]", path,
                 fmt::join(s, ", "));
  }
  KVCODEC_CHECK(check_size(path, "kv", kv, dtype_bytes(dtype)));
  const KvShape shape{static_cast<uint32_t>(s[0]), static_cast<uint32_t>(s[3]),
                      static_cast<uint32_t>(s[4]), static_cast<uint32_t>(s[4]), dtype};
  file.geometry = KvGeometry::contiguous(shape, static_cast<uint32_t>(s[2]));
  file.geometry.key.offset += kv.begin;
  file.geometry.value.offset += kv.begin;
  return ok_status();
}

Status read_tokens(const std::string& path, const Tensor& tokens, KvFile& file) {
  if (tokens.type != "I32" || tokens.shape.size() != 1 || tokens.shape[0] != file.geometry.tokens) {
    return error(ErrorCode::unsupported, "{}: expected tokens I32 [{}], found {} [{}]", path,
                 file.geometry.tokens, tokens.type, fmt::join(tokens.shape, ", "));
  }
  KVCODEC_CHECK(check_size(path, "tokens", tokens, 4));
  file.tokens.resize(file.geometry.tokens);
  std::memcpy(file.tokens.data(), file.memory.data() + tokens.begin, tokens.end - tokens.begin);
  return ok_status();
}

Result<KvFile> parse_safetensors(const std::string& path, std::vector<std::byte> memory) {
  KvFile file;
  file.memory = std::move(memory);
  uint64_t header_bytes = 0;
  if (file.memory.size() < 8) {
    return error(ErrorCode::corrupt, "{}: {} bytes are too few for safetensors", path,
                 file.memory.size());
  }
  std::memcpy(&header_bytes, file.memory.data(), 8);
  if (header_bytes > kMaxHeader || header_bytes > file.memory.size() - 8) {
    return error(ErrorCode::corrupt, "{}: header length {} at offset 0, the file has {} bytes",
                 path, header_bytes, file.memory.size());
  }
  const auto* text = reinterpret_cast<const char*>(file.memory.data() + 8);
  const json header = json::parse(text, text + header_bytes, nullptr, false);
  if (!header.is_object()) {
    return error(ErrorCode::corrupt, "{}: the header at offset 8 is not a JSON object", path);
  }
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items()) {
        if (value.is_string()) file.metadata[key] = value;
      }
      continue;
    }
    KVCODEC_TRY(tensors[name],
                parse_tensor(path, name, entry, 8 + header_bytes, file.memory.size()));
  }
  if (tensors.count("kv") != 0) {
    const auto dtype = dtype_of(tensors["kv"].type);
    if (!dtype) {
      return error(ErrorCode::unsupported, "{}: kv is {}, expected F16, BF16 or F32", path,
                   tensors["kv"].type);
    }
    KVCODEC_CHECK(fill_joint_geometry(path, tensors["kv"], *dtype, file));
  } else if (tensors.count("key") != 0 && tensors.count("value") != 0) {
    KVCODEC_CHECK(fill_geometry(path, {tensors["key"], tensors["value"]}, file));
  } else {
    return error(ErrorCode::unsupported, "{}: expected tensors 'key' and 'value', or 'kv'", path);
  }
  if (tensors.count("tokens") != 0) KVCODEC_CHECK(read_tokens(path, tensors["tokens"], file));
  return file;
}

// numpy.lib.format versions 1 and 2.
Result<KvFile> parse_npy(const std::string& path, std::vector<std::byte> memory) {
  KvFile file;
  file.memory = std::move(memory);
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(file.memory[i]); };
  if (file.memory.size() < 12 || std::memcmp(file.memory.data(), "\x93NUMPY", 6) != 0 ||
      at(6) < 1 || at(6) > 2) {
    return error(ErrorCode::corrupt, "{}: no numpy array of format 1 or 2 at offset 0", path);
  }
  const size_t start = at(6) == 1 ? 10 : 12;
  const size_t length =
      at(8) | at(9) << 8 | (at(6) == 2 ? at(10) << 16 | at(11) << 24 : uint32_t{0});
  if (length > file.memory.size() - start) {
    return error(ErrorCode::corrupt, "{}: header length {} at offset 8, the file has {} bytes",
                 path, length, file.memory.size());
  }
  const std::string header(reinterpret_cast<const char*>(file.memory.data()) + start, length);
  static const std::regex kFields(
      R"(\{\s*'descr':\s*'([^']*)',\s*'fortran_order':\s*(True|False),\s*'shape':\s*\(([0-9, ]*)\),?\s*\}\s*)");
  std::smatch fields;
  if (!std::regex_match(header, fields, kFields)) {
    return error(ErrorCode::corrupt, "{}: cannot read the array header at offset {}", path, start);
  }
  if ((fields[1] != "<f2" && fields[1] != "<f4") || fields[2] == "True") {
    return error(ErrorCode::unsupported, "{}: expected C order '<f2' or '<f4', found '{}'{}", path,
                 fields[1].str(), fields[2] == "True" ? " in Fortran order" : "");
  }
  Tensor kv;
  kv.type = fields[1] == "<f2" ? "F16" : "F32";
  const std::string numbers = fields[3];
  static const std::regex kNumber("[0-9]{1,10}");
  for (std::sregex_iterator n(numbers.begin(), numbers.end(), kNumber), end; n != end; ++n) {
    kv.shape.push_back(std::stoull(n->str()));
  }
  kv.begin = start + length;
  kv.end = file.memory.size();
  KVCODEC_CHECK(fill_joint_geometry(path, kv, kv.type == "F16" ? DType::f16 : DType::f32, file));
  return file;
}

std::string extension(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(dot);
}

Error unknown_extension(const std::string& path) {
  return error(ErrorCode::unsupported, "{}: expected a name ending in .safetensors or .npy", path);
}

// Copies the elements of one kind in [token][head][dim] order.
void append_kind(const KvFile& kv, KvKind kind, uint32_t layer, std::vector<std::byte>& to) {
  const KvGeometry& geometry = kv.geometry;
  const size_t element = dtype_bytes(geometry.shape.dtype);
  const uint32_t dims = geometry.shape.head_dim(kind);
  const bool dense = geometry.strides(kind).dim == element;
  for (uint32_t token = 0; token < geometry.tokens; ++token) {
    for (uint32_t head = 0; head < geometry.shape.kv_heads; ++head) {
      for (uint32_t dim = 0; dim < dims; dim += dense ? dims : 1) {
        const auto* from =
            kv.memory.data() + geometry.element_offset(kind, layer, token, head, dim);
        to.insert(to.end(), from, from + (dense ? dims * element : element));
      }
    }
  }
}

std::vector<std::byte> safetensors_bytes(const KvFile& kv) {
  const KvShape& shape = kv.geometry.shape;
  static constexpr const char* kTypes[] = {"", "F16", "BF16", "F32"};
  std::vector<std::byte> data;
  json header = json::object();
  if (!kv.metadata.empty()) header["__metadata__"] = kv.metadata;
  for (KvKind kind : kKvKinds) {
    const size_t begin = data.size();
    for (uint32_t layer = 0; layer < shape.layers; ++layer) append_kind(kv, kind, layer, data);
    header[kind == KvKind::key ? "key" : "value"] = {
        {"dtype", kTypes[static_cast<int>(shape.dtype)]},
        {"shape", {shape.layers, kv.geometry.tokens, shape.kv_heads, shape.head_dim(kind)}},
        {"data_offsets", {begin, data.size()}}};
  }
  if (!kv.tokens.empty()) {
    const auto ids = std::as_bytes(std::span(kv.tokens));
    header["tokens"] = {{"dtype", "I32"},
                        {"shape", {kv.tokens.size()}},
                        {"data_offsets", {data.size(), data.size() + ids.size()}}};
    data.insert(data.end(), ids.begin(), ids.end());
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), &length, 8);
  const auto header_bytes = std::as_bytes(std::span(text));
  bytes.insert(bytes.end(), header_bytes.begin(), header_bytes.end());
  bytes.insert(bytes.end(), data.begin(), data.end());
  return bytes;
}

Result<std::vector<std::byte>> npy_bytes(const std::string& path, const KvFile& kv) {
  const KvShape& shape = kv.geometry.shape;
  if (shape.dtype == DType::bf16 || shape.key_dim != shape.value_dim) {
    return error(ErrorCode::unsupported,
                 "{}: .npy holds f16 or f32 with equal key and value dims, this is {} with {} and "
                 "{}; use .safetensors",
                 path, dtype_name(shape.dtype), shape.key_dim, shape.value_dim);
  }
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}, 2, {}, {}, {}), }}",
                  shape.dtype == DType::f16 ? "<f2" : "<f4", shape.layers, kv.geometry.tokens,
                  shape.kv_heads, shape.key_dim);
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  const std::string start = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(length & 255) +
                            static_cast<char>(length >> 8) + header;
  const auto start_bytes = std::as_bytes(std::span(start));
  std::vector<std::byte> bytes(start_bytes.begin(), start_bytes.end());
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    for (KvKind kind : kKvKinds) append_kind(kv, kind, layer, bytes);
  }
  return bytes;
}

}  // namespace

Result<KvFile> read_kv_file(const std::string& path) {
  const std::string end = extension(path);
  if (end != ".safetensors" && end != ".npy") return unknown_extension(path);
  KVCODEC_TRY(std::vector<std::byte> memory, read_file(path));
  KVCODEC_TRY(KvFile file, end == ".npy" ? parse_npy(path, std::move(memory))
                                         : parse_safetensors(path, std::move(memory)));
  KVCODEC_CHECK(file.geometry.validate(file.memory.size()));
  return file;
}

Status write_kv_file(const std::string& path, const KvFile& kv) {
  const std::string end = extension(path);
  if (end == ".safetensors") return write_file(path, safetensors_bytes(kv));
  if (end != ".npy") return unknown_extension(path);
  KVCODEC_TRY(const std::vector<std::byte> bytes, npy_bytes(path, kv));
  return write_file(path, bytes);
}

}  // namespace kvcodec::tools
