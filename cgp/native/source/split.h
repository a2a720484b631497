// Numbers with real and imaginary parts in arrays of their own, so that loops over them become
// vector instructions. Their count is a template argument, or 0 where it is known at run time only.
#pragma once
#include <vector>

#include "lanes.h"

namespace cgp {

template <class R, int count>
struct Parts {
  explicit Parts(int64_t) {}
  R values[count] = {};
};
template <class R>
struct Parts<R, 0> {
  explicit Parts(int64_t size) : values(size) {}
  std::vector<R> values;
};

template <class T, int count>
class Split {
 public:
  explicit Split(int64_t size) : re_(size), im_(is_complex<T> ? size : 1) {}

  CGP_INLINE T operator[](int64_t i) const {
    if constexpr (is_complex<T>)
      return {re_.values[i], im_.values[i]};
    else
      return re_.values[i];
  }
  CGP_INLINE void set(int64_t i, T x) {
    re_.values[i] = real(x);
    if constexpr (is_complex<T>) im_.values[i] = imag(x);
  }
  CGP_INLINE void add(int64_t i, T x) { set(i, (*this)[i] + x); }
  CGP_INLINE void clear() {
    for (auto& x : re_.values) x = Real<T>(0);
    for (auto& x : im_.values) x = Real<T>(0);
  }

 private:
  Parts<Real<T>, count> re_;
  Parts<Real<T>, is_complex<T> || count == 0 ? count : 1> im_;
};

// a L, of matrices of order n by columns, L lower triangular: into the first rows of `to`, which has
// `rows` of them.
template <class A, class Lower, class To>
CGP_INLINE void multiply_lower(const A& a, const Lower& L, int64_t n, To& to, int64_t rows) {
  using C = decltype(a[0] * L[0]);
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t i = 0; i < n; ++i) to.set(k * rows + i, C{});
    for (int64_t l = k; l < n; ++l) {
      const C element = L[k * n + l];
      CGP_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) to.add(k * rows + i, a[l * n + i] * element);
    }
  }
}

// sums[i] += Σ_k a_ik x[k], where a_ik is a[i * row + k * column]: four rows at a time, whose sums
// stay in registers and do not wait for each other.
template <class C, class M, int count>
CGP_INLINE void multiply_add(const C* a, int64_t row, int64_t column, int64_t n,
                             const Split<M, count>& x, Split<M, count>& sums) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    M s0 = sums[i], s1 = sums[i + 1], s2 = sums[i + 2], s3 = sums[i + 3];
    for (int64_t k = 0; k < n; ++k) {
      const C* from = a + i * row + k * column;
      const M factor = x[k];
      s0 += from[0] * factor;
      s1 += from[row] * factor;
      s2 += from[2 * row] * factor;
      s3 += from[3 * row] * factor;
    }
    sums.set(i, s0);
    sums.set(i + 1, s1);
    sums.set(i + 2, s2);
    sums.set(i + 3, s3);
  }
  for (; i < n; ++i) {
    M sum = sums[i];
    for (int64_t k = 0; k < n; ++k) sum += a[i * row + k * column] * x[k];
    sums.set(i, sum);
  }
}

}  // namespace cgp
