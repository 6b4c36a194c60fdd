// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include "kv_cache.h"

namespace kvcodec::python {

using namespace nb::literals;

KvCache::KvCache(nb::object memory, KvGeometry geometry)
    : memory_(std::move(memory)), geometry_(std::move(geometry)) {
  // Without conversion: a copy would be written to and thrown away.
  nb::ndarray<nb::c_contig> writable;
  nb::ndarray<nb::ro, nb::c_contig> readable;
  if (nb::try_cast(memory_, writable, false)) {
    writable_ = true;
    array_ = nb::ndarray<nb::ro>(writable);
  } else if (nb::try_cast(memory_, readable, false)) {
    array_ = nb::ndarray<nb::ro>(readable);
  } else {
    invalid_argument("KvCache: memory is no C-contiguous array (DLPack or buffer protocol)");
  }
  bytes_ = array_.nbytes();
  check(geometry_.validate(bytes_));
}

bool KvCache::on_host() const {
  return device_type() == nb::device::cpu::value || device_type() == nb::device::cuda_host::value;
}

KvSource KvCache::source() const {
  if (!on_host()) invalid_argument("KvCache: the memory is not the host's; copy it first");
  return {{static_cast<const std::byte*>(array_.data()), bytes_}, &geometry_};
}

KvTarget KvCache::target() const {
  if (!on_host())
    invalid_argument("KvCache: the memory is not the host's; DeviceRestorer writes to a GPU");
  if (!writable_) invalid_argument("KvCache: the memory is read-only");
  auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(array_.data()));
  return {{data, bytes_}, &geometry_};
}

void bind_cache(nb::module_& module) {
  nb::class_<KvCache>(
      module, "KvCache",
      "A KV cache in the memory of an array or tensor, which it keeps alive and never copies.\n"
      "kvcodec.arrays makes them from shapes and strides. While a call writes to it, nothing else\n"
      "may use the tokens being written.")
      .def(nb::init<nb::object, KvGeometry>(), "memory"_a, "geometry"_a,
           nb::sig("def __init__(self, memory: object, geometry: KvGeometry) -> None"),
           "memory: a C-contiguous array (numpy, torch, anything with DLPack or the buffer "
           "protocol) of any\n"
           "type; only its bytes count. Raises InvalidArgument where the geometry does not fit.")
      .def_prop_ro("memory", &KvCache::memory, "What was given.",
                   nb::sig("def memory(self) -> typing.Any"))
      .def_prop_ro("geometry", &KvCache::geometry, nb::rv_policy::reference_internal)
      .def_prop_ro("shape", [](const KvCache& self) { return self.geometry().shape; })
      .def_prop_ro("tokens", [](const KvCache& self) { return self.geometry().tokens; })
      .def_prop_ro("writable", &KvCache::writable)
      .def_prop_ro("on_host", &KvCache::on_host)
      .def_prop_ro("nbytes", &KvCache::bytes, "Bytes of the memory.");
}

}  // namespace kvcodec::python
