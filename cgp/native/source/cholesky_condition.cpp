// cgp.linalg.cholesky_condition: the factor of a covariance after a scalar measurement.
#include "factor_arguments.h"
#include "measurement.h"
#include "parallel.h"

namespace cgp {
namespace {

// The cotangents of L and h, and of r (returned), from those of L', the gain and S.
template <class T>
CGP_FOR_EACH_PROCESSOR Real<T> condition_pullback(Rows<const T> chol, const T* h, Real<T> r,
                                                  Rows<const T> bar, const T* by_gain,
                                                  Real<T> by_variance, Rows<T> by_chol, T* by_h,
                                                  int64_t n, Workspace<T>& work,
                                                  Workspace<T>& bars) {
  using R = Real<T>;
  const Scaling<T> by = work.scaling();
  const R* s = work.s();
  const R variance = scale_by_measurement(chol, h, r, n, by, work.s());
  T* by_phi = bars.scaling().w;
  const ScalingCotangents<T> to{by_chol, by_phi, bars.scaling().d, bars.scaling().u};
  scale_columns_pullback(chol, bar, n, by, to);

  // gain = (L φ) / S.
  const R inverse = inverse_unless_zero(variance);
  R by_inverse = 0;
  for (int64_t i = 0; i < n; ++i) {
    const T by_total = inverse * by_gain[i];
    const T* row = chol[i];
    T total{};
    for (int64_t j = 0; j <= i; ++j) {
      total += row[j] * by.w[j];
      by_chol[i][j] += by_total * conj(by.w[j]);
      by_phi[j] += conj(row[j]) * by_total;
    }
    by_inverse += inner(by_gain[i], total);
  }
  // By S, and by all s that contain |φ_j|²: those before j, and the one between j and its left.
  R by_sums = by_variance - inverse * inverse * by_inverse;
  for (int64_t j = 0; j < n; ++j) {
    const R before = j ? s[j - 1] : variance;
    R by_s = 0;
    if (s[j] != 0) {  // elsewhere d and u are constants
      const R of_d = to.d[j] * by.d[j], of_u = inner(to.u[j], by.u[j]);
      by_phi[j] -= (1 / std::sqrt(s[j]) / std::sqrt(before)) * conj(to.u[j]);
      by_sums -= (of_d + of_u) / (2 * before);
      by_s = (of_d - of_u) / (2 * s[j]);
    }
    by_phi[j] += (2 * by_sums) * by.w[j];
    by_sums += by_s;
  }
  // φ = Lᴴ hᴴ.
  for (int64_t i = 0; i < n; ++i) {
    const T* row = chol[i];
    by_h[i] = T{};
    for (int64_t j = 0; j <= i; ++j) {
      by_h[i] += conj(by_phi[j] * row[j]);
      by_chol[i][j] += conj(by_phi[j] * h[i]);
    }
  }
  return by_sums;  // r is in all of the sums
}

template <class T>
struct CholeskyCondition {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), h = call.input<T>(1);
    const auto r = call.input<Real<T>>(2);
    require_fit(chol, h, r);
    const auto result = call.output<T>(0, chol.shape), gain = call.output<T>(1, h.shape);
    const auto variance = call.output<Real<T>>(2, r.shape);
    const int64_t n = chol.axis(-1), size = n * n;
    for_each(r.size(), size, [&](int64_t i) {
      Workspace<T> work(n);
      require(condition<T>({chol.data + i * size, n}, h.data + i * n, r.data[i],
                           {result.data + i * size, n}, gain.data + i * n, variance.data + i, n,
                           work),
              "the factor, the noise variance or the innovation variance is not one");
    });
  }
};

template <class T>
struct CholeskyConditionPullback {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), h = call.input<T>(1);
    const auto r = call.input<Real<T>>(2);
    const auto bar = call.input<T>(3), by_gain = call.input<T>(4);
    const auto by_variance = call.input<Real<T>>(5);
    require_fit(chol, h, r);
    require(bar.shape == chol.shape && by_gain.shape == h.shape && by_variance.shape == r.shape,
            "the cotangents do not fit");
    const auto by_chol = call.output<T>(0, chol.shape), by_h = call.output<T>(1, h.shape);
    const auto by_r = call.output<Real<T>>(2, r.shape);
    const int64_t n = chol.axis(-1), size = n * n;
    for_each(r.size(), 5 * size, [&](int64_t i) {
      Workspace<T> work(n), bars(n);
      by_r.data[i] = condition_pullback<T>(
          {chol.data + i * size, n}, h.data + i * n, r.data[i], {bar.data + i * size, n},
          by_gain.data + i * n, by_variance.data[i], {by_chol.data + i * size, n},
          by_h.data + i * n, n, work, bars);
    });
  }
};

const bool registered = [] {
  register_op<CholeskyCondition>("CgpCholeskyCondition", {"chol: T", "h: T", "noise_variance: R"},
                                 {"result: T", "gain: T", "innovation_variance: R"});
  register_op<CholeskyConditionPullback>(
      "CgpCholeskyConditionPullback",
      {"chol: T", "h: T", "noise_variance: R", "bar: T", "by_gain: T", "by_variance: R"},
      {"by_chol: T", "by_h: T", "by_noise_variance: R"});
  return true;
}();

}  // namespace
}  // namespace cgp
