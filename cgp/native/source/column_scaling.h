// Column scaling of a factor, the step that rank-one updates, downdates and measurements share:
//
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k
//
// (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974, with adjoints for transposes). The running
// sum is taken along the rows, so that each element is read and written once.
// cgp/linalg/column_scaling.py does the same in TensorFlow.
#pragma once
#include <algorithm>
#include <cstdint>

#include "rows.h"

namespace cgp {

// The scales of columns, and the vector that the running sums are taken with.
template <class T>
struct Scaling {
  T* w;
  Real<T>* d;
  T* u;
};

// Columns [0, stop) of some rows, from the last to the first: stable for downdates and
// measurements. `sums` holds the running sum of each row, from the columns after these.
template <class Column, class T>
CGP_INLINE void scale_backwards(Rows<const T> chol, Rows<T> result, int64_t stop,
                                const Scaling<T>& by, T* sums) {
  Column sum = Column::load(sums);
  for (int64_t j = stop - 1; j >= 0; --j) {
    const Column element = Column::load(chol, j);
    (element.scaled(by.d[j]) + sum.times(by.u[j])).store(result, j);
    sum = sum + element.times(by.w[j]);
  }
  sum.store(sums);
}

// All rows of a factor by suffix sums, its diagonal real. The part above the diagonal becomes zero.
// `totals` receives L w.
template <class T>
CGP_INLINE void scale_columns(Rows<const T> chol, Rows<T> result, int64_t n, const Scaling<T>& by,
                              T* totals) {
  for (int64_t first = 0; first < n; first += 4) {
    const int rows = std::min<int64_t>(4, n - first);
    const auto from = chol.from(first, 0);
    const auto to = result.from(first, 0);
    T sums[4] = {};
    for (int r = 0; r < rows; ++r) {  // the triangle at the diagonal, row by row
      const int64_t i = first + r;
      const Real<T> diagonal = real(chol[i][i]);
      result[i][i] = number<T>(by.d[i] * diagonal);
      sums[r] = diagonal * by.w[i];
      const Scaling<T> here{by.w + first, by.d + first, by.u + first};
      scale_backwards<OneRow<T>>(from.from(r, first), to.from(r, first), r, here, sums + r);
      std::fill(result[i] + i + 1, result[i] + n, T{});
    }
    if (rows == 4)
      scale_backwards<FourRows<T>>(from, to, first, by, sums);
    else
      for (int r = 0; r < rows; ++r)
        scale_backwards<OneRow<T>>(from.from(r, 0), to.from(r, 0), first, by, sums + r);
    std::copy(sums, sums + rows, totals + first);
  }
}

// The cotangents of a factor and of the vectors of a scaling.
template <class T>
struct ScalingCotangents {
  Rows<T> chol;  // lower triangular
  T* w;
  Real<T>* d;
  T* u;
};

// The pullback of `scale_columns`. With S_ij = Σ_{k>j} L_ik w_k and Q_ik = Σ_{j<k} Ḡ_ij ū_j:
//
//     L̄ = Ḡ∘d + Q∘w̄,   w̄_k = Σ_i conj(L_ik) Q_ik,   d̄_j = Σ_i Re(conj(L_ij) Ḡ_ij),
//     ū_j = Σ_i conj(S_ij) Ḡ_ij .
//
// One sweep for Q and one for S along each row, which is in the cache for the second.
template <class T>
CGP_INLINE void scale_columns_pullback(Rows<const T> chol, Rows<const T> bar, int64_t n,
                                       const Scaling<T>& by, const ScalingCotangents<T>& to) {
  std::fill(to.w, to.w + n, T{});
  std::fill(to.d, to.d + n, Real<T>{});
  std::fill(to.u, to.u + n, T{});
  for (int64_t i = 0; i < n; ++i) {
    const T *row = chol[i], *bars = bar[i];
    T* result = to.chol[i];
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
