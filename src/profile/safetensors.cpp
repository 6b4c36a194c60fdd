// SPDX-License-Identifier: Apache-2.0
#include "profile/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/error.h"

namespace kvcodec::profile {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100 << 20;  // safetensors' own bound
constexpr size_t kMaxDims = 8;

template <typename... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::corrupt, format, std::forward<Args>(args)...);
}

uint64_t element_bytes(const std::string& type) {
  if (type == "F32" || type == "I32") return 4;
  if (type == "F16") return 2;
  return 0;
}

// Bytes of a tensor; 0 where its type is unknown or the product overflows.
uint64_t tensor_bytes(const Tensor& tensor) {
  uint64_t bytes = element_bytes(tensor.type);
  for (uint64_t n : tensor.shape)
    if (__builtin_mul_overflow(bytes, n, &bytes)) return 0;
  return bytes;
}

bool is_list_of_numbers(const json& list, size_t least, size_t most) {
  return list.is_array() && list.size() >= least && list.size() <= most &&
         std::all_of(list.begin(), list.end(),
                     [](const json& n) { return n.is_number_unsigned(); });
}

Result<Tensor> parse_tensor(const std::string& name, const json& entry,
                            std::span<const std::byte> data, uint64_t data_at) {
  const auto type = entry.find("dtype"), shape = entry.find("shape"),
             offsets = entry.find("data_offsets");
  if (!entry.is_object() || type == entry.end() || !type->is_string() || shape == entry.end() ||
      !is_list_of_numbers(*shape, 1, kMaxDims) || offsets == entry.end() ||
      !is_list_of_numbers(*offsets, 2, 2))
    return corrupt("tensor '{}': expected dtype, shape and data_offsets", name);
  Tensor tensor;
  tensor.type = type->get<std::string>();
  tensor.shape = shape->get<std::vector<uint64_t>>();
  const uint64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data.size()) {
    return corrupt("tensor '{}': data_offsets {} to {}: expected at most {}, where the file ends",
                   name, begin, end, data.size());
  }
  tensor.bytes = data.subspan(begin, end - begin);
  tensor.offset = data_at + begin;
  const uint64_t expected = tensor_bytes(tensor);
  if (expected == 0 || expected != end - begin) {
    return corrupt("tensor '{}' at offset {}: {} of shape [{}] has {} bytes, found {}", name,
                   tensor.offset, tensor.type, fmt::join(tensor.shape, ", "), expected,
                   end - begin);
  }
  return tensor;
}

// Tensors must follow each other and fill the file, so that no byte is outside all of them.
Status check_cover(const TensorFile& file, uint64_t data_at, uint64_t file_bytes) {
  std::vector<const Tensor*> order;
  for (const auto& [name, tensor] : file.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(),
            [](const Tensor* a, const Tensor* b) { return a->offset < b->offset; });
  uint64_t at = data_at;
  for (const Tensor* tensor : order) {
    if (tensor->offset != at)
      return corrupt("tensors overlap or leave a gap: expected one at {}, found {}", at,
                     tensor->offset);
    at += tensor->bytes.size();
  }
  if (at == file_bytes) return ok_status();
  return corrupt("file size: expected {} bytes, the end of the last tensor, found {}", at,
                 file_bytes);
}

}  // namespace

Result<TensorFile> parse_safetensors(std::span<const std::byte> file) {
  ByteReader reader(file);
  const auto length = reader.get<uint64_t>();
  if (!reader.ok() || length > reader.remaining() || length > kMaxHeaderBytes) {
    return corrupt("not a safetensors file: header of {} bytes, {} are there, {} are allowed",
                   length, reader.remaining(), kMaxHeaderBytes);
  }
  const auto text = reader.get_bytes(length);
  const auto* chars = reinterpret_cast<const char*>(text.data());
  const json header = json::parse(chars, chars + text.size(), nullptr, false);
  if (!header.is_object()) return corrupt("the safetensors header is not a JSON object");

  TensorFile out;
  const uint64_t data_at = reader.offset();
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      KVCODEC_TRY(out.tensors[name], parse_tensor(name, entry, file.subspan(data_at), data_at));
      continue;
    }
    if (!entry.is_object()) return corrupt("__metadata__ is not a JSON object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) return corrupt("__metadata__ '{}' is not a string", key);
      out.metadata[key] = value.get<std::string>();
    }
  }
  KVCODEC_CHECK(check_cover(out, data_at, file.size()));
  return out;
}

std::vector<std::byte> write_safetensors(const TensorFile& file) {
  json header = json::object();
  uint64_t end = 0;
  if (!file.metadata.empty()) header["__metadata__"] = file.metadata;
  for (const auto& [name, tensor] : file.tensors) {
    const uint64_t begin = std::exchange(end, end + tensor.bytes.size());
    header[name] = {
        {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors of 4 bytes lie aligned in a mapped file
  ByteWriter out;
  out.bytes().reserve(sizeof(uint64_t) + text.size() + end);
  out.put(uint64_t{text.size()});
  out.put_bytes(std::as_bytes(std::span(text)));
  for (const auto& [name, tensor] : file.tensors) out.put_bytes(tensor.bytes);
  return std::move(out.bytes());
}

}  // namespace kvcodec::profile
