// Numbers with real and imaginary parts in arrays of their own, so that loops over them become
// vector instructions. Their count is a template argument, or 0 where it is known at run time only.
#pragma once
#include <vector>

#include "lanes.h"

// The turns of a loop do not depend on each other, which the compiler cannot know of pointers.
#define CGP_INDEPENDENT _Pragma("GCC ivdep")

namespace cgp {

template <class R, int count>
struct Parts {
  explicit Parts(int64_t) {}
  R values[count] = {};
};
template <class R>
struct Parts<R, 0> {
  explicit Parts(int64_t size) : values(size) {}
  std::vector<R> values;
};

template <class T, int count>
class Split {
 public:
  explicit Split(int64_t size) : re_(size), im_(is_complex<T> ? size : 1) {}

  CGP_INLINE T operator[](int64_t i) const {
    if constexpr (is_complex<T>)
      return {re_.values[i], im_.values[i]};
    else
      return re_.values[i];
  }
  CGP_INLINE void set(int64_t i, T x) {
    re_.values[i] = real(x);
    if constexpr (is_complex<T>) im_.values[i] = imag(x);
  }
  CGP_INLINE void add(int64_t i, T x) { set(i, (*this)[i] + x); }

 private:
  Parts<Real<T>, count> re_;
  Parts<Real<T>, is_complex<T> || count == 0 ? count : 1> im_;
};

}  // namespace cgp
