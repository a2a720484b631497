// The pullback of the filter of a process of terms over a block: reverse-mode differentiation of
// the recursions of means and covariances, as in kalman_adjoint.h, from the last sample to the first.
//
// Λ is the cotangent of a covariance, λ that of a mean. Of a term, with f the first column of F and
// u = rate step,
//
//     dF[i, j]/du = f[i−j−1] − f[i−j],    dQ/du = 2 variance w[0, 0] f fᵀ,
//
// the rate of the noise that the cascade is driven by.
#pragma once
#include "terms_filter.h"

namespace cgp::state_space {

// Cotangents of a block: of the steps [state or term, kBlock], and of what the means leave for the
// covariances, summed over the series that share these.
template <class C>
struct BlockCotangents {
  explicit BlockCotangents(const Terms& process)
      : decay(process.n * kBlock),
        u(process.terms.size() * kBlock),
        angle(process.terms.size() * kBlock),
        S(kBlock),
        k(process.n * kBlock) {}

  void clear() {
    for (auto* sums : {&decay, &u, &angle, &S}) std::fill(sums->begin(), sums->end(), 0.0);
    std::fill(k.begin(), k.end(), C{});
  }

  std::vector<double> decay, u, angle;  // of f, of u through Q, and of the angle of the turn
  std::vector<double> S;                // of S
  std::vector<C> k;                     // of P hᴴ: [t, n]
};

// The gradient of the log likelihoods of a group, and of its places.
struct Sums {
  explicit Sums(const Terms& process)
      : variance(process.terms.size()), rate(variance.size()), frequency(variance.size()) {}
  std::vector<double> variance, rate, frequency;
};

// l ē, the cotangent that an update of means by a gain times e gives the gain.
template <class C, class M>
CGP_INLINE C cotangent_of_gain(M l, M e) {
  if constexpr (is_complex<C>)
    return total_as<C>(l * conj(e));
  else
    return total_as<C>(inner(l, e));
}

// The means backwards over a block, of one series or of several in lanes. `lambda`, [n], comes and
// goes; `deviations` and `filtered` are what the filter found, `by_z` is the gradient by z.
template <class C, class M, int N>
CGP_INLINE void means_backward(const Terms& process, const Steps& steps, const Gains<C>& gains,
                               int64_t count, Real<M> weight, const M* deviations,
                               const M* filtered, M* lambda, M* by_z, BlockCotangents<C>& by) {
  const int64_t n = N ? N : process.n;
  Parts<M, N> l(n);
  each<N>(0, n, [&](int64_t i) CGP_BODY { l.values[i] = lambda[i]; });
  for (int64_t t = count - 1; t >= 0; --t) {
    const M* mean = filtered + t * n;
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k) {
      const int64_t first = N ? 0 : process.terms[k].state;
      const int64_t size = N ? N : process.terms[k].order + 1;
      const double* decay = steps.decay.data() + first * kBlock + t;
      double* by_decay = by.decay.data() + first * kBlock + t;
      const Complex<double> back = conj(turn_of(process, steps, k, t));
      Real<M> by_angle(0.0);
      each<N>(0, size, [&](int64_t i) CGP_BODY {
        const M still = back * l.values[first + i];
        M moved{};
        each<N>(0, i + 1, [&](int64_t j) CGP_BODY {
          moved += decay[(i - j) * kBlock] * mean[first + j];
          by_decay[(i - j) * kBlock] += total_as<double>(inner(still, mean[first + j]));
        });
        by_angle += imag(conj(moved) * still);
        l.values[first + i] = still;
      });
      by.angle[k * kBlock + t] += total_as<double>(by_angle);
      each<N>(0, size, [&](int64_t j) CGP_BODY {
        M sum = decay[0] * l.values[first + j];
        each<N>(j + 1, size, [&](int64_t i) CGP_BODY {
          sum += decay[(i - j) * kBlock] * l.values[first + i];
        });
        l.values[first + j] = sum;
      });
    }
    const C* gain = gains.gain.data() + t * n;
    const double inverse = gains.inverse[t];
    const M e = inverse * deviations[t];
    M by_v{};
    each<N>(0, n, [&](int64_t i) CGP_BODY { by_v += conj(gain[i]) * l.values[i]; });
    const Real<M> by_S = weight * (square(e) - Real<M>(inverse)) - inner(by_v, e);
    by.S[t] += total_as<double>(by_S);
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      by.k[t * n + i] += cotangent_of_gain<C>(l.values[i], e);
    });
    by_v = (by_v - (weight + weight) * e);
    by_v = inverse > 0.0 ? by_v : M{};
    by_z[t] = by_v;
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k)
      l.values[N ? N - 1 : process.terms[k].state + process.terms[k].order] -= by_v;
  }
  each<N>(0, n, [&](int64_t i) CGP_BODY { lambda[i] = l.values[i]; });
}

