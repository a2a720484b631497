// The Kalman filter of a process of terms over a block of samples: its gains, and its means,
// v = z − h m, m += (P hᴴ / S) v, then m' = F m.
#pragma once
#include "terms_covariance.h"

namespace cgp::state_space {

// What the means need of the covariances, over a block, and what the pullback needs.
template <class C>
struct Gains {
  Gains(int64_t n, bool keep)
      : gain(n * kBlock), inverse(kBlock), filtered(keep ? n * n * kBlock : 0) {}
  std::vector<C> gain;          // P hᴴ / S, zero where missing: [t, n]
  std::vector<double> inverse;  // 1/S, zero where missing
  std::vector<C> filtered;      // the covariance after the observation, if wanted: [t, n, n]
};

// What the covariances need of the samples of a block, for each: the step after it, whether it is
// seen, 1 or 0, and the variance of its noise.
struct Samples {
  const double *length, *seen, *noise;
};

// A sum of logs of which few are taken.
class LogSum {
 public:
  CGP_INLINE void add(double s) {
    const double product = product_ * s;
    if (product > 1e-140 && product < 1e140)
      product_ = product;
    else
      take(s);
  }
  double total() const { return sum_ + std::log(product_); }

 private:
  __attribute__((noinline)) void take(double s) {
    sum_ += std::log(product_) + std::log(s);
    product_ = 1.0;
  }
  double sum_ = 0.0, product_ = 1.0;
};

// The means of a series, or of several in lanes: one step of them, given the gain.
template <class C, class M, int N>
struct MeanWork {
  MeanWork(const Terms& process, const Steps& steps, const M* from)
      : process(process), steps(steps), n(N ? N : process.n), mean(n) {
    each<N>(0, n, [&](int64_t i) CGP_BODY { mean.values[i] = from[i]; });
  }
  CGP_INLINE void store(M* to) const {
    each<N>(0, n, [&](int64_t i) CGP_BODY { to[i] = mean.values[i]; });
  }

  // The measurement z at sample t, zero where missing. Returns v.
  CGP_INLINE M measure(M z, const C* gain, double inverse) {
    M v = z;
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k)
      v -= mean.values[N ? N - 1 : process.terms[k].state + process.terms[k].order];
    loss += inverse * square(v);
    each<N>(0, n, [&](int64_t i) CGP_BODY { mean.values[i] += gain[i] * v; });
    return v;
  }

  CGP_INLINE void predict(int64_t t) {
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k) {
      const int64_t first = N ? 0 : process.terms[k].state;
      const int64_t size = N ? N : process.terms[k].order + 1;
      const double* decay = steps.decay.data() + first * kBlock + t;
      const Complex<double> turn = turn_of(process, steps, k, t);
      each<N>(0, size, [&](int64_t reverse) CGP_BODY {
        const int64_t i = size - 1 - reverse;
        M sum = decay[i * kBlock] * mean.values[first];
        each<N>(1, i + 1, [&](int64_t j) CGP_BODY {
          sum += decay[(i - j) * kBlock] * mean.values[first + j];
        });
        mean.values[first + i] = turn * sum;
      });
    }
  }

  const Terms& process;
  const Steps& steps;
  const int64_t n;
  Parts<M, N> mean;
  Real<M> loss = Real<M>(0.0);  // the sum of |v|²/S
};

// The gains over a block, the steps after its samples, and what else is to be done with the gain of
// each sample: `with_gain(t, gain, 1/S)`. Returns the sum of log S.
template <class C, int N, class F>
CGP_INLINE double filter_covariances(const Steps& steps, const Samples& samples, int64_t count,
                                     CovarianceWork<C, N>& filter, Gains<C>& gains,
                                     const F& with_gain) {
  // In registers, as long as no function that is not inlined takes its address.
  CovarianceWork<C, N> work(filter.process, filter.now);
  work.take(filter);
  const auto [length, seen, noise] = samples;
  const int64_t n = work.n;
  LogSum logs;
  C* const gain = gains.gain.data();
  C* const filtered = gains.filtered.empty() ? nullptr : gains.filtered.data();
  double* const inverses = gains.inverse.data();
  bool alike = true;
  for (int64_t t = 0; t < count; ++t)
    alike &= seen[t] > 0.0 && length[t] == length[0] && noise[t] == noise[0];
  const bool is_settled = alike && filter.settling.is_settled(length[0], noise[0]) && !filtered;
  for (int64_t t = 0; t < count; ++t) {
    if (!is_settled) {
      if (seen[t] > 0.0)
        work.measure(noise[t]);
      else
        work.skip_measurement();
    }
    if (seen[t] > 0.0) logs.add(work.S);
    inverses[t] = work.inverse_S;
    each<N>(0, n, [&](int64_t i) CGP_BODY { gain[t * n + i] = work.gain.values[i]; });
    with_gain(t, gain + t * n, work.inverse_S);
    if (filtered) work.write(filtered + t * n * n);
    if (is_settled) continue;
    work.load(steps, t);
    work.predict();
  }
  filter.take(work);
  if (!is_settled) filter.settling.check(alike, length[0], noise[0], filter.now, n);
  return logs.total();
}

// The gains alone, for any number of states.
template <class C>
CGP_FOR_EACH_PROCESSOR double gains_of_block(const Steps& steps, const Samples& samples,
                                             int64_t count, CovarianceWork<C, 0>& filter,
                                             Gains<C>& gains) {
  return filter_covariances<C, 0>(steps, samples, count, filter, gains,
                                  [](int64_t, const C*, double) CGP_BODY {});
}
template <class C, int N>
CGP_INLINE double gains_of_block(const Steps& steps, const Samples& samples, int64_t count,
                                 CovarianceWork<C, N>& filter, Gains<C>& gains) {
  return filter_covariances<C, N>(steps, samples, count, filter, gains,
                                  [](int64_t, const C*, double) CGP_BODY {});
}

}  // namespace cgp::state_space
