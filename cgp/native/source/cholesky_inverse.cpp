// cgp.linalg.inverse: the inverse of a Hermitian matrix from its factor, by LAPACK.
#include <algorithm>

#include "lapack.h"
#include "op.h"
#include "parallel.h"

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
    const auto chol = call.input<T>(0);
    require(chol.shape.size() >= 2 && chol.axis(-1) == chol.axis(-2), "chol is not square");
    require(lapack<T>.potri, "there is no LAPACK");
    const auto result = call.output<T>(0, chol.shape);
    const int64_t n = chol.axis(-1), size = n * n;
    for_each(size_of(chol.shape, 0, chol.shape.size() - 2), work_of_matrix(n), [&](int64_t i) {
      const T* from = chol.data + i * size;
      T* to = result.data + i * size;
      for (int64_t row = 0; row < n; ++row) std::copy_n(from + row * n, row + 1, to + row * n);
      if (on_lower_triangle<T>(lapack<T>.potri, to, n))
        mirror(to, n);
      else  // a zero on the diagonal
        std::fill_n(to, size, not_a_number<T>());
    });
  }
};

const bool registered = [] {
  register_op<CholeskyInverse>("CgpCholeskyInverse", {"chol: T"}, {"result: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
