// The smoother of whole series that have been filtered: see kalman_smoother.h.
//
// One series is smoothed with plain numbers; several side by side in lanes, their covariances once
// where they share them.
#include "kalman_smoother.h"
#include "parallel.h"

namespace cgp {
namespace {

// The covariances that series share.
template <class T>
void smooth_once(const Filtered<T>& filtered, const Smoothed<T>& to) {
  switch (filtered.q <= filtered.n ? filtered.n : 0) {
    case 1: return smooth_covariances_of_few<1>(filtered, to);
    case 2: return smooth_covariances_of_few<2>(filtered, to);
    default: return smooth_covariances<T>(filtered, kOne, to);
  }
}

template <class T>
struct KalmanSmoother {
  static void run(Call& call) {
    const Filtered<T> filtered(call);
    const Smoothed<T> to(call, filtered);
    const bool is_shared = filtered.matrices == 1;
    const int64_t n = filtered.n, of_covariances = is_shared ? 0 : 16 * n * n * n;
    if (is_shared) smooth_once<T>(filtered, to);
    if (filtered.batch == 1) {
      smooth_means<T, T>(filtered, kOne, to);
    } else {
      const Tiles<T> tiles(filtered.batch, filtered.steps * (2 * n * n + of_covariances));
      for_each(tiles.count, tiles.work, [&](int64_t i) {
        if (is_shared) return smooth_means<T, Pack<T>>(filtered, tiles[i], to);
        smooth_covariances<Pack<T>>(filtered, tiles[i], to);
        smooth_means<Pack<T>, Pack<T>>(filtered, tiles[i], to);
      });
    }
    to.require_finite_values();
  }
};

const bool registered = [] {
  register_op_in_double<KalmanSmoother>(
      "CgpKalmanSmoother",
      {"transition: T", "noise_factor: T", "b: T", "means: T", "chols: T"},
      {"smoothed_means: T", "smoothed_chols: T", "lag_one_covariances: T", "gains: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
