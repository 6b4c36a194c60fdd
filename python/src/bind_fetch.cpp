// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "kv_cache.h"
#include "kvcodec/fetch.h"
#include "store_handle.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

PublishReport publish(StoreHandle& store, const Digest& ns, const TokenIds& tokens,
                      const KvCache& source, Tier tier, const Rope& rope, const Profile* profile,
                      uint32_t chunk_tokens, uint32_t sink_tokens, bool replace, int threads,
                      bool verify, double noise_factor, nb::object progress) {
  PublishOptions options;
  options.encode.tier = tier;
  options.encode.rope = rope;
  options.encode.profile = profile;
  options.encode.sink_tokens = sink_tokens;
  options.encode.threads = threads;
  options.encode.verify = verify;
  options.encode.noise_factor = noise_factor;
  options.chunk_tokens = chunk_tokens;
  options.replace = replace;
  const KvSource view = source.source();
  ProgressRelay relay(std::move(progress), {});
  options.progress = [&](size_t done, size_t total) { relay(done, total); };
  auto report = [&] {
    nb::gil_scoped_release unlocked;
    return publish_prefix(*store.store, ns, tokens.ids, view, options);
  }();
  relay.raise();
  return unwrap(std::move(report));
}

FetchReport fetch(StoreHandle& store, const Digest& ns, const TokenIds& tokens,
                  const KvCache& target, const std::string& rendition, const Profile* profile,
                  Tier lowest_tier, uint32_t chunk_tokens, std::optional<uint32_t> max_tokens,
                  size_t max_chunks_in_flight, int threads, nb::object progress,
                  const std::stop_source* stop) {
  const std::stop_source source = stop == nullptr ? std::stop_source() : *stop;
  FetchOptions options;
  options.rendition = rendition;
  options.profile = profile;
  options.lowest_tier = lowest_tier;
  options.chunk_tokens = chunk_tokens;
  if (max_tokens) options.max_tokens = *max_tokens;
  options.max_chunks_in_flight = max_chunks_in_flight;
  options.threads = threads;
  options.stop = source.get_token();
  const KvTarget view = target.target();
  ProgressRelay relay(std::move(progress), source);
  options.progress = [&](size_t done, size_t total) { relay(done, total); };
  auto report = [&] {
    nb::gil_scoped_release unlocked;
    return fetch_prefix(*store.store, ns, tokens.ids, view, options);
  }();
  relay.raise();
  return unwrap(std::move(report));
}

void bind_reports(nb::module_& module) {
  nb::class_<PublishReport>(module, "PublishReport",
                            "Of `chunks`, `written` were not there before; `finer` of these\n"
                            "were coded at a finer tier than asked for.")
      .def_ro("chunks", &PublishReport::chunks)
      .def_ro("written", &PublishReport::written)
      .def_ro("finer", &PublishReport::finer)
      .def_ro("tokens", &PublishReport::tokens)
      .def_ro("raw_bytes", &PublishReport::raw_bytes)
      .def_ro("object_bytes", &PublishReport::object_bytes)
      .def_ro("encode_seconds", &PublishReport::encode_seconds)
      .def_ro("store_seconds", &PublishReport::store_seconds);
  nb::class_<FetchReport>(module, "FetchReport")
      .def_ro("tokens_restored", &FetchReport::tokens_restored,
              "Leading tokens of the target that are valid.")
      .def_ro("chunks", &FetchReport::chunks)
      .def_ro("object_bytes", &FetchReport::object_bytes)
      .def_ro("transfer_seconds", &FetchReport::transfer_seconds, "Spent inside the store.")
      .def_ro("decode_seconds", &FetchReport::decode_seconds, "Spent decoding and restoring.")
      .def_ro("seconds", &FetchReport::seconds, "Wall clock; transfer and decoding overlap.")
      .def_prop_ro(
          "stopped_by",
          [](const FetchReport& self) -> nb::object {
            if (!self.stopped_by) return nb::none();
            return nb::module_::import_("kvcodec.errors")
                .attr("from_code")(error_code_name(self.stopped_by->code),
                                   self.stopped_by->message);
          },
          nb::sig("def stopped_by(self) -> kvcodec.errors.KvCodecError | None"),
          "Why it ended before the last chunk: the exception that a miss (NotFound) or a fault "
          "would be.");
}

}  // namespace

void bind_fetch(nb::module_& module) {
  bind_reports(module);
  nb::class_<std::stop_source>(module, "StopSource",
                               "Cancels the operations it is given to. Thread-safe.")
      .def(nb::init<>())
      .def("request_stop", &std::stop_source::request_stop, "True where nobody had asked before.")
      .def_prop_ro("stop_requested", &std::stop_source::stop_requested);
  module.def(
      "publish_prefix", &publish, "store"_a, "namespace"_a, "tokens"_a, "source"_a, nb::kw_only(),
      "tier"_a = Tier::exact, "rope"_a = Rope{}, "profile"_a = nb::none(),
      "chunk_tokens"_a = kDefaultChunkTokens, "sink_tokens"_a = EncodeOptions{}.sink_tokens,
      "replace"_a = false, "threads"_a = 0, "verify"_a = true,
      "noise_factor"_a = EncodeOptions{}.noise_factor, "progress"_a = nb::none(),
      "Stores every whole chunk of `tokens`, under rendition_name(tier, profile); token i of the "
      "sequence is\n"
      "token i of `source`. Chunks that are present and whole are left alone, unless `replace`.\n"
      "progress(done, total) is called after each chunk; what it raises is raised when the "
      "publishing has\n"
      "ended. The GIL is released. Options are those of encode_chunk.");
  module.def(
      "match_prefix",
      [](StoreHandle& store, const Digest& ns, const TokenIds& tokens, const std::string& rendition,
         uint32_t chunk_tokens) {
        auto matched = [&] {
          nb::gil_scoped_release unlocked;
          return match_prefix(*store.store, ns, tokens.ids, rendition, chunk_tokens);
        }();
        return unwrap(std::move(matched));
      },
      "store"_a, "namespace"_a, "tokens"_a, "rendition"_a = "exact",
      "chunk_tokens"_a = kDefaultChunkTokens,
      "How many leading tokens are present as whole chunks of a rendition. The GIL is released.");
  module.def("fetch_prefix", &fetch, "store"_a, "namespace"_a, "tokens"_a, "target"_a,
             nb::kw_only(), "rendition"_a = "exact", "profile"_a = nb::none(),
             "lowest_tier"_a = Tier::small, "chunk_tokens"_a = kDefaultChunkTokens,
             "max_tokens"_a = nb::none(), "max_chunks_in_flight"_a = 4, "threads"_a = 0,
             "progress"_a = nb::none(), "stop"_a = nb::none(),
             "Restores the longest chain of leading chunks present, transfer and decoding "
             "overlapped. A missing or\n"
             "faulty chunk ends it and is reported (FetchReport.stopped_by), never restored; only "
             "a wrong call\n"
             "raises. profile: that of a calibrated rendition. lowest_tier: fidelity floor. "
             "max_chunks_in_flight\n"
             "bounds memory. progress(done, total) is called after each chunk; what it raises ends "
             "the fetch and is\n"
             "raised. The GIL is released; submit_fetch does not wait.");
}

}  // namespace kvcodec::python
