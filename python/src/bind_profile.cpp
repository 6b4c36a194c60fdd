// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "decode_arguments.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

void bind_tiers(nb::module_& module) {
  nb::enum_<Tier>(module, "Tier", "How much of a cache is kept, finest first.")
      .value("EXACT", Tier::exact, "every bit, NaN payloads and signed zeros included")
      .value("INT8", Tier::int8, "8-bit codes of un-rotated, centred values; finite input only")
      .value("HIGH", Tier::high, "calibrated; needs a profile; finite input only, as the next two")
      .value("BALANCED", Tier::balanced)
      .value("SMALL", Tier::small);
  module.def("tier_name", &tier_name, "tier"_a,
             "\"exact\", \"int8\", \"high\", \"balanced\" or \"small\".");
  module.def(
      "tier_from_name", [](const std::string& name) { return unwrap(tier_from_name(name)); },
      "name"_a, "Raises InvalidArgument.");
  nb::class_<ProfileTier>(module, "ProfileTier", "What a profile says of a calibrated tier.")
      .def_ro("step", &ProfileTier::step)
      .def_ro("dead_zone", &ProfileTier::dead_zone)
      .def_ro("bits_per_value", &ProfileTier::bits_per_value,
              "expected, of whole objects; 0: not known")
      .def_ro("kl", &ProfileTier::kl,
              "expected, of the continuation, in nats a token; 0: not known");
}

}  // namespace

void bind_profile(nb::module_& module) {
  bind_tiers(module);
  nb::class_<Profile>(
      module, "Profile",
      "What the calibrated tiers know of a model (docs/profile.md). Immutable; any number of\n"
      "threads may use one.")
      .def_static(
          "load",
          [](const std::string& path) {
            auto profile = [&] {
              nb::gil_scoped_release unlocked;
              return Profile::load(path);
            }();
            return std::make_shared<const Profile>(unwrap(std::move(profile)));
          },
          "path"_a,
          "Reads a file and checks all of it. Raises NotFound, IoError, Corrupt or Unsupported.")
      .def_static(
          "parse",
          [](const Bytes& file) {
            return std::make_shared<const Profile>(unwrap(Profile::parse(file.bytes())));
          },
          "file"_a, "As load, from the file's bytes.")
      .def_static(
          "identity",
          [](const KvShape& shape, const Rope& rope, const std::string& model) {
            return std::make_shared<const Profile>(unwrap(Profile::identity(shape, rope, model)));
          },
          "shape"_a, "rope"_a = Rope{}, "model"_a = "",
          "What needs no calibration: worse than a calibrated one by a factor, and serves any "
          "model.")
      .def(
          "to_bytes",
          [](const Profile& self) { return to_bytes(unwrap(serialise_profile(self.fields()))); },
          "The file's bytes.")
      .def_prop_ro("digest", &Profile::digest, "SHA-256 of the file.")
      .def_prop_ro("is_identity", &Profile::is_identity)
      .def_prop_ro(
          "model", [](const Profile& self) { return self.fields().model; }, "A name, for people.")
      .def_prop_ro(
          "weights", [](const Profile& self) { return self.fields().weights; },
          "SHA-256 of the weights' bytes; zeros: any.")
      .def_prop_ro(
          "shape", [](const Profile& self) { return self.shape(); },
          "dtype apart: a profile serves all.")
      .def_prop_ro("rope", [](const Profile& self) { return self.rope(); })
      .def_prop_ro(
          "calibration", [](const Profile& self) { return self.fields().calibration; },
          "JSON: texts, tokens, licences.")
      .def(
          "tier",
          [](const Profile& self, Tier tier) {
            if (!is_calibrated(tier)) invalid_argument("Profile.tier: not a calibrated tier");
            return self.tier(tier);
          },
          "tier"_a)
      .def(
          "check_shape",
          [](const Profile& self, const KvShape& shape) { check(self.check_shape(shape)); },
          "shape"_a, "Raises InvalidArgument where this is the profile of another model's shape.")
      .def(
          "tier_within",
          [](const Profile& self, double kl) { return unwrap(self.tier_within(kl)); }, "kl"_a,
          "The coarsest calibrated tier whose expected KL is at most `kl` nats a token. Raises\n"
          "InvalidArgument where there is none, or the profile knows no KL.");
  module.def(
      "rendition_name",
      [](Tier tier, const Profile* profile) {
        if (is_calibrated(tier) && profile == nullptr)
          invalid_argument("rendition_name: the tier needs a profile");
        return rendition_name(tier, profile);
      },
      "tier"_a, "profile"_a = nb::none(),
      "A rendition's name in a store: \"exact\", \"int8\", \"balanced-0123456789abcdef\".");
  module.def(
      "rendition_tier", [](const std::string& name) { return unwrap(parse_rendition(name)).tier; },
      "rendition"_a, "The tier of a rendition's name. Raises InvalidArgument.");
  nb::class_<DecodeArguments>(module, "DecodeOptions",
                              "What a reader expects of an object, and its limits.")
      .def(
          "__init__",
          [](DecodeArguments* self, std::optional<ChunkId> expected,
             std::optional<Tier> expected_tier, std::optional<Tier> lowest_tier,
             std::shared_ptr<const Profile> profile, std::optional<uint32_t> position,
             uint64_t max_object_bytes, uint64_t max_decoded_bytes, int threads) {
            Limits limits;
            limits.max_object_bytes = max_object_bytes;
            limits.max_decoded_bytes = max_decoded_bytes;
            new (self) DecodeArguments{std::move(expected),
                                       expected_tier,
                                       lowest_tier,
                                       std::move(profile),
                                       position,
                                       limits,
                                       threads};
          },
          nb::kw_only(), "expected"_a = nb::none(), "expected_tier"_a = nb::none(),
          "lowest_tier"_a = nb::none(), "profile"_a = nb::none(), "position"_a = nb::none(),
          "max_object_bytes"_a = Limits{}.max_object_bytes,
          "max_decoded_bytes"_a = Limits{}.max_decoded_bytes, "threads"_a = 0,
          "expected: the chunk that the object must be. expected_tier, lowest_tier: its tier, or "
          "the lowest\n"
          "(coarsest) that is accepted. profile: that of a calibrated tier. position: of the first "
          "token in\n"
          "the sequence it is restored into, where that is another than it was encoded from. "
          "threads 0: all\n"
          "cores. What does not match is Corrupt.");
}

}  // namespace kvcodec::python
