// The factor of a covariance after a scalar measurement.
//
// Of y = h x + n, E|n|² = r, P = L Lᴴ (Carlson, AIAA J. 11, 1973), without a solve or a subtraction:
//
//     φ = Lᴴ hᴴ,  s_j = r + Σ_{k>j} |φ_k|²,  S = s_{−1} = h P hᴴ + r,  gain = L φ / S,
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik φ_k,
//     d_j = √(s_j / s_{j−1}),  u_j = −φ̄_j / √(s_j s_{j−1}) .
//
// Without noise s may be zero: no variance is left in the first column that is reached (d = u = 0),
// and the columns after it stay as they are (d = 1, u = 0).
#pragma once
#include <algorithm>

#include "rank_one.h"

namespace cgp {

// φ, d, u, s; returns S.
template <class T>
CGP_INLINE Real<T> scale_by_measurement(Rows<const T> chol, const T* h, Real<T> r, int64_t n,
                                        const Scaling<T>& by, Real<T>* s) {
  std::fill(by.w, by.w + n, T{});
  for (int64_t i = 0; i < n; ++i) {
    const T hi = conj(h[i]);
    const T* row = chol[i];
    for (int64_t j = 0; j <= i; ++j) by.w[j] += conj(row[j]) * hi;
  }
  Real<T> sum = r;
  for (int64_t j = n - 1; j >= 0; --j) {
    s[j] = sum;
    sum += square(by.w[j]);
    const Real<T> root = std::sqrt(s[j]), root_before = std::sqrt(sum);
    by.d[j] = sum == 0 ? Real<T>(1) : s[j] == 0 ? Real<T>(0) : root / root_before;
    by.u[j] = s[j] == 0 ? T{} : (-1 / root / root_before) * conj(by.w[j]);
  }
  return sum;
}

template <class R>
CGP_INLINE R inverse_unless_zero(R s) {
  return s == 0 ? R(0) : 1 / s;
}

// The factor after the measurement, its gain and S; false where the measurement or the factor is not
// one.
template <class T>
bool condition(Rows<const T> chol, const T* h, Real<T> r, Rows<T> result, T* gain,
               Real<T>* variance, int64_t n, Workspace<T>& work);

}  // namespace cgp
