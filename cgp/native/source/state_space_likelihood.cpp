// The log likelihood of a process of Matérn terms at irregular places, and its pullback, without an
// array of matrices: transitions come and go with the blocks of samples that need them.
// cgp.gp.state_space.StateSpaceGP does the same in TensorFlow.
#include "terms_adjoint.h"
#include "terms_series.h"

namespace cgp::state_space {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The states before each block, from which the pullback computes it again.
template <class C, class M, int N>
struct Starts {
  std::vector<Covariance<C, N>> covariances;
  std::vector<M> means;  // [blocks, tiles, n]
};

// The log likelihoods of a group; or, for the pullback, its states.
template <class C, class M, int N>
CGP_INLINE void filter(const Problem& problem, Group group, double* values,
                       Starts<C, M, N>* starts) {
  constexpr int64_t width = lanes_of<M>;
  const int64_t n = problem.process.n, tiles = (group.count + width - 1) / width;
  Block block(problem);
  Gains<C> gains(n, false);
  CovarianceWork<C, N> covariances(problem.process, stationary<C, N>(problem.process));
  std::vector<M> means(tiles * n), z(kBlock);
  std::vector<Real<M>> losses(tiles);
  double log_total = 0.0, seen = 0.0;
  for (int64_t start = 0; start < problem.count; start += kBlock) {
    block.load(group, start);
    if (starts) {
      starts->covariances.push_back(covariances.now);
      starts->means.insert(starts->means.end(), means.begin(), means.end());
    }
    for (int64_t t = 0; t < block.count; ++t) seen += block.seen[t];
    if constexpr (width == 1 && N > 0) {  // gains and means in one loop, in registers
      block.read(group.first, 1, z.data());
      MeanWork<C, M, N> work(problem.process, block.steps, means.data());
      log_total += filter_covariances<C, N>(
          block.steps, block.samples(), block.count, covariances, gains,
          [&](int64_t t, const C* gain, double inverse) CGP_BODY {
            work.measure(z[t], gain, inverse);
            work.predict(t);
          });
      work.store(means.data());
      losses[0] += work.loss;
    } else {
      log_total += gains_of_block(block.steps, block.samples(), block.count, covariances, gains);
      for (int64_t i = 0; i < tiles; ++i) {
        block.read(group.first + i * width, std::min(width, group.count - i * width), z.data());
        MeanWork<C, M, N> work(problem.process, block.steps, means.data() + i * n);
        for (int64_t t = 0; t < block.count; ++t) {
          work.measure(z[t], gains.gain.data() + t * n, gains.inverse[t]);
          work.predict(t);
        }
        work.store(means.data() + i * n);
        losses[i] += work.loss;
      }
    }
  }
  if (!values) return;
  log_total += seen * 1.1447298858494001742 /* log π */;
  for (int64_t i = 0; i < group.count; ++i) {
    double each[width];
    if constexpr (width == 1)
      each[0] = losses[i];
    else
      losses[i / width].get(each);
    values[group.first + i] = -(log_total + each[i % width]);
  }
}

// For N states, and for any number of them.
template <class C, class M, int N>
void likelihood(const Problem& problem, Group group, double* values, Starts<C, M, N>* starts) {
  filter(problem, group, values, starts);
}
template <class C, class M>
CGP_FOR_EACH_PROCESSOR void likelihood(const Problem& problem, Group group, double* values,
                                       Starts<C, M, 0>* starts) {
  filter(problem, group, values, starts);
}

// Adds the gradient of the weighted sum of the log likelihoods of a group. The blocks come in
// reverse, each filtered again from the state before it. `by_step` and `by_noise` are [T], `by_z`
// is [B, T].
template <class C, class M, int N>
CGP_INLINE void filter_backwards(const Problem& problem, Group group, const double* weights,
                                 Starts<C, M, N>& starts, Sums& sums, double* by_step,
                                 double* by_noise, Complex<double>* by_z) {
  constexpr int64_t width = lanes_of<M>;
  const Terms& process = problem.process;
  const int64_t n = process.n, tiles = (group.count + width - 1) / width;
  likelihood(problem, group, nullptr, &starts);
  Block block(problem);
  Gains<C> gains(n, true);
  BlockCotangents<C> by(process);
  std::vector<M> z(kBlock), deviations(kBlock), filtered(kBlock * n), lambdas(tiles * n);
  std::vector<C> lambda(n * n);
  for (int64_t i = starts.covariances.size() - 1; i >= 0; --i) {
    block.load(group, i * kBlock);
    by.clear();
    CovarianceWork<C, N> covariances(process, starts.covariances[i]);
    gains_of_block(block.steps, block.samples(), block.count, covariances, gains);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t series = group.first + tile * width;
      const int64_t lanes = std::min(width, group.count - tile * width);
      block.read(series, lanes, z.data());
      MeanWork<C, M, N> work(process, block.steps, starts.means.data() + (i * tiles + tile) * n);
      for (int64_t t = 0; t < block.count; ++t) {
        deviations[t] = work.measure(z[t], gains.gain.data() + t * n, gains.inverse[t]);
        each<N>(0, n, [&](int64_t s) CGP_BODY { filtered[t * n + s] = work.mean.values[s]; });
        work.predict(t);
      }
      double weight[width] = {};
      for (int64_t lane = 0; lane < lanes; ++lane) weight[lane] = weights[series + lane];
      means_backward<C, M, N>(process, block.steps, gains, block.count,
                              load<Real<M>>(weight, width), deviations.data(), filtered.data(),
                              lambdas.data() + tile * n, z.data(), by);
      block.write(series, lanes, z.data(), by_z);
    }
    if constexpr (N > 0)
      covariances_backward<C, N>(process, block.steps, gains, block.count, lambda.data(), by, sums,
                                 by_noise + block.first);
    else
      covariances_backward<C>(process, block.steps, gains, block.count, lambda.data(), by, sums,
                              by_noise + block.first);
    steps_backward(process, block.steps, block.length.data(), block.count, by, sums,
                   by_step + block.first);
  }
  for (size_t k = 0; k < process.terms.size(); ++k) {  // the first covariance
    const Term& term = process.terms[k];
    const int size = term.order + 1;
    for (int i = 0; i < size; ++i)
      for (int j = 0; j < size; ++j)
        sums.variance[k] += stationary_weights(term.order)[i * size + j] *
                            real(lambda[(term.state + i) * n + term.state + j]);
  }
}

