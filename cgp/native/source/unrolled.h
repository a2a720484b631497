// Loops that are written out when they are compiled, so that small arrays become registers and
// loops around them vector instructions.
#pragma once
#include <cstdint>
#include <utility>

#include "number.h"

namespace cgp {

// Calls f(i) for i from `first` to before `last`: for N > 0 without a loop, where these are known
// when it is compiled, and `last` is at most N. The body of f is marked CGP_BODY.
template <class F, size_t... i>
CGP_INLINE void each_of(int64_t first, int64_t last, const F& f, std::index_sequence<i...>) {
  ((int64_t(i) >= first && int64_t(i) < last ? f(int64_t(i)) : void()), ...);
}
template <int N, class F>
CGP_INLINE void each(int64_t first, int64_t last, const F& f) {
  if constexpr (N > 0)
    each_of(first, last, f, std::make_index_sequence<N>());
  else
    for (int64_t i = first; i < last; ++i) f(i);
}

}  // namespace cgp
