// The recursion of the covariances of a Kalman filter along a series: see kalman_covariances.h.
#include "kalman_covariances.h"

#include <limits>

namespace cgp {
namespace {

// Notices when the covariances of a constant model change by no more than rounding any more. They
// are compared over longer and longer spans of time, so that what changes slowly is noticed too.
template <class C, int N>
class Settling {
 public:
  using R = Real<C>;
  Settling(int64_t n, double epsilon)
      : before_(n * n), last_(-1), next_(0), epsilon_(epsilon) {}

  // Whether the factor, and the variances S, are those of some time ago.
  CGP_INLINE bool check(int64_t t, const Split<C, N * N>& L, int64_t n, const Gains<C>& gains) {
    if (t < next_) return false;
    const R eps(kSettled * n * epsilon_);
    const R most(std::numeric_limits<Lane<R>>::max());
    R moved(last_ < 0 ? 1 : 0);
    for (int64_t i = 0; i < n; ++i) {
      R change(0), size(0);
      for (int64_t k = 0; k <= i; ++k) {
        const C element = L[k * n + i];
        change += square(element - before_[k * n + i]);
        size += square(element);
        before_.set(k * n + i, element);
      }
      moved += where_greater(change, eps * eps * size, R(1), R(0));
      moved += where_greater(most, size, R(0), R(1));  // overflow, or NaN
    }
    for (int64_t i = 0; i < gains.m && last_ >= 0; ++i) {
      const R now = gains.variance[t * gains.m + i];
      const R change = now - gains.variance[last_ * gains.m + i];
      moved += where_greater(change * change, eps * eps * now * now, R(1), R(0));
    }
    last_ = t;
    next_ = t + std::max<int64_t>(kShortestSpan, t / 4);
    return all_positive(R(1) - moved);
  }

 private:
  static constexpr int kSettled = 64;  // roundings a state
  static constexpr int64_t kShortestSpan = 8;
  Split<C, N * N> before_;
  int64_t last_, next_;
  Lane<R> epsilon_;
};

template <class C, int N, class T>
CGP_INLINE void run(const System<T>& system, Tile tile, Gains<C>& gains) {
  using R = Real<C>;
  const int64_t n = N ? N : system.n, m = system.m, q = system.q;
  CovarianceWork<C, N> work(n, q, system.epsilon);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i)
      work.L.set(k * n + i, i < k ? C{} : system.chol.template at<C>(0, i * n + k, tile));
  Settling<C, N> settling(n, system.epsilon);
  const bool constant = system.constant();
  for (int64_t t = 0; t < system.steps; ++t) {
    gains.last = t;
    if (gains.predicted)
      for (int64_t e = 0; e < n * n; ++e) gains.predicted[t * n * n + e] = work.L[e];
    for (int64_t i = 0; i < m; ++i) {
      const R seen = system.observed.template at<R>(t, i, tile);
      const R r = where_greater(seen, R(0), system.r.template at<R>(t, i, tile), R(1));
      for (int64_t k = 0; k < n; ++k)
        work.h.set(k, seen * system.h.template at<C>(t, i * n + k, tile));
      const R variance = measure<C, N>(work, n, r), inverse = inverse_or_zero(variance);
      gains.variance[t * m + i] = variance;
      C* gain = gains.gain.get() + (t * m + i) * n;
      for (int64_t k = 0; k < n; ++k) gain[k] = inverse * work.sum[k];
    }
    if (gains.filtered)
      for (int64_t e = 0; e < n * n; ++e) gains.filtered[t * n * n + e] = work.L[e];
    if (t + 1 == system.steps || (constant && settling.check(t, work.L, n, gains))) break;
    if (t == 0 || system.F.varies())
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < n; ++i)
          work.F.set(k * n + i, system.F.template at<C>(t, i * n + k, tile));
    for (int64_t k = 0; k < q; ++k)
      for (int64_t i = 0; i < n; ++i)
        work.A.set((n + k) * n + i, system.G.template at<C>(t, i * q + k, tile));
    predict<C, N>(work, n, q);
  }
}

}  // namespace

template <class C, class T>
CGP_FOR_EACH_PROCESSOR void covariances(const System<T>& system, Tile tile, Gains<C>& gains) {
  run<C, 0>(system, tile, gains);
}

template <int N, class T>
void covariances_of_few(const System<T>& system, Gains<T>& gains) {
  run<T, N>(system, kOne, gains);
}

#define CGP_COVARIANCES(C, T) template void covariances<C, T>(const System<T>&, Tile, Gains<C>&)
#define CGP_OF_FEW(N, T) template void covariances_of_few<N, T>(const System<T>&, Gains<T>&)
#define CGP_COVARIANCES_OF(T)  \
  CGP_COVARIANCES(T, T);       \
  CGP_COVARIANCES(Pack<T>, T); \
  CGP_OF_FEW(1, T);            \
  CGP_OF_FEW(2, T);            \
  CGP_OF_FEW(3, T);            \
  CGP_OF_FEW(4, T)
CGP_COVARIANCES_OF(double);
CGP_COVARIANCES_OF(Complex<double>);

}  // namespace cgp