template <class C, class M, int N>
void pullback(const Problem& problem, Group group, const double* weights, Starts<C, M, N>& starts,
              Sums& sums, double* by_step, double* by_noise, Complex<double>* by_z) {
  filter_backwards(problem, group, weights, starts, sums, by_step, by_noise, by_z);
}
template <class C, class M>
CGP_FOR_EACH_PROCESSOR void pullback(const Problem& problem, Group group, const double* weights,
                                     Starts<C, M, 0>& starts, Sums& sums, double* by_step,
                                     double* by_noise, Complex<double>* by_z) {
  filter_backwards(problem, group, weights, starts, sums, by_step, by_noise, by_z);
}

// Calls run(starts) for a group: of numbers of its covariances and of its means, and the number of
// states where loops over them are unrolled.
template <class F>
void by_kind(const Problem& problem, Group group, const F& run) {
  using One = Complex<double>;
  const bool is_one = problem.process.terms.size() == 1;
  if (!problem.process.turn_together)
    return group.count == 1 ? run(Starts<One, One, 0>()) : run(Starts<One, Pack<One>, 0>());
  if (group.count > 1) return run(Starts<double, Pack<One>, 0>());
  switch (is_one ? problem.process.n : 0) {
    case 1: return run(Starts<double, One, 1>());
    case 2: return run(Starts<double, One, 2>());
    case 3: return run(Starts<double, One, 3>());
    default: return run(Starts<double, One, 0>());
  }
}

