// Several series side by side, one in each lane of a vector: a number type for the same templates
// as single numbers. The compiler splits a vector into what the processor has. A vector of 512 bits
// would stay in memory between operations where the processor has no such registers, and takes twice
// as long.
#pragma once
#include <cmath>
#include <cstring>
#include <type_traits>

#include "number.h"

namespace cgp {

using std::log;
using std::sqrt;

template <class R>
struct Lanes {
  static constexpr int bytes = 32, count = bytes / sizeof(R);
  // Functions compiled for different processors do not agree on how wide vectors are aligned.
  typedef R Vector __attribute__((vector_size(bytes), aligned(sizeof(R))));
  Vector v;

  CGP_INLINE Lanes() : v{} {}
  // A copy that is not trivial is passed in memory: functions compiled for different processors do
  // not agree on the registers either.
  CGP_INLINE Lanes(const Lanes& other) : v(other.v) {}
  CGP_INLINE Lanes& operator=(const Lanes& other) {
    v = other.v;
    return *this;
  }
  CGP_INLINE Lanes(R x) {
    R each[count];
    for (int i = 0; i < count; ++i) each[i] = x;
    *this = of_array(each);
  }
  // By way of an array: compilers know no elements of vectors wider than the processor's.
  static CGP_INLINE Lanes of_array(const R* each) {
    Lanes lanes;
    std::memcpy(&lanes.v, each, sizeof(lanes.v));
    return lanes;
  }
  CGP_INLINE void get(R* each) const { std::memcpy(each, &v, sizeof(v)); }
  static CGP_INLINE Lanes of(Vector v) {
    Lanes lanes;
    lanes.v = v;
    return lanes;
  }

