// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "kvcodec/store.h"

namespace kvcodec::python {

// A store as Python holds it: a limited one keeps the store behind it alive.
struct StoreHandle {
  std::shared_ptr<Store> behind;
  std::shared_ptr<Store> store;
};

}  // namespace kvcodec::python
