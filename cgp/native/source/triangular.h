// Triangular systems with one right-hand side, by rows of L.
#pragma once
#include "rows.h"

namespace cgp {

// x = L⁻¹ b; b may be x.
template <class T>
void solve(Rows<const T> chol, const T* b, int64_t n, T* x);

// x = L⁻ᴴ x in place.
template <class T>
void solve_adjoint(Rows<const T> chol, int64_t n, T* x);

// The pullback of x = L⁻¹ b: with x̄ in `bar`, which becomes b̄ = L⁻ᴴ x̄, and L̄ −= tril(b̄ xᴴ).
template <class T>
void solve_pullback(Rows<const T> chol, const T* x, int64_t n, T* bar, Rows<T> by_chol);

}  // namespace cgp
