// Rank-one updates of a factor, and their pullback: see rank_one.h.
#include "rank_one.h"

#include <algorithm>

#include "triangular.h"

namespace cgp {
namespace {

// Columns [0, stop) of some rows by prefix sums; `sums` begins as v. `by.d` is the inverse of d.
template <class Column, class T>
CGP_INLINE void scale_forwards(Rows<const T> chol, Rows<T> result, int64_t stop,
                               const Scaling<T>& by, T* sums) {
  Column sum = Column::load(sums);
  for (int64_t j = 0; j < stop; ++j) {
    const Column element = Column::load(chol, j);
    (element.scaled(by.d[j]) + sum.times(by.u[j])).store(result, j);
    sum = sum - element.times(by.w[j]);
  }
  sum.store(sums);
}

// `rank_one` for α ≥ 0.
template <class T>
CGP_INLINE bool update(Rows<const T> chol, const T* v, Real<T> alpha, Rows<T> result, int64_t n,
                       Workspace<T>& work) {
  using R = Real<T>;
  const Scaling<T> by = work.scaling();
  R s = 1;
  bool ok = true;
  for (int64_t first = 0; first < n; first += 4) {
    const int rows = std::min<int64_t>(4, n - first);
    T sums[4] = {};
    std::copy(v + first, v + first + rows, sums);
    const auto from = chol.from(first, 0);
    const auto to = result.from(first, 0);
    if (rows == 4)
      scale_forwards<FourRows<T>>(from, to, first, by, sums);
    else
      for (int r = 0; r < rows; ++r)
        scale_forwards<OneRow<T>>(from.from(r, 0), to.from(r, 0), first, by, sums + r);
    for (int r = 0; r < rows; ++r) {  // the triangle at the diagonal, which gives w
      const int64_t i = first + r;
      const Scaling<T> here{by.w + first, by.d + first, by.u + first};
      scale_forwards<OneRow<T>>(from.from(r, first), to.from(r, first), r, here, sums + r);
      const R diagonal = real(chol[i][i]), before = s;
      by.w[i] = (1 / diagonal) * sums[r];
      s += alpha * square(by.w[i]);
      const R root = std::sqrt(s), root_before = std::sqrt(before);
      by.d[i] = root_before / root;
      by.u[i] = (alpha / root / root_before) * conj(by.w[i]);
      const R updated = root / root_before * diagonal;  // without a subtraction: positive
      ok &= is_pivot(chol[i][i]) && is_positive_and_finite(updated);
      result[i][i] = number<T>(updated);
      std::fill(result[i] + i + 1, result[i] + n, T{});
    }
  }
  return ok;
}

// d, u and s from w, each sign summed from its stable end.
template <class T>
CGP_INLINE void scale_by(const Scaling<T>& by, Real<T>* s, Real<T> alpha, int64_t n) {
  using R = Real<T>;
  if (alpha >= 0) {
    R sum = 1;
    for (int64_t j = 0; j < n; ++j) s[j] = sum += alpha * square(by.w[j]);
  } else {
    R total = 0;
    for (int64_t j = 0; j < n; ++j) total -= alpha * square(by.w[j]);
    R sum = 1 - total;
    for (int64_t j = n - 1; j >= 0; --j) {
      s[j] = sum;
      sum -= alpha * square(by.w[j]);
    }
  }
  for (int64_t j = 0; j < n; ++j) {
    const R root = std::sqrt(s[j]), root_before = std::sqrt(j ? s[j - 1] : R(1));
    by.d[j] = root / root_before;
    by.u[j] = (alpha / root / root_before) * conj(by.w[j]);
  }
}

// `rank_one` for α < 0.
template <class T>
CGP_INLINE bool downdate(Rows<const T> chol, const T* v, Real<T> alpha, Rows<T> result, int64_t n,
                         Workspace<T>& work) {
  const Scaling<T> by = work.scaling();
  solve(chol, v, n, by.w);
  scale_by(by, work.s(), alpha, n);
  bool ok = n == 0 || work.s()[n - 1] > 0;
  scale_columns(chol, result, n, by, work.vector());
  for (int64_t i = 0; i < n; ++i)
    ok &= is_pivot(chol[i][i]) && is_positive_and_finite(real(result[i][i]));
  return ok;
}

}  // namespace

template <class T>
CGP_FOR_EACH_PROCESSOR bool rank_one(Rows<const T> chol, const T* v, Real<T> alpha, Rows<T> result,
                                     int64_t n, Workspace<T>& work) {
  return alpha >= 0 ? update(chol, v, alpha, result, n, work)
                    : downdate(chol, v, alpha, result, n, work);
}

// The cotangents of d and u go on to w and α through s, that of w to L and v through w = L⁻¹ v.
template <class T>
CGP_FOR_EACH_PROCESSOR Real<T> rank_one_pullback(Rows<const T> chol, const T* v, Real<T> alpha,
                                                 Rows<const T> bar, Rows<T> by_chol, T* by_v,
                                                 int64_t n, Workspace<T>& work,
                                                 Workspace<T>& bars) {
  using R = Real<T>;
  const Scaling<T> by = work.scaling();
  const R* s = work.s();
  solve(chol, v, n, by.w);
  scale_by(by, work.s(), alpha, n);
  const ScalingCotangents<T> to{by_chol, by_v, bars.scaling().d, bars.scaling().u};
  scale_columns_pullback(chol, bar, n, by, to);

  R by_sums = 0, by_alpha = 0;  // by s_i, summed over i ≥ j
  for (int64_t j = n - 1; j >= 0; --j) {
    const R before = j ? s[j - 1] : R(1);
    const R scale = 1 / (std::sqrt(s[j]) * std::sqrt(before));
    const R of_d = to.d[j] * by.d[j], of_u = inner(to.u[j], by.u[j]);
    by_sums += (of_d - of_u) / (2 * s[j]);
    by_alpha += scale * inner(to.u[j], conj(by.w[j])) + by_sums * square(by.w[j]);
    by_v[j] += (alpha * scale) * conj(to.u[j]) + (2 * alpha * by_sums) * by.w[j];
    by_sums -= (of_d + of_u) / (2 * before);  // s_{j−1}, which the terms before this one share
  }
  solve_pullback(chol, by.w, n, by_v, by_chol);
  return by_alpha;
}

#define CGP_RANK_ONE(T)                                                                      \
  template bool rank_one<T>(Rows<const T>, const T*, Real<T>, Rows<T>, int64_t, Workspace<T>&); \
  template Real<T> rank_one_pullback<T>(Rows<const T>, const T*, Real<T>, Rows<const T>,       \
                                        Rows<T>, T*, int64_t, Workspace<T>&, Workspace<T>&)
CGP_FOR_EACH_NUMBER(CGP_RANK_ONE);

}  // namespace cgp
