// Real and complex numbers with one set of operations, for templates over both.
//
// Not std::complex: its product handles infinities by a call of a library function, which keeps
// loops from being vectorised. NaN propagates through every operation here.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

// Helpers are inlined into the functions that are compiled for several processors.
#define CGP_INLINE inline __attribute__((always_inline))

// The same of a lambda, after its arguments.
#define CGP_BODY __attribute__((always_inline))

// Compiles a function for the baseline and for vectors of 256 bits; the loader chooses by the
// processor. Not for functions of N states that are known as they are compiled: their loops are
// unrolled, and wider vectors gain nothing.
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(CGP_ONE_TARGET)
#define CGP_FOR_EACH_PROCESSOR \
  __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define CGP_FOR_EACH_PROCESSOR
#endif

// The turns of a loop do not depend on each other, which the compiler cannot know of pointers; clang
// asks at run time.
#if defined(__clang__)
#define CGP_INDEPENDENT
#else
#define CGP_INDEPENDENT _Pragma("GCC ivdep")
#endif

// Instantiates something for each kind of number.
#define CGP_FOR_EACH_NUMBER(INSTANCE) \
  INSTANCE(double);                   \
  INSTANCE(float);                    \
  INSTANCE(Complex<double>);          \
  INSTANCE(Complex<float>)

namespace cgp {

template <class R>
struct Complex {
  R re, im;
};

template <class T>
struct Precision {
  using Real = T;
};
template <class R>
struct Precision<Complex<R>> {
  using Real = R;
};
template <class T>
using Real = typename Precision<T>::Real;

#define CGP_COMPLEX template <class R> CGP_INLINE
CGP_COMPLEX Complex<R> operator+(Complex<R> a, Complex<R> b) { return {a.re + b.re, a.im + b.im}; }
CGP_COMPLEX Complex<R> operator-(Complex<R> a, Complex<R> b) { return {a.re - b.re, a.im - b.im}; }
CGP_COMPLEX Complex<R> operator*(Complex<R> a, Complex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
CGP_COMPLEX Complex<R> operator*(R a, Complex<R> b) { return {a * b.re, a * b.im}; }
CGP_COMPLEX Complex<R> conj(Complex<R> a) { return {a.re, -a.im}; }
CGP_COMPLEX R real(Complex<R> a) { return a.re; }
CGP_COMPLEX R imag(Complex<R> a) { return a.im; }
#undef CGP_COMPLEX

template <class R>
CGP_INLINE Complex<R>& operator+=(Complex<R>& a, Complex<R> b) { return a = a + b; }
template <class R>
CGP_INLINE Complex<R>& operator-=(Complex<R>& a, Complex<R> b) { return a = a - b; }

CGP_INLINE float conj(float a) { return a; }
CGP_INLINE double conj(double a) { return a; }
CGP_INLINE float real(float a) { return a; }
CGP_INLINE double real(double a) { return a; }
CGP_INLINE float imag(float) { return 0; }
CGP_INLINE double imag(double) { return 0; }

// |a|².
template <class T>
CGP_INLINE Real<T> square(T a) {
  return real(a) * real(a) + imag(a) * imag(a);
}

// Re(ā b), the real inner product; a cotangent ā pairs with a differential b so.
template <class T>
CGP_INLINE Real<T> inner(T a, T b) {
  return real(a) * real(b) + imag(a) * imag(b);
}

// A real number as a T.
template <class T>
CGP_INLINE T number(Real<T> x) {
  if constexpr (sizeof(T) == sizeof(Real<T>))
    return x;
  else
    return T{x, 0};
}

// False for NaN.
template <class R>
CGP_INLINE bool is_positive_and_finite(R x) {
  return x > 0 && x <= std::numeric_limits<R>::max();
}
template <class R>
CGP_INLINE bool is_not_negative_and_finite(R x) {
  return x >= 0 && x <= std::numeric_limits<R>::max();
}

}  // namespace cgp
