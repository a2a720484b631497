// Elementary functions without branches, which loops over arrays turn into vector instructions, as
// calls of the mathematical library do not become. All are good to a few roundings.
#pragma once
#include <cstdint>
#include <cstring>

#include "unrolled.h"

namespace cgp {

// Added to a number below 2^51 it leaves the nearest integer, in the last bits.
constexpr double kRounder = 6755399441055744.0;

CGP_INLINE int64_t bits(double x) {
  int64_t b;
  std::memcpy(&b, &x, sizeof(b));
  return b;
}
CGP_INLINE double from_bits(int64_t b) {
  double x;
  std::memcpy(&x, &b, sizeof(x));
  return x;
}

// e⁻ʸ, and 1 − e⁻ʸ to full relative precision, for 0 ≤ y ≤ 700: e⁻ʸ = 2ᵏ eʳ with |r| ≤ ½ log 2.
CGP_INLINE void decay(double y, double& power, double& loss) {
  const double shifted = kRounder - y * 1.4426950408889634074;
  const double k = shifted - kRounder;
  const double r = (-y - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
  double sum = 1.0 / 6227020800.0;
  sum = 1.0 / 479001600.0 + r * sum;
  sum = 1.0 / 39916800.0 + r * sum;
  sum = 1.0 / 3628800.0 + r * sum;
  sum = 1.0 / 362880.0 + r * sum;
  sum = 1.0 / 40320.0 + r * sum;
  sum = 1.0 / 5040.0 + r * sum;
  sum = 1.0 / 720.0 + r * sum;
  sum = 1.0 / 120.0 + r * sum;
  sum = 1.0 / 24.0 + r * sum;
  sum = 1.0 / 6.0 + r * sum;
  sum = 0.5 + r * sum;
  const double more = r + r * r * sum;  // eʳ − 1
  const double scale = from_bits(int64_t(uint64_t(bits(shifted)) << 52) + (int64_t(1023) << 52));
  power = scale + scale * more;
  loss = (1.0 - scale) - scale * more;
}

// The number e^{i2π turns}, for |turns| < 2⁴⁹: after quarter turns, Taylor's series at |a| ≤ π/4.
CGP_INLINE void turn(double turns, double& cosine, double& sine) {
  const double quarters = 4.0 * turns, shifted = quarters + kRounder;
  const double a = (quarters - (shifted - kRounder)) * 1.57079632679489661923;
  const double square = a * a;
  double s = -1.0 / 1307674368000.0;
  s = 1.0 / 6227020800.0 + square * s;
  s = -1.0 / 39916800.0 + square * s;
  s = 1.0 / 362880.0 + square * s;
  s = -1.0 / 5040.0 + square * s;
  s = 1.0 / 120.0 + square * s;
  s = -1.0 / 6.0 + square * s;
  s = a + a * square * s;
  double c = 1.0 / 20922789888000.0;
  c = -1.0 / 87178291200.0 + square * c;
  c = 1.0 / 479001600.0 + square * c;
  c = -1.0 / 3628800.0 + square * c;
  c = 1.0 / 40320.0 + square * c;
  c = -1.0 / 720.0 + square * c;
  c = 1.0 / 24.0 + square * c;
  c = 1.0 - 0.5 * square + square * square * c;
  const int64_t quarter = bits(shifted), odd = -(quarter & 1);
  const int64_t of_s = bits(s), of_c = bits(c);
  const int64_t swapped = (of_s ^ of_c) & odd;
  cosine = from_bits((of_c ^ swapped) ^ int64_t(uint64_t((quarter + 1) & 2) << 62));
  sine = from_bits((of_s ^ swapped) ^ int64_t(uint64_t(quarter & 2) << 62));
}

// The regularised incomplete gamma function P(k, y) = 1 − e⁻ʸ Σ_{j<k} yʲ/j!, given e⁻ʸ; from the
// series e⁻ʸ yᵏ/k! (1 + y/(k+1) (1 + y/(k+2) (…))) (DLMF 8.7.1) where the difference would cancel.
template <int k>
CGP_INLINE double incomplete_gamma(double y, double power) {
  constexpr double border = k - 1;
  constexpr int terms = 20 + 2 * k;
  const double low = y < border ? y : border;
  double series = 1.0, sum = 1.0;
  each<terms>(0, terms, [&](int64_t j) CGP_BODY {
    series = 1.0 + low * (1.0 / double(k + terms - j)) * series;
  });
  each<k>(0, k, [&](int64_t j) CGP_BODY { series *= low * (1.0 / double(j + 1)); });
  each<k>(1, k, [&](int64_t j) CGP_BODY { sum = 1.0 + y * (1.0 / double(k - j)) * sum; });
  const double small = power * series, large = 1.0 - power * sum;
  return y < border ? small : large;
}

}  // namespace cgp
