// The pullback of the covariances of a Kalman filter: see kalman_adjoint.h.
#include "kalman_adjoint.h"

namespace cgp {
namespace {

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
        power(n * n),
        power_adjoint(n * n),
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

  // Λ of the step before the transition, Fᴴ Λ F. It is Hermitian but for rounding, which is taken
  // away: a measurement contracts the Hermitian part alone, and the rest would grow with F.
  CGP_FOR_EACH_PROCESSOR void transition() {
    multiply(lambda, F, n, spread);
    multiply(F_adjoint, spread, n, lambda);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = j; i < n; ++i) {
        const C element = Real<C>(0.5) * (lambda[j * n + i] + conj(lambda[i * n + j]));
        lambda.set(j * n + i, element);
        lambda.set(i * n + j, conj(element));
      }
  }
  CGP_INLINE void count_transition() {
    for (int64_t e = 0; e < n * n; ++e) lambdas.add(e, lambda[e]);
  }

  // Takes all steps t ≥ s whose covariances have settled, at once; false if that would not pay.
  //
  // There Λ_t = Mᴴ Λ_{t+1} M + u_t, with M = F Π (1 − g h), and u_t linear in the cotangents of k and
  // S. So the sum of all Λ_t is Σ = Mᴴ (Σ − Λ_s) M + Σ u_t, which doubling solves (Smith, SIAM J.
  // Appl. Math. 16, 1968), and Λ_s comes from as many steps as powers of M take to vanish.
  CGP_FOR_EACH_PROCESSOR bool take_settled(const GainCotangents<C>& by) {
    const int64_t s = gains_.last, steps = system_.steps;
    set_transition(s);
    const int64_t doublings = doublings_to_vanish(s, steps - s);
    if (doublings < 0) return false;
    const int64_t reach = int64_t(1) << doublings;
    for (int64_t t = s + reach - 1; t >= s; --t) {
      transition();
      for (int64_t i = m - 1; i >= 0; --i)
        measurement(t, i, by.by_s[t * m + i], by.by_k.data() + (t * m + i) * n, false);
    }
    const Split<C, 0> first = lambda;

    std::vector<Real<C>> sum_s(m);
    std::vector<C> sum_k(m * n);
    for (int64_t t = s; t < steps; ++t) {
      for (int64_t i = 0; i < m; ++i) sum_s[i] += by.by_s[t * m + i];
      for (int64_t e = 0; e < m * n; ++e) sum_k[e] += by.by_k[t * m * n + e];
    }
    lambda.clear();
    for (int64_t i = m - 1; i >= 0; --i)
      measurement(s, i, sum_s[i], sum_k.data() + i * n, false);  // Σ u_t
    close_loop(s);
    sandwich(first, Real<C>(-1));
    for (int64_t i = 0; i < doublings; ++i) {
      sandwich(lambda, Real<C>(1));
      square_power();
    }

    for (int64_t e = 0; e < n * n; ++e) lambda.set(e, lambda[e] - first[e]);
    count_transition();
    transition();
    deposit(s);
    for (int64_t i = m - 1; i >= 0; --i)
      measurement(s, i, sum_s[i], sum_k.data() + i * n, true);
    deposit_measurements(s);
    lambda = first;
    return true;
  }

