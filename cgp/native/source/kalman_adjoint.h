// The pullback of the Kalman filter: reverse-mode differentiation of the recursions of means and
// covariances, never of factors, which have no derivative where a covariance is singular. For the
// likelihood it is the exact score of Koopman and Shephard (Biometrika 79, 1992).
// cgp/statespace/engines/backward_pass.py does the same in TensorFlow.
//
// A measurement with k = P hᴴ, S = h k + r, g = k/S made m + g v and P − k kᴴ/S, and the log
// likelihood −c (log S + |v|²/S). The cotangent λ of the mean does not depend on Λ, that of the
// covariance: first means backwards, which leaves what they add to the cotangents of S and k.
#pragma once
#include "kalman_means_adjoint.h"

namespace cgp {

// kalman_adjoint.cpp says for which arguments it is compiled.
template <class C, class T>
void covariances_pullback(const System<T>& system, Tile tile, const Gains<C>& gains,
                          const GainCotangents<C>& by, const Cotangents<T>& given,
                          Gradients<T>& to);

}  // namespace cgp
