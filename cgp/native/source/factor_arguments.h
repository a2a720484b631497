// Checks of what the operations on Cholesky factors are given.
#pragma once
#include "op.h"

namespace cgp {

// The batch axes of square matrices.
template <class T>
Shape batch_of(const Array<const T>& chol) {
  require(chol.shape.size() >= 2 && chol.axis(-1) == chol.axis(-2), "chol is not square");
  return without_last(chol.shape, 2);
}

// A vector and a real number for each factor.
template <class T>
void require_fit(const Array<const T>& chol, const Array<const T>& vector,
                 const Array<const Real<T>>& number) {
  const Shape batch = batch_of(chol);
  require(vector.shape == with(batch, {chol.axis(-1)}), "the vector does not fit chol");
  require(number.shape == batch, "the real number does not fit chol");
}

}  // namespace cgp
