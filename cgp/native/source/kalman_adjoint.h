// The pullback of the Kalman filter: reverse-mode differentiation of the recursions of means and
// covariances, never of factors, which have no derivative where a covariance is singular. For the
// likelihood it is the exact score of Koopman and Shephard (Biometrika 79, 1992).
// cgp/statespace/backward_pass.py does the same in TensorFlow.
//
// A measurement with k = P hᴴ, S = h k + r, g = k/S made m + g v and P − k kᴴ/S, and the log
// likelihood −c (log S + |v|²/S). The cotangent λ of the mean does not depend on Λ, that of the
// covariance: first means backwards, which leaves what they add to the cotangents of S and k.
#pragma once
#include "kalman_gradients.h"
#include "kalman_means.h"

namespace cgp {

// What the means add to the cotangents of S and k, summed over the series that share them.
template <class C>
struct GainCotangents {
  GainCotangents(int64_t steps, int64_t m, int64_t n) : by_s(steps * m), by_k(steps * m * n) {}
  std::vector<Real<C>> by_s;
  std::vector<C> by_k;
};

template <class C, class M, class T>
CGP_FOR_EACH_PROCESSOR void means_pullback(const System<T>& system, Tile tile,
                                           const Gains<C>& gains, const Means<M>& kept,
                                           const Cotangents<T>& given, Gradients<T>& to,
                                           GainCotangents<C>& by) {
  using R = Real<C>;
  const int64_t n = system.n, m = system.m;
  const Real<T> scale = density_scale<T>;
  Split<M, 0> lambda(n), next(n), mean(n);
  std::vector<C> F(n * n), h(n);
  Accumulator<T, M> by_F(to.F, tile), by_h(to.h, tile), by_b(to.b, tile);
  for (int64_t t = system.steps - 1; t >= 0; --t) {
    for (int64_t k = 0; k < n; ++k) mean.set(k, kept.filtered[t * n + k]);
    if (t + 1 < system.steps) {
      if (t + 2 == system.steps || system.F.varies())
        for (int64_t e = 0; e < n * n; ++e) F[e] = system.F.template at<C>(t, e, tile);
      for (int64_t i = 0; i < n; ++i) {
        const M l = lambda[i];
        by_b.add(t, i, l);
        for (int64_t k = 0; k < n; ++k) by_F.add(t, i * n + k, l * conj(mean[k]));
      }
      for (int64_t k = 0; k < n; ++k) {
        M sum{};
        for (int64_t i = 0; i < n; ++i) sum += conj(F[i * n + k]) * lambda[i];
        next.set(k, sum);
      }
      for (int64_t k = 0; k < n; ++k) lambda.set(k, next[k]);
    }
    if (given.of_moments)
      for (int64_t k = 0; k < n; ++k)
        lambda.add(k, given.filtered_means.template at_or_zero<M>(t, k, tile));
    const Real<M> weight =
        scale * given.log_likelihoods.template at_or_zero<Real<M>>(t, 0, tile);
    for (int64_t i = m - 1; i >= 0; --i) {
      const int64_t at = gains.at(t) * m + i;
      const C* gain = gains.gain.get() + at * n;
      const R seen = system.observed.template at<R>(t, i, tile);
      const R inverse = inverse_or_zero(gains.variance[at]);
      const M v = kept.deviations[t * m + i], e = inverse * v;
      M by_v{};
      for (int64_t k = 0; k < n; ++k) {
        h[k] = seen * system.h.template at<C>(t, i * n + k, tile);
        mean.add(k, M{} - gain[k] * v);  // the mean before the measurement
        by_v += conj(gain[k]) * lambda[k];
      }
      const Real<M> of_s =
          weight * (Real<M>(seen) * (square(e) - Real<M>(inverse))) - inner(by_v, e);
      by.by_s[t * m + i] += total_as<R>(of_s);
      by_v = seen * (by_v - Real<M>(2) * weight * e);
      to.z.add(t, i, tile, by_v);
      for (int64_t k = 0; k < n; ++k) {
        const M l = lambda[k];
        by.by_k[(t * m + i) * n + k] += total_as<C>(l * conj(e));
        by_h.add(t, i * n + k, M{} - by_v * conj(mean[k]));
        lambda.set(k, l - conj(h[k]) * by_v);
      }
    }
    if (given.of_moments)
      for (int64_t k = 0; k < n; ++k)
        lambda.add(k, given.predicted_means.template at_or_zero<M>(t, k, tile));
  }
  for (int64_t k = 0; k < n; ++k) to.mean.add(0, k, tile, lambda[k]);
  by_F.finish();
  by_h.finish();
  by_b.finish();
}

// c = a b, of matrices by columns.
template <class C>
CGP_INLINE void multiply(const Split<C, 0>& a, const Split<C, 0>& b, int64_t n, Split<C, 0>& c) {
  for (int64_t j = 0; j < n; ++j) {
    CGP_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) c.set(j * n + i, a[i] * b[j * n]);
    for (int64_t k = 1; k < n; ++k) {
      const C factor = b[j * n + k];
      CGP_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) c.add(j * n + i, a[k * n + i] * factor);
    }
  }
}

