// The step of an online filter as a plain C function: arrays in, arrays out, which takes less time
// than a call of an op. cgp.statespace.native_step calls it; and the other one for many
// filters whose samples come in any order.

// A stream is to go on alike, to the last bit, whichever streams are beside it, and on whatever
// processor: with a product and a sum rounded at once where there is an instruction for that, wide
// vectors would give other results than single numbers.
#if defined(__clang__)
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif

#include "online_step.h"

#include <atomic>
#include <tuple>

#include "parallel.h"

extern "C" {

struct cgp_Matrix {
  const void* data;
  int64_t batch;  // 1 where streams share it
};
struct cgp_Moments {
  void *mean, *variance, *pseudo, *covariance, *pseudo_covariance;
};
// As cgp.statespace.native_step declares it.
struct cgp_OnlineStep {
  int64_t n, q, m, streams, predicts_first, is_composite;
  cgp_Matrix F, G, H, noise, b;
  const void* z;
  void *mean, *chol;  // the state, which is replaced
  cgp_Moments predicted, filtered;
};
// As cgp.statespace.native_step declares it too. Of matrices of each sample, one comes after
// another.
struct cgp_OnlineWalk {
  int64_t n, q, m, samples, predicts_first, is_composite;
  cgp_Matrix F, G, H, noise, b;
  const void* z;        // [samples, m]
  const int64_t* slot;  // of each sample, the row of its state
  void *mean, *chol;    // the states, [slots, n] and [slots, n, n], which are replaced
  cgp_Moments predicted, filtered;
  int64_t refused;  // where a state would not be finite: the first such sample
};
}

namespace cgp {
namespace {

template <class T>
Input<T> input(cgp_Matrix matrix, int64_t size) {
  return {static_cast<const T*>(matrix.data), 1, size, matrix.batch};
}

template <class T>
typename OnlineStep<T>::Moments moments(cgp_Moments to) {
  using R = Real<T>;
  return {static_cast<R*>(to.mean), static_cast<R*>(to.variance), static_cast<R*>(to.pseudo),
          static_cast<R*>(to.covariance), static_cast<R*>(to.pseudo_covariance)};
}

enum Outcome : int { kDone = 0, kNotFinite = 1, kFailed = 2 };

// Replaces the state, where the new one is finite.
template <class T>
int run(const cgp_OnlineStep* given) try {
  const auto [n, q, m, streams, predicts_first, is_composite, F, G, H, noise, b, z, mean, chol,
              predicted, filtered] = *given;
  std::vector<T> next_mean(n * streams), next_chol(n * n * streams);
  const OnlineStep<T> step{n,
                           q,
                           m,
                           streams,
                           predicts_first != 0,
                           is_composite != 0,
                           input<T>(F, n * n),
                           input<T>(G, n * q),
                           input<T>(H, m * n),
                           input<T>(noise, m * m),
                           input<T>(b, n),
                           input<T>({z, streams}, m),
                           input<T>({mean, streams}, n),
                           input<T>({chol, streams}, n * n),
                           next_mean.data(),
                           next_chol.data(),
                           moments<T>(predicted),
                           moments<T>(filtered)};
  std::atomic<bool> sound{true};
  if (streams == 1) {
    sound = take_one(step);
  } else {
    constexpr int64_t each = 4 * lanes_of<Pack<T>>;
    for_each((streams + each - 1) / each, each * 6 * n * n * n, [&](int64_t i) {
      const int64_t last = std::min((i + 1) * each, step.streams);
      if (!take_side_by_side(step, i * each, last)) sound = false;
    });
  }
  if (!sound) return kNotFinite;
  std::copy(next_mean.begin(), next_mean.end(), static_cast<T*>(mean));
  std::copy(next_chol.begin(), next_chol.end(), static_cast<T*>(chol));
  return kDone;
} catch (const std::exception&) {  // no memory: none may leave a function that C calls
  return kFailed;
}

// Samples in their order, each into the state of its slot. Those go side by side that follow each
// other and have different slots.
template <class T>
class Walk {
 public:
  static constexpr int64_t width = lanes_of<Pack<T>>;

  explicit Walk(const cgp_OnlineWalk& given)
      : given_(given),
        F_(given.F, given.n * given.n),
        G_(given.G, given.n * given.q),
        H_(given.H, given.m * given.n),
        noise_(given.noise, given.m * given.m),
        b_(given.b, given.n),
        z_({given.z, given.samples}, given.m),
        mean_({given.mean, 0}, given.n),
        chol_({given.chol, 0}, given.n * given.n),
        next_mean_(given.n * width),
        next_chol_(given.n * given.n * width) {}

