// The covariances of a Kalman filter along a series, in square-root form: they depend on the model
// and on which elements are missing, not on the data.
//
// Measurement: Carlson's formula (AIAA J. 11, 1973), one component at a time, with φ = Lᴴ hᴴ,
// σ_j = r + Σ_{k>j} |φ_k|²:
//
//     L'_ij = L_ij √(σ_j/σ_{j−1}) − (Σ_{k>j} L_ik φ_k) φ̄_j / √(σ_j σ_{j−1}),   S = σ_0 .
//
// cgp/linalg/batch_last.py has it in TensorFlow. Time: the triangular factor of [F L, G]. Matrices
// are stored by columns here.
#pragma once
#include <limits>
#include <memory>

#include "gram_schmidt.h"
#include "kalman_system.h"

namespace cgp {

// What the filter of the means needs of the covariances, at each step until they have settled.
template <class C>
struct Gains {
  Gains(int64_t steps, int64_t m, int64_t n, bool with_factors)
      : n(n),
        m(m),
        gain(new C[steps * m * n]),
        variance(new Real<C>[steps * m]),
        predicted(with_factors ? new C[steps * n * n] : nullptr),
        filtered(with_factors ? new C[steps * n * n] : nullptr) {}

  // The step whose covariances are those of step t.
  int64_t at(int64_t t) const { return std::min(t, last); }

  int64_t n, m, last = 0;
  std::unique_ptr<C[]> gain;            // P hᴴ / S, zero where S is: [T, m, n]
  std::unique_ptr<Real<C>[]> variance;  // S, 1 where missing: [T, m]
  std::unique_ptr<C[]> predicted, filtered;  // factors, if wanted: [T, n, n], by columns
};

template <class C, int N>
struct CovarianceWork {
  CovarianceWork(int64_t n, int64_t q)
      : L(n * n), F(n * n), A(n * (n + q)), rows(n, n + q), h(n), sum(n), phi(n) {}

  Split<C, N * N> L, F;
  Split<C, 2 * N * N> A;  // [F L, G]
  GramSchmidt<C, N, 2 * N> rows;
  Split<C, N> h, sum, phi;
};

// The measurement of h x + v, v of variance r. Returns S, and leaves P hᴴ in `sum`.
template <class C, int N>
CGP_INLINE Real<C> measure(CovarianceWork<C, N>& work, int64_t order, Real<C> r) {
  using R = Real<C>;
  const int64_t n = N ? N : order;
  auto& [L, F, A, rows, h, sum, phi] = work;
  R power(0);
  for (int64_t k = 0; k < n; ++k) {
    C p{};
    for (int64_t i = k; i < n; ++i) p += L[k * n + i] * h[i];
    phi.set(k, conj(p));
    power += square(p);
  }
  if (!all_positive(r)) {  // a variance that is only rounding counts as zero
    R most(0);
    for (int64_t k = 0; k < n; ++k) {
      R column(0);
      for (int64_t i = k; i < n; ++i) column += sqrt(square(L[k * n + i] * h[i]));
      most += square(column);
    }
    const R eps = kRounding * n * std::numeric_limits<Lane<R>>::epsilon();
    const R noise = eps * eps * most;
    for (int64_t k = 0; k < n; ++k) {
      const C p = phi[k];
      phi.set(k, where_greater(r, R(0), p, where_greater(power, noise, p, C{})));
    }
  }
  R sigma = r, root = sqrt(r);
  for (int64_t i = 0; i < n; ++i) sum.set(i, C{});
  for (int64_t k = n - 1; k >= 0; --k) {
    const C p = phi[k];
    sigma += square(p);
    const R before = sqrt(sigma), product = root * before;
    const R ratio = where_greater(before, R(0), root / before, R(1));
    const C weight = where_greater(product, R(0), R(1) / product, R(0)) * conj(p);
    CGP_INDEPENDENT
    for (int64_t i = N ? 0 : k; i < n; ++i) {
      const C element = L[k * n + i], s = sum[i];
      L.set(k * n + i, ratio * element - weight * s);
      sum.set(i, s + element * p);
    }
    root = before;
  }
  return sigma;
}

// L of [F L, G], whose last columns are in A.
template <class C, int N>
CGP_INLINE void predict(CovarianceWork<C, N>& work, int64_t order, int64_t q) {
  const int64_t n = N ? N : order;
  auto& [L, F, A, rows, h, sum, phi] = work;
  multiply_lower(F, L, n, A, n);
  rows.triangularize(A, n, n + q, L);
}

// Notices when the covariances of a constant model change by no more than rounding any more. They
// are compared over longer and longer spans of time, so that what changes slowly is noticed too.
template <class C, int N>
class Settling {
 public:
  using R = Real<C>;
  explicit Settling(int64_t n) : before_(n * n), last_(-1), next_(0) {}

  // Whether the factor, and the variances S, are those of some time ago.
  CGP_INLINE bool check(int64_t t, const Split<C, N * N>& L, int64_t n, const Gains<C>& gains) {
    if (t < next_) return false;
    const R eps = kSettled * n * std::numeric_limits<Lane<R>>::epsilon();
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
};

// The gains of the series of a tile, or of all that share covariances.
template <class C, int N, class T>
CGP_FOR_EACH_PROCESSOR void covariances(const System<T>& system, Tile tile, Gains<C>& gains) {
  using R = Real<C>;
  const int64_t n = N ? N : system.n, m = system.m, q = system.q;
  CovarianceWork<C, N> work(n, q);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i)
      work.L.set(k * n + i, i < k ? C{} : system.chol.template at<C>(0, i * n + k, tile));
  Settling<C, N> settling(n);
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

}  // namespace cgp
