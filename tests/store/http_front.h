// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "kvcodec/store.h"
#include "scripted_server.h"
#include "store/memory_store.h"

namespace kvcodec {

// The objects of a memory store, read over HTTP and written directly, so that a read-only store
// passes through the same tests as all others.
class HttpFront final : public Store {
 public:
  // Without `ranges` the server sends whole objects, as RFC 9110 allows.
  explicit HttpFront(bool ranges);

  Result<size_t> get(std::string_view name, std::span<std::byte> out, uint64_t offset) override {
    return http_->get(name, out, offset);
  }
  Result<ObjectStat> stat(std::string_view name) override { return http_->stat(name); }
  Status put(std::string_view name, std::span<const std::byte> bytes) override {
    return memory_.put(name, bytes);
  }
  Result<std::vector<ObjectStat>> list(std::string_view prefix) override {
    auto listed = memory_.list(prefix);
    // As exact as HTTP's dates are.
    for (size_t i = 0; listed.ok() && i < listed->size(); ++i) {
      auto& time = (*listed)[i].last_used;
      time = std::chrono::floor<std::chrono::seconds>(time);
    }
    return listed;
  }
  Status remove(std::string_view name) override { return memory_.remove(name); }

 private:
  std::string answer(const std::string& request);

  const bool ranges_;
  MemoryStore memory_;
  ScriptedServer server_;
  std::unique_ptr<Store> http_;
};

}  // namespace kvcodec
