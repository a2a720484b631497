// cgp.linalg.inverse: the inverse of a Hermitian matrix from its factor, by LAPACK.
#include "lapack.h"

namespace cgp {
namespace {

// Blocks of this size, read along rows and written along columns, stay in the cache.
constexpr int64_t kBlock = 32;

// Writes the conjugate of the lower triangle above the diagonal.
template <class T>
void mirror(T* a, int64_t n) {
  for (int64_t top = 0; top < n; top += kBlock)
    for (int64_t left = 0; left <= top; left += kBlock)
      for (int64_t row = top; row < std::min(top + kBlock, n); ++row)
        for (int64_t column = left; column < std::min(left + kBlock, row); ++column)
          a[column * n + row] = conj(a[row * n + column]);
}

template <class T>
struct CholeskyInverse {
  static void run(Call& call) {
    on_lower_triangles<T>(call, lapack<T>.potri, mirror<T>);  // fails at a zero on the diagonal
  }
};

const bool registered = [] {
  register_op<CholeskyInverse>("CgpCholeskyInverse", {"chol: T"}, {"result: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
