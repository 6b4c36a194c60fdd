// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "bindings.h"

namespace nanobind::detail {

namespace {

bool fits(long long id) {
  return id >= std::numeric_limits<int32_t>::min() && id <= std::numeric_limits<int32_t>::max();
}

template <typename T>
bool copy_checked(const Py_buffer& view, std::vector<int32_t>& out) {
  const T* ids = static_cast<const T*>(view.buf);
  const auto count = static_cast<size_t>(view.len) / sizeof(T);
  out.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (!fits(ids[i])) return false;
    out[i] = static_cast<int32_t>(ids[i]);
  }
  return true;
}

// Formats of struct(3): native or little-endian signed integers.
bool from_buffer(const Py_buffer& view, std::vector<int32_t>& out) {
  std::string_view format = view.format == nullptr ? "B" : view.format;
  if (!format.empty() && (format[0] == '<' || format[0] == '=' || format[0] == '@')) {
    format.remove_prefix(1);
  }
  if (view.ndim != 1 || format.size() != 1 ||
      std::string_view("ilq").find(format[0]) == std::string_view::npos) {
    return false;
  }
  if (view.itemsize == 4) return copy_checked<int32_t>(view, out);
  return view.itemsize == 8 && copy_checked<int64_t>(view, out);
}

bool from_sequence(PyObject* source, std::vector<int32_t>& out) {
  PyObject* fast = PySequence_Fast(source, "");
  if (fast == nullptr) return false;
  const object keep = steal(fast);
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(fast));
  out.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const long long id =
        PyLong_AsLongLong(PySequence_Fast_GET_ITEM(fast, static_cast<Py_ssize_t>(i)));
    if ((id == -1 && PyErr_Occurred() != nullptr) || !fits(id)) return false;
    out[i] = static_cast<int32_t>(id);
  }
  return true;
}

}  // namespace

bool type_caster<kvcodec::python::TokenIds>::from_python(handle source, uint8_t,
                                                         cleanup_list*) noexcept {
  bool ok = false;
  try {
    Py_buffer view{};
    const bool text = PyUnicode_Check(source.ptr()) || PyBytes_Check(source.ptr());
    if (!text && PyObject_GetBuffer(source.ptr(), &view, PyBUF_CONTIG_RO | PyBUF_FORMAT) == 0) {
      ok = from_buffer(view, value.ids);
      PyBuffer_Release(&view);
    } else if (!text) {
      PyErr_Clear();
      ok = from_sequence(source.ptr(), value.ids);
    }
  } catch (const std::bad_alloc&) {
    ok = false;
  }
  if (!ok) PyErr_Clear();
  return ok;
}

}  // namespace nanobind::detail
