// Matérn terms and their steps: what cgp.kernels.MarkovForm has as `terms`, and cgp.kernels.stationary
// in TensorFlow.
//
// A term of order p is a cascade of p + 1 states of one rate λ, read at the last and turned at a
// frequency. Over a step, with u = λ step and y = 2u,
//
//     F[i, j] = e^{i2π frequency step} e⁻ᵘ u^{i−j}/(i−j)!,   Q[i, j] = P∞[i, j] P(i + j + 1, y),
//     P∞[i, j] = variance w[i, j],   w[i, j] ∝ C(i+j, i) 2^{−(i+j)},   w[p, p] = 1 .
//
// Q = G diag(q) Gᵀ, G unit lower triangular, from sums of positive terms: its pivots keep their
// digits over the shortest step, down to 1/36 of the elements that they are left of.
#pragma once
#include <algorithm>
#include <vector>

#include "elementary.h"
#include "op.h"
#include "split.h"

namespace cgp::state_space {

constexpr int kMostOrder = 2;
// Beyond this u a term has forgotten its past: e^{−350} = 1e−152.
constexpr double kForgotten = 350.0;
// Samples whose steps are computed together.
constexpr int64_t kBlock = 256;

// w of each order, all elements.
inline const double* stationary_weights(int order) {
  static const double first[] = {1.0}, second[] = {2.0, 1.0, 1.0, 1.0};
  static const double third[] = {8.0 / 3, 4.0 / 3, 2.0 / 3, 4.0 / 3, 4.0 / 3,
                                 1.0,     2.0 / 3, 1.0,     1.0};
  return order == 0 ? first : order == 1 ? second : third;
}

struct Term {
  int order;
  int64_t state;  // the first of its states
  int64_t below;  // the first of its elements in the unit lower factors, of order (order + 1) / 2
  double variance, rate, frequency;
};

// The process: its terms, one frequency for all of them or one for each.
struct Terms {
  std::vector<Term> terms;
  std::vector<char> is_read;  // of each state, whether it is the last of its term
  int64_t n = 0, below = 0;   // states; elements of unit lower factors
  bool turn_together = true;
};

// The steps of a block: [state or element, kBlock] each.
struct Steps {
  explicit Steps(const Terms& process)
      : decay(process.n * kBlock),
        pivots(process.n * kBlock),
        below(process.below * kBlock),
        cosine(turns(process) * kBlock),
        sine(turns(process) * kBlock) {}

  static int64_t turns(const Terms& process) {
    return process.turn_together ? 1 : int64_t(process.terms.size());
  }

