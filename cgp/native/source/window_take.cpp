// RecursiveGP.step and RecursiveGP.process as a plain C function on the arrays of the windows: the
// kernel is evaluated here, from its instructions, and nothing passes through TensorFlow.
#include <atomic>
#include <memory>

#include "covariance_program.h"
#include "parallel.h"
#include "stream_arrays.h"
#include "window_recursion.h"

extern "C" {

// As cgp.gp.recursive.window_cell declares it.
struct cgp_WindowTake {
  int64_t streams, capacity, steps, dimensions, program_size;
  const double* program;
  double noise_variance, noise_pseudo_re, noise_pseudo_im, forgetting, nugget;
  const void *x, *z;  // the samples, [B, T, D] and, NaN where missing, complex [B, T]
  const void *mean, *held_mean;  // the mean function at both, complex, or null
  int32_t* size;      // the windows, which are replaced: [B]
  void *held_x, *held_z, *age, *chol;  // [B, C, D], complex [B, C], [B, C], [B, n, n]
  void *prior_chol, *prior_precision;  // of a budget: [B, n, n], [B, C, m, m]; or null
  void* memory;  // to work in: of each stream as much as a Window needs, and a Basis as much again
  cgp_StreamMoments predicted, filtered;
};
}

namespace cgp {
namespace {

// What the kernel says of a block, and where the window finds it.
template <class T>
struct PriorBuffers {
  using R = Real<T>;
  static constexpr int m = kRowsOfPoint<T>;

  PriorBuffers(int64_t points, int64_t steps)
      : cross(points * m * steps * m), k(steps), jitter(steps), observed(points), c(steps) {}

  std::vector<T> cross;
  std::vector<R> k, jitter, observed;
  std::vector<Complex<R>> c;
};

template <class T>
struct Taking {
  using R = Real<T>;
  static constexpr int m = kRowsOfPoint<T>;

  explicit Taking(const cgp_WindowTake& given)
      : given(given), noise{R(given.noise_variance), {R(given.noise_pseudo_re), R(given.noise_pseudo_im)}} {}

  // The points held by a stream and those of the block after them, [C + T, D].
  std::vector<R> points(int64_t b) const {
    const int64_t C = given.capacity, D = given.dimensions, S = given.steps;
    std::vector<R> x((C + S) * D);
    const R* held = static_cast<const R*>(given.held_x) + b * C * D;
    const R* samples = static_cast<const R*>(given.x) + b * S * D;
    std::copy(samples, samples + S * D, std::copy(held, held + C * D, x.begin()));
    return x;
  }

  bool evaluate(const std::vector<R>& x, int64_t size, PriorBuffers<T>& block) const {
    const int64_t C = given.capacity, D = given.dimensions, S = given.steps, stride = S * m;
    CovarianceProgram<R> program(given.program, given.program_size);
    Covariances<R> found;
    const R scale = 4 * (C * m + 2) * std::numeric_limits<R>::epsilon();
    const auto row = [&](int64_t i, int64_t t) { return block.cross.data() + i * m * stride + t; };
    for (int64_t t = 0; t < S; ++t) {
      const R* y = x.data() + (C + t) * D;
      const auto of = [&](int64_t i) { return found.c.empty() ? Complex<R>{} : found.c[i]; };
      if (!program.evaluate(x.data(), size, y, D, found)) return false;
      for (int64_t i = 0; i < size; ++i) put<T>(found.k[i], of(i), row(i, t), stride, S);
      // Samples before this one, and itself.
      program.evaluate(x.data() + C * D, t + 1, y, D, found);
      for (int64_t i = 0; i <= t; ++i) put<T>(found.k[i], of(i), row(C + i, t), stride, S);
      block.k[t] = found.k[t].re;
      block.c[t] = of(t);
      block.jitter[t] = scale * (block.k[t] + noise.k);
      block.observed[C + t] = block.k[t] + noise.k;
    }
    for (int64_t i = 0; i < size && given.forgetting != 1; ++i) {
      program.evaluate(x.data() + i * D, 1, x.data() + i * D, D, found);
      block.observed[i] = found.k[0].re + noise.k;
    }
    return true;
  }

