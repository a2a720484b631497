// Triangular systems with one right-hand side.
#pragma once
#include <cstdint>

#include "number.h"

namespace cgp {

// x = L⁻ᴴ b in place, by rows of L, which is in C order.
template <class T>
CGP_INLINE void solve_adjoint(const T* chol, int64_t n, T* x) {
  for (int64_t i = n - 1; i >= 0; --i) {
    const T* row = chol + i * n;
    x[i] = (1 / real(row[i])) * x[i];
    const T xi = x[i];
    for (int64_t j = 0; j < i; ++j) x[j] -= conj(row[j]) * xi;
  }
}

}  // namespace cgp
