// cgp.linalg.cholesky_update: the factor of A + α v vᴴ from that of A.
#include "factor_arguments.h"
#include "parallel.h"
#include "rank_one.h"

namespace cgp {
namespace {

template <class T>
struct CholeskyUpdate {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), v = call.input<T>(1);
    const auto alpha = call.input<Real<T>>(2);
    require_fit(chol, v, alpha);
    const auto result = call.output<T>(0, chol.shape);
    const int64_t n = chol.axis(-1), size = n * n;
    for_each(alpha.size(), size, [&](int64_t i) {
      Workspace<T> work(n);
      require(rank_one<T>({chol.data + i * size, n}, v.data + i * n, alpha.data[i],
                          {result.data + i * size, n}, n, work),
              "A + multiplier·v·vᴴ is not positive definite");
    });
  }
};

template <class T>
struct CholeskyUpdatePullback {
  static void run(Call& call) {
    const auto chol = call.input<T>(0), v = call.input<T>(1);
    const auto alpha = call.input<Real<T>>(2);
    const auto bar = call.input<T>(3);
    require_fit(chol, v, alpha);
    require(bar.shape == chol.shape, "the cotangent does not fit chol");
    const auto by_chol = call.output<T>(0, chol.shape), by_v = call.output<T>(1, v.shape);
    const auto by_alpha = call.output<Real<T>>(2, alpha.shape);
    const int64_t n = chol.axis(-1), size = n * n;
    for_each(alpha.size(), 4 * size, [&](int64_t i) {
      Workspace<T> work(n), bars(n);
      by_alpha.data[i] = rank_one_pullback<T>(
          {chol.data + i * size, n}, v.data + i * n, alpha.data[i], {bar.data + i * size, n},
          {by_chol.data + i * size, n}, by_v.data + i * n, n, work, bars);
    });
  }
};

const bool registered = [] {
  register_op<CholeskyUpdate>("CgpCholeskyUpdate", {"chol: T", "v: T", "alpha: R"},
                              {"result: T"});
  register_op<CholeskyUpdatePullback>("CgpCholeskyUpdatePullback",
                                      {"chol: T", "v: T", "alpha: R", "bar: T"},
                                      {"by_chol: T", "by_v: T", "by_alpha: R"});
  return true;
}();

}  // namespace
}  // namespace cgp
