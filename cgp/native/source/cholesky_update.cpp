// The factor of A + α v vᴴ from that of A, and its pullback: cgp.linalg.cholesky_update.
//
// With w = L⁻¹ v (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974, methods C1 and C2):
//
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k,
//     d_j = √(s_j / s_{j−1}),  u_j = α w̄_j / √(s_j s_{j−1}),  s_j = 1 + α Σ_{i≤j} |w_i|² .
//
// Each sign has a form of its own that is stable. An update (α ≥ 0) takes prefix sums along rows,
// S_ij = v_i − Σ_{k<j} L_ik w_k, and solves for w on its way; a downdate sums from the other end,
// where s is smallest, so that every term is positive.
#include <vector>

#include "column_scaling.h"
#include "op.h"
#include "parallel.h"
#include "triangular.h"

namespace cgp {
namespace {

// Vectors of one matrix, in one piece of memory.
template <class T>
struct Workspace {
  explicit Workspace(int64_t n) : numbers(2 * n), reals(2 * n), n(n) {}
  Scaling<T> scaling() { return {numbers.data(), reals.data(), numbers.data() + n}; }
  Real<T>* s() { return reals.data() + n; }  // s_j, whose predecessor of the first is 1

  std::vector<T> numbers;
  std::vector<Real<T>> reals;
  int64_t n;
};

// Columns [0, stop) of some rows by prefix sums; `sums` begins as v. `d` is the inverse of d_j.
template <int rows, class T>
CGP_INLINE void sweep_forwards(const T* chol, T* result, int64_t n, int64_t stop,
                               const Scaling<T>& by, T* sums) {
  T sum[rows];
  for (int r = 0; r < rows; ++r) sum[r] = sums[r];
  for (int64_t j = 0; j < stop; ++j) {
    const T w = by.w[j], u = by.u[j];
    const Real<T> d = by.d[j];
    for (int r = 0; r < rows; ++r) {
      const T element = chol[r * n + j];
      result[r * n + j] = d * element + u * sum[r];
      sum[r] -= element * w;
    }
  }
  for (int r = 0; r < rows; ++r) sums[r] = sum[r];
}

// False where the result is not positive definite, or an input is NaN.
template <class T>
CGP_INLINE bool update_one(const T* chol, const T* v, Real<T> alpha, T* result, int64_t n,
                           Workspace<T>& work) {
  using R = Real<T>;
  const Scaling<T> by = work.scaling();
  R s = 1;
  bool ok = true;
  for (int64_t first = 0; first < n; first += kRows) {
    const int rows = std::min<int64_t>(kRows, n - first);
    T sums[kRows];
    for (int r = 0; r < rows; ++r) sums[r] = v[first + r];
    const T* from = chol + first * n;
    T* to = result + first * n;
    if (rows == kRows)
      sweep_forwards<kRows>(from, to, n, first, by, sums);
    else
      for (int r = 0; r < rows; ++r)
        sweep_forwards<1>(from + r * n, to + r * n, n, first, by, sums + r);
    for (int r = 0; r < rows; ++r) {  // the triangle at the diagonal, which gives w
      const int64_t i = first + r;
      const Scaling<T> here{by.w + first, by.d + first, by.u + first};
      sweep_forwards<1>(chol + i * n + first, result + i * n + first, n, r, here, sums + r);
      const R diagonal = real(chol[i * n + i]), before = s;
      by.w[i] = (1 / diagonal) * sums[r];
      s += alpha * square(by.w[i]);
      const R root = std::sqrt(s), root_before = std::sqrt(before);
      by.d[i] = root_before / root;
      by.u[i] = (alpha / root / root_before) * conj(by.w[i]);
      // Without a subtraction the diagonal stays positive.
      const R updated = root / root_before * diagonal;
      ok &= is_positive_and_finite(diagonal) & is_positive_and_finite(updated) &
            (imag(chol[i * n + i]) == 0);
      result[i * n + i] = number<T>(updated);
      std::fill(result + i * n + i + 1, result + (i + 1) * n, T{});
    }
  }
  return ok;
}

// w = L⁻¹ v.
template <class T>
CGP_INLINE void solve(const T* chol, const T* v, int64_t n, T* w) {
  for (int64_t first = 0; first < n; first += kRows) {
    const int rows = std::min<int64_t>(kRows, n - first);
    T sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = r < rows ? v[first + r] : T{};
    const T* from = chol + first * n;
    if (rows == kRows)
      for (int64_t j = 0; j < first; ++j)
        for (int r = 0; r < kRows; ++r) sums[r] -= from[r * n + j] * w[j];
    for (int r = 0; r < rows; ++r) {
      const T* row = chol + (first + r) * n;
      for (int64_t j = rows == kRows ? first : 0; j < first + r; ++j) sums[r] -= row[j] * w[j];
      w[first + r] = (1 / real(row[first + r])) * sums[r];
    }
  }
}

// d, u and s of a downdate or update, from w.
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
    // Of a downdate, s before the first column is 1 but for rounding.
    const R root = std::sqrt(s[j]), root_before = std::sqrt(j ? s[j - 1] : R(1));
    by.d[j] = root / root_before;
    by.u[j] = (alpha / root / root_before) * conj(by.w[j]);
  }
}

