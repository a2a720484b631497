// The factor of a covariance with a row and its column removed.
//
// The rows before it stay. Those after it lose the removed column, by which their block at the
// diagonal is updated: L_b L_bᴴ + c cᴴ, an update, which is unconditionally stable.
#pragma once
#include <algorithm>

#include "rank_one.h"

namespace cgp {

// Column `removed` below the diagonal.
template <class T>
void copy_column(Rows<const T> chol, int64_t removed, int64_t n, T* column) {
  for (int64_t j = removed + 1; j < n; ++j) *column++ = chol[j][removed];
}

// Copies what stays: the rows before the removed one, and the columns before it of those after,
// whose others are updated.
template <class T>
void copy_what_stays(Rows<const T> chol, Rows<T> result, int64_t removed, int64_t n) {
  for (int64_t j = 0; j + 1 < n; ++j) {
    const T* from = chol[j < removed ? j : j + 1];
    if (j < removed)
      std::fill(std::copy(from, from + j + 1, result[j]), result[j] + n - 1, T{});
    else
      std::copy(from, from + removed, result[j]);
  }
}

// False where the factor is none.
template <class T>
bool remove_row(Rows<const T> chol, Rows<T> result, int64_t removed, int64_t n, Workspace<T>& work,
                T* column) {
  copy_what_stays(chol, result, removed, n);
  copy_column(chol, removed, n, column);
  bool ok = true;
  for (int64_t j = 0; j < n; ++j)
    ok &= is_not_negative_and_finite(real(chol[j][j])) && imag(chol[j][j]) == 0;
  return ok & rank_one<T>(chol.from(removed + 1, removed + 1), column, Real<T>(1),
                          result.from(removed, removed), n - 1 - removed, work);
}

}  // namespace cgp
