// The covariance of the state of a process of terms, and a step of its Kalman filter, for one
// scalar observation a sample.
//
// The covariance is L D Lᴴ, L unit lower triangular: the square-root form without its roots.
// Measurement: Carlson's formula (AIAA J. 11, 1973), φ = Lᴴ hᴴ, σ_j = r + Σ_{k>=j} D_k |φ_k|²,
//
//     L'_ij = L_ij − (Σ_{k>j} L_ik D_k φ_k) φ̄_j / σ_{j+1},   D'_j = D_j σ_{j+1}/σ_j,   S = σ_0 .
//
// Time: [F L, G] with the weights (D, q) by weighted Gram-Schmidt (Bierman,
// Factorization Methods for Discrete Sequential Estimation, 1977, ch. VI). Both are as accurate as
// with roots. F is lower triangular, so that row j has nothing beyond column j.
#pragma once
#include <limits>

#include "markov_terms.h"
#include "split.h"

namespace cgp::state_space {

// Of the state, real where all terms turn together: turning then moves the means alone.
template <class C, int N>
struct Covariance {
  explicit Covariance(int64_t n) : L(n * n), D(n) {}
  Parts<C, N * N> L;
  Parts<double, N> D;
};

// Notices when the covariance changes by no more than rounding any more while steps and noise are
// equal. It is compared over spans of blocks, longer and longer ones, so that what changes slowly is noticed
// too.
template <class C, int N>
class Settling {
 public:
  explicit Settling(int64_t n) : before_(n) {}

  // Whether, by the checks so far, samples leave the covariance as it is while they are seen and
  // have the step and the noise of those before them.
  bool is_settled(double step, double noise) const {
    return settled_ && step == step_ && noise == noise_;
  }

  // After a block with one step and one noise of all samples, all seen; or after another.
  void check(bool alike, double step, double noise, const Covariance<C, N>& now, int64_t order) {
    if (!alike || step != step_ || noise != noise_) {
      settled_ = compared_ = false;
      run_ = 0;
      next_ = 1;
      step_ = alike ? step : -1.0;
      noise_ = noise;
    }
    if (!alike || ++run_ < next_) return;
    next_ = run_ + std::max<int64_t>(1, run_ / 4);
    const int64_t n = N ? N : order;
    const double eps = kSettled * n * std::numeric_limits<double>::epsilon();
    const auto &D = now.D.values, &was = before_.D.values;
    settled_ = compared_;
    for (int64_t i = 0; i < n; ++i) {
      double size = D[i];
      for (int64_t j = 0; j < i; ++j) size += square(now.L.values[i * n + j]) * D[j];
      for (int64_t j = 0; j < i; ++j)
        settled_ &= square(now.L.values[i * n + j] - before_.L.values[i * n + j]) * D[j] <=
                    eps * eps * size;
      settled_ &= std::abs(D[i] - was[i]) <= eps * D[i];
    }
    before_ = now;
    compared_ = true;
  }

 private:
  static constexpr int kSettled = 64;  // roundings a state
  Covariance<C, N> before_;
  double step_ = -1.0, noise_ = 0.0;
  int64_t run_ = 0, next_ = 1;  // blocks
  bool compared_ = false, settled_ = false;
};

// The covariance of the state, and what one step of it needs.
template <class C, int N>
struct CovarianceWork {
  explicit CovarianceWork(const Terms& process, const Covariance<C, N>& from)
      : process(process),
        n(N ? N : process.n),
        now(from),
        F(n * n),
        q(n),
        next(n),
        G(n * n),
        A(n * n),
        B(n * n),
        turns(n),
        gain(n),
        settling(n) {
    each<N>(0, n, [&](int64_t i) CGP_BODY { G.values[i * n + i] = number<C>(1.0); });
  }

  // Whether state i is the last of its term, which is read.
  CGP_INLINE bool is_read(int64_t i) const {
    if constexpr (N > 0) return i == N - 1;
    return process.is_read[i];
  }

  // F without its turns, G, q and the turn of each state; what is zero stays so.
  CGP_INLINE void load(const Steps& steps, int64_t t) {
    for (size_t k = 0; k < (N ? 1 : process.terms.size()); ++k) {
      const int64_t first = N ? 0 : process.terms[k].state;
      const double* decay = steps.decay.data() + first * kBlock + t;
      const double* pivots = steps.pivots.data() + first * kBlock + t;
      const double* below = steps.below.data() + (N ? 0 : process.terms[k].below) * kBlock + t;
      each<N>(0, N ? N : process.terms[k].order + 1, [&](int64_t i) CGP_BODY {
        const int64_t row = (first + i) * n + first;
        each<N>(0, i + 1, [&](int64_t j) CGP_BODY { F.values[row + j] = decay[(i - j) * kBlock]; });
        each<N>(0, i, [&](int64_t j) CGP_BODY {
          G.values[row + j] = number<C>(below[(i * (i - 1) / 2 + j) * kBlock]);
        });
        q.values[first + i] = pivots[i * kBlock];
        if constexpr (is_complex<C>) turns.values[first + i] = turn_of(process, steps, k, t);
      });
    }
  }