  // Takes the samples of a stream into a copy of its window; false where that fails.
  bool take(int64_t b, Window<T>& window, Basis<T>* basis, std::vector<R>& x) const {
    const int64_t C = given.capacity, S = given.steps, n = C * m;
    const int64_t size = given.size[b];
    if (size < 0 || size > C) return false;
    x = points(b);
    PriorBuffers<T> block(C + S, S);
    if (!evaluate(x, size, block)) return false;
    const auto held = numbers_of<R>(given.held_z, b, C), held_mean = numbers_of<R>(given.held_mean, b, C);
    const auto samples = numbers_of<R>(given.z, b, S), function = numbers_of<R>(given.mean, b, S);
    const R* age = static_cast<const R*>(given.age) + b * C;
    std::vector<T> y(n), z(S * m), mean(S * m), filtered_mean(S * m);
    for (int64_t i = 0; i < size; ++i) {
      const R factor = given.forgetting == 1 ? R(1) : std::pow(R(given.forgetting), age[i] / -2);
      split(factor * (held[i] - held_mean[i]), y.data() + i * m);
    }
    for (int64_t t = 0; t < S; ++t) split(samples[t] - function[t], z.data() + t * m);
    window.load(size, static_cast<const T*>(given.chol) + b * n * n, y.data(), age);
    if (basis)
      basis->load(size, C, static_cast<const T*>(given.prior_chol) + b * n * n,
                  static_cast<const Block<T>*>(given.prior_precision) + b * C);
    std::vector<R> signal_k(S), filtered_k(S);
    std::vector<Complex<R>> signal_c(S), filtered_c(S);
    const std::vector<Moments<R>> noises(S, noise);
    const PriorOfBlock<T> prior{{block.cross.data(), S * m}, S, block.k.data(), block.c.data(),
                                block.jitter.data(), block.observed.data(), noises.data()};
    if (!scan<T>(window, prior, z.data(), R(given.forgetting), basis,
                 {mean.data(), filtered_mean.data(), signal_k.data(), filtered_k.data(),
                  signal_c.data(), filtered_c.data()}))
      return false;
    for (int64_t t = 0; t < S; ++t) {
      set(given.predicted, b * S + t, function[t] + joined(mean.data() + t * m),
          Moments<R>{signal_k[t], signal_c[t]} + noise);
      set(given.filtered, b * S + t, function[t] + joined(filtered_mean.data() + t * m),
          Moments<R>{filtered_k[t], filtered_c[t]});
    }
    return true;
  }

  // Replaces the window of a stream. Points are in order, and the samples after those held.
  void store(int64_t b, const Window<T>& window, const Basis<T>* basis,
             const std::vector<R>& x) const {
    const int64_t C = given.capacity, D = given.dimensions, n = C * m;
    std::vector<int32_t> point(C);
    window.store(static_cast<T*>(given.chol) + b * n * n, static_cast<R*>(given.age) + b * C,
                 point.data());
    R* held_x = static_cast<R*>(given.held_x) + b * C * D;
    auto* held_z = static_cast<Complex<R>*>(given.held_z) + b * C;
    const auto samples = numbers_of<R>(given.z, b, given.steps);
    const auto function = numbers_of<R>(given.mean, b, given.steps);
    const auto held_mean = numbers_of<R>(given.held_mean, b, C);
    for (int64_t i = 0; i < window.size; ++i) {
      const bool was_held = point[i] < C;
      const int64_t at = was_held ? point[i] : point[i] - C;
      if (basis && basis->has_pruned)
        held_z[i] = joined(window.y() + i * m) + (was_held ? held_mean[at] : function[at]);
      else
        held_z[i] = was_held ? held_z[at] : samples[at];
      std::copy(x.data() + point[i] * D, x.data() + (point[i] + 1) * D, held_x + i * D);
    }
    given.size[b] = window.size;
    if (basis)
      basis->store(window.size, C, static_cast<T*>(given.prior_chol) + b * n * n,
                   static_cast<Block<T>*>(given.prior_precision) + b * C);
  }

  const cgp_WindowTake& given;
  Moments<R> noise;
};

enum Outcome : int { kDone = 0, kRefused = 1 };

// Takes a block into the windows, or leaves them as they are where one fails.
template <class T>
int run(const cgp_WindowTake* given) try {
  using R = Real<T>;
  const Taking<T> taking(*given);
  const int64_t n = given->capacity * Taking<T>::m;
  std::vector<std::unique_ptr<Window<T>>> windows(given->streams);
  std::vector<std::unique_ptr<Basis<T>>> bases(given->streams);
  std::vector<std::vector<R>> points(given->streams);
  std::atomic<bool> sound{true};
  for_each(given->streams, given->steps * (Taking<T>::m + 3) * n * n / 2, [&](int64_t b) {
    const int64_t each = Window<T>::memory(given->capacity), all = given->prior_chol ? 2 : 1;
    T* memory = static_cast<T*>(given->memory) + b * all * each;
    windows[b].reset(new Window<T>(given->capacity, memory));
    if (given->prior_chol)
      bases[b].reset(new Basis<T>(given->capacity, R(given->nugget), memory + each));
    if (!taking.take(b, *windows[b], bases[b].get(), points[b])) sound = false;
  });
  if (!sound) return kRefused;
  for (int64_t b = 0; b < given->streams; ++b)
    taking.store(b, *windows[b], bases[b].get(), points[b]);
  return kDone;
} catch (const std::exception&) {  // none may leave a function that C calls
  return kRefused;
}

}  // namespace
}  // namespace cgp

extern "C" {
int cgp_window_take_complex128(const cgp_WindowTake* given) {
  return cgp::run<cgp::Complex<double>>(given);
}
int cgp_window_take_complex64(const cgp_WindowTake* given) {
  return cgp::run<cgp::Complex<float>>(given);
}
int cgp_window_take_float64(const cgp_WindowTake* given) { return cgp::run<double>(given); }
int cgp_window_take_float32(const cgp_WindowTake* given) { return cgp::run<float>(given); }
}
