// A loop over the matrices or series of a batch, on a few threads where there is enough work.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace cgp {

// The fewest elementary operations that are worth a thread of their own: it takes some 30 µs to
// start one.
constexpr int64_t kWorkOfThread = 200'000;
constexpr int64_t kMostThreads = 4;

// Calls f(i) for each i below `count`. `work` is the number of elementary operations of one call.
template <class F>
void for_each(int64_t count, int64_t work, const F& f) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t wanted = count * std::max<int64_t>(work, 1) / kWorkOfThread;
  const int64_t threads = std::min({wanted, cores, kMostThreads, count});
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  auto run = [&] {
    try {
      for (int64_t i; !failed && (i = next++) < count;) f(i);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < threads; ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cgp