// Gradients of what acts on covariances. They are linear in Λ and in the cotangents of k and S, so
// that steps with the same covariances are summed first.
template <class C, class T>
class CovariancePullback {
 public:
  CovariancePullback(const System<T>& system, Tile tile, const Gains<C>& gains, Gradients<T>& to)
      : system_(system),
        gains_(gains),
        tile_(tile),
        n(system.n),
        m(system.m),
        lambda(n * n),
        F(n * n),
        F_adjoint(n * n),
        spread(n * n),
        product(n * n),
        lambdas(n * n),
        by_ks(m * n),
        by_ss(m),
        by_gain(n),
        by_F_(to.F, tile),
        by_Q_(to.Q, tile),
        by_h_(to.h, tile),
        by_r_(to.r, tile) {}

  CGP_INLINE void set_transition(int64_t t) {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < n; ++i) {
        const C x = system_.F.template at<C>(t, i * n + k, tile_);
        F.set(k * n + i, x);
        F_adjoint.set(i * n + k, conj(x));
      }
  }

  // Λ of the step before the transition, Fᴴ Λ F.
  CGP_INLINE void transition() {
    for (int64_t e = 0; e < n * n; ++e) lambdas.add(e, lambda[e]);
    multiply(lambda, F, n, spread);
    multiply(F_adjoint, spread, n, lambda);
  }

  // The measurement of component i at step t.
  CGP_INLINE void measurement(int64_t t, int64_t i, Real<C> of_s, const C* of_k) {
    using R = Real<C>;
    const C* gain = gains_.gain.get() + (gains_.at(t) * m + i) * n;
    const R seen = system_.observed.template at<R>(t, i, tile_);
    for (int64_t k = 0; k < n; ++k) by_gain.set(k, C{});
    for (int64_t k = 0; k < n; ++k) {
      const C g = gain[k];
      CGP_INDEPENDENT
      for (int64_t j = 0; j < n; ++j) by_gain.add(j, lambda[k * n + j] * g);
    }
    R by_s = of_s;
    for (int64_t k = 0; k < n; ++k) by_s += inner(gain[k], by_gain[k]);
    by_r_.add(t, i, by_s * seen);
    by_ss[i] += by_s;
    for (int64_t k = 0; k < n; ++k) {
      const C h = seen * system_.h.template at<C>(t, i * n + k, tile_);
      const C by_k = of_k[k] - R(2) * by_gain[k] + by_s * conj(h);
      by_ks.add(i * n + k, by_k);
      by_gain.set(k, R(0.5) * by_k);
    }
    for (int64_t k = 0; k < n; ++k) {  // half of by_k h, and the adjoint of it
      const C h = seen * system_.h.template at<C>(t, i * n + k, tile_), half = conj(by_gain[k]);
      for (int64_t j = 0; j < n; ++j) {
        const C other = seen * system_.h.template at<C>(t, i * n + j, tile_);
        lambda.add(k * n + j, by_gain[j] * h + conj(other) * half);
      }
    }
  }

  // Gradients of F, Q and h from the sums over the steps that have the covariances of step t.
  CGP_INLINE void deposit(int64_t t) {
    const C* L = gains_.filtered.get() + gains_.at(t) * n * n;
    multiply(lambdas, F, n, spread);
    for (int64_t j = 0; j < n; ++j) {  // Λ F L
      for (int64_t i = 0; i < n; ++i) product.set(j * n + i, C{});
      for (int64_t l = j; l < n; ++l) {
        const C factor = L[j * n + l];
        CGP_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) product.add(j * n + i, spread[l * n + i] * factor);
      }
    }
    for (int64_t j = 0; j < n; ++j)  // 2 Λ F L Lᴴ
      for (int64_t i = 0; i < n; ++i) {
        C sum{};
        for (int64_t l = 0; l <= j; ++l) sum += product[l * n + i] * conj(L[l * n + j]);
        by_F_.add(t, i * n + j, Real<C>(2) * sum);
        by_Q_.add(t, i * n + j, lambdas[j * n + i]);
      }
    for (int64_t e = 0; e < n * n; ++e) lambdas.set(e, C{});
  }
  CGP_INLINE void deposit_measurements(int64_t t) {
    for (int64_t i = m - 1; i >= 0; --i) {
      const Real<C> seen = system_.observed.template at<Real<C>>(t, i, tile_);
      // P before the measurement is L Lᴴ, after the last, and S g gᴴ of this and those after it.
      multiply_covariance(gains_.filtered.get() + gains_.at(t) * n * n, i);
      for (int64_t c = m - 1; c >= i; --c) {
        const int64_t at = gains_.at(t) * m + c;
        const C* gain = gains_.gain.get() + at * n;
        C along{};
        for (int64_t k = 0; k < n; ++k) along += conj(gain[k]) * by_ks[i * n + k];
        along = gains_.variance[at] * along;
        for (int64_t k = 0; k < n; ++k) by_gain.add(k, gain[k] * along);
      }
      const int64_t at = gains_.at(t) * m + i;
      const Real<C> by_k = by_ss[i] * gains_.variance[at];
      for (int64_t k = 0; k < n; ++k) {
        const C of_k = conj(gains_.gain[at * n + k]);
        by_h_.add(t, i * n + k, seen * (by_k * of_k + conj(by_gain[k])));
        by_ks.set(i * n + k, C{});
      }
      by_ss[i] = Real<C>(0);
    }
  }

  CGP_INLINE void finish() {
    by_F_.finish();
    by_Q_.finish();
    by_h_.finish();
    by_r_.finish();
  }

 private:
  // L Lᴴ times the cotangent of k of component i, in `by_gain`.
  CGP_INLINE void multiply_covariance(const C* L, int64_t i) {
    for (int64_t k = 0; k < n; ++k) by_gain.set(k, C{});
    for (int64_t j = 0; j < n; ++j) {
      C along{};
      for (int64_t k = j; k < n; ++k) along += conj(L[j * n + k]) * by_ks[i * n + k];
      for (int64_t k = j; k < n; ++k) by_gain.add(k, L[j * n + k] * along);
    }
  }

  const System<T>& system_;
  const Gains<C>& gains_;
  Tile tile_;
  const int64_t n, m;

 public:
  Split<C, 0> lambda;  // Λ, by columns

 private:
  Split<C, 0> F, F_adjoint, spread, product, lambdas, by_ks;
  std::vector<Real<C>> by_ss;
  Split<C, 0> by_gain;
  Accumulator<T, C> by_F_, by_Q_, by_h_;
  Accumulator<Real<T>, Real<C>> by_r_;
};

