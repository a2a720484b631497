// Series of a process of terms: the arguments of a call, and their blocks of samples.
#pragma once
#include <algorithm>
#include <vector>

#include "lanes.h"
#include "markov_terms.h"
#include "parallel.h"
#include "terms_filter.h"

namespace cgp::state_space {

// Series that share covariances.
struct Group {
  int64_t first, count;
};

// The arguments of a call: the process, the noise variance, one number or of each sample, [T] or
// [B, T], places [T] or [B, T] in order, and series [B, T].
struct Problem {
  Terms process;
  const double *noise, *x;
  const Complex<double>* z;
  int64_t batch, count;
  bool own_places, own_noise, shared;  // of each series
  int64_t noises;                      // one, or as many as there are samples
  bool is_valid;  // else the result is NaN: an error would end a training

  explicit Problem(Call& call) : process(terms_of(call, 0)) {
    const auto variances = call.input<double>(4);
    const auto places = call.input<double>(5);
    const auto series = call.input<Complex<double>>(6);
    require(series.shape.size() == 2 && series.size() > 0, "z must be [B, T], and not empty");
    batch = series.axis(0);
    count = series.axis(1);
    require(places.axis(-1) == count && (places.size() == count || places.shape == series.shape),
            "x must be [T] or as z");
    require(variances.size() == 1 || variances.size() == count ||
                variances.shape == series.shape,
            "the noise must be one number, [T] or as z");
    noise = variances.data;
    noises = variances.size() == 1 ? 1 : count;
    own_noise = variances.size() > count;
    x = places.data;
    z = series.data;
    own_places = places.size() > count;
    shared = !own_places && !own_noise && same_pattern();
    double longest = 0.0;
    for (int64_t b = 0; b < (own_places ? batch : 1); ++b)
      for (int64_t t = 0; t + 1 < count; ++t) {
        const double step = x[b * count + t + 1] - x[b * count + t];
        require(step >= 0.0, "x is not in order");
        longest = step > longest ? step : longest;
      }
    is_valid = state_space::is_valid(process) && is_resolved(process, longest);
    if (variances.size() == 1) is_valid &= is_positive_and_finite(noise[0]);
    for (int64_t b = 0; variances.size() > 1 && b < batch; ++b)
      for (int64_t t = 0; t < count; ++t)
        is_valid &= !is_seen(z[b * count + t]) || is_positive_and_finite(noise_of(b)[t]);
  }

  const double* noise_of(int64_t b) const { return noise + (own_noise ? b * count : 0); }

  const double* places(int64_t b) const { return x + (own_places ? b * count : 0); }

  // About how many operations a series takes.
  int64_t work() const { return count * (40 + 10 * process.n * process.n * process.n); }

  // The series in groups: some for each thread, or one by one.
  std::vector<Group> groups() const {
    std::vector<Group> found;
    constexpr int64_t lanes = lanes_of<Pack<Complex<double>>>;
    const int64_t threads = std::clamp<int64_t>(batch * work() / kWorkOfThread, 1, kMostThreads);
    const int64_t all = threads * lanes;
    const int64_t each = !shared || batch == 1 ? 1 : (batch + all - 1) / all * lanes;
    for (int64_t first = 0; first < batch; first += each)
      found.push_back({first, std::min(each, batch - first)});
    return found;
  }
  static CGP_INLINE bool is_seen(Complex<double> z) { return z.re == z.re && z.im == z.im; }

 private:
  bool same_pattern() const {
    for (int64_t b = 1; b < batch; ++b)
      for (int64_t t = 0; t < count; ++t)
        if (is_seen(z[t]) != is_seen(z[b * count + t])) return false;
    return true;
  }
};

// The steps after the samples of a block, computed again only where they differ.
class Block {
 public:
  explicit Block(const Problem& problem)
      : steps(problem.process), seen(kBlock), length(kBlock), noise(kBlock), problem_(problem) {}

  CGP_INLINE void load(Group group, int64_t start) {
    first = start;
    count = std::min(kBlock, problem_.count - start);
    const double* x = problem_.places(group.first) + start;
    const bool is_one = problem_.noises == 1;
    const double* of_samples = problem_.noise_of(group.first) + (is_one ? 0 : start);
    for (int64_t t = 0; t < count; ++t) noise[t] = of_samples[is_one ? 0 : t];
    const Complex<double>* z = problem_.z + group.first * problem_.count + start;
    const bool is_last = start + count == problem_.count;
    bool same = count <= computed_;
    for (int64_t t = 0; t < count; ++t) {
      const double step = t + 1 < count || !is_last ? x[t + 1] - x[t] : 0.0;
      same &= step == length[t];
      length[t] = step;
      seen[t] = Problem::is_seen(z[t]) ? 1.0 : 0.0;
    }
    if (same) return;
    discretize(problem_.process, length.data(), count, steps);
    computed_ = count;
  }

  // The observations of some series of the group, zero where missing.
  template <class M>
  CGP_INLINE void read(int64_t series, int64_t lanes, M* to) const {
    const Complex<double>* z = problem_.z + series * problem_.count + first;
    for (int64_t t = 0; t < count; ++t) {
      if constexpr (lanes_of<M> == 1) {
        to[t] = seen[t] > 0.0 ? M{z[t].re, z[t].im} : M{};
      } else {
        double re[lanes_of<M>] = {}, im[lanes_of<M>] = {};
        if (seen[t] > 0.0)
          for (int64_t i = 0; i < lanes; ++i)
            re[i] = z[i * problem_.count + t].re, im[i] = z[i * problem_.count + t].im;
        to[t] = {Lanes<double>::of_array(re), Lanes<double>::of_array(im)};
      }
    }
  }

  // The numbers of some series of a result [B, T].
  template <class M>
  CGP_INLINE void write(int64_t series, int64_t lanes, const M* from,
                        Complex<double>* to) const {
    to += series * problem_.count + first;
    for (int64_t t = 0; t < count; ++t) {
      if constexpr (lanes_of<M> == 1) {
        to[t] = {from[t].re, from[t].im};
      } else {
        double re[lanes_of<M>], im[lanes_of<M>];
        from[t].re.get(re);
        from[t].im.get(im);
        for (int64_t i = 0; i < lanes; ++i)
          to[i * problem_.count + t] = {re[i], im[i]};
      }
    }
  }

  Samples samples() const { return {length.data(), seen.data(), noise.data()}; }

  Steps steps;
  std::vector<double> seen, length, noise;
  int64_t first = 0, count = 0;

 private:
  const Problem& problem_;
  int64_t computed_ = 0;  // of how many samples the steps are those of `length`
};

}  // namespace cgp::state_space
