// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace kvcodec {

// Values are part of the ABI and of exit codes and JSON output: append, never renumber.
enum class ErrorCode {
  invalid_argument = 1,  // the caller asked for something that makes no sense
  not_found = 2,         // a cache miss; never a fault
  corrupt = 3,           // bytes are not what they should be; never restored
  unsupported = 4,       // valid, but this build or version cannot do it
  unavailable = 5,       // transient; a retry may succeed
  io = 6,                // the operating system refused
  out_of_memory = 7,
  device = 8,  // GPU or driver
  internal = 9,
  cancelled = 10,
};

// Stable lower-case name of a code ("corrupt"), for messages and JSON.
const char* error_code_name(ErrorCode code);

// `message` names the object, the offset or field, what was expected and what was found.
struct Error {
  ErrorCode code;
  std::string message;
};

// A value or an Error. The library reports every failure this way and throws nothing of its own
// (std::bad_alloc may pass). Not thread-safe beyond what T is.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Require ok().
  T& operator*() & { return *std::get_if<0>(&state_); }
  const T& operator*() const& { return *std::get_if<0>(&state_); }
  T operator*() && { return std::move(*std::get_if<0>(&state_)); }  // by value: nothing dangles
  T* operator->() { return std::get_if<0>(&state_); }
  const T* operator->() const { return std::get_if<0>(&state_); }

  // Require !ok().
  Error& error() { return *std::get_if<1>(&state_); }
  const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<std::monostate>;
inline Status ok_status() { return Status(std::monostate{}); }

}  // namespace kvcodec

#define KVCODEC_CAT_(a, b) a##b
#define KVCODEC_CAT(a, b) KVCODEC_CAT_(a, b)
// KVCODEC_TRY(auto x, f()): x is *f(), or the enclosing function returns f()'s error.
#define KVCODEC_TRY(lhs, expr) KVCODEC_TRY_(KVCODEC_CAT(kvcodec_try_, __LINE__), lhs, expr)
#define KVCODEC_TRY_(tmp, lhs, expr)            \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp.error()); \
  lhs = *std::move(tmp)
// KVCODEC_CHECK(f()): returns f()'s error from the enclosing function, if there is one.
#define KVCODEC_CHECK(expr)                                 \
  do {                                                      \
    if (auto kvcodec_status = (expr); !kvcodec_status.ok()) \
      return std::move(kvcodec_status.error());             \
  } while (0)