  // The measurement of component i at step t; `counted` towards the gradients of R and h.
  CGP_FOR_EACH_PROCESSOR void measurement(int64_t t, int64_t i, Real<C> of_s, const C* of_k,
                                          bool counted) {
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
    if (counted) {
      by_r_.add(t, i, by_s * seen);
      by_ss[i] += by_s;
    }
    for (int64_t k = 0; k < n; ++k) {
      const C h = seen * system_.h.template at<C>(t, i * n + k, tile_);
      const C by_k = of_k[k] - R(2) * by_gain[k] + by_s * conj(h);
      if (counted) by_ks.add(i * n + k, by_k);
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
  CGP_FOR_EACH_PROCESSOR void deposit(int64_t t) {
    const C* L = gains_.filtered.get() + gains_.at(t) * n * n;
    multiply(lambdas, F, n, spread);
    multiply_lower(spread, L, n, product, n);  // Λ F L
    for (int64_t j = 0; j < n; ++j)  // 2 Λ F L Lᴴ
      for (int64_t i = 0; i < n; ++i) {
        C sum{};
        for (int64_t l = 0; l <= j; ++l) sum += product[l * n + i] * conj(L[l * n + j]);
        by_F_.add(t, i * n + j, Real<C>(2) * sum);
        by_Q_.add(t, i * n + j, lambdas[j * n + i]);
      }
    for (int64_t e = 0; e < n * n; ++e) lambdas.set(e, C{});
  }
  CGP_FOR_EACH_PROCESSOR void deposit_measurements(int64_t t) {
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
  // How often M is to be squared until nothing is left of Mᴴ Λ M; negative if that takes longer than
  // half of the steps. The power is judged in units of the standard deviations of the states. What
  // is small in them may still be all that reaches an element of Λ: it takes n steps until each state
  // has passed on to all others.
  CGP_FOR_EACH_PROCESSOR int64_t doublings_to_vanish(int64_t s, int64_t steps) {
    using R = Real<C>;
    close_loop(s);
    std::vector<R> variance(n);
    for (int64_t i = 0; i < n; ++i) {
      R sum(0);
      for (int64_t k = 0; k <= i; ++k) sum += square(gains_.predicted[(s * n + k) * n + i]);
      variance[i] = where_greater(sum, R(0), sum, R(1));
    }
    for (int64_t i = 0; (int64_t(2) << i) <= steps; ++i) {
      R size(0);
      for (int64_t k = 0; k < n; ++k)
        for (int64_t j = 0; j < n; ++j)
          size += square(power[k * n + j]) * (variance[k] / variance[j]);
      const bool is_small = all_positive(R(system_.epsilon) - size);
      if (is_small && (int64_t(1) << i) >= 2 * n) return i;
      square_power();
    }
    return -1;
  }

  // M of step s, in `power`.
  CGP_FOR_EACH_PROCESSOR void close_loop(int64_t s) {
    power = F;
    for (int64_t i = m - 1; i >= 0; --i) {
      const C* gain = gains_.gain.get() + (gains_.at(s) * m + i) * n;
      const Real<C> seen = system_.observed.template at<Real<C>>(s, i, tile_);
      by_gain.clear();
      for (int64_t k = 0; k < n; ++k)
        for (int64_t j = 0; j < n; ++j) by_gain.add(j, power[k * n + j] * gain[k]);
      for (int64_t k = 0; k < n; ++k) {
        const C h = seen * system_.h.template at<C>(s, i * n + k, tile_);
        for (int64_t j = 0; j < n; ++j) power.add(k * n + j, C{} - by_gain[j] * h);
      }
    }
  }
  CGP_FOR_EACH_PROCESSOR void square_power() {
    multiply(power, power, n, product);
    power = product;
  }

  // Adds Mᴴ a M, times a factor, to Λ, for the present power of M.
  CGP_FOR_EACH_PROCESSOR void sandwich(const Split<C, 0>& a, Real<C> factor) {
    multiply(a, power, n, spread);
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < n; ++i) power_adjoint.set(i * n + k, conj(power[k * n + i]));
    multiply(power_adjoint, spread, n, product);
    for (int64_t e = 0; e < n * n; ++e) lambda.add(e, factor * product[e]);
  }

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
  Split<C, 0> F, F_adjoint, spread, product, lambdas, power, power_adjoint, by_ks;
  std::vector<Real<C>> by_ss;
  Split<C, 0> by_gain;
  Accumulator<T, C> by_F_, by_Q_, by_h_;
  Accumulator<Real<T>, Real<C>> by_r_;
};

}  // namespace

template <class C, class T>
CGP_FOR_EACH_PROCESSOR void covariances_pullback(const System<T>& system, Tile tile,
                                                 const Gains<C>& gains,
                                                 const GainCotangents<C>& by,
                                                 const Cotangents<T>& given, Gradients<T>& to) {
  const int64_t n = system.n, m = system.m;
  CovariancePullback<C, T> pullback(system, tile, gains, to);
  const auto add = [&](const Input<T>& cotangent, int64_t t) CGP_BODY {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < n; ++i)
        pullback.lambda.add(k * n + i, cotangent.template at_or_zero<C>(t, i * n + k, tile));
  };
  int64_t steps = system.steps;
  if (!given.of_moments && gains.last + 1 < steps && pullback.take_settled(by)) steps = gains.last;
  for (int64_t t = steps - 1; t >= 0; --t) {
    const bool last_of_its_covariances = t == 0 || gains.at(t - 1) != gains.at(t);
    if (t + 1 < system.steps) {
      if (t + 2 == system.steps || system.F.varies()) pullback.set_transition(t);
      pullback.count_transition();
      pullback.transition();
      if (last_of_its_covariances) pullback.deposit(t);
    }
    if (given.of_moments) add(given.filtered_covariances, t);
    for (int64_t i = m - 1; i >= 0; --i)
      pullback.measurement(t, i, by.by_s[t * m + i], by.by_k.data() + (t * m + i) * n, true);
    if (given.of_moments) add(given.predicted_covariances, t);
    if (last_of_its_covariances) pullback.deposit_measurements(t);
  }
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i)
      to.covariance.add(0, i * n + k, tile, pullback.lambda[k * n + i]);
  pullback.finish();
}

#define CGP_PULLBACK(C, T)                                                                    \
  template void covariances_pullback<C, T>(const System<T>&, Tile, const Gains<C>&,           \
                                           const GainCotangents<C>&, const Cotangents<T>&,    \
                                           Gradients<T>&)
CGP_PULLBACK(double, double);
CGP_PULLBACK(Pack<double>, double);
CGP_PULLBACK(Complex<double>, Complex<double>);
CGP_PULLBACK(Pack<Complex<double>>, Complex<double>);

}  // namespace cgp
