// SPDX-License-Identifier: Apache-2.0
// parallel_for in a process that may start no threads.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <system_error>
#include <thread>

#include "base/parallel.h"
#include "store/child_process.h"

namespace kvcodec {
namespace {

TEST(ParallelFor, DoesAllTheWorkWhereNoThreadCanBeStarted) {
  ChildProcess child([] {
    // The limit does not bind root.
    const rlimit none{0, 0};
    if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
    try {
      std::thread([] {}).join();
      return 3;  // else this would test nothing
    } catch (const std::system_error&) {
    }
    int calls = 0;
    parallel_for(100, 4, [&](size_t, int) { ++calls; });
    return calls == 100 ? 0 : 4;
  });
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace kvcodec
