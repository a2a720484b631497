// cgp.linalg.cholesky: the lower triangular factor of a Hermitian matrix, by LAPACK.
#include "lapack.h"

namespace cgp {
namespace {

template <class T>
struct CholeskyFactor {
  static void run(Call& call) {
    // The caller finds NaN on the diagonal of a matrix without a factor, and says what is wrong.
    on_lower_triangles<T>(call, lapack<T>.potrf, [](T*, int64_t) {});
  }
};

const bool registered = [] {
  register_op<CholeskyFactor>("CgpCholeskyFactor", {"a: T"}, {"result: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