template <class C, class T>
CGP_FOR_EACH_PROCESSOR void covariances_pullback(const System<T>& system, Tile tile,
                                                 const Gains<C>& gains,
                                                 const GainCotangents<C>& by,
                                                 const Cotangents<T>& given, Gradients<T>& to) {
  const int64_t n = system.n, m = system.m;
  CovariancePullback<C, T> pullback(system, tile, gains, to);
  const auto add = [&](const Input<T>& cotangent, int64_t t) {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < n; ++i)
        pullback.lambda.add(k * n + i, cotangent.template at_or_zero<C>(t, i * n + k, tile));
  };
  for (int64_t t = system.steps - 1; t >= 0; --t) {
    const bool last_of_its_covariances = t == 0 || gains.at(t - 1) != gains.at(t);
    if (t + 1 < system.steps) {
      if (t + 2 == system.steps || system.F.varies()) pullback.set_transition(t);
      pullback.transition();
      if (last_of_its_covariances) pullback.deposit(t);
    }
    if (given.of_moments) add(given.filtered_covariances, t);
    for (int64_t i = m - 1; i >= 0; --i)
      pullback.measurement(t, i, by.by_s[t * m + i], by.by_k.data() + (t * m + i) * n);
    if (given.of_moments) add(given.predicted_covariances, t);
    if (last_of_its_covariances) pullback.deposit_measurements(t);
  }
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i)
      to.covariance.add(0, i * n + k, tile, pullback.lambda[k * n + i]);
  pullback.finish();
}

}  // namespace cgp
