// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/ndarray.h>

#include "bindings.h"
#include "kvcodec/kv.h"

namespace kvcodec::python {

// Memory of an array or tensor, kept alive, with its geometry, which fits it. Does not copy.
class KvCache {
 public:
  // `memory`: anything contiguous that has DLPack or the buffer protocol.
  KvCache(nb::object memory, KvGeometry geometry);

  const KvGeometry& geometry() const { return geometry_; }
  nb::object memory() const { return memory_; }
  bool writable() const { return writable_; }
  int device_type() const { return array_.device_type(); }
  int device_id() const { return array_.device_id(); }
  bool on_host() const;
  uint64_t address() const { return reinterpret_cast<uint64_t>(array_.data()); }
  uint64_t bytes() const { return bytes_; }

  // Raise InvalidArgument where this is not host memory, or not writable. Valid as long as this is.
  KvSource source() const;
  KvTarget target() const;

 private:
  nb::object memory_;
  nb::ndarray<nb::ro> array_;
  uint64_t bytes_ = 0;
  bool writable_ = false;
  KvGeometry geometry_;
};

}  // namespace kvcodec::python
