// Column scaling of a factor, the step that rank-one updates, downdates and measurements share:
//
//     L'_ij = d_j L_ij + u_j Σ_{k>j} L_ik w_k
//
// (Gill, Golub, Murray & Saunders, Math. Comp. 28, 1974, with adjoints for transposes). The running
// sum is taken along the rows, so that each element is read and written once.
// cgp/linalg/tensorflow_updates.py does the same in TensorFlow.
#pragma once
#include <cstdint>

#include "rows.h"

namespace cgp {

// The scales of columns, and the vector that the running sums are taken with.
template <class T>
struct Scaling {
  T* w;
  Real<T>* d;
  T* u;
};

// All rows of a factor by suffix sums, its diagonal real. The part above the diagonal becomes zero.
// `totals` receives L w.
template <class T>
void scale_columns(Rows<const T> chol, Rows<T> result, int64_t n, const Scaling<T>& by, T* totals);

// The cotangents of a factor and of the vectors of a scaling.
template <class T>
struct ScalingCotangents {
  Rows<T> chol;  // lower triangular
  T* w;
  Real<T>* d;
  T* u;
};

// The pullback of `scale_columns`. With S_ij = Σ_{k>j} L_ik w_k and Q_ik = Σ_{j<k} Ḡ_ij ū_j:
//
//     L̄ = Ḡ∘d + Q∘w̄,   w̄_k = Σ_i conj(L_ik) Q_ik,   d̄_j = Σ_i Re(conj(L_ij) Ḡ_ij),
//     ū_j = Σ_i conj(S_ij) Ḡ_ij .
//
// One sweep for Q and one for S along each row, which is in the cache for the second.
template <class T>
void scale_columns_pullback(Rows<const T> chol, Rows<const T> bar, int64_t n, const Scaling<T>& by,
                            const ScalingCotangents<T>& to);

}  // namespace cgp
