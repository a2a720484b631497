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
  CovarianceWork(int64_t n, int64_t q, double epsilon)
      : L(n * n),
        F(n * n),
        A(n * (n + q)),
        rows(n, n + q, epsilon),
        h(n),
        sum(n),
        phi(n),
        epsilon(epsilon) {}

  Split<C, N * N> L, F;
  Split<C, 2 * N * N> A;  // [F L, G]
  GramSchmidt<C, N, 2 * N> rows;
  Split<C, N> h, sum, phi;
  Lane<Real<C>> epsilon;  // rounding of the model
};

// The measurement of h x + v, v of variance r. Returns S, and leaves P hᴴ in `sum`.
template <class C, int N>
CGP_INLINE Real<C> measure(CovarianceWork<C, N>& work, int64_t order, Real<C> r) {
  using R = Real<C>;
  const int64_t n = N ? N : order;
  auto& [L, F, A, rows, h, sum, phi, epsilon] = work;
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
    const R eps(kRounding * n * epsilon);
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
  auto& [L, F, A, rows, h, sum, phi, epsilon] = work;
  multiply_lower(F, L, n, A, n);
  rows.triangularize(A, n, n + q, L);
}

// The gains of the series of a tile, or of all that share covariances. kalman_covariances.cpp says for
// which arguments these are compiled.
template <class C, class T>
void covariances(const System<T>& system, Tile tile, Gains<C>& gains);

// The same of all that share covariances, for N states.
template <int N, class T>
void covariances_of_few(const System<T>& system, Gains<T>& gains);

}  // namespace cgp
