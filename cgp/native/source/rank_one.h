// The factor of A + α v vᴴ from that of A, and its pullback: what updates and removals share.
//
// With w = L⁻¹ v (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974, methods C1 and C2):
//
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k,
//     d_j = √(s_j / s_{j−1}),  u_j = α w̄_j / √(s_j s_{j−1}),  s_j = 1 + α Σ_{i≤j} |w_i|² .
//
// Each sign has a form of its own that is stable. An update (α ≥ 0) takes prefix sums along rows,
// S_ij = v_i − Σ_{k<j} L_ik w_k, and solves for w on its way; a downdate sums from the other end,
// where s is smallest, so that every term is positive.
#pragma once
#include <vector>

#include "column_scaling.h"

namespace cgp {

// Vectors that the operations on one matrix need, in one piece of memory.
template <class T>
struct Workspace {
  explicit Workspace(int64_t n) : numbers(3 * n), reals(2 * n), n(n) {}
  Scaling<T> scaling() { return {numbers.data(), reals.data(), numbers.data() + n}; }
  T* vector() { return numbers.data() + 2 * n; }
  Real<T>* s() { return reals.data() + n; }

  std::vector<T> numbers;
  std::vector<Real<T>> reals;
  int64_t n;
};

// Whether an element of the diagonal of a factor is real, positive and finite.
template <class T>
CGP_INLINE bool is_pivot(T x) {
  return is_positive_and_finite(real(x)) && imag(x) == 0;
}

// The factor of A + α v vᴴ; false where that is not positive definite, or an input is NaN.
template <class T>
bool rank_one(Rows<const T> chol, const T* v, Real<T> alpha, Rows<T> result, int64_t n,
              Workspace<T>& work);

// The cotangents of L, v and α (returned) from that of L'.
template <class T>
Real<T> rank_one_pullback(Rows<const T> chol, const T* v, Real<T> alpha, Rows<const T> bar,
                          Rows<T> by_chol, T* by_v, int64_t n, Workspace<T>& work,
                          Workspace<T>& bars);

}  // namespace cgp
