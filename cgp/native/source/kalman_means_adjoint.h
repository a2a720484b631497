// The pullback of the means of a Kalman filter along a series, given the gains: kalman_adjoint.h says
// how it goes on to the covariances. The cotangent λ of the mean does not depend on theirs.
#pragma once
#include "kalman_gradients.h"
#include "kalman_means.h"

namespace cgp {

// What the means add to the cotangents of S and k, summed over the series that share them.
template <class C>
struct GainCotangents {
  GainCotangents(int64_t steps, int64_t m, int64_t n) : by_s(steps * m), by_k(steps * m * n) {}
  std::vector<Real<C>> by_s;
  std::vector<C> by_k;
};

// kalman_means_adjoint.cpp says for which arguments it is compiled.
template <class C, class M, class T>
void means_pullback(const System<T>& system, Tile tile, const Gains<C>& gains,
                    const Means<M>& kept, const Cotangents<T>& given, Gradients<T>& to,
                    GainCotangents<C>& by);

}  // namespace cgp
