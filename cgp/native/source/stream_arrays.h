// What the compiled steps of Gaussian processes over a stream share: samples and moments in arrays,
// and covariances in working form.
#pragma once
#include <vector>

#include "point.h"

extern "C" {
struct cgp_StreamMoments {
  void *mean, *variance, *pseudo;  // [B, T]
};
}

namespace cgp {

// The covariance of a point and a sample in working form: the imaginary part of the point is `row`
// elements after its real part, that of the sample `column` elements.
template <class T, class R>
void put(Complex<R> k, Complex<R> c, T* to, int64_t row, int64_t column) {
  if constexpr (kRowsOfPoint<T> == 1) {
    *to = k;
  } else {
    to[0] = (k.re + c.re) / 2;
    to[column] = (c.im - k.im) / 2;
    to[row] = (k.im + c.im) / 2;
    to[row + column] = (k.re - c.re) / 2;
  }
}

// A complex number as working numbers, and back.
template <class T>
void split(Complex<Real<T>> z, T* to) {
  if constexpr (kRowsOfPoint<T> == 1) {
    to[0] = z;
  } else {
    to[0] = z.re;
    to[1] = z.im;
  }
}
template <class T>
Complex<Real<T>> joined(const T* from) {
  if constexpr (kRowsOfPoint<T> == 1)
    return from[0];
  else
    return {from[0], from[1]};
}

// An array of complex numbers of stream b; of zeros where there is none.
template <class R>
std::vector<Complex<R>> numbers_of(const void* from, int64_t b, int64_t count) {
  if (!from) return std::vector<Complex<R>>(count);
  const auto* first = static_cast<const Complex<R>*>(from) + b * count;
  return std::vector<Complex<R>>(first, first + count);
}

template <class R>
void set(const cgp_StreamMoments& to, int64_t i, Complex<R> mean, Moments<R> moments) {
  static_cast<Complex<R>*>(to.mean)[i] = mean;
  static_cast<R*>(to.variance)[i] = moments.k;
  static_cast<Complex<R>*>(to.pseudo)[i] = moments.c;
}

}  // namespace cgp
