// Triangular systems with one right-hand side: see triangular.h.
#include "triangular.h"

#include <algorithm>

namespace cgp {
namespace {

// Columns [0, stop) of some rows: takes L x from `sums`.
template <class Column, class T>
CGP_INLINE void subtract_product(Rows<const T> chol, const T* x, int64_t stop, T* sums) {
  Column sum = Column::load(sums);
  for (int64_t j = 0; j < stop; ++j) sum = sum - Column::load(chol, j).times(x[j]);
  sum.store(sums);
}

}  // namespace

template <class T>
CGP_FOR_EACH_PROCESSOR void solve(Rows<const T> chol, const T* b, int64_t n, T* x) {
  for (int64_t first = 0; first < n; first += 4) {
    const int rows = std::min<int64_t>(4, n - first);
    T sums[4] = {};
    std::copy(b + first, b + first + rows, sums);
    const auto from = chol.from(first, 0);
    if (rows == 4)
      subtract_product<FourRows<T>>(from, x, first, sums);
    else
      for (int r = 0; r < rows; ++r)
        subtract_product<OneRow<T>>(from.from(r, 0), x, first, sums + r);
    for (int r = 0; r < rows; ++r) {
      subtract_product<OneRow<T>>(from.from(r, first), x + first, r, sums + r);
      x[first + r] = (1 / real(chol[first + r][first + r])) * sums[r];
    }
  }
}

template <class T>
CGP_FOR_EACH_PROCESSOR void solve_adjoint(Rows<const T> chol, int64_t n, T* x) {
  for (int64_t i = n - 1; i >= 0; --i) {
    const T* row = chol[i];
    x[i] = (1 / real(row[i])) * x[i];
    const T xi = x[i];
    for (int64_t j = 0; j < i; ++j) x[j] -= conj(row[j]) * xi;
  }
}

template <class T>
CGP_FOR_EACH_PROCESSOR void solve_pullback(Rows<const T> chol, const T* x, int64_t n, T* bar,
                                           Rows<T> by_chol) {
  solve_adjoint(chol, n, bar);
  for (int64_t i = 0; i < n; ++i) {
    const T b = bar[i];
    T* row = by_chol[i];
    for (int64_t j = 0; j <= i; ++j) row[j] -= b * conj(x[j]);
  }
}

#define CGP_SOLVE(T)                                                   \
  template void solve<T>(Rows<const T>, const T*, int64_t, T*);        \
  template void solve_adjoint<T>(Rows<const T>, int64_t, T*);          \
  template void solve_pullback<T>(Rows<const T>, const T*, int64_t, T*, Rows<T>)
CGP_FOR_EACH_NUMBER(CGP_SOLVE);

}  // namespace cgp
