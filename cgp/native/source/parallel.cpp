// A loop over a batch on a few threads: see parallel.h.
#include "parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace cgp {

void for_each(int64_t count, int64_t work, void (*call)(const void* f, int64_t i), const void* f) {
  const int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const int64_t wanted = count * std::max<int64_t>(work, 1) / kWorkOfThread;
  const int64_t threads = std::min({wanted, cores, kMostThreads, count});
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) call(f, i);
    return;
  }
  std::atomic<int64_t> next{0};
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto run = [&] {
    try {
      for (int64_t i; !failed && (i = next++) < count;) call(f, i);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  others.reserve(threads);
  try {
    for (int64_t i = 1; i < threads; ++i) others.emplace_back(run);
  } catch (const std::system_error&) {  // the system gives no more threads: fewer do the work
  }
  run();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cgp
