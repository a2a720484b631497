// The recursion of a window over a block of samples: see window_recursion.h.
#include "window_recursion.h"

namespace cgp {

template <class T>
CGP_FOR_EACH_PROCESSOR bool scan(Window<T>& window, const PriorOfBlock<T>& prior, const T* z,
                                 Real<T> forgetting, Basis<T>* basis, const Predictions<T>& to) {
  using R = Real<T>;
  constexpr int m = kRowsOfPoint<T>;
  const R factor = 1 / std::sqrt(forgetting);
  for (int64_t t = 0; t < prior.steps; ++t) {
    if (forgetting != 1) window.forget(factor, prior.observed);
    const Moments<R> noise = prior.noise[t];
    Sample<T> sample = window.predict(prior, noise, t);
    Vector<T> target;
    for (int a = 0; a < m; ++a) {
      target[a] = z[t * m + a];
      to.mean[t * m + a] = sample.mean[a];
    }
    to.signal_k[t] = sample.signal.k;
    to.signal_c[t] = sample.signal.c;
    Moments<R> after = sample.signal;
    Vector<T> gained{};
    R sum = 0;  // NaN if any part is
    for (int a = 0; a < m; ++a) sum += real(target[a]) + imag(target[a]);
    if (!std::isnan(sum)) {
      const bool is_full = window.is_full();
      window.append(sample, target, window.capacity + t);
      if (!is_positive_and_finite(real(sample.pivot.a)) ||
          (m == 2 && !is_positive_and_finite(real(sample.pivot.d))))
        return false;
      if (basis && !basis->append(window, prior, noise, t)) return false;
      if (is_full && basis) {
        if (!basis->prune(window)) return false;
        sample = window.predict(prior, noise, t);
        after = sample.signal;
      } else {
        if (is_full) {
          if (!window.remove_oldest()) return false;
          sample = window.last_given_the_others(noise, prior.jitter[t], target);
        }
        Vector<T> innovation;
        for (int a = 0; a < m; ++a) innovation[a] = target[a] - sample.mean[a];
        after = measured(sample.signal, sample.pivot, noise, innovation, gained);
      }
    }
    for (int a = 0; a < m; ++a) to.filtered_mean[t * m + a] = sample.mean[a] + gained[a];
    to.filtered_k[t] = after.k;
    to.filtered_c[t] = after.c;
  }
  return true;
}

#define CGP_SCAN(T)                                                                    \
  template bool scan<T>(Window<T>&, const PriorOfBlock<T>&, const T*, Real<T>, Basis<T>*, \
                        const Predictions<T>&)
CGP_FOR_EACH_NUMBER(CGP_SCAN);

}  // namespace cgp