// The cotangents of u and of the variance of a term through its noise Q = G diag(q) Gᵀ.
template <int N, class C>
CGP_INLINE void noise_backward(const Term& term, const CovarianceWork<C, N>& step,
                               const Parts<C, N * N>& lambda, double& by_u, double& by_variance) {
  const int64_t n = step.n, first = N ? 0 : term.state, size = N ? N : term.order + 1;
  double driven = 0.0, power = 0.0;
  each<N>(0, size, [&](int64_t i) CGP_BODY {
    each<N>(0, size, [&](int64_t j) CGP_BODY {
      const int64_t row = (first + i) * n + first, other = (first + j) * n + first;
      const double l = real(lambda.values[row + j]);
      driven += l * step.F.values[row] * step.F.values[other];
      each<N>(0, std::min(i, j) + 1, [&](int64_t k) CGP_BODY {
        power += l * step.q.values[first + k] * real(step.G.values[row + k]) *
                 real(step.G.values[other + k]);
      });
    });
  });
  by_u += 2.0 * term.variance * stationary_weights(int(size) - 1)[0] * driven;
  by_variance += power / term.variance;
}

// The covariances backwards over a block; `lambda`, [n, n], comes and goes, and `by_noise` is the
// gradient by the noise of each sample.
template <class C, int N>
CGP_INLINE void covariances_backward(const Terms& process, const Steps& steps,
                                     const Gains<C>& gains, int64_t count, C* lambda,
                                     BlockCotangents<C>& by, Sums& sums, double* by_noise) {
  const int64_t n = N ? N : process.n;
  CovarianceWork<C, N> step(process, Covariance<C, N>(n));
  Parts<C, N * N> l(n * n), spread(n * n), carried(n * n);
  Parts<C, N> by_gain(n);
  each<N>(0, n, [&](int64_t i) CGP_BODY {
    each<N>(0, n, [&](int64_t j) CGP_BODY { l.values[i * n + j] = lambda[i * n + j]; });
  });
  for (int64_t t = count - 1; t >= 0; --t) {
    step.load(steps, t);
    const auto& F = step.F.values;
    if constexpr (is_complex<C>)
      each<N>(0, n, [&](int64_t i) CGP_BODY {
        each<N>(0, n, [&](int64_t j) CGP_BODY {
          l.values[i * n + j] =
              conj(step.turns.values[i]) * l.values[i * n + j] * step.turns.values[j];
        });
      });
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k)
      noise_backward<N>(process.terms[k], step, l, by.u[k * kBlock + t], sums.variance[k]);
    // Λ F, and Λ F P.
    const C* P = gains.filtered.data() + t * n * n;
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      each<N>(0, n, [&](int64_t j) CGP_BODY {
        C sum{};
        each<N>(j, n, [&](int64_t k) CGP_BODY { sum += F[k * n + j] * l.values[i * n + k]; });
        spread.values[i * n + j] = sum;
      });
    });
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      each<N>(0, n, [&](int64_t j) CGP_BODY {
        C sum{};
        each<N>(0, n, [&](int64_t k) CGP_BODY { sum += spread.values[i * n + k] * P[k * n + j]; });
        carried.values[i * n + j] = sum;
      });
    });
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k) {
      const int64_t first = N ? 0 : process.terms[k].state;
      double* by_decay = by.decay.data() + first * kBlock + t;
      double by_angle = 0.0;
      each<N>(0, N ? N : process.terms[k].order + 1, [&](int64_t i) CGP_BODY {
        each<N>(0, i + 1, [&](int64_t j) CGP_BODY {
          const C both = carried.values[(first + i) * n + first + j];
          by_decay[(i - j) * kBlock] += 2.0 * real(both);
          by_angle += 2.0 * F[(first + i) * n + first + j] * imag(both);
        });
      });
      by.angle[k * kBlock + t] += by_angle;
    }
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      each<N>(0, n, [&](int64_t j) CGP_BODY {
        C sum{};
        each<N>(i, n, [&](int64_t k) CGP_BODY { sum += F[k * n + i] * spread.values[k * n + j]; });
        l.values[i * n + j] = sum;
      });
    });
    // The measurement.
    const C* gain = gains.gain.data() + t * n;
    double by_S = by.S[t];
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      C sum{};
      each<N>(0, n, [&](int64_t k) CGP_BODY { sum += l.values[i * n + k] * gain[k]; });
      by_gain.values[i] = sum;
      by_S += inner(gain[i], sum);
    });
    by_noise[t] = by_S;
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      C half = 0.5 * by.k[t * n + i] - by_gain.values[i];
      if (step.is_read(i)) half += number<C>(0.5 * by_S);
      each<N>(0, n, [&](int64_t j) CGP_BODY {
        if (!step.is_read(j)) return;
        l.values[i * n + j] += half;
        l.values[j * n + i] += conj(half);
      });
    });
  }
  each<N>(0, n, [&](int64_t i) CGP_BODY {
    each<N>(0, n, [&](int64_t j) CGP_BODY { lambda[i * n + j] = l.values[i * n + j]; });
  });
}

