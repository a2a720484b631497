// cgp.linalg.cholesky_append: the factor of a covariance with a row and a column appended.
//
// With x = L⁻¹ c of the new column c, the new row is (xᴴ, √(variance − |x|²)). It is appended, or
// takes the first row of a buffer that is not in use.
#include <algorithm>

#include "factor_arguments.h"
#include "parallel.h"
#include "rank_one.h"
#include "triangular.h"

namespace cgp {
namespace {

// The new row, of `used` elements before its pivot; false where there is none.
template <class T>
CGP_FOR_EACH_PROCESSOR bool append(Rows<const T> chol, const T* cross, Real<T> variance,
                                   int64_t used, T* row, Workspace<T>& work) {
  T* x = work.scaling().w;
  solve(chol, cross, used, x);
  for (int64_t j = 0; j < used; ++j) {
    variance -= square(x[j]);
    row[j] = conj(x[j]);
  }
  row[used] = number<T>(std::sqrt(variance));
  return is_positive_and_finite(variance);
}

// The cotangents of c, and of the variance (returned), from that of the new row. `by_chol` begins
// as the cotangent of the rows that stayed.
template <class T>
CGP_FOR_EACH_PROCESSOR Real<T> append_pullback(Rows<const T> chol, const T* cross,
                                               Real<T> variance, int64_t used, const T* bar,
                                               Rows<T> by_chol, T* by_cross, Workspace<T>& work) {
  T* x = work.scaling().w;
  solve(chol, cross, used, x);
  for (int64_t j = 0; j < used; ++j) variance -= square(x[j]);
  const Real<T> by_variance = real(bar[used]) / (2 * std::sqrt(variance));
  for (int64_t j = 0; j < used; ++j) by_cross[j] = conj(bar[j]) - (2 * by_variance) * x[j];
  solve_pullback(chol, x, used, by_cross, by_chol);
  return by_variance;
}

// The arguments of one call. Without a buffer all rows of the factor are in use.
template <class T>
struct Arguments {
  Arguments(Call& call, bool in_buffer)
      : chol(call.input<T>(0)), cross(call.input<T>(1)), variance(call.input<Real<T>>(2)) {
    require_fit(chol, cross, variance);
    n = chol.axis(-1);
    if (!in_buffer) return;
    const auto size = call.input<int32_t>(3);
    require(size.shape == variance.shape, "size does not fit chol");
    sizes = size.data;
    for (int64_t i = 0; i < size.size(); ++i)
      require(sizes[i] >= 0 && sizes[i] < n, "the buffer is full");
  }

  int64_t used(int64_t i) const { return sizes ? sizes[i] : n; }
  int64_t rows() const { return sizes ? n : n + 1; }  // of the result

  Array<const T> chol, cross;
  Array<const Real<T>> variance;
  const int32_t* sizes = nullptr;
  int64_t n;
};

template <class T, bool in_buffer>
struct Append {
  static void run(Call& call) {
    const Arguments<T> given(call, in_buffer);
    const int64_t n = given.n, rows = given.rows();
    const auto result =
        call.output<T>(0, with(without_last(given.chol.shape, 2), {rows, rows}));
    for_each(given.variance.size(), n * n, [&](int64_t i) {
      const Rows<const T> chol{given.chol.data + i * n * n, n};
      const Rows<T> to{result.data + i * rows * rows, rows};
      const int64_t used = given.used(i);
      bool ok = true;
      for (int64_t j = 0; j < n; ++j) {
        std::fill(std::copy(chol[j], chol[j] + n, to[j]), to[j] + rows, T{});
        ok &= is_pivot(chol[j][j]);
      }
      std::fill(to[used], to[used] + rows, T{});
      Workspace<T> work(n);
      ok &= append<T>(chol, given.cross.data + i * n, given.variance.data[i], used, to[used], work);
      require(ok, "the appended row leaves no positive definite matrix");
    });
  }
};

template <class T, bool in_buffer>
struct AppendPullback {
  static void run(Call& call) {
    const Arguments<T> given(call, in_buffer);
    const auto bar = call.input<T>(in_buffer ? 4 : 3);
    const int64_t n = given.n, rows = given.rows();
    require(bar.shape == with(without_last(given.chol.shape, 2), {rows, rows}),
            "the cotangent does not fit");
    const auto by_chol = call.output<T>(0, given.chol.shape);
    const auto by_cross = call.output<T>(1, given.cross.shape);
    const auto by_variance = call.output<Real<T>>(2, given.variance.shape);
    for_each(given.variance.size(), 2 * n * n, [&](int64_t i) {
      const Rows<const T> bars{bar.data + i * rows * rows, rows};
      const Rows<T> to{by_chol.data + i * n * n, n};
      const int64_t used = given.used(i);
      for (int64_t j = 0; j < n; ++j) {
        if (j == used)
          std::fill(to[j], to[j] + n, T{});
        else
          std::copy(bars[j], bars[j] + n, to[j]);
      }
      T* crosses = by_cross.data + i * n;
      std::fill(crosses, crosses + n, T{});
      Workspace<T> work(n);
      by_variance.data[i] = append_pullback<T>(
          {given.chol.data + i * n * n, n}, given.cross.data + i * n, given.variance.data[i], used,
          bars[used], to, crosses, work);
    });
  }
};

template <class T> using CholeskyAppend = Append<T, false>;
template <class T> using CholeskyAppendPullback = AppendPullback<T, false>;
template <class T> using CholeskyAppendInBuffer = Append<T, true>;
template <class T> using CholeskyAppendInBufferPullback = AppendPullback<T, true>;

const bool registered = [] {
  register_op<CholeskyAppend>("CgpCholeskyAppend", {"chol: T", "cross: T", "variance: R"},
                              {"result: T"});
  register_op<CholeskyAppendPullback>("CgpCholeskyAppendPullback",
                                      {"chol: T", "cross: T", "variance: R", "bar: T"},
                                      {"by_chol: T", "by_cross: T", "by_variance: R"});
  register_op<CholeskyAppendInBuffer>("CgpCholeskyAppendInBuffer",
                                      {"chol: T", "cross: T", "variance: R", "size: int32"},
                                      {"result: T"});
  register_op<CholeskyAppendInBufferPullback>(
      "CgpCholeskyAppendInBufferPullback",
      {"chol: T", "cross: T", "variance: R", "size: int32", "bar: T"},
      {"by_chol: T", "by_cross: T", "by_variance: R"});
  return true;
}();

}  // namespace
}  // namespace cgp
