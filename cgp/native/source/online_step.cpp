// The step of an online filter as a plain C function: arrays in, arrays out, which takes less time
// than a call of an op. cgp.statespace.native_step calls it.
#include "online_step.h"

#include "parallel.h"

extern "C" {

struct cgp_Matrix {
  const void* data;
  int64_t batch;  // 1 where streams share it
};
struct cgp_Moments {
  void *mean, *variance, *pseudo;
};
// As cgp.statespace.native_step declares it.
struct cgp_OnlineStep {
  int64_t n, q, m, streams, predicts_first, is_composite;
  cgp_Matrix F, G, H, noise, b;
  const void* z;
  void *mean, *chol;  // the state, which is replaced
  cgp_Moments predicted, filtered;
};
}

namespace cgp {
namespace {

template <class T>
Input<T> input(cgp_Matrix matrix, int64_t size) {
  return {static_cast<const T*>(matrix.data), 1, size, matrix.batch};
}

template <class T>
typename OnlineStep<T>::Moments moments(cgp_Moments to) {
  using R = Real<T>;
  return {static_cast<R*>(to.mean), static_cast<R*>(to.variance), static_cast<R*>(to.pseudo)};
}

enum Outcome : int { kDone = 0, kNotFinite = 1, kFailed = 2 };

// Replaces the state, where the new one is finite.
template <class T>
int run(const cgp_OnlineStep* given) try {
  const auto [n, q, m, streams, predicts_first, is_composite, F, G, H, noise, b, z, mean, chol,
              predicted, filtered] = *given;
  std::vector<T> next_mean(n * streams), next_chol(n * n * streams);
  const OnlineStep<T> step{n,
                           q,
                           m,
                           streams,
                           predicts_first != 0,
                           is_composite != 0,
                           input<T>(F, n * n),
                           input<T>(G, n * q),
                           input<T>(H, m * n),
                           input<T>(noise, m * m),
                           input<T>(b, n),
                           input<T>({z, streams}, m),
                           input<T>({mean, streams}, n),
                           input<T>({chol, streams}, n * n),
                           next_mean.data(),
                           next_chol.data(),
                           moments<T>(predicted),
                           moments<T>(filtered)};
  std::atomic<bool> sound{true};
  if (streams == 1) {
    sound = take_one(step);
  } else {
    constexpr int64_t width = lanes_of<Pack<T>>;
    for_each((streams + width - 1) / width, width * 6 * n * n * n, [&](int64_t i) {
      const Tile tile{i * width, std::min(width, step.streams - i * width)};
      if (!take_tile(step, tile)) sound = false;
    });
  }
  if (!sound) return kNotFinite;
  std::copy(next_mean.begin(), next_mean.end(), static_cast<T*>(mean));
  std::copy(next_chol.begin(), next_chol.end(), static_cast<T*>(chol));
  return kDone;
} catch (const std::exception&) {  // no memory: none may leave a function that C calls
  return kFailed;
}

}  // namespace
}  // namespace cgp

extern "C" {
int cgp_online_step_complex128(const cgp_OnlineStep* step) {
  return cgp::run<cgp::Complex<double>>(step);
}
int cgp_online_step_complex64(const cgp_OnlineStep* step) {
  return cgp::run<cgp::Complex<float>>(step);
}
int cgp_online_step_float64(const cgp_OnlineStep* step) { return cgp::run<double>(step); }
int cgp_online_step_float32(const cgp_OnlineStep* step) { return cgp::run<float>(step); }
}