  // The measurement of h s + v, v of variance r. Leaves P hᴴ / S in `gain`.
  CGP_INLINE void measure(double r) {
    auto& L = now.L.values;
    auto& cross = gain.values;
    auto& D = now.D.values;
    double sigma = r, inverse = 1.0 / r;
    each<N>(0, n, [&](int64_t reverse) CGP_BODY {
      const int64_t k = n - 1 - reverse;
      C p = number<C>(is_read(k) ? 1.0 : 0.0);
      each<N>(k + 1, n, [&](int64_t i) CGP_BODY {
        if (is_read(i)) p += L[i * n + k];
      });
      const C weight = D[k] * conj(p), back = inverse * p;
      const double before = sigma;
      sigma += real(weight * p);
      inverse = 1.0 / sigma;
      D[k] *= before * inverse;
      cross[k] = weight;
      each<N>(k + 1, n, [&](int64_t i) CGP_BODY {
        const C element = L[i * n + k];
        L[i * n + k] = element - cross[i] * back;
        cross[i] += element * weight;
      });
    });
    S = sigma;
    inverse_S = inverse;
    each<N>(0, n, [&](int64_t i) CGP_BODY { cross[i] = inverse * cross[i]; });
  }

  CGP_INLINE void skip_measurement() {
    inverse_S = 0.0;
    each<N>(0, n, [&](int64_t i) CGP_BODY { gain.values[i] = C{}; });
  }

  CGP_INLINE void predict() {
    auto &L = now.L.values, &a = A.values, &g = B.values;
    auto& D = now.D.values;
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      each<N>(0, i + 1, [&](int64_t j) CGP_BODY {
        C sum = number<C>(F.values[i * n + j]);
        each<N>(j + 1, i + 1, [&](int64_t k) CGP_BODY {
          sum += F.values[i * n + k] * L[k * n + j];
        });
        if constexpr (is_complex<C>) sum = turns.values[i] * sum;
        a[i * n + j] = sum;
        g[i * n + j] = G.values[i * n + j];
      });
    });
    each<N>(0, n, [&](int64_t j) CGP_BODY {
      double pivot = 0.0;
      each<N>(0, j + 1, [&](int64_t k) CGP_BODY {
        pivot += D[k] * square(a[j * n + k]) + q.values[k] * square(g[j * n + k]);
      });
      const double inverse = pivot > 0.0 ? 1.0 / pivot : 0.0;
      next.values[j] = pivot;
      each<N>(j + 1, n, [&](int64_t i) CGP_BODY {
        C sum{};
        each<N>(0, j + 1, [&](int64_t k) CGP_BODY {
          sum += D[k] * (a[i * n + k] * conj(a[j * n + k])) +
                 q.values[k] * (g[i * n + k] * conj(g[j * n + k]));
        });
        const C l = inverse * sum;
        each<N>(0, j + 1, [&](int64_t k) CGP_BODY {
          a[i * n + k] -= l * a[j * n + k];
          g[i * n + k] -= l * g[j * n + k];
        });
        L[i * n + j] = l;
      });
    });
    each<N>(0, n, [&](int64_t j) CGP_BODY { D[j] = next.values[j]; });
  }

  // The covariance itself, [n, n].
  CGP_INLINE void write(C* to) const {
    each<N>(0, n, [&](int64_t i) CGP_BODY {
      each<N>(0, i + 1, [&](int64_t j) CGP_BODY {
        C sum = now.D.values[j] * (i == j ? number<C>(1.0) : now.L.values[i * n + j]);
        each<N>(0, j, [&](int64_t k) CGP_BODY {
          sum += now.D.values[k] * (now.L.values[i * n + k] * conj(now.L.values[j * n + k]));
        });
        to[j * n + i] = conj(sum);
        to[i * n + j] = sum;
      });
    });
  }

  // Goes on where another has come to; but for whether it has settled.
  CGP_INLINE void take(const CovarianceWork& other) {
    now = other.now;
    gain = other.gain;
    S = other.S;
    inverse_S = other.inverse_S;
  }

  const Terms& process;
  const int64_t n;
  Covariance<C, N> now;
  Parts<double, N * N> F;
  Parts<double, N> q, next;
  Parts<C, N * N> G, A, B;
  Parts<C, N> turns, gain;
  double S = 1.0, inverse_S = 0.0;
  Settling<C, N> settling;
};

// The stationary covariance, whose factor is that of the noise of an endless step.
template <class C, int N>
Covariance<C, N> stationary(const Terms& process) {
  const double endless[] = {std::numeric_limits<double>::infinity()};
  Covariance<C, N> found(process.n);
  Steps steps(process);
  for (const Term& term : process.terms) {
    discretize_term({term.order, term.state, term.below, term.variance, 1.0, 0.0}, endless, 1,
                    steps);
    const int64_t n = process.n, first = term.state;
    for (int i = 0, e = 0; i <= term.order; ++i) {
      found.D.values[first + i] = steps.pivots[(first + i) * kBlock];
      found.L.values[(first + i) * n + first + i] = number<C>(1.0);
      for (int j = 0; j < i; ++j, ++e)
        found.L.values[(first + i) * n + first + j] =
            number<C>(steps.below[(term.below + e) * kBlock]);
    }
  }
  return found;
}

}  // namespace cgp::state_space