template <class C>
CGP_FOR_EACH_PROCESSOR void covariances_backward(const Terms& process, const Steps& steps,
                                                 const Gains<C>& gains, int64_t count, C* lambda,
                                                 BlockCotangents<C>& by, Sums& sums,
                                                 double* by_noise) {
  covariances_backward<C, 0>(process, steps, gains, count, lambda, by, sums, by_noise);
}

// What a block leaves of the cotangents of its steps: sums, and the gradient by each step.
template <class C>
CGP_INLINE void steps_backward(const Terms& process, const Steps& steps, const double* length,
                               int64_t count, const BlockCotangents<C>& by, Sums& sums,
                               double* by_step) {
  constexpr double turn = 6.28318530717958647693;
  for (size_t k = 0; k < process.terms.size(); ++k) {
    const Term& term = process.terms[k];
    const double* f = steps.decay.data() + term.state * kBlock;
    const double* by_f = by.decay.data() + term.state * kBlock;
    double by_rate = 0.0, by_frequency = 0.0;
    for (int64_t t = 0; t < count; ++t) {
      double by_u = by.u[k * kBlock + t] - by_f[t] * f[t];
      for (int m = 1; m <= term.order; ++m)
        by_u += by_f[m * kBlock + t] * (f[(m - 1) * kBlock + t] - f[m * kBlock + t]);
      const double by_turns = turn * by.angle[k * kBlock + t];
      by_rate += length[t] * by_u;
      by_frequency += length[t] * by_turns;
      by_step[t] += term.rate * by_u + term.frequency * by_turns;
    }
    sums.rate[k] += by_rate;
    sums.frequency[k] += by_frequency;
  }
}

}  // namespace cgp::state_space
