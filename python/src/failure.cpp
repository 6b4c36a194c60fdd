// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"

namespace kvcodec::python {

namespace {

// Every code of the library; kvcodec/errors.py has a class for each, and a test compares them.
constexpr ErrorCode kCodes[] = {
    ErrorCode::invalid_argument, ErrorCode::not_found,   ErrorCode::corrupt,
    ErrorCode::unsupported,      ErrorCode::unavailable, ErrorCode::io,
    ErrorCode::out_of_memory,    ErrorCode::device,      ErrorCode::internal,
    ErrorCode::cancelled,
};

void raise_in_python(const Error& error) {
  try {
    nb::object exception = nb::module_::import_("kvcodec.errors")
                               .attr("from_code")(error_code_name(error.code), error.message);
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
  } catch (nb::python_error& import_failed) {
    import_failed.restore();
  }
}

}  // namespace

void bind_failure(nb::module_& module) {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Failure& failure) {
      raise_in_python(failure.error);
    }
  });
  std::vector<std::string> names;
  for (const ErrorCode code : kCodes) names.emplace_back(error_code_name(code));
  module.def(
      "error_codes", [names] { return names; }, "Names of the library's error codes.");
}

void ProgressRelay::operator()(size_t done, size_t total) {
  nb::gil_scoped_acquire gil;
  if (raised_.is_valid()) return;
  try {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (!callback_.is_none()) callback_(done, total);
  } catch (nb::python_error& error) {
    raised_ = nb::borrow(error.value());
    stop_.request_stop();
  }
}

void ProgressRelay::raise() {
  if (!raised_.is_valid()) return;
  PyErr_SetObject(raised_.type().ptr(), raised_.ptr());
  throw nb::python_error();
}

nb::bytes to_bytes(std::span<const std::byte> bytes) {
  return nb::bytes(bytes.data(), bytes.size());
}

}  // namespace kvcodec::python
