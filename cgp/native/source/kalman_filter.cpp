// The Kalman filter over whole series: its log likelihood, the moments of the state along them, and
// the pullback of both. cgp.statespace.engines.chunked_engine does the same in TensorFlow.
//
// One series is filtered with its states in lanes; several that share covariances, which are computed
// once, side by side in lanes; so are series with covariances of their own.
#include "kalman_adjoint.h"
#include "parallel.h"

namespace cgp {
namespace {

// The gains that series share, and the means of one series.
template <class T>
void filter_one(const System<T>& system, Gains<T>& gains, Real<T>* log_likelihood, Means<T>* kept) {
  switch (system.q <= system.n ? system.n : 0) {
    case 1: covariances_of_few<1>(system, gains); break;
    case 2: covariances_of_few<2>(system, gains); break;
    case 3: covariances_of_few<3>(system, gains); break;
    case 4: covariances_of_few<4>(system, gains); break;
    default: covariances(system, kOne, gains);
  }
  if (system.batch == 1) means_of_one(system, gains, log_likelihood, kept);
}

template <class T>
Tiles<T> tiles_of(const System<T>& system) {
  const int64_t n = system.n, of_means = n * (n + 2 * system.m);
  const int64_t of_covariances = system.shared() ? 0 : 4 * n * n * n;
  return {system.batch, system.steps * (of_means + of_covariances)};
}

// Calls f with some of the tiles, with the gains of their series, and with their means if kept.
template <class T, class F>
void for_each_tile(const System<T>& system, const Gains<T>* shared, bool keep, Real<T>* values,
                   const Tiles<T>& tiles, int64_t first, int64_t last, const F& f) {
  for (int64_t i = first; i < last; ++i) {
    const Tile tile = tiles[i];
    std::unique_ptr<Means<Pack<T>>> kept;
    if (keep) kept.reset(new Means<Pack<T>>(system.steps, system.m, system.n));
    if (shared) {
      means(system, tile, *shared, values, kept.get());
      f(tile, *shared, kept.get());
    } else {
      Gains<Pack<T>> gains(system.steps, system.m, system.n, keep);
      covariances(system, tile, gains);
      means(system, tile, gains, values, kept.get());
      f(tile, gains, kept.get());
    }
  }
}

template <class T>
struct KalmanLikelihood {
  static void run(Call& call) {
    const System<T> system(call);
    Real<T>* values = call.output<Real<T>>(0, {system.batch}).data;
    Gains<T> gains(system.shared() ? system.steps : 0, system.m, system.n, false);
    const Gains<T>* shared = system.shared() ? &gains : nullptr;
    if (shared) filter_one<T>(system, gains, values, nullptr);
    if (!shared || system.batch > 1) {
      const Tiles<T> tiles = tiles_of(system);
      for_each(tiles.count, tiles.work, [&](int64_t i) {
        for_each_tile(system, shared, false, values, tiles, i, i + 1, [](auto&&...) {});
      });
    }
  }
};

// The moments as they are returned: means of each series; factors, and covariances where wanted,
// [T, n, n, B or 1]. Without covariances the factors end with the last step at which they change.
template <class T>
struct MomentsOut {
  int64_t n, steps, batch, matrices, matrix_steps;
  double largest;
  OfSeries<T> predicted_means, filtered_means;
  OfSeries<Real<T>> log_likelihoods;

  MomentsOut(Call& call, const System<T>& system, const Gains<T>& shared, bool with_covariances)
      : n(system.n),
        steps(system.steps),
        batch(system.batch),
        matrices(system.chol.batch),
        matrix_steps(with_covariances || !system.shared() ? steps : shared.last + 1),
        largest(call.largest()) {
    const int64_t n = system.n;
    const auto matrices_of = [&](int i) {
      return call.output<T>(i, {matrix_steps, n, n, matrices}).data;
    };
    int i = 0;
    predicted_means = series_output_of<T>(call, i++, {batch, steps, n});
    if (with_covariances) predicted_covariances = matrices_of(i++);
    filtered_means = series_output_of<T>(call, i++, {batch, steps, n});
    if (with_covariances) filtered_covariances = matrices_of(i++);
    log_likelihoods = series_output_of<Real<T>>(call, i++, {batch, steps});
    predicted_chols = matrices_of(i++);
    filtered_chols = matrices_of(i++);
    sound = call.output<bool>(i++, {}).data;
  }

