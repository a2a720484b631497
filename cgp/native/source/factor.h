// A factor in memory that has room for one point more than are to stay, and gains and loses rows.
#pragma once
#include "measurement.h"
#include "point.h"
#include "removal.h"
#include "triangular.h"

namespace cgp {

template <class T>
class Factor {
 public:
  // The numbers of memory that a factor of at most `rows` rows works in.
  static int64_t memory(int64_t rows) { return 2 * rows * rows; }

  Factor(int64_t rows, T* memory)
      : stride_(rows), chol_(memory), other_(memory + rows * rows), gone_(rows), work_(rows) {}

  T* row(int64_t i) { return chol_ + i * stride_; }
  const T* row(int64_t i) const { return chol_ + i * stride_; }
  Rows<const T> rows() const { return {chol_, stride_}; }

  void load(const T* chol, int64_t stride, int64_t n) {
    for (int64_t i = 0; i < n; ++i) std::copy(chol + i * stride, chol + i * stride + i + 1, row(i));
  }
  // Into a buffer whose rows have zeros to the right of the diagonal.
  void store(T* chol, int64_t stride, int64_t n) const {
    for (int64_t i = 0; i < n; ++i) std::copy(row(i), row(i) + i + 1, chol + i * stride);
  }

  // The corner of a point of moments L Lᴴ, in the rows from n on.
  void set_corner(Lower<T> corner, int64_t n) {
    row(n)[n] = corner.a;
    if (kRowsOfPoint<T> == 2) row(n + 1)[n] = corner.b, row(n + 1)[n + 1] = corner.d;
  }

  // Of n rows without row i; false where the factor fails.
  bool remove(int64_t i, int64_t n) {
    const bool ok = remove_row<T>(rows(), {other_, stride_}, i, n, work_, gone_.data());
    std::swap(chol_, other_);
    return ok;
  }

  // After a measurement of h x in noise of variance r; false where the factor fails.
  bool condition(const T* h, Real<T> r, int64_t n, T* gain) {
    Real<T> variance;
    const bool ok = cgp::condition<T>(rows(), h, r, {other_, stride_}, gain, &variance, n, work_);
    std::swap(chol_, other_);
    return ok;
  }

  // x = (L Lᴴ)⁻¹ x in place.
  void solve_both(int64_t n, T* x) const {
    solve<T>(rows(), x, n, x);
    solve_adjoint<T>(rows(), n, x);
  }

 private:
  int64_t stride_;
  T *chol_, *other_;  // lower triangles; what is above them is not set
  std::vector<T> gone_;
  Workspace<T> work_;
};

}  // namespace cgp