  std::vector<double> decay;         // the first column of F without its turn: e⁻ᵘ uᵐ/m!
  std::vector<double> pivots;        // q
  std::vector<double> below;         // G below its diagonal, row by row
  std::vector<double> cosine, sine;  // of the turn, once or for each term
};

// The turn of a term over a step, the same for all where all turn together.
CGP_INLINE Complex<double> turn_of(const Terms& process, const Steps& steps, size_t k, int64_t t) {
  const int64_t at = (process.turn_together ? 0 : k) * kBlock + t;
  return {steps.cosine[at], steps.sine[at]};
}

template <int order>
CGP_INLINE void discretize_term(const Term& term, const double* steps, int64_t count, Steps& to) {
  double* decays = to.decay.data() + term.state * kBlock;
  double* pivots = to.pivots.data() + term.state * kBlock;
  double* below = to.below.data() + term.below * kBlock;
  const double* w = stationary_weights(order);
  const double variance = term.variance, rate = term.rate;
  CGP_INDEPENDENT
  for (int64_t t = 0; t < count; ++t) {
    double u = rate * steps[t];
    u = u < kForgotten ? u : kForgotten;
    double power, loss, power_of_y, share;
    decay(u, power, loss);
    decay(2.0 * u, power_of_y, share);
    decays[t] = power;
    if constexpr (order == 0) pivots[t] = variance * share;
    if constexpr (order > 0) {
      const double y = 2.0 * u;
      decays[kBlock + t] = power * u;
      constexpr int most = 2 * order + 1;
      double shares[most];
      shares[most - 1] = incomplete_gamma<most>(y, power_of_y);
      double terms[most] = {power_of_y};
      each<most>(1, most, [&](int64_t k) CGP_BODY {
        terms[k] = terms[k - 1] * y * (1.0 / double(k));
      });
      each<most>(1, most, [&](int64_t k) CGP_BODY {
        shares[most - 1 - k] = shares[most - k] + terms[most - k];
      });
      const double first = variance * w[0] * shares[0];
      const double inverse = first > 0.0 ? 1.0 / first : 0.0;
      const double second = variance * w[1] * shares[1], l = inverse * second;
      const double pivot = variance * w[order + 2] * shares[2] - l * second;
      pivots[t] = first;
      below[t] = l;
      pivots[kBlock + t] = pivot > 0.0 ? pivot : 0.0;
      if constexpr (order == 2) {
        decays[2 * kBlock + t] = power * u * u * 0.5;
        const double third = variance * w[2] * shares[2], l20 = inverse * third;
        const double inner = variance * w[5] * shares[3] - l20 * second;
        const double l21 = pivot > 0.0 ? inner / pivot : 0.0;
        const double last = variance * w[8] * shares[4] - l20 * third - l21 * inner;
        below[kBlock + t] = l20;
        below[2 * kBlock + t] = l21;
        pivots[2 * kBlock + t] = last > 0.0 ? last : 0.0;
      }
    }
  }
}

CGP_INLINE void discretize_term(const Term& term, const double* steps, int64_t count, Steps& to) {
  switch (term.order) {
    case 0: return discretize_term<0>(term, steps, count, to);
    case 1: return discretize_term<1>(term, steps, count, to);
    default: return discretize_term<2>(term, steps, count, to);
  }
}

// The transitions and the process noise of up to kBlock steps.
CGP_FOR_EACH_PROCESSOR inline void discretize(const Terms& process, const double* steps,
                                              int64_t count, Steps& to) {
  for (const Term& term : process.terms) discretize_term(term, steps, count, to);
  for (int64_t k = 0; k < Steps::turns(process); ++k) {
    const double frequency = process.terms[k].frequency;
    double *cosine = to.cosine.data() + k * kBlock, *sine = to.sine.data() + k * kBlock;
      CGP_INDEPENDENT
    for (int64_t t = 0; t < count; ++t) turn(frequency * steps[t], cosine[t], sine[t]);
  }
}

// The terms among the arguments of a call, from the first on: variance, rate, frequency, orders.
inline Terms terms_of(Call& call, int first) {
  const auto variance = call.input<double>(first), rate = call.input<double>(first + 1);
  const auto frequency = call.input<double>(first + 2);
  const auto orders = call.input<int32_t>(first + 3);
  const int64_t count = orders.size(), turns = frequency.size();
  require(count > 0 && variance.size() == count && rate.size() == count,
          "terms have one variance and one rate each");
  require(turns == 1 || turns == count, "terms turn at one frequency, or at one each");
  Terms process;
  process.turn_together = turns == 1;
  for (int64_t k = 0; k < count; ++k) {
    const int order = orders.data[k];
    require(order >= 0 && order <= kMostOrder, "the order of a term is none of 0, 1, 2");
    const double f = frequency.data[process.turn_together ? 0 : k];
    process.terms.push_back({order, process.n, process.below, variance.data[k], rate.data[k], f});
    process.is_read.resize(process.n += order + 1);
    process.is_read.back() = true;
    process.below += order * (order + 1) / 2;
  }
  return process;
}

// Whether variances are positive, and rates not negative.
inline bool is_valid(const Terms& process) {
  for (const Term& term : process.terms)
    if (!is_positive_and_finite(term.variance) || !is_not_negative_and_finite(term.rate))
      return false;
  return true;
}

// Whether no term turns beyond what `turn` resolves over the longest step.
inline bool is_resolved(const Terms& process, double longest) {
  for (const Term& term : process.terms)
    if (!(std::abs(term.frequency) * longest < 5e14)) return false;
  return true;
}

}  // namespace cgp::state_space
