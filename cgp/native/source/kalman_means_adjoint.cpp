// The pullback of the means of a Kalman filter: see kalman_means_adjoint.h.
#include "kalman_means_adjoint.h"

namespace cgp {

template <class C, class M, class T>
CGP_FOR_EACH_PROCESSOR void means_pullback(const System<T>& system, Tile tile,
                                           const Gains<C>& gains, const Means<M>& kept,
                                           const Cotangents<T>& given, Gradients<T>& to,
                                           GainCotangents<C>& by) {
  using R = Real<C>;
  const int64_t n = system.n, m = system.m;
  const Real<T> scale = density_scale<T>;
  Split<M, 0> lambda(n), next(n), mean(n);
  std::vector<C> F_conj(n * n), h(n);
  Accumulator<T, M> by_F(to.F, tile), by_h(to.h, tile), by_b(to.b, tile);
  for (int64_t t = system.steps - 1; t >= 0; --t) {
    for (int64_t k = 0; k < n; ++k) mean.set(k, kept.filtered[t * n + k]);
    if (t + 1 < system.steps) {
      if (t + 2 == system.steps || system.F.varies())
        for (int64_t e = 0; e < n * n; ++e) F_conj[e] = conj(system.F.template at<C>(t, e, tile));
      for (int64_t i = 0; i < n; ++i) {
        const M l = lambda[i];
        by_b.add(t, i, l);
        for (int64_t k = 0; k < n; ++k) by_F.add(t, i * n + k, l * conj(mean[k]));
      }
      next.clear();
      multiply_add(F_conj.data(), 1, n, n, lambda, next);
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
      to.z.set(t, i, tile, by_v);
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

#define CGP_PULLBACK(C, M, T)                                                               \
  template void means_pullback<C, M, T>(const System<T>&, Tile, const Gains<C>&,            \
                                        const Means<M>&, const Cotangents<T>&, Gradients<T>&, \
                                        GainCotangents<C>&)
#define CGP_PULLBACK_OF(T)       \
  CGP_PULLBACK(T, T, T);         \
  CGP_PULLBACK(T, Pack<T>, T);   \
  CGP_PULLBACK(Pack<T>, Pack<T>, T)
CGP_PULLBACK_OF(double);
CGP_PULLBACK_OF(Complex<double>);

}  // namespace cgp
