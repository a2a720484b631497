// The lower triangular L with L Lᴴ = A Aᴴ, its diagonal real and not negative, by modified
// Gram-Schmidt on the rows of A (Bierman, Factorization Methods for Discrete Sequential Estimation,
// 1977, ch. VI). cgp/linalg/batch_last.py has it in TensorFlow. Matrices are stored by columns.
#pragma once
#include "split.h"

namespace cgp {

// A row counts as dependent on those above it where less than this many roundings of it are left.
constexpr int kRounding = 4;

template <class C, int Rows, int Columns>
class GramSchmidt {
 public:
  using R = Real<C>;
  GramSchmidt(int64_t rows, int64_t columns, double epsilon)
      : direction_(columns), sum_(rows), size_(rows), epsilon_(epsilon) {}

  // Overwrites A, `[rows, columns]`; a row of it that depends on those above it gets a zero on the
  // diagonal of L, `[rows, rows]`.
  CGP_INLINE void triangularize(Split<C, Rows * Columns>& A, int64_t rows_at_run_time,
                                int64_t columns, Split<C, Rows * Rows>& L) {
    const int64_t rows = Rows ? Rows : rows_at_run_time;
    for (int64_t i = 0; i < rows; ++i) size_.set(i, R(0));
    for (int64_t k = 0; k < columns; ++k)
      CGP_INDEPENDENT
      for (int64_t i = 0; i < rows; ++i) size_.add(i, square(A[k * rows + i]));
    const R eps(kRounding * epsilon_);
    for (int64_t j = 0; j < rows; ++j) {
      R power(0);
      for (int64_t k = 0; k < columns; ++k) power += square(A[k * rows + j]);
      const R length = sqrt(power);
      const R inverse = where_greater(power, eps * eps * size_[j], R(1) / length, R(0));
      const int64_t first = Rows ? 0 : j + 1;
      for (int64_t i = 0; i < rows; ++i) sum_.set(i, C{});
      for (int64_t k = 0; k < columns; ++k) {
        const C d = inverse * A[k * rows + j];
        direction_.set(k, d);
        CGP_INDEPENDENT
        for (int64_t i = first; i < rows; ++i) sum_.add(i, A[k * rows + i] * conj(d));
      }
      for (int64_t k = 0; k < columns; ++k) {
        const C d = direction_[k];
        CGP_INDEPENDENT
        for (int64_t i = first; i < rows; ++i) A.add(k * rows + i, C{} - sum_[i] * d);
      }
      for (int64_t i = 0; i < j; ++i) L.set(j * rows + i, C{});
      L.set(j * rows + j, number<C>(power * inverse));
      for (int64_t i = j + 1; i < rows; ++i) L.set(j * rows + i, sum_[i]);
    }
  }

 private:
  Split<C, Columns> direction_;
  Split<C, Rows> sum_;
  Split<R, Rows> size_;
  Lane<R> epsilon_;  // rounding
};

}  // namespace cgp
