// Rows of a matrix, and the values of one column in four of them, in registers.
//
// Recursions along a row wait for their running sum. Four rows at once do not wait for each other,
// and read the vectors along the columns once.
#pragma once
#include <cstdint>

#include "number.h"

namespace cgp {

// The rows of a matrix, `stride` elements apart: a matrix in C order, or a block of one.
template <class T>
struct Rows {
  T* data;
  int64_t stride;

  CGP_INLINE T* operator[](int64_t i) const { return data + i * stride; }
  CGP_INLINE Rows from(int64_t row, int64_t column) const { return {(*this)[row] + column, stride}; }
};

// The value of one column in one row.
template <class T>
struct OneRow {
  T a;

  CGP_INLINE static OneRow load(Rows<const T> x, int64_t j) { return {x[0][j]}; }
  CGP_INLINE static OneRow load(const T* x) { return {x[0]}; }
  CGP_INLINE void store(Rows<T> x, int64_t j) const { x[0][j] = a; }
  CGP_INLINE void store(T* x) const { x[0] = a; }
  CGP_INLINE OneRow operator+(OneRow y) const { return {a + y.a}; }
  CGP_INLINE OneRow operator-(OneRow y) const { return {a - y.a}; }
  CGP_INLINE OneRow scaled(Real<T> x) const { return {x * a}; }
  CGP_INLINE OneRow times(T x) const { return {x * a}; }
};

// A number in a register: of a complex one both parts side by side, the widest vectors that every
// processor has. Wider ones gain nothing here, as rows are not adjacent in memory.
template <class T>
struct Register {
  using Type = T;
  CGP_INLINE static Type load(T x) { return x; }
  CGP_INLINE static T value(Type x) { return x; }
  CGP_INLINE static Type product(T x, Type y) { return x * y; }
};

typedef float Float2 __attribute__((vector_size(8)));
typedef double Double2 __attribute__((vector_size(16)));
template <class R> struct Vector2 { using Type = Float2; };
template <> struct Vector2<double> { using Type = Double2; };

template <class R>
struct Register<Complex<R>> {
  using Type = typename Vector2<R>::Type;
  CGP_INLINE static Type load(Complex<R> x) { return Type{x.re, x.im}; }
  CGP_INLINE static Complex<R> value(Type x) { return {x[0], x[1]}; }
  CGP_INLINE static Type product(Complex<R> x, Type y) {
    return x.re * y + Type{-x.im, x.im} * Type{y[1], y[0]};
  }
};

// The values of one column in four rows.
template <class T>
struct FourRows {
  using In = Register<T>;
  typename In::Type a, b, c, d;

  CGP_INLINE static FourRows load(Rows<const T> x, int64_t j) {
    return {In::load(x[0][j]), In::load(x[1][j]), In::load(x[2][j]), In::load(x[3][j])};
  }
  CGP_INLINE static FourRows load(const T* x) { return load(Rows<const T>{x, 1}, 0); }
  CGP_INLINE void store(Rows<T> x, int64_t j) const {
    x[0][j] = In::value(a);
    x[1][j] = In::value(b);
    x[2][j] = In::value(c);
    x[3][j] = In::value(d);
  }
  CGP_INLINE void store(T* x) const { store(Rows<T>{x, 1}, 0); }
  CGP_INLINE FourRows operator+(FourRows y) const { return {a + y.a, b + y.b, c + y.c, d + y.d}; }
  CGP_INLINE FourRows operator-(FourRows y) const { return {a - y.a, b - y.b, c - y.c, d - y.d}; }
  CGP_INLINE FourRows scaled(Real<T> x) const { return {x * a, x * b, x * c, x * d}; }
  CGP_INLINE FourRows times(T x) const {
    return {In::product(x, a), In::product(x, b), In::product(x, c), In::product(x, d)};
  }
};

}  // namespace cgp
