// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "decode_arguments.h"
#include "kv_cache.h"
#include "kvcodec/device.h"

namespace kvcodec::python {

using namespace nb::literals;

namespace {

struct Restorer {
  std::unique_ptr<DeviceRestorer> restorer;
  int device = 0;
};

Restorer create(int device, int sessions, uint64_t max_device_bytes) {
  DeviceOptions options;
  options.device = device;
  options.sessions = sessions;
  options.max_device_bytes = max_device_bytes;
  auto restorer = [&] {
    nb::gil_scoped_release unlocked;
    return DeviceRestorer::create(options);
  }();
  return {unwrap(std::move(restorer)), device};
}

void restore(Restorer& self, const Bytes& object, const KvCache& target, uint32_t first_token,
             const DecodeArguments& arguments) {
  if (target.device_type() != nb::device::cuda::value || target.device_id() != self.device) {
    invalid_argument("DeviceRestorer.restore: the target is not in the memory of device " +
                     std::to_string(self.device));
  }
  if (!target.writable()) invalid_argument("KvCache: the memory is read-only");
  DeviceRestoreJob job;
  job.object = object.bytes();
  job.target = {target.address(), target.bytes(), &target.geometry()};
  job.first_token = first_token;
  job.options = arguments.options();
  {
    nb::gil_scoped_release unlocked;
    self.restorer->restore({&job, 1});
  }
  check(std::move(job.status));
}

}  // namespace

void bind_device(nb::module_& module) {
  nb::class_<Restorer>(module, "DeviceRestorer",
                       "Restores chunks into the memory of an NVIDIA GPU: NVDEC decodes, kernels "
                       "write them in place.\n"
                       "Thread-safe; concurrent calls share the decoders.")
      .def(
          "__init__",
          [](Restorer* self, int device, int sessions, uint64_t max_device_bytes) {
            new (self) Restorer(create(device, sessions, max_device_bytes));
          },
          "device"_a = 0, nb::kw_only(), "sessions"_a = 0,
          "max_device_bytes"_a = DeviceOptions{}.max_device_bytes,
          "device: CUDA ordinal. Raises Unsupported where the build or the machine lacks "
          "something.")
      .def_prop_ro(
          "gpu", [](const Restorer& self) { return self.restorer->gpu(); }, "Its name.")
      .def("restore", &restore, "object"_a, "target"_a, "first_token"_a = 0,
           "options"_a = DecodeArguments{},
           "As decode_chunk, into a KvCache in this GPU's memory; returns when the GPU has ended "
           "its work. The\n"
           "tokens of a chunk that failed may have been written to. Work that other streams have "
           "queued on them\n"
           "must be done before. The GIL is released.");
}

}  // namespace kvcodec::python
