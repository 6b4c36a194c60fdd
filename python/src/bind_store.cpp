// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "store_handle.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

// `call` without the GIL.
template <typename Call>
auto unlocked(Call call) {
  nb::gil_scoped_release released;
  return call();
}

StoreHandle open(const std::string& uri, uint64_t max_bytes) {
  StoreOptions options;
  options.max_bytes = max_bytes;
  auto store = unwrap(unlocked([&] { return open_store(uri, options); }));
  return {nullptr, std::move(store)};
}

void bind_methods(nb::class_<StoreHandle>& store) {
  store.def(
      "get",
      [](StoreHandle& self, const std::string& name, uint64_t max_bytes) {
        const auto object =
            unwrap(unlocked([&] { return get_object(*self.store, name, max_bytes); }));
        return to_bytes(object);
      },
      "name"_a, "max_bytes"_a = uint64_t{4} << 30,
      "A whole object. Raises NotFound, or Corrupt where it is larger than max_bytes.");
  store.def(
      "get_into",
      [](StoreHandle& self, const std::string& name, const WritableBytes& out, uint64_t offset) {
        return unwrap(unlocked([&] { return self.store->get(name, out.bytes(), offset); }));
      },
      "name"_a, "out"_a, "offset"_a = 0,
      "Reads up to len(out) bytes from `offset` into a writable buffer; returns how many, fewer "
      "only at\n"
      "the object's end.");
  store.def(
      "put",
      [](StoreHandle& self, const std::string& name, const Bytes& object) {
        check(unlocked([&] { return self.store->put(name, object.bytes()); }));
      },
      "name"_a, "object"_a, "Stores or replaces an object, atomically and durably.");
  store.def(
      "stat",
      [](StoreHandle& self, const std::string& name) {
        return unwrap(unlocked([&] { return self.store->stat(name); }));
      },
      "name"_a, "Raises NotFound.");
  store.def(
      "list",
      [](StoreHandle& self, const std::string& prefix) {
        return unwrap(unlocked([&] { return self.store->list(prefix); }));
      },
      "prefix"_a = "", "All objects whose names start with `prefix`, sorted by name.");
  store.def(
      "remove",
      [](StoreHandle& self, const std::string& name) {
        check(unlocked([&] { return self.store->remove(name); }));
      },
      "name"_a, "Raises NotFound.");
  store.def("__contains__", [](StoreHandle& self, const std::string& name) {
    auto stat = unlocked([&] { return self.store->stat(name); });
    if (!stat.ok() && stat.error().code == ErrorCode::not_found) return false;
    unwrap(std::move(stat));
    return true;
  });
}

}  // namespace

void bind_store(nb::module_& module) {
  nb::class_<ObjectStat>(module, "ObjectStat")
      .def_ro("name", &ObjectStat::name)
      .def_ro("bytes", &ObjectStat::bytes)
      .def_prop_ro(
          "last_used",
          [](const ObjectStat& self) {
            return std::chrono::duration<double>(self.last_used.time_since_epoch()).count();
          },
          "Seconds since 1970 of the last put or get, as well as the store knows.");
  nb::class_<StoreHandle> store(module, "Store",
                                "Keeps objects by name (docs/stores.md). Names are 1 to 255 bytes "
                                "of [a-z0-9._/-]. All methods\n"
                                "are thread-safe, release the GIL, and raise InvalidArgument, "
                                "Unavailable or IoError; a reader\n"
                                "sees an object whole or not at all.");
  bind_methods(store);
  module.def("open_store", &open, "uri"_a, "max_bytes"_a = 0,
             "\"mem:\" (lives as long as the Store), \"file:///absolute/path\" (created where "
             "missing), or another\n"
             "scheme of docs/stores.md. max_bytes: beyond, the least recently used objects are "
             "evicted; 0: never.\n"
             "Raises Unsupported, which names the schemes of this build.");
  module.def(
      "limit_bandwidth",
      [](const StoreHandle& behind, double bits_per_second) {
        if (!(bits_per_second > 0))
          invalid_argument("limit_bandwidth: bits_per_second is not above 0");
        return StoreHandle{behind.store, limit_bandwidth(*behind.store, bits_per_second)};
      },
      "store"_a, "bits_per_second"_a, "The same store as if behind a link, for demos and tests.");
  nb::class_<GcReport>(module, "GcReport")
      .def_ro("objects_before", &GcReport::objects_before)
      .def_ro("bytes_before", &GcReport::bytes_before)
      .def_ro("objects_removed", &GcReport::objects_removed)
      .def_ro("bytes_removed", &GcReport::bytes_removed);
  module.def(
      "collect_garbage",
      [](StoreHandle& self, uint64_t max_bytes) {
        return unwrap(unlocked([&] { return collect_garbage(*self.store, max_bytes); }));
      },
      "store"_a, "max_bytes"_a,
      "Removes the least recently used objects until at most max_bytes remain.");
}

}  // namespace kvcodec::python