  template <class C>
  void set_matrices(Tile tile, const Gains<C>& gains) const {
    for (int64_t t = 0; t < matrix_steps; ++t) {
      if (t > gains.last && matrices == 1) {
        repeat(t);
        continue;
      }
      const int64_t from = gains.at(t) * n * n;
      set_step(t, tile, gains.predicted.get() + from, predicted_chols, predicted_covariances);
      set_step(t, tile, gains.filtered.get() + from, filtered_chols, filtered_covariances);
    }
  }

  // Notes whether all of them are finite, in the precision that they are returned in.
  void judge() const {
    const int64_t size = matrix_steps * n * n * matrices;
    *sound = are_within(largest, log_likelihoods.data, steps * batch) &&
             means_are_within(predicted_means.data) && means_are_within(filtered_means.data) &&
             are_within(largest, predicted_covariances ? predicted_covariances : predicted_chols,
                        size) &&
             are_within(largest, filtered_covariances ? filtered_covariances : filtered_chols, size);
  }

 private:
  // Beyond double precision a mean is infinite, and stays so or turns into NaN: the last step tells
  // of all. One that is too large for single precision may become smaller again.
  bool means_are_within(const T* means) const {
    const bool is_single = largest < std::numeric_limits<double>::max();
    const int64_t checked = is_single ? steps : 1;
    for (int64_t b = 0; b < batch; ++b)
      if (!are_within(largest, means + ((b + 1) * steps - checked) * n, checked * n)) return false;
    return true;
  }

  // Covariances that have settled are those of the step before.
  void repeat(int64_t t) const {
    for (T* a : {predicted_covariances, filtered_covariances, predicted_chols, filtered_chols})
      if (a) std::copy_n(a + (t - 1) * n * n, n * n, a + t * n * n);
  }

  template <class C>
  void set_step(int64_t t, Tile tile, const C* L, T* chols, T* covariances) const {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const int64_t to = ((t * n + i) * n + j) * matrices + tile.first;
        store(j <= i ? L[j * n + i] : C{}, chols + to, tile.count);
        if (!covariances) continue;
        C sum{};
        for (int64_t k = 0; k <= std::min(i, j); ++k) sum += L[k * n + i] * conj(L[k * n + j]);
        store(sum, covariances + to, tile.count);
      }
  }

  T *predicted_covariances = nullptr, *filtered_covariances = nullptr;
  T *predicted_chols, *filtered_chols;
  bool* sound;
};

template <class T, class M>
CGP_FOR_EACH_PROCESSOR void store_means(const MomentsOut<T>& to, Tile tile, const Means<M>& kept) {
  for (int64_t t = 0; t < to.steps; ++t) {
    for (int64_t k = 0; k < to.n; ++k) {
      to.predicted_means.set(t, k, tile, kept.predicted[t * to.n + k]);
      to.filtered_means.set(t, k, tile, kept.filtered[t * to.n + k]);
    }
    to.log_likelihoods.set(t, 0, tile, kept.log_likelihoods[t]);
  }
}

template <class T>
void filter(Call& call, bool with_covariances) {
  const System<T> system(call);
  Gains<T> gains(system.shared() ? system.steps : 0, system.m, system.n, true);
  const Gains<T>* shared = system.shared() ? &gains : nullptr;
  Means<T> kept(shared && system.batch == 1 ? system.steps : 0, system.m, system.n);
  if (shared) filter_one<T>(system, gains, nullptr, &kept);
  const MomentsOut<T> to(call, system, gains, with_covariances);
  if (shared) to.set_matrices(kOne, gains);
  if (shared && system.batch == 1) {
    store_means(to, kOne, kept);
  } else {
    const Tiles<T> tiles = tiles_of(system);
    for_each(tiles.count, tiles.work, [&](int64_t i) {
      for_each_tile(system, shared, true, static_cast<Real<T>*>(nullptr), tiles, i, i + 1,
                    [&](Tile tile, const auto& own, const auto* kept) {
                      store_means(to, tile, *kept);
                      if (!shared) to.set_matrices(tile, own);
                    });
    });
  }
  to.judge();
}

template <class T>
struct KalmanMoments {
  static void run(Call& call) { filter<T>(call, true); }
};

// The same without covariances, and factors of as many steps as differ: where nobody asks for a
// gradient, most of the time of a long series goes into storing the others.
template <class T>
struct KalmanFactors {
  static void run(Call& call) { filter<T>(call, false); }
};

// The gradients of groups of tiles, each with sums of its own, which are added up in order.
constexpr int64_t kGroups = kMostThreads;

template <class T>
struct KalmanPullback {
  static void run(Call& call) {
    const System<T> system(call);
    Gradients<T> to(call, system);
    const Cotangents<T> given(call, System<T>::inputs, system);
    const int64_t m = system.m, n = system.n, steps = system.steps;
    const bool is_shared = system.shared();
    Gains<T> gains(is_shared ? steps : 0, m, n, true);
    GainCotangents<T> by(is_shared ? steps : 0, m, n);
    if (is_shared) {
      Means<T> kept(system.batch == 1 ? steps : 0, m, n);
      filter_one<T>(system, gains, nullptr, &kept);
      if (system.batch == 1) means_pullback<T, T>(system, kOne, gains, kept, given, to, by);
    }
    if (!is_shared || system.batch > 1)
      pull_tiles(system, is_shared ? &gains : nullptr, given, to, by);
    if (is_shared) covariances_pullback<T>(system, kOne, gains, by, given, to);
  }

