// The moments of one point of a complex process in its working form: a proper one is one complex
// row, an improper one two real rows, its real and its imaginary part.
#pragma once
#include <array>
#include <cmath>

#include "number.h"

namespace cgp {

// Working rows of a point, whose numbers are of type T.
template <class T>
constexpr int kRowsOfPoint = sizeof(T) == sizeof(Real<T>) ? 2 : 1;

template <class T>
using Vector = std::array<T, kRowsOfPoint<T>>;

// E|z|² and E z² of a complex number; c is zero and left alone if T is complex, that is, proper.
template <class R>
struct Moments {
  R k;
  Complex<R> c;

  CGP_INLINE Moments operator+(Moments b) const { return {k + b.k, c + b.c}; }
  CGP_INLINE Moments operator-(Moments b) const { return {k - b.k, c - b.c}; }
};

// k ≥ 0 and |c| ≤ k, which rounding violates where a variance is far below that of the prior.
template <class R>
CGP_INLINE Moments<R> clipped(Moments<R> x) {
  const R k = x.k > 0 ? x.k : x.k <= 0 ? R(0) : x.k;  // NaN stays
  const R modulus = std::hypot(x.c.re, x.c.im);
  return {k, modulus > k ? (k / modulus) * x.c : x.c};
}

// A lower triangular factor of a working covariance, or such a covariance by its lower part.
template <class T>
struct Lower {
  T a{}, b{}, d{};  // [a 0; b d]; a alone if the point has one row
};

// The factor of the working covariance of moments; NaN where they are not positive.
template <class T>
CGP_INLINE Lower<T> root(Moments<Real<T>> x) {
  using R = Real<T>;
  if constexpr (kRowsOfPoint<T> == 1) {
    return {number<T>(std::sqrt(x.k)), {}, {}};
  } else {
    const R a = std::sqrt((x.k + x.c.re) / 2), b = x.c.im / 2 / a;
    return {a, b, std::sqrt((x.k - x.c.re) / 2 - b * b)};
  }
}

// The moments of a point with the factor.
template <class T>
CGP_INLINE Moments<Real<T>> moments(Lower<T> x) {
  if constexpr (kRowsOfPoint<T> == 1) {
    return {square(x.a), {}};
  } else {
    const T im = x.b * x.b + x.d * x.d, re = x.a * x.a;
    return {re + im, {re - im, 2 * x.a * x.b}};
  }
}

// The moments of wᴴ ξ, ξ white, for w of n rows and a column for each row of the point.
template <class T>
CGP_INLINE Moments<Real<T>> moments(const T* w, int64_t n) {
  using R = Real<T>;
  if constexpr (kRowsOfPoint<T> == 1) {
    R k = 0;
    for (int64_t i = 0; i < n; ++i) k += square(w[i]);
    return {k, {}};
  } else {
    R re = 0, im = 0, both = 0;
    for (int64_t i = 0; i < n; ++i) {
      re += w[i] * w[i];
      im += w[n + i] * w[n + i];
      both += w[i] * w[n + i];
    }
    return {re + im, {re - im, 2 * both}};
  }
}

// x = L b.
template <class T>
CGP_INLINE Vector<T> product(Lower<T> chol, Vector<T> b) {
  if constexpr (kRowsOfPoint<T> == 1)
    return {chol.a * b[0]};
  else
    return {chol.a * b[0], chol.b * b[0] + chol.d * b[1]};
}

// What a measurement of innovation variance S = L Lᴴ adds to a signal of moments Σ: the mean
// Σ S⁻¹ v, and the moments Σ S⁻¹ N that it leaves, N being those of the noise. A product, where the
// difference from Σ would lose what a small noise leaves.
template <class T>
CGP_INLINE Moments<Real<T>> measured(Moments<Real<T>> signal, Lower<T> chol,
                                     Moments<Real<T>> noise, Vector<T> v, Vector<T>& mean) {
  using R = Real<T>;
  if constexpr (kRowsOfPoint<T> == 1) {
    const R gain = signal.k / square(chol.a);
    mean = {gain * v[0]};
    return clipped(Moments<R>{gain * noise.k, {}});
  } else {
    const R rr = (signal.k + signal.c.re) / 2, ii = (signal.k - signal.c.re) / 2;
    const R ri = signal.c.im / 2;
    const R nr = (noise.k + noise.c.re) / 2, ni = (noise.k - noise.c.re) / 2;
    const R n = noise.c.im / 2;
    // S⁻¹ of each column of Σ; the gain G is the adjoint.
    const auto solve = [&](R p, R q) -> Vector<T> {
      const R y = p / chol.a, x = (q - chol.b * y) / chol.d / chol.d;
      return {(y - chol.b * x) / chol.a, x};
    };
    const Vector<T> first = solve(rr, ri), second = solve(ri, ii);
    mean = {first[0] * v[0] + first[1] * v[1], second[0] * v[0] + second[1] * v[1]};
    const R re = first[0] * nr + first[1] * n, im = second[0] * n + second[1] * ni;
    const R both = first[0] * n + first[1] * ni, other = second[0] * nr + second[1] * n;
    return clipped(Moments<R>{re + im, {re - im, both + other}});
  }
}

}  // namespace cgp
