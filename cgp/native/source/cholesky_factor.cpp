// cgp.linalg.cholesky: the lower triangular factor of a Hermitian matrix, by LAPACK.
#include <algorithm>

#include "lapack.h"
#include "op.h"
#include "parallel.h"

namespace cgp {
namespace {

template <class T>
struct CholeskyFactor {
  static void run(Call& call) {
    const auto a = call.input<T>(0);
    require(a.shape.size() >= 2 && a.axis(-1) == a.axis(-2), "the matrix is not square");
    require(lapack<T>.potrf, "there is no LAPACK");
    const auto result = call.output<T>(0, a.shape);
    const int64_t n = a.axis(-1), size = n * n;
    for_each(size_of(a.shape, 0, a.shape.size() - 2), work_of_matrix(n), [&](int64_t i) {
      const T* from = a.data + i * size;
      T* to = result.data + i * size;
      for (int64_t row = 0; row < n; ++row) {
        std::copy_n(from + row * n, row + 1, to + row * n);
        std::fill(to + row * n + row + 1, to + (row + 1) * n, T{});
      }
      // The caller finds NaN on the diagonal, and says what is wrong.
      if (!on_lower_triangle<T>(lapack<T>.potrf, to, n)) std::fill_n(to, size, not_a_number<T>());
    });
  }
};

const bool registered = [] {
  register_op<CholeskyFactor>("CgpCholeskyFactor", {"a: T"}, {"result: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