struct StateSpaceLikelihood {
  static void run(Call& call) {
    const Problem problem(call);
    double* values = call.output<double>(0, {problem.batch}).data;
    if (!problem.is_valid) return void(std::fill_n(values, problem.batch, kNan));
    const std::vector<Group> groups = problem.groups();
    for_each(groups.size(), problem.work() * groups[0].count, [&](int64_t i) {
      by_kind(problem, groups[i], [&](auto starts) {
        likelihood(problem, groups[i], values, static_cast<decltype(starts)*>(nullptr));
      });
    });
  }
};

struct StateSpacePullback {
  static void run(Call& call) {
    const Problem problem(call);
    const Terms& process = problem.process;
    const int64_t count = problem.count, terms = process.terms.size();
    const auto weights = call.input<double>(7);
    require(weights.size() == problem.batch, "there is one cotangent for each series");
    const auto by_variance = call.output<double>(0, {terms});
    const auto by_rate = call.output<double>(1, {terms});
    const auto by_frequency = call.output<double>(2, call.shape(2));
    const auto by_noise = call.output<double>(3, call.shape(4));
    const auto by_x = call.output<double>(4, call.shape(5));
    const auto by_z = call.output<Complex<double>>(5, call.shape(6));
    const double start = problem.is_valid ? 0.0 : kNan;
    std::fill_n(by_variance.data, terms, start);
    std::fill_n(by_rate.data, terms, start);
    std::fill_n(by_frequency.data, by_frequency.size(), start);
    std::fill_n(by_noise.data, by_noise.size(), start);
    std::fill_n(by_x.data, by_x.size(), start);
    if (!problem.is_valid)
      return void(std::fill_n(by_z.data, by_z.size(), Complex<double>{kNan, kNan}));
    const std::vector<Group> groups = problem.groups();
    // Each group has sums of its own, which are added up in order: no result depends on threads.
    std::vector<Sums> sums(groups.size(), Sums(process));
    std::vector<std::vector<double>> by_steps(groups.size()), by_noises(groups.size());
    for_each(groups.size(), 4 * problem.work() * groups[0].count, [&](int64_t i) {
      by_steps[i].resize(count);
      by_noises[i].resize(count);
      by_kind(problem, groups[i], [&](auto starts) {
        pullback(problem, groups[i], weights.data, starts, sums[i], by_steps[i].data(),
                 by_noises[i].data(), by_z.data);
      });
    });
    for (size_t i = 0; i < groups.size(); ++i) {
      for (int64_t k = 0; k < terms; ++k) {
        by_variance.data[k] += sums[i].variance[k];
        by_rate.data[k] += sums[i].rate[k];
        by_frequency.data[process.turn_together ? 0 : k] += sums[i].frequency[k];
      }
      double* of_noise = by_noise.data + (problem.own_noise ? groups[i].first * count : 0);
      for (int64_t t = 0; t < count; ++t) of_noise[t % problem.noises] += by_noises[i][t];
      double* to = by_x.data + (problem.own_places ? groups[i].first * count : 0);
      for (int64_t t = 0; t + 1 < count; ++t) {
        to[t] -= by_steps[i][t];
        to[t + 1] += by_steps[i][t];
      }
    }
  }
};

const bool registered = [] {
#define PROBLEM                                                                                \
  "variance: double", "rate: double", "frequency: double", "orders: int32", "noise: double", \
      "x: R", "z: T"
  constexpr Kinds kinds{true, false};
  define("CgpStateSpaceLikelihood", {PROBLEM}, {"log_likelihood: R"});
  define("CgpStateSpacePullback", {PROBLEM, "by_log_likelihood: R"},
         {"by_variance: double", "by_rate: double", "by_frequency: double", "by_noise: double",
          "by_x: R", "by_z: T"});
  for (const Types& types : {kComplexDouble, kComplexSingle}) {
    add_kernel("CgpStateSpaceLikelihood", types, kinds, compute<StateSpaceLikelihood::run>);
    add_kernel("CgpStateSpacePullback", types, kinds, compute<StateSpacePullback::run>);
  }
#undef PROBLEM
  return true;
}();

}  // namespace
}  // namespace cgp::state_space
