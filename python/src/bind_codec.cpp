// SPDX-License-Identifier: Apache-2.0
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "decode_arguments.h"
#include "kv_cache.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

void bind_chunk_info(nb::module_& module) {
  nb::class_<PictureInfo>(module, "PictureInfo", "One stored picture or raw plane.")
      .def_ro("kind", &PictureInfo::kind)
      .def_ro("plane", &PictureInfo::plane)
      .def_ro("first_row", &PictureInfo::first_row)
      .def_ro("rows", &PictureInfo::rows)
      .def_ro("width", &PictureInfo::width)
      .def_ro("height", &PictureInfo::height)
      .def_ro("coding", &PictureInfo::coding)
      .def_ro("offset", &PictureInfo::offset)
      .def_ro("bytes", &PictureInfo::bytes);
  nb::class_<GroupDistortion>(
      module, "GroupDistortion",
      "Calibrated tiers: how far a group of layers is from the exact values.")
      .def_ro("kind", &GroupDistortion::kind)
      .def_ro("first_layer", &GroupDistortion::first_layer)
      .def_ro("layers", &GroupDistortion::layers)
      .def_ro("components", &GroupDistortion::components)
      .def_ro("live_rows", &GroupDistortion::live_rows)
      .def_ro("step", &GroupDistortion::step)
      .def_ro("noise", &GroupDistortion::noise, "mean square of the error, a token and channel")
      .def_ro("relative_error", &GroupDistortion::relative_error);
  nb::class_<ChunkInfo>(module, "ChunkInfo", "What the header of a chunk says.")
      .def_ro("format_version", &ChunkInfo::format_version)
      .def_ro("tier", &ChunkInfo::tier)
      .def_ro("id", &ChunkInfo::id)
      .def_ro("profile", &ChunkInfo::profile, "SHA-256 of the profile; zeros: none")
      .def_ro("shape", &ChunkInfo::shape)
      .def_ro("rope", &ChunkInfo::rope)
      .def_ro("tokens", &ChunkInfo::tokens)
      .def_ro("sink_tokens", &ChunkInfo::sink_tokens)
      .def_ro("escapes", &ChunkInfo::escapes)
      .def_ro("header_bytes", &ChunkInfo::header_bytes)
      .def_ro("object_bytes", &ChunkInfo::object_bytes)
      .def_ro("pictures", &ChunkInfo::pictures)
      .def_ro("distortions", &ChunkInfo::distortions)
      .def_prop_ro("values", &ChunkInfo::values, "Elements that the chunk restores.")
      .def_prop_ro("bits_per_value", &ChunkInfo::bits_per_value, "Of the whole object.");
}

nb::bytes encode(const KvCache& source, uint32_t first, std::optional<uint32_t> count,
                 std::optional<ChunkId> id, Tier tier, const Rope& rope, const Profile* profile,
                 uint32_t sink_tokens, uint32_t max_picture_height, int threads, bool verify,
                 double noise_factor) {
  const KvSource view = source.source();
  if (first > view.geometry->tokens)
    invalid_argument("encode_chunk: first is beyond the cache's tokens");
  const TokenRange range{first, count.value_or(view.geometry->tokens - first)};
  EncodeOptions options;
  options.tier = tier;
  options.rope = rope;
  options.profile = profile;
  options.sink_tokens = sink_tokens;
  options.max_picture_height = max_picture_height;
  options.threads = threads;
  options.verify = verify;
  options.noise_factor = noise_factor;
  auto object = [&] {
    nb::gil_scoped_release unlocked;
    return encode_chunk(view, range, id.value_or(ChunkId{}), options);
  }();
  return to_bytes(unwrap(std::move(object)));
}

}  // namespace

void bind_codec(nb::module_& module) {
  nb::class_<ChunkId>(module, "ChunkId", "What a chunk is a part of, checked on restore.")
      .def(
          "__init__",
          [](ChunkId* self, const Digest& ns, const Digest& key, uint32_t first_token) {
            new (self) ChunkId{ns, key, first_token};
          },
          "namespace"_a, "key"_a, "first_token"_a = 0)
      .def_ro("namespace", &ChunkId::ns)
      .def_ro("key", &ChunkId::key)
      .def_ro("first_token", &ChunkId::first_token)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  bind_chunk_info(module);
  module.def(
      "encode_chunk", &encode, "source"_a, "first"_a = 0, "count"_a = nb::none(),
      "id"_a = nb::none(), nb::kw_only(), "tier"_a = Tier::exact, "rope"_a = Rope{},
      "profile"_a = nb::none(), "sink_tokens"_a = EncodeOptions{}.sink_tokens,
      "max_picture_height"_a = EncodeOptions{}.max_picture_height, "threads"_a = 0,
      "verify"_a = true, "noise_factor"_a = EncodeOptions{}.noise_factor,
      "Tokens [first, first + count) of `source` as one object (docs/format.md); count None: all.\n"
      "Equal input and options give equal bytes. The GIL is released.\n"
      "tier: a finer one is taken for a chunk whose noise is above noise_factor times what the "
      "profile\n"
      "expects. sink_tokens: positions below are stored exactly, not tier exact. threads 0: all "
      "cores.\n"
      "Raises InvalidArgument, for a value that is not finite too, unless tier is exact.");
  module.def(
      "decode_chunk",
      [](const Bytes& object, const KvCache& target, uint32_t first_token,
         const DecodeArguments& arguments) {
        const KvTarget view = target.target();
        auto status = [&] {
          nb::gil_scoped_release unlocked;
          return decode_chunk(object.bytes(), view, first_token, arguments.options());
        }();
        check(std::move(status));
      },
      "object"_a, "target"_a, "first_token"_a = 0, "options"_a = DecodeArguments{},
      "Restores an object into tokens [first_token, first_token + its tokens) of `target`. "
      "Everything is\n"
      "checked first: on any error nothing was written. The GIL is released.\n"
      "Raises Corrupt for wrong bytes, InvalidArgument where the target's shape is not the "
      "object's.");
  module.def(
      "verify_chunk",
      [](const Bytes& object, const DecodeArguments& arguments) {
        auto status = [&] {
          nb::gil_scoped_release unlocked;
          return verify_chunk(object.bytes(), arguments.options());
        }();
        check(std::move(status));
      },
      "object"_a, "options"_a = DecodeArguments{},
      "All checks of decode_chunk, decoding included, into nothing.");
  module.def(
      "chunk_info", [](const Bytes& object) { return unwrap(read_chunk_info(object.bytes())); },
      "object"_a,
      "Reads and checks a header; `object` may be the beginning of one. Raises Corrupt, which "
      "names the\n"
      "bytes needed where there are too few.");
}

}  // namespace kvcodec::python
