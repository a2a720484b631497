// Column scaling of a factor: see column_scaling.h.
#include "column_scaling.h"

#include <algorithm>

namespace cgp {
namespace {

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

}  // namespace

template <class T>
CGP_FOR_EACH_PROCESSOR void scale_columns(Rows<const T> chol, Rows<T> result, int64_t n,
                                          const Scaling<T>& by, T* totals) {
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

template <class T>
CGP_FOR_EACH_PROCESSOR void scale_columns_pullback(Rows<const T> chol, Rows<const T> bar,
                                                   int64_t n, const Scaling<T>& by,
                                                   const ScalingCotangents<T>& to) {
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

#define CGP_SCALE_COLUMNS(T)                                                            \
  template void scale_columns<T>(Rows<const T>, Rows<T>, int64_t, const Scaling<T>&, T*); \
  template void scale_columns_pullback<T>(Rows<const T>, Rows<const T>, int64_t,          \
                                          const Scaling<T>&, const ScalingCotangents<T>&)
CGP_FOR_EACH_NUMBER(CGP_SCALE_COLUMNS);

}  // namespace cgp
