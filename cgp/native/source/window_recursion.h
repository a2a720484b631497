// The recursion of a window over a block of samples (cgp/gp/recursive/window_recursion.py), without a
// call of the kernel, whose values for all points that the block can meet are given.
#pragma once
#include "basis.h"

namespace cgp {

// The results of one stream: of the observation before each sample, and of the signal before and
// after it.
template <class T>
struct Predictions {
  T *mean, *filtered_mean;                                    // [steps, m]
  Real<T> *signal_k, *filtered_k;                             // [steps]
  Complex<Real<T>> *signal_c, *filtered_c;                    // [steps]
};

// Takes a block in; a full window loses its oldest point, or, with a basis, the least informative
// one. False where a factor fails. `z` is [steps, m] less the mean function; NaN where missing.
template <class T>
bool scan(Window<T>& window, const PriorOfBlock<T>& prior, const T* z, Real<T> forgetting,
          Basis<T>* basis, const Predictions<T>& to);

}  // namespace cgp
