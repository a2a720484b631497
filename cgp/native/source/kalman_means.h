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
// Rounding errors are relative to the size of the terms that sum to the prediction.
template <class R>
CGP_INLINE R loss_of_the_certain(R deviation, R size, double epsilon) {
  const R tolerance(std::sqrt(epsilon));
  const R infinity(std::numeric_limits<Lane<R>>::infinity());
  return where_greater(deviation, tolerance * size, infinity, deviation - deviation);
}

// The log likelihood of each series of a tile, side by side in lanes, and their means; those of one
// series, whose states lie side by side. kalman_means.cpp says for which arguments they are compiled.
template <class C, class M, class T>
void means(const System<T>& system, Tile tile, const Gains<C>& gains, Real<T>* log_likelihoods,
           Means<M>* kept);
template <class T>
void means_of_one(const System<T>& system, const Gains<T>& gains, Real<T>* log_likelihood,
                  Means<T>* kept);

}  // namespace cgp
