// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace kvcodec::python {

using namespace nb::literals;

void bind_key(nb::module_& module) {
  module.def(
      "namespace_digest",
      [](const std::string& model, const KvShape& shape, std::optional<Digest> weights,
         const Rope& rope, uint32_t rank, uint32_t ranks, const std::string& salt,
         std::optional<Digest> profile) {
        return namespace_digest({model, weights.value_or(Digest{}), shape, rope, rank, ranks, salt,
                                 profile.value_or(Digest{})});
      },
      "model"_a, "shape"_a, "weights"_a = nb::none(), "rope"_a = Rope{}, "rank"_a = 0,
      "ranks"_a = 1, "salt"_a = "", "profile"_a = nb::none(),
      "SHA-256 of everything that makes two caches incompatible (docs/format.md, \"Namespace\").\n"
      "weights, profile: digests of 32 bytes; None: zeros. rank of ranks: tensor parallelism.\n"
      "salt: the tenant.");
  module.def(
      "chunk_keys",
      [](const Digest& ns, const TokenIds& tokens, uint32_t chunk_tokens) {
        if (chunk_tokens == 0) invalid_argument("chunk_keys: chunk_tokens is 0");
        nb::gil_scoped_release unlocked;
        return chunk_keys(ns, tokens.ids, chunk_tokens);
      },
      "namespace"_a, "tokens"_a, "chunk_tokens"_a = 256,
      "Keys of the whole chunks of a token sequence, each hashed over all tokens before it too. A\n"
      "remainder of fewer than chunk_tokens has no key.");
  module.def(
      "chunk_key",
      [](const Digest& parent, const TokenIds& tokens) { return chunk_key(parent, tokens.ids); },
      "parent"_a, "tokens"_a,
      "Key of one chunk of any length after `parent` (the namespace before the first).");
  module.def(
      "object_name",
      [](const Digest& ns, const Digest& key, const std::string& rendition) {
        return object_name(ns, key, rendition);
      },
      "namespace"_a, "key"_a, "rendition"_a,
      "Name of an object in a store: \"<namespace>/<key>/<rendition>\".");
  module.def(
      "sha256_file",
      [](const std::string& path) {
        auto digest = [&] {
          nb::gil_scoped_release unlocked;
          return sha256_file(path);
        }();
        return unwrap(std::move(digest));
      },
      "path"_a, "SHA-256 of a whole file, streamed. Raises NotFound or IoError.");
}

}  // namespace kvcodec::python
