// SPDX-License-Identifier: Apache-2.0
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "kvcodec/kv.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

void bind_shape(nb::module_& module) {
  nb::enum_<DType>(module, "DType", "Element type of a KV cache.")
      .value("F16", DType::f16, "IEEE 754 binary16")
      .value("BF16", DType::bf16, "upper half of a binary32")
      .value("F32", DType::f32, "IEEE 754 binary32");
  nb::enum_<KvKind>(module, "KvKind", "Keys or values.")
      .value("KEY", KvKind::key)
      .value("VALUE", KvKind::value);
  nb::class_<KvShape>(module, "KvShape",
                      "What the numbers of one token are, on one tensor-parallel rank.")
      .def(
          "__init__",
          [](KvShape* self, uint32_t layers, uint32_t kv_heads, uint32_t key_dim,
             std::optional<uint32_t> value_dim, DType dtype) {
            new (self) KvShape{layers, kv_heads, key_dim, value_dim.value_or(key_dim), dtype};
          },
          "layers"_a, "kv_heads"_a, "key_dim"_a, "value_dim"_a = nb::none(), "dtype"_a = DType::f16,
          "key_dim and value_dim: elements of one head; value_dim defaults to key_dim, and is 0 "
          "where\n"
          "the cache keeps no values (MLA).")
      .def_ro("layers", &KvShape::layers)
      .def_ro("kv_heads", &KvShape::kv_heads)
      .def_ro("key_dim", &KvShape::key_dim)
      .def_ro("value_dim", &KvShape::value_dim)
      .def_ro("dtype", &KvShape::dtype)
      .def_prop_ro("token_bytes", &KvShape::token_bytes,
                   "Bytes of one token in all layers, keys and values.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"))
      .def("__repr__", [](const KvShape& s) {
        return "KvShape(layers=" + std::to_string(s.layers) +
               ", kv_heads=" + std::to_string(s.kv_heads) +
               ", key_dim=" + std::to_string(s.key_dim) +
               ", value_dim=" + std::to_string(s.value_dim) + ", dtype=" + dtype_name(s.dtype) +
               ")";
      });
}

void bind_rope(nb::module_& module) {
  nb::enum_<Rope::Style>(module, "RopeStyle", "Which elements of a head are rotated together.")
      .value("NONE", Rope::Style::none)
      .value("INTERLEAVED", Rope::Style::interleaved, "pairs (2i, 2i+1): GPT-J, llama.cpp NORM")
      .value("NEOX", Rope::Style::neox, "pairs (i, i + rotary_dims/2): Hugging Face, vLLM");
  nb::class_<Rope>(module, "Rope",
                   "How keys were rotated, so that tiers below exact can undo it. Rope() is none.")
      .def(nb::init<>())
      .def_static(
          "plain",
          [](Rope::Style style, uint32_t rotary_dims, double base) {
            return unwrap(make_rope(style, rotary_dims, base));
          },
          "style"_a, "rotary_dims"_a, "base"_a,
          "Unscaled RoPE: frequencies base^(-2i/rotary_dims).")
      .def_static(
          "from_frequencies",
          [](Rope::Style style, const std::vector<double>& radians_per_token) {
            return unwrap(make_rope(style, radians_per_token));
          },
          "style"_a, "radians_per_token"_a,
          "Any scaling (linear, NTK, YaRN, Llama 3): the angular frequencies after it, one a "
          "rotated\n"
          "pair. Raises InvalidArgument where one is not finite or not below 2 pi.")
      .def_ro("style", &Rope::style)
      .def_ro("rotary_dims", &Rope::rotary_dims)
      .def_ro("phase_steps", &Rope::phase_steps,
              "Turns a token, in units of 2^-64; rotary_dims / 2 of them.")
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
}

}  // namespace

void bind_kv(nb::module_& module) {
  bind_shape(module);
  bind_rope(module);
  nb::class_<KvGeometry::Strides>(
      module, "Strides", "Bytes between neighbours of each axis, and of the first element.")
      .def(
          "__init__",
          [](KvGeometry::Strides* self, size_t offset, size_t layer, size_t token, size_t head,
             size_t dim) {
            new (self) KvGeometry::Strides{offset, layer, token, head, dim};
          },
          "offset"_a = 0, "layer"_a = 0, "token"_a = 0, "head"_a = 0, "dim"_a = 0)
      .def_ro("offset", &KvGeometry::Strides::offset)
      .def_ro("layer", &KvGeometry::Strides::layer)
      .def_ro("token", &KvGeometry::Strides::token)
      .def_ro("head", &KvGeometry::Strides::head)
      .def_ro("dim", &KvGeometry::Strides::dim);
  nb::class_<KvGeometry>(
      module, "KvGeometry",
      "Where the elements of a KV cache are in a piece of memory. The element (kind, layer,\n"
      "token, head, dim) is at byte\n"
      "  s.offset + layer*s.layer + block*block_stride + (token % block_tokens)*s.token\n"
      "  + head*s.head + dim*s.dim,    s = key or value,\n"
      "  block = block_table[token // block_tokens], or token // block_tokens without a table.\n"
      "Usually made by kvcodec.arrays from shapes and strides.")
      .def(
          "__init__",
          [](KvGeometry* self, const KvShape& shape, uint32_t tokens,
             const KvGeometry::Strides& key, const KvGeometry::Strides& value,
             uint32_t block_tokens, size_t block_stride, std::vector<uint32_t> block_table) {
            new (self) KvGeometry{
                shape, tokens, key, value, block_tokens, block_stride, std::move(block_table)};
          },
          "shape"_a, "tokens"_a, "key"_a, "value"_a, "block_tokens"_a = 0, "block_stride"_a = 0,
          "block_table"_a = std::vector<uint32_t>{}, "block_tokens 0: one block holds all tokens.")
      .def_static("contiguous", &KvGeometry::contiguous, "shape"_a, "tokens"_a,
                  "The canonical order [layer][K|V][token][head][dim], nothing between.")
      .def_ro("shape", &KvGeometry::shape)
      .def_ro("tokens", &KvGeometry::tokens)
      .def_ro("key", &KvGeometry::key)
      .def_ro("value", &KvGeometry::value)
      .def_ro("block_tokens", &KvGeometry::block_tokens)
      .def_ro("block_stride", &KvGeometry::block_stride)
      .def_ro("block_table", &KvGeometry::block_table)
      .def("element_offset", &KvGeometry::element_offset, "kind"_a, "layer"_a, "token"_a, "head"_a,
           "dim"_a, "Byte of an element. Nothing is checked.")
      .def(
          "validate",
          [](const KvGeometry& self, size_t memory_bytes) { check(self.validate(memory_bytes)); },
          "memory_bytes"_a, "Raises InvalidArgument where an element is not inside so many bytes.");
}

}  // namespace kvcodec::python