  // The first sample that is refused, whose tile has not been taken; or the number of samples.
  int64_t run() {
    for (int64_t first = 0, count; first < given_.samples; first += count) {
      count = different_from(first);
      if (!take(first, count)) {
        int64_t s = 0;
        while (s + 1 < count && take(first + s, 1)) ++s;
        return first + s;
      }
      for (int64_t s = 0; s < count; ++s) {
        const int64_t slot = given_.slot[first + s];
        put(next_mean_, s, count, static_cast<T*>(given_.mean) + slot * given_.n, given_.n);
        put(next_chol_, s, count, static_cast<T*>(given_.chol) + slot * chol_.size, chol_.size);
      }
    }
    return given_.samples;
  }

 private:
  // Rows of an array side by side, batch last, or the only row.
  struct Rows {
    Rows(cgp_Matrix rows, int64_t size)
        : rows(static_cast<const T*>(rows.data)),
          size(size),
          is_shared(rows.batch == 1),
          side_by_side(is_shared ? 0 : size * width) {}

    template <class Row>
    Input<T> of(int64_t count, const Row& row) {
      if (is_shared) return {rows, 1, size, 1};
      for (int64_t s = 0; s < count; ++s) {
        const T* from = rows + row(s) * size;
        for (int64_t e = 0; e < size; ++e) side_by_side[e * count + s] = from[e];
      }
      return {side_by_side.data(), 1, size, count};
    }

    const T* rows;
    int64_t size;
    bool is_shared;
    std::vector<T> side_by_side;
  };

  // How many samples from one on have different slots, at most as many as go side by side.
  int64_t different_from(int64_t first) const {
    const int64_t *slot = given_.slot + first, most = std::min(width, given_.samples - first);
    int64_t count = 1;
    while (count < most && std::find(slot, slot + count, slot[count]) == slot + count) ++count;
    return count;
  }

  static void put(const std::vector<T>& from, int64_t s, int64_t count, T* to, int64_t size) {
    for (int64_t e = 0; e < size; ++e) to[e] = from[e * count + s];
  }

  // The states after samples, and their moments; false where one would not be finite.
  bool take(int64_t first, int64_t count) {
    const auto sample = [&](int64_t s) { return first + s; };
    const auto slot = [&](int64_t s) { return given_.slot[first + s]; };
    const auto [n, q, m] = std::tuple(given_.n, given_.q, given_.m);
    const OnlineStep<T> step{n,
                             q,
                             m,
                             count,
                             given_.predicts_first != 0,
                             given_.is_composite != 0,
                             F_.of(count, sample),
                             G_.of(count, sample),
                             H_.of(count, sample),
                             noise_.of(count, sample),
                             b_.of(count, sample),
                             z_.of(count, sample),
                             mean_.of(count, slot),
                             chol_.of(count, slot),
                             next_mean_.data(),
                             next_chol_.data(),
                             from(given_.predicted, first, m),
                             from(given_.filtered, first, given_.predicts_first ? m : n)};
    return count == 1 ? take_one(step) : take_side_by_side(step, 0, count);
  }

  // Moments of k working components from a sample on.
  typename OnlineStep<T>::Moments from(const cgp_Moments& to, int64_t first, int64_t k) const {
    const bool pairs = is_complex<T> || given_.is_composite;
    const int64_t size = given_.is_composite ? k / 2 : k, parts = pairs ? 2 : 1;
    const int64_t at = first * size, pair = parts * at * size;
    auto [mean, variance, pseudo, covariance, pseudo_covariance] = moments<T>(to);
    return {mean + parts * at, variance + at, pseudo + parts * at,
            covariance ? covariance + pair : nullptr,
            pseudo_covariance ? pseudo_covariance + pair : nullptr};
  }

  const cgp_OnlineWalk& given_;
  Rows F_, G_, H_, noise_, b_, z_, mean_, chol_;
  std::vector<T> next_mean_, next_chol_;
};

template <class T>
int walk(cgp_OnlineWalk* given) try {
  given->refused = Walk<T>(*given).run();
  return given->refused == given->samples ? kDone : kNotFinite;
} catch (const std::exception&) {
  return kFailed;
}

}  // namespace
}  // namespace cgp

extern "C" {
int cgp_online_step_complex128(const cgp_OnlineStep* step) {
  return cgp::run<cgp::Complex<double>>(step);
}
int cgp_online_step_complex64(const cgp_OnlineStep* step) {
  return cgp::run<cgp::Complex<float>>(step);
}
int cgp_online_step_float64(const cgp_OnlineStep* step) { return cgp::run<double>(step); }
int cgp_online_step_float32(const cgp_OnlineStep* step) { return cgp::run<float>(step); }

int cgp_online_walk_complex128(cgp_OnlineWalk* walk) {
  return cgp::walk<cgp::Complex<double>>(walk);
}
int cgp_online_walk_complex64(cgp_OnlineWalk* walk) {
  return cgp::walk<cgp::Complex<float>>(walk);
}
int cgp_online_walk_float64(cgp_OnlineWalk* walk) { return cgp::walk<double>(walk); }
int cgp_online_walk_float32(cgp_OnlineWalk* walk) { return cgp::walk<float>(walk); }
}