  friend CGP_INLINE Lanes operator+(Lanes a, Lanes b) { return of(a.v + b.v); }
  friend CGP_INLINE Lanes operator-(Lanes a, Lanes b) { return of(a.v - b.v); }
  friend CGP_INLINE Lanes operator*(Lanes a, Lanes b) { return of(a.v * b.v); }
  friend CGP_INLINE Lanes operator/(Lanes a, Lanes b) { return of(a.v / b.v); }
  friend CGP_INLINE Lanes operator-(Lanes a) { return of(-a.v); }
  friend CGP_INLINE Lanes& operator+=(Lanes& a, Lanes b) { return a = a + b; }
  friend CGP_INLINE Lanes& operator-=(Lanes& a, Lanes b) { return a = a - b; }
  friend CGP_INLINE Lanes conj(Lanes a) { return a; }
  friend CGP_INLINE Lanes real(Lanes a) { return a; }
  friend CGP_INLINE Lanes imag(Lanes) { return {}; }
  friend CGP_INLINE Lanes sqrt(Lanes a) {
    R each[count];
    a.get(each);
    for (int i = 0; i < count; ++i) each[i] = std::sqrt(each[i]);
    return of_array(each);
  }
  friend CGP_INLINE Lanes log(Lanes a) {
    R each[count];
    a.get(each);
    for (int i = 0; i < count; ++i) each[i] = std::log(each[i]);
    return of_array(each);
  }
};

// A number that all lanes share, times one of each.
template <class R>
CGP_INLINE Complex<Lanes<R>> operator*(Complex<R> a, Complex<Lanes<R>> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class R>
CGP_INLINE Complex<Lanes<R>> operator*(R a, Complex<Lanes<R>> b) {
  return {a * b.re, a * b.im};
}

// The numbers of several series, for those of one.
template <class T>
struct PackOf {
  using Type = Lanes<T>;
};
template <class R>
struct PackOf<Complex<R>> {
  using Type = Complex<Lanes<R>>;
};
template <class T>
using Pack = typename PackOf<T>::Type;

// How many series a number of type N stands for.
template <class N>
constexpr int lanes_of = 1;
template <class R>
constexpr int lanes_of<Lanes<R>> = Lanes<R>::count;
template <class R>
constexpr int lanes_of<Complex<Lanes<R>>> = Lanes<R>::count;

// The real number in one lane.
template <class N>
struct LaneOf {
  using Type = N;
};
template <class R>
struct LaneOf<Lanes<R>> {
  using Type = R;
};
template <class N>
using Lane = typename LaneOf<Real<N>>::Type;

template <class T>
constexpr bool is_complex = !std::is_same_v<T, Real<T>>;

// x > y ? a : b in each lane; b where either is NaN.
template <class R, class N>
CGP_INLINE N where_greater(R x, R y, N a, N b) {
  return x > y ? a : b;
}
template <class R>
CGP_INLINE Lanes<R> where_greater(Lanes<R> x, Lanes<R> y, Lanes<R> a, Lanes<R> b) {
  return Lanes<R>::of(x.v > y.v ? a.v : b.v);
}
template <class R>
CGP_INLINE Complex<Lanes<R>> where_greater(Lanes<R> x, Lanes<R> y, Complex<Lanes<R>> a,
                                           Complex<Lanes<R>> b) {
  return {where_greater(x, y, a.re, b.re), where_greater(x, y, a.im, b.im)};
}

// 1/s, and 0 where s is zero: a certain prediction leaves nothing to learn.
template <class R>
CGP_INLINE R inverse_or_zero(R s) {
  return where_greater(s, R(0), R(1) / where_greater(s, R(0), s, R(1)), R(0));
}

// Whether x > 0 in every lane.
CGP_INLINE bool all_positive(float x) { return x > 0; }
CGP_INLINE bool all_positive(double x) { return x > 0; }
template <class R>
CGP_INLINE bool all_positive(Lanes<R> x) {
  R each[Lanes<R>::count];
  x.get(each);
  bool all = true;
  for (int i = 0; i < Lanes<R>::count; ++i) all &= each[i] > 0;
  return all;
}

// The sum over lanes, by halves.
CGP_INLINE float total(float x) { return x; }
CGP_INLINE double total(double x) { return x; }
template <int count, class R>
CGP_INLINE R total_of(const R* each) {
  if constexpr (count == 1)
    return each[0];
  else
    return total_of<count / 2>(each) + total_of<count / 2>(each + count / 2);
}
template <class R>
CGP_INLINE R total(Lanes<R> x) {
  R each[Lanes<R>::count];
  x.get(each);
  return total_of<Lanes<R>::count>(each);
}
template <class R>
CGP_INLINE auto total(Complex<R> x) {
  return Complex<decltype(total(x.re))>{total(x.re), total(x.im)};
}

// The sum over those lanes that a number of type C does not tell apart.
template <class C, class M>
CGP_INLINE C total_as(M x) {
  if constexpr (std::is_same_v<C, M>)
    return x;
  else
    return total(x);
}

// Parts of numbers to and from lanes that are not all in use, which is rare: not inlined.
template <class T, class R>
__attribute__((noinline)) void load_some(const T* from, int64_t count, int64_t stride, T rest, R* re,
                                         R* im) {
  for (int64_t i = 0; i < Lanes<R>::count; ++i) {
    const T x = i < count ? from[i * stride] : rest;
    re[i] = real(x);
    im[i] = imag(x);
  }
}
template <class T, class R>
__attribute__((noinline)) void store_some(const R* re, const R* im, T* to, int64_t count,
                                          int64_t stride) {
  for (int64_t i = 0; i < count; ++i)
    if constexpr (is_complex<T>)
      to[i * stride] = {re[i], im[i]};
    else
      to[i * stride] = re[i];
}

// `count` numbers, `stride` apart, into lanes; those after them are `rest`, or repeat the last.
template <class N, class T>
CGP_INLINE N load(const T* from, int64_t count, const T* rest = nullptr, int64_t stride = 1) {
  if constexpr (lanes_of<N> == 1) {
    return *from;
  } else {
    constexpr int lanes = lanes_of<N>;
    Lane<N> re[lanes], im[lanes];
    if (count == lanes)
      for (int i = 0; i < lanes; ++i)
        re[i] = real(from[i * stride]), im[i] = imag(from[i * stride]);
    else
      load_some(from, count, stride, rest ? *rest : from[(count - 1) * stride], re, im);
    if constexpr (is_complex<T>)
      return {Lanes<Lane<N>>::of_array(re), Lanes<Lane<N>>::of_array(im)};
    else
      return N::of_array(re);
  }
}

template <class N, class T>
CGP_INLINE N broadcast(T x) {
  if constexpr (lanes_of<N> == 1)
    return x;
  else if constexpr (is_complex<T>)
    return N{x.re, x.im};
  else
    return N(x);
}

// The first `count` lanes to numbers that are `stride` apart.
template <class N, class T>
CGP_INLINE void store(N x, T* to, int64_t count, int64_t stride = 1) {
  if constexpr (lanes_of<N> == 1) {
    *to = x;
  } else {
    constexpr int lanes = lanes_of<N>;
    Lane<N> re[lanes], im[lanes];
    real(x).get(re);
    imag(x).get(im);
    if (count < lanes) return store_some(re, im, to, count, stride);
    for (int i = 0; i < lanes; ++i)
      if constexpr (is_complex<T>)
        to[i * stride] = {re[i], im[i]};
      else
        to[i * stride] = re[i];
  }
}

}  // namespace cgp
