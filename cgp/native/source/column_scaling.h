// Column scaling of a factor, the step that rank-one updates, downdates and measurements share:
//
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k
//
// (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974, with adjoints for transposes). The running
// sum is taken along the rows, so that each element is read and written once. Four rows are swept
// together: their sums do not wait for each other. cgp/linalg/rank_one.py does the same in
// TensorFlow.
#pragma once
#include <algorithm>
#include <cstdint>

#include "number.h"

namespace cgp {

constexpr int kRows = 4;

// The scales of columns, and the vector that the running sums are taken with.
template <class T>
struct Scaling {
  T* w;
  Real<T>* d;
  T* u;
};

// Columns [first, stop) of some rows, from the last to the first: stable for downdates and
// measurements. `sums` holds the running sum of each row, from the columns after these.
template <int rows, class T>
CGP_INLINE void scale_backwards(const T* chol, T* result, int64_t n, int64_t stop,
                                const Scaling<T>& by, T* sums) {
  T sum[rows];
  for (int r = 0; r < rows; ++r) sum[r] = sums[r];
  for (int64_t j = stop - 1; j >= 0; --j) {
    const T w = by.w[j], u = by.u[j];
    const Real<T> d = by.d[j];
    for (int r = 0; r < rows; ++r) {
      const T element = chol[r * n + j];
      result[r * n + j] = d * element + u * sum[r];
      sum[r] += element * w;
    }
  }
  for (int r = 0; r < rows; ++r) sums[r] = sum[r];
}

// All rows of a factor by suffix sums, its diagonal real. The part above the diagonal becomes zero.
template <class T>
CGP_INLINE void scale_columns(const T* chol, T* result, int64_t n, const Scaling<T>& by) {
  for (int64_t first = 0; first < n; first += kRows) {
    const int rows = std::min<int64_t>(kRows, n - first);
    T sums[kRows] = {};
    for (int r = 0; r < rows; ++r) {  // the triangle at the diagonal, row by row
      const int64_t i = first + r;
      const T diagonal = number<T>(real(chol[i * n + i]));
      result[i * n + i] = number<T>(by.d[i] * real(diagonal));
      sums[r] = diagonal * by.w[i];
      for (int64_t j = i - 1; j >= first; --j) {
        const T element = chol[i * n + j];
        result[i * n + j] = by.d[j] * element + by.u[j] * sums[r];
        sums[r] += element * by.w[j];
      }
      std::fill(result + i * n + i + 1, result + (i + 1) * n, T{});
    }
    const T* from = chol + first * n;
    T* to = result + first * n;
    if (rows == kRows)
      scale_backwards<kRows>(from, to, n, first, by, sums);
    else
      for (int r = 0; r < rows; ++r)
        scale_backwards<1>(from + r * n, to + r * n, n, first, by, sums + r);
  }
}

// The cotangents of a factor and of the vectors of a scaling.
template <class T>
struct ScalingCotangents {
  T* chol;     // [n, n], lower triangular
  T* w;        // [n]
  Real<T>* d;  // [n]
  T* u;        // [n]
};

// The pullback of `scale_columns`. With S_ij = Σ_{k>j} L_ik w_k and Q_ik = Σ_{j<k} Ḡ_ij ū_j:
//
//     L̄ = Ḡ∘d + Q∘w̄,   w̄_k = Σ_i conj(L_ik) Q_ik,   d̄_j = Σ_i Re(conj(L_ij) Ḡ_ij),
//     ū_j = Σ_i conj(S_ij) Ḡ_ij .
//
// One sweep for Q and one for S along each row, which is in the cache for the second.
template <class T>
CGP_INLINE void scale_columns_pullback(const T* chol, const T* bar, int64_t n,
                                       const Scaling<T>& by, const ScalingCotangents<T>& to) {
  std::fill(to.w, to.w + n, T{});
  std::fill(to.d, to.d + n, Real<T>{});
  std::fill(to.u, to.u + n, T{});
  for (int64_t i = 0; i < n; ++i) {
    const T *row = chol + i * n, *bars = bar + i * n;
    T* result = to.chol + i * n;
    T q{};
    for (int64_t j = 0; j <= i; ++j) {
      result[j] = by.d[j] * bars[j] + q * conj(by.w[j]);
      to.w[j] += conj(row[j]) * q;
      to.d[j] += inner(row[j], bars[j]);
      q += bars[j] * conj(by.u[j]);
    }
    T s{};
    for (int64_t j = i; j >= 0; --j) {
      to.u[j] += conj(s) * bars[j];
      s += row[j] * by.w[j];
    }
    std::fill(result + i + 1, result + n, T{});
  }
}

}  // namespace cgp
