// The transitions of a process of terms over steps, and lower triangular factors of its noise.
#include <cmath>

#include "markov_terms.h"

namespace cgp::state_space {
namespace {

// F and G, G Gᴴ = Q, of each step: [T, n, n].
void markov_discretize(Call& call) {
  using C = Complex<double>;
  const Terms process = terms_of(call, 0);
  const auto steps = call.input<double>(4);
  require(steps.shape.size() == 1, "steps must be [T]");
  const int64_t n = process.n, count = steps.size();
  double longest = 0.0;
  for (int64_t t = 0; t < count; ++t) {
    require(steps.data[t] >= 0.0, "a step is negative, or NaN");
    longest = std::max(longest, steps.data[t]);
  }
  require(is_valid(process) && is_resolved(process, longest), "a term or a step is out of range");
  const auto F = call.output<C>(0, {count, n, n}), G = call.output<C>(1, {count, n, n});
  std::fill_n(F.data, F.size(), C{});
  std::fill_n(G.data, G.size(), C{});
  Steps block(process);
  for (int64_t first = 0; first < count; first += kBlock) {
    const int64_t size = std::min(kBlock, count - first);
    discretize(process, steps.data + first, size, block);
    for (int64_t t = 0; t < size; ++t)
      for (size_t k = 0; k < process.terms.size(); ++k) {
        const Term& term = process.terms[k];
        const C turn = turn_of(process, block, k, t);
        const double* below = block.below.data() + term.below * kBlock + t;
        for (int i = 0; i <= term.order; ++i) {
          const int64_t row = ((first + t) * n + term.state + i) * n + term.state;
          for (int j = 0; j <= i; ++j) {
            const double root = std::sqrt(block.pivots[(term.state + j) * kBlock + t]);
            F.data[row + j] = block.decay[(term.state + i - j) * kBlock + t] * turn;
            G.data[row + j] = C{j < i ? root * *below : root, 0.0};
            if (j < i) below += kBlock;
          }
        }
      }
  }
}

const bool registered = [] {
  define("CgpMarkovDiscretize",
         {"variance: double", "rate: double", "frequency: double", "orders: int32",
          "steps: double"},
         {"transition: complex128", "noise_factor: complex128"});
  add_kernel("CgpMarkovDiscretize", {kNoNumbers, TF_DOUBLE, TF_COMPLEX128}, {false, false},
             compute<markov_discretize>);
  return true;
}();

}  // namespace
}  // namespace cgp::state_space
