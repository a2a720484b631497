// RecursiveGP.step and RecursiveGP.process: a block of samples taken into a window, without a call
// of the kernel, whose values for all points that the block can meet are given.
#include "op.h"
#include "parallel.h"
#include "window_recursion.h"

namespace cgp {
namespace {

template <class T>
struct WindowScan {
  static void run(Call& call) {
    using R = Real<T>;
    constexpr int m = kRowsOfPoint<T>;
    const auto size = call.input<int32_t>(0);                   // [B]
    const auto age = call.input<R>(1);                          // [B, C]
    const auto chol = call.input<T>(2), y = call.input<T>(3);   // [B, n, n], [B, n]
    const auto cross = call.input<T>(4);                        // [B, (C + S) m, S m]
    const auto k = call.input<R>(5);                            // [B, S]
    const auto c = call.input<Complex<R>>(6);                   // [B, S]
    const auto jitter = call.input<R>(7);                       // [B, S]
    const auto observed = call.input<R>(8);                     // [B, C + S]
    const auto z = call.input<T>(9);                            // [B, S, m]
    const auto noise_k = call.input<R>(10);                     // [B, S]
    const auto noise_c = call.input<Complex<R>>(11);            // [B, S]
    const auto forgetting = call.input<R>(12);                  // []
    require(size.shape.size() == 1 && age.shape.size() == 2 && k.shape.size() == 2,
            "the shapes of a window are others");
    const int64_t streams = size.axis(0), capacity = age.axis(1), steps = k.axis(1);
    const int64_t n = capacity * m, points = capacity + steps;
    require(age.shape == Shape{streams, capacity} && chol.shape == Shape{streams, n, n} &&
                y.shape == Shape{streams, n} && k.shape == Shape{streams, steps} &&
                cross.shape == Shape{streams, points * m, steps * m} && c.shape == k.shape &&
                jitter.shape == k.shape && observed.shape == Shape{streams, points} &&
                z.shape == Shape{streams, steps, m},
            "the arguments of a window do not fit together");
    require(noise_k.shape == k.shape && noise_c.shape == k.shape && forgetting.size() == 1,
            "noise is of each sample, and forgetting a single number");

    const auto size_after = call.output<int32_t>(0, size.shape);
    const auto age_after = call.output<R>(1, age.shape);
    const auto chol_after = call.output<T>(2, chol.shape);
    const auto point = call.output<int32_t>(3, age.shape);
    const auto mean = call.output<T>(4, z.shape), filtered_mean = call.output<T>(5, z.shape);
    const auto signal_k = call.output<R>(6, k.shape), filtered_k = call.output<R>(8, k.shape);
    const auto signal_c = call.output<Complex<R>>(7, k.shape);
    const auto filtered_c = call.output<Complex<R>>(9, k.shape);
    for_each(streams, steps * (m + 3) * n * n / 2, [&](int64_t b) {
      require(size.data[b] >= 0 && size.data[b] <= capacity, "a window is larger than its room");
      const std::unique_ptr<T[]> memory(new T[Window<T>::memory(capacity)]);
      Window<T> window(capacity, memory.get());
      window.load(size.data[b], chol.data + b * n * n, y.data + b * n, age.data + b * capacity);
      const int64_t first = b * steps;
      std::vector<Moments<R>> noise(steps);
      for (int64_t t = 0; t < steps; ++t) noise[t] = {noise_k.data[first + t], noise_c.data[first + t]};
      const PriorOfBlock<T> prior{{cross.data + b * points * m * steps * m, steps * m},
                                  steps,
                                  k.data + first,
                                  c.data + first,
                                  jitter.data + first,
                                  observed.data + b * points,
                                  noise.data()};
      const Predictions<T> to{mean.data + first * m,   filtered_mean.data + first * m,
                              signal_k.data + first,   filtered_k.data + first,
                              signal_c.data + first,   filtered_c.data + first};
      require(scan<T>(window, prior, z.data + first * m, forgetting.data[0],
                      static_cast<Basis<T>*>(nullptr), to),
              "the window is not positive definite any more");
      size_after.data[b] = window.size;
      T* rows = chol_after.data + b * n * n;  // unused ones are those of the identity
      std::fill(rows, rows + n * n, T{});
      for (int64_t i = window.size * m; i < n; ++i) rows[i * n + i] = number<T>(1);
      window.store(chol_after.data + b * n * n, age_after.data + b * capacity,
                   point.data + b * capacity);
    });
  }
};

const bool registered = [] {
  const auto inputs = {"size: int32",  "age: R",       "chol: T",   "y: T",
                       "cross: T",     "k: R",         "c: C",      "jitter: R",
                       "observed: R",  "z: T",         "noise_k: R", "noise_c: C",
                       "forgetting: R"};
  const auto outputs = {"size_after: int32", "age_after: R", "chol_after: T", "point: int32",
                        "mean: T",           "filtered_mean: T", "signal_k: R", "signal_c: C",
                        "filtered_k: R",     "filtered_c: C"};
  register_op<WindowScan>("CgpWindowScan", inputs, outputs);
  return true;
}();

}  // namespace
}  // namespace cgp