template <class T>
CGP_INLINE bool downdate_one(const T* chol, const T* v, Real<T> alpha, T* result, int64_t n,
                             Workspace<T>& work) {
  const Scaling<T> by = work.scaling();
  solve(chol, v, n, by.w);
  scale_by(by, work.s(), alpha, n);
  bool ok = n == 0 || work.s()[n - 1] > 0;
  scale_columns(chol, result, n, by);
  for (int64_t i = 0; i < n; ++i)
    ok &= is_positive_and_finite(real(chol[i * n + i])) & (imag(chol[i * n + i]) == 0) &
          is_positive_and_finite(real(result[i * n + i]));
  return ok;
}

// The cotangents of L, v and α from that of L', where those of d and u go on to w and α by s, and
// that of w to L and v by w = L⁻¹ v.
template <class T>
CGP_INLINE void pullback_one(const T* chol, const T* v, Real<T> alpha, const T* bar, T* by_chol,
                             T* by_v, Real<T>* by_alpha, int64_t n, Workspace<T>& work,
                             Workspace<T>& bars) {
  using R = Real<T>;
  const Scaling<T> by = work.scaling();
  const R* s = work.s();
  solve(chol, v, n, by.w);
  scale_by(by, work.s(), alpha, n);
  const ScalingCotangents<T> to{by_chol, by_v, bars.scaling().d, bars.scaling().u};
  scale_columns_pullback(chol, bar, n, by, to);

  R sum_of_bars = 0, of_alpha = 0;  // of s_i for i ≥ j; by α itself
  for (int64_t j = n - 1; j >= 0; --j) {
    const R before = j ? s[j - 1] : R(1);
    const R scale = 1 / (std::sqrt(s[j]) * std::sqrt(before));
    const T bar_u = to.u[j];
    const R of_d = to.d[j] * by.d[j], of_u = inner(bar_u, by.u[j]);
    // s_j occurs in d_j and u_j, and as the s before in d_{j+1} and u_{j+1}: added at j + 1.
    sum_of_bars += (of_d - of_u) / (2 * s[j]);
    of_alpha += scale * inner(bar_u, conj(by.w[j])) + sum_of_bars * square(by.w[j]);
    by_v[j] += (alpha * scale) * conj(bar_u) + (2 * alpha * sum_of_bars) * by.w[j];
    sum_of_bars -= (of_d + of_u) / (2 * before);
  }
  *by_alpha = of_alpha;
  solve_adjoint(chol, n, by_v);
  for (int64_t i = 0; i < n; ++i) {
    const T vi = by_v[i];
    T* row = by_chol + i * n;
    for (int64_t j = 0; j <= i; ++j) row[j] -= vi * conj(by.w[j]);
  }
}

template <class T>
CGP_FOR_EACH_PROCESSOR bool update(const T* chol, const T* v, Real<T> alpha, T* result, int64_t n,
                                   Workspace<T>& work) {
  return alpha >= 0 ? update_one(chol, v, alpha, result, n, work)
                    : downdate_one(chol, v, alpha, result, n, work);
}

template <class T>
CGP_FOR_EACH_PROCESSOR void pullback(const T* chol, const T* v, Real<T> alpha, const T* bar,
                                     T* by_chol, T* by_v, Real<T>* by_alpha, int64_t n,
                                     Workspace<T>& work, Workspace<T>& bars) {
  pullback_one(chol, v, alpha, bar, by_chol, by_v, by_alpha, n, work, bars);
}

template <class T>
void check(const Array<const T>& chol, const Array<const T>& v, const Array<const Real<T>>& alpha) {
  require(chol.shape.size() >= 2 && chol.axis(-1) == chol.axis(-2), "chol is not square");
  const Shape batch = without_last(chol.shape, 2);
  require(v.shape == with(batch, {chol.axis(-1)}), "update_vector does not fit chol");
  require(alpha.shape == batch, "multiplier does not fit chol");
}

template <class T>
struct CholeskyUpdate {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), v = call.input<T>(1);
    const auto alpha = call.input<Real<T>>(2);
    check(chol, v, alpha);
    const auto result = call.output<T>(0, chol.shape);
    const int64_t n = chol.axis(-1);
    for_each(alpha.size(), n * n, [&](int64_t i) {
      Workspace<T> work(n);
      require(update(chol.data + i * n * n, v.data + i * n, alpha.data[i],
                     result.data + i * n * n, n, work),
              "A + multiplier·v·vᴴ is not positive definite");
    });
  }
};

template <class T>
struct CholeskyUpdatePullback {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), v = call.input<T>(1);
    const auto alpha = call.input<Real<T>>(2);
    const auto bar = call.input<T>(3);
    check(chol, v, alpha);
    require(bar.shape == chol.shape, "the cotangent does not fit chol");
    const auto by_chol = call.output<T>(0, chol.shape), by_v = call.output<T>(1, v.shape);
    const auto by_alpha = call.output<Real<T>>(2, alpha.shape);
    const int64_t n = chol.axis(-1);
    for_each(alpha.size(), 4 * n * n, [&](int64_t i) {
      Workspace<T> work(n), bars(n);
      const int64_t at = i * n * n;
      pullback(chol.data + at, v.data + i * n, alpha.data[i], bar.data + at, by_chol.data + at,
               by_v.data + i * n, by_alpha.data + i, n, work, bars);
    });
  }
};

const bool registered = [] {
  register_op<CholeskyUpdate>("CgpCholeskyUpdate", {"chol: T", "v: T", "alpha: R"},
                              {"result: T"});
  register_op<CholeskyUpdatePullback>("CgpCholeskyUpdatePullback",
                                      {"chol: T", "v: T", "alpha: R", "bar: T"},
                                      {"by_chol: T", "by_v: T", "by_alpha: R"});
  return true;
}();

}  // namespace
}  // namespace cgp
