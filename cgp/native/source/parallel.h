// A loop over the matrices or series of a batch, on a few threads where there is enough work.
#pragma once
#include <cstdint>

namespace cgp {

// The fewest elementary operations that are worth a thread of their own: it takes some 30 µs to
// start one.
constexpr int64_t kWorkOfThread = 200'000;
constexpr int64_t kMostThreads = 4;

void for_each(int64_t count, int64_t work, void (*call)(const void* f, int64_t i), const void* f);

// Calls f(i) for each i below `count`. `work` is the number of elementary operations of one call.
template <class F>
void for_each(int64_t count, int64_t work, const F& f) {
  for_each(
      count, work, [](const void* f, int64_t i) { (*static_cast<const F*>(f))(i); }, &f);
}

}  // namespace cgp
