// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "kvcodec/key.h"
#include "kvcodec/result.h"

// The Python module kvcodec._native: the public C++ API, a file of bindings a header.
namespace kvcodec::python {

namespace nb = nanobind;

// Thrown by the bindings only, where the library returned an Error; failure.cpp turns it into the
// exception class of its code.
struct Failure {
  Error error;
};

// The value, or the error thrown. The caller holds the GIL.
template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) throw Failure{std::move(result.error())};
  return *std::move(result);
}
inline void check(Status status) {
  if (!status.ok()) throw Failure{std::move(status.error())};
}
[[noreturn]] inline void invalid_argument(std::string message) {
  throw Failure{{ErrorCode::invalid_argument, std::move(message)}};
}

// Token ids of a call: any buffer of 32- or 64-bit integers, or a sequence of ints.
struct TokenIds {
  std::vector<int32_t> ids;
};

// The bytes of anything with the buffer protocol, held for a call.
class ByteBuffer {
 public:
  ByteBuffer() = default;
  ByteBuffer(ByteBuffer&& other) noexcept : view_(std::exchange(other.view_, {})) {}
  ByteBuffer& operator=(ByteBuffer&& other) noexcept {
    std::swap(view_, other.view_);
    return *this;
  }
  ~ByteBuffer() { PyBuffer_Release(&view_); }
  bool take(PyObject* object, bool writable) {
    return PyObject_GetBuffer(object, &view_, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) == 0;
  }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};
struct Bytes : ByteBuffer {};
struct WritableBytes : ByteBuffer {};

nb::bytes to_bytes(std::span<const std::byte> bytes);

// Runs Python's `progress(done, total)` from a thread without the GIL, at most one call at a time.
// What it raises, and a pending signal, asks the operation to stop; raise() raises it again.
class ProgressRelay {
 public:
  ProgressRelay(nb::object callback, std::stop_source stop)
      : callback_(std::move(callback)), stop_(std::move(stop)) {}
  // Without the GIL.
  void operator()(size_t done, size_t total);
  // With the GIL.
  void raise();

 private:
  nb::object callback_;
  std::stop_source stop_;
  nb::object raised_;
};

void bind_failure(nb::module_& module);
void bind_kv(nb::module_& module);
void bind_cache(nb::module_& module);
void bind_key(nb::module_& module);
void bind_codec(nb::module_& module);
void bind_profile(nb::module_& module);
void bind_store(nb::module_& module);
void bind_fetch(nb::module_& module);
void bind_device(nb::module_& module);

}  // namespace kvcodec::python

namespace nanobind::detail {

template <>
struct type_caster<kvcodec::Digest> {
  NB_TYPE_CASTER(kvcodec::Digest, const_name("bytes"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (!PyBytes_Check(source.ptr()) || PyBytes_Size(source.ptr()) != 32) return false;
    std::memcpy(value.bytes.data(), PyBytes_AsString(source.ptr()), value.bytes.size());
    return true;
  }
  static handle from_cpp(const kvcodec::Digest& digest, rv_policy, cleanup_list*) noexcept {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(digest.bytes.data()),
                                     static_cast<Py_ssize_t>(digest.bytes.size()));
  }
};

template <>
struct type_caster<kvcodec::python::Bytes> {
  NB_TYPE_CASTER(kvcodec::python::Bytes, const_name("typing_extensions.Buffer"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (value.take(source.ptr(), false)) return true;
    PyErr_Clear();
    return false;
  }
};
template <>
struct type_caster<kvcodec::python::WritableBytes> {
  NB_TYPE_CASTER(kvcodec::python::WritableBytes, const_name("typing_extensions.Buffer"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    if (value.take(source.ptr(), true)) return true;
    PyErr_Clear();
    return false;
  }
};

template <>
struct type_caster<kvcodec::python::TokenIds> {
  NB_TYPE_CASTER(kvcodec::python::TokenIds, const_name("numpy.typing.ArrayLike"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept;
};

}  // namespace nanobind::detail