 private:
  static void pull_tiles(const System<T>& system, const Gains<T>* shared,
                         const Cotangents<T>& given, Gradients<T>& to, GainCotangents<T>& by) {
    const Tiles<T> tiles = tiles_of(system);
    const int64_t groups = std::clamp<int64_t>(tiles.count * tiles.work / kWorkOfThread, 1,
                                               std::min(kGroups, tiles.count));
    std::vector<std::unique_ptr<GradientsApart<T>>> parts(groups);
    std::vector<GainCotangents<T>> bys(groups, by);
    for_each(groups, tiles.count * tiles.work / groups, [&](int64_t g) {
      parts[g].reset(new GradientsApart<T>(to));
      Gradients<T>& sums = parts[g]->own;
      for_each_tile(system, shared, true, static_cast<Real<T>*>(nullptr), tiles,
                    g * tiles.count / groups, (g + 1) * tiles.count / groups,
                    [&](Tile tile, const auto& own, const auto* kept) {
                      pull(system, tile, own, *kept, given, sums, bys[g]);
                    });
    });
    for (int64_t g = 0; g < groups; ++g) {
      for (size_t i = 0; i < by.by_s.size(); ++i) by.by_s[i] += bys[g].by_s[i];
      for (size_t i = 0; i < by.by_k.size(); ++i) by.by_k[i] += bys[g].by_k[i];
      parts[g]->join();
    }
  }

  static void pull(const System<T>& system, Tile tile, const Gains<T>& shared,
                   const Means<Pack<T>>& kept, const Cotangents<T>& given, Gradients<T>& to,
                   GainCotangents<T>& by) {
    means_pullback<T, Pack<T>>(system, tile, shared, kept, given, to, by);
  }
  static void pull(const System<T>& system, Tile tile, const Gains<Pack<T>>& own,
                   const Means<Pack<T>>& kept, const Cotangents<T>& given, Gradients<T>& to,
                   GainCotangents<T>&) {
    GainCotangents<Pack<T>> by(system.steps, system.m, system.n);
    means_pullback<Pack<T>, Pack<T>>(system, tile, own, kept, given, to, by);
    covariances_pullback<Pack<T>>(system, tile, own, by, given, to);
  }
};

const bool registered = [] {
#define SYSTEM                                                                                \
  "transition: T", "noise_factor: T", "h: T", "r: R", "b: T", "z: T", "observed: R", "mean: T", \
      "chol: T", "noise: T", "covariance: T"
  register_op_in_double<KalmanLikelihood>("CgpKalmanLikelihood", {SYSTEM}, {"log_likelihood: R"});
  register_op_in_double<KalmanMoments>(
      "CgpKalmanMoments", {SYSTEM},
      {"predicted_means: T", "predicted_covariances: T", "filtered_means: T",
       "filtered_covariances: T", "log_likelihoods: R", "predicted_chols: T", "filtered_chols: T",
       "sound: bool"});
  register_op_in_double<KalmanFactors>(
      "CgpKalmanFactors", {SYSTEM},
      {"predicted_means: T", "filtered_means: T", "log_likelihoods: R", "predicted_chols: T",
       "filtered_chols: T", "sound: bool"});
  register_op_in_double<KalmanPullback>(
      "CgpKalmanPullback",
      {SYSTEM, "by_log_likelihoods: R", "by_predicted_means: T",
       "by_predicted_covariances: T", "by_filtered_means: T", "by_filtered_covariances: T"},
      {"by_transition: T", "by_noise: T", "by_h: T", "by_r: R", "by_b: T", "by_z: T", "by_mean: T",
       "by_covariance: T"});
#undef SYSTEM
  return true;
}();

}  // namespace
}  // namespace cgp
