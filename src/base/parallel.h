// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace kvcodec {

// threads, or the number of cores where threads <= 0.
int resolve_threads(int threads);

// Calls body(i, worker) once for every i in [0, n), on up to `threads` threads, the caller's among
// them; `worker` is in [0, resolve_threads(threads)) and never runs two bodies at once. Returns
// when all have ended. What a body throws (std::bad_alloc may pass) ends the loop: no further body
// begins, and the caller gets the first exception.
void parallel_for(size_t n, int threads, const std::function<void(size_t i, int worker)>& body);

}  // namespace kvcodec
