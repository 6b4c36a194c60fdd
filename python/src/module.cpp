// SPDX-License-Identifier: Apache-2.0
#include "bindings.h"
#include "kvcodec/version.h"

NB_MODULE(_native, module) {
  using namespace kvcodec::python;
  module.doc() = "The C++ library. Import kvcodec instead.";
  // Threads of an engine that is being shut down keep objects alive; that is no leak.
  nanobind::set_leak_warnings(false);
  module.def(
      "version", [] { return KVCODEC_VERSION_STRING; }, "Of the library.");
  bind_failure(module);
  bind_kv(module);
  bind_cache(module);
  bind_key(module);
  bind_profile(module);
  bind_codec(module);
  bind_store(module);
  bind_fetch(module);
  bind_device(module);
}
