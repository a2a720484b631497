// The means of a Kalman filter along a series, with the log likelihood, given the gains.
//
// One component of an observation after another, v = z − h m, m += (P hᴴ / S) v; then m' = F m + b.
#pragma once
#include "kalman_covariances.h"

namespace cgp {

// What the filter of the means leaves behind, where wanted, of the series of a tile.
template <class M>
struct Means {
  Means(int64_t steps, int64_t m, int64_t n)
      : predicted(new M[steps * n]),
        filtered(new M[steps * n]),
        deviations(new M[steps * m]),
        log_likelihoods(new Real<M>[steps]) {}

  std::unique_ptr<M[]> predicted, filtered;  // [T, n]
  std::unique_ptr<M[]> deviations;           // v, 0 where missing: [T, m]
  std::unique_ptr<Real<M>[]> log_likelihoods;
};

// The loss of an observation predicted without uncertainty: zero, or infinite if it differs.
// `terms` sum to the predicted mean: rounding errors are relative to their size.
template <class R>
CGP_INLINE R loss_of_the_certain(R deviation, R size) {
  const R tolerance = std::sqrt(std::numeric_limits<Lane<R>>::epsilon());
  const R infinity(std::numeric_limits<Lane<R>>::infinity());
  return where_greater(deviation, tolerance * size, infinity, deviation - deviation);
}

// The log likelihood of each series of a tile, side by side in lanes, and their means.
template <class C, class M, class T>
CGP_FOR_EACH_PROCESSOR void means(const System<T>& system, Tile tile, const Gains<C>& gains,
                                  Real<T>* log_likelihoods, Means<M>* kept) {
  using R = Real<C>;
  const int64_t n = system.n, m = system.m;
  const Real<T> scale = density_scale<T>;
  std::vector<C> F_by_columns(n * n);
  Split<M, 0> mean(n), next(n);
  for (int64_t k = 0; k < n; ++k) mean.set(k, system.mean.template at<M>(0, k, tile));
  Real<M> sum(0);
  for (int64_t t = 0; t < system.steps; ++t) {
    if (kept)
      for (int64_t k = 0; k < n; ++k) kept->predicted[t * n + k] = mean[k];
    Real<M> loss(0);
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = gains.at(t) * m + i;
      const R seen = system.observed.template at<R>(t, i, tile), variance = gains.variance[at];
      const R inverse = inverse_or_zero(variance);
      const M z = system.z.template at<M>(t, i, tile);
      M expected{};
      for (int64_t k = 0; k < n; ++k)
        expected += system.h.template at<C>(t, i * n + k, tile) * mean[k];
      const M v = seen * (z - expected);
      Real<M> own = inverse * square(v) + Real<M>(log(variance) + density_constant<T> * seen);
      own = scale * own;
      if (!all_positive(variance)) {
        Real<M> size = sqrt(square(z));
        for (int64_t k = 0; k < n; ++k)
          size += sqrt(square(system.h.template at<C>(t, i * n + k, tile) * mean[k]));
        own = where_greater(Real<M>(variance), Real<M>(0), own,
                            loss_of_the_certain<Real<M>>(sqrt(square(v)), size));
        own += Real<M>(variance - variance);  // NaN where the variance is
      }
      loss += own;
      const C* gain = gains.gain.get() + at * n;
      for (int64_t k = 0; k < n; ++k) mean.add(k, gain[k] * v);
      if (kept) kept->deviations[t * m + i] = v;
    }
    sum -= loss;
    if (kept) {
      for (int64_t k = 0; k < n; ++k) kept->filtered[t * n + k] = mean[k];
      kept->log_likelihoods[t] = -loss;
    }
    if (t + 1 == system.steps) break;
    if (t == 0 || system.F.varies())
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < n; ++i)
          F_by_columns[k * n + i] = system.F.template at<C>(t, i * n + k, tile);
    for (int64_t i = 0; i < n; ++i) next.set(i, system.b.template at<M>(t, i, tile));
    multiply_add(F_by_columns.data(), 1, n, n, mean, next);
    for (int64_t i = 0; i < n; ++i) mean.set(i, next[i]);
  }
  if (log_likelihoods) store(sum, log_likelihoods + tile.first, tile.count);
}

}  // namespace cgp
