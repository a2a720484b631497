// Covariances of a kernel, computed from its instructions (`Code` of cgp.kernels): numbers in a row,
// each instruction its code, the count of its numbers, and those. Instructions work on a stack of
// values, one for each of N points and a last one, as cgp.kernels computes them in TensorFlow.
//
// Formulas: Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, §4.2; those of
// improper processes: Schreier & Scharf, 2010, §2.3.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "number.h"

namespace cgp {

enum class Code : int {
  kConstant, kWhite, kRbf, kRationalQuadratic, kMatern12, kMatern32, kMatern52, kPeriodic,
  kRotation, kSum, kProduct, kConjugate, kWidelyLinear,
};

// K = E z(x) conj(z(y)) and C = E z(x) z(y) of N points x.
template <class R>
struct Covariances {
  std::vector<Complex<R>> k, c;  // c is empty if the process is proper
};

template <class R>
class CovarianceProgram {
 public:
  CovarianceProgram(const double* numbers, int64_t count) : first_(numbers), last_(numbers + count) {}

  // Covariances between points x, [N, D], and y, [D]; false if a kernel is of another D.
  bool evaluate(const R* x, int64_t N, const R* y, int64_t D, Covariances<R>& result) {
    N_ = N;
    D_ = D;
    stack_.clear();
    for (const double* at = first_; at < last_; at += 2 + static_cast<int64_t>(at[1]))
      if (!run(static_cast<Code>(static_cast<int>(at[0])), at + 2, static_cast<int64_t>(at[1]), x, y))
        return false;
    result = std::move(stack_.back());
    return true;
  }

 private:
  using C = Complex<R>;

  bool run(Code code, const double* numbers, int64_t count, const R* x, const R* y) {
    switch (code) {
      case Code::kSum:
      case Code::kProduct:
        for (int64_t i = 1; i < static_cast<int64_t>(numbers[0]); ++i) combine(code == Code::kSum);
        return true;
      case Code::kConjugate:
        for (auto* values : {&stack_.back().k, &stack_.back().c})
          for (C& a : *values) a = conj(a);
        return true;
      case Code::kWidelyLinear:
        widely_linear({R(numbers[0]), R(numbers[1])});
        return true;
      default:
        return push(code, numbers, count, x, y);
    }
  }

  // A kernel that is not made of others: a function of the differences, first formed, as a date
  // over a length scale would lose the digits that matter.
  bool push(Code code, const double* numbers, int64_t count, const R* x, const R* y) {
    const int own = own_numbers(code);
    const double* by_dimension = numbers + own;
    const int64_t dimensions = count - own;  // one for all, or one for each
    if (dimensions > 1 && dimensions != D_) return false;
    stack_.emplace_back();
    stack_.back().k.resize(N_);
    const R pi = R(3.14159265358979323846);
    for (int64_t i = 0; i < N_; ++i) {
      R sum = 0;
      for (int64_t d = 0; d < D_; ++d) {
        const R difference = x[i * D_ + d] - y[d];
        const R p = dimensions ? R(by_dimension[dimensions > 1 ? d : 0]) : R(1);
        if (code == Code::kRotation) {
          sum += p * difference;
        } else if (code == Code::kPeriodic) {
          const R sine = std::sin(pi * (p * difference));
          sum += sine * sine;
        } else if (code == Code::kWhite) {
          sum += difference == 0 ? R(0) : R(1);
        } else {
          sum += (difference / p) * (difference / p);
        }
      }
      stack_.back().k[i] = value(code, numbers, sum, pi);
    }
    return true;
  }

  static int own_numbers(Code code) {
    return code == Code::kRotation ? 0
           : code == Code::kPeriodic || code == Code::kRationalQuadratic ? 2
                                                                         : 1;
  }

  static C value(Code code, const double* numbers, R sum, R pi) {
    if (code == Code::kRotation) return {std::cos(2 * pi * sum), std::sin(2 * pi * sum)};
    const R variance = R(numbers[0]), r = std::sqrt(sum);
    switch (code) {
      case Code::kConstant: return {variance, 0};
      case Code::kWhite: return {sum == 0 ? variance : R(0), 0};
      case Code::kRbf: return {variance * std::exp(-sum / 2), 0};
      case Code::kRationalQuadratic: {
        const R alpha = R(numbers[1]);
        return {variance * std::exp(-alpha * std::log1p(sum / (2 * alpha))), 0};
      }
      case Code::kPeriodic: {
        const R lengthscale = R(numbers[1]);
        return {variance * std::exp(-2 * sum / (lengthscale * lengthscale)), 0};
      }
      case Code::kMatern12: return {variance * std::exp(-r), 0};
      case Code::kMatern32: {
        const R s = std::sqrt(R(3)) * r;
        return {variance * ((1 + s) * std::exp(-s)), 0};
      }
      default: {
        const R s = std::sqrt(R(5)) * r;
        return {variance * ((1 + s + s * s / 3) * std::exp(-s)), 0};
      }
    }
  }

  // A sum or product of two independent processes in place of them.
  void combine(bool is_sum) {
    Covariances<R> b = std::move(stack_.back());
    stack_.pop_back();
    Covariances<R>& a = stack_.back();
    if (!is_sum && a.c.empty() != b.c.empty()) {  // a real process is its own conjugate: C is K
      if (a.c.empty()) a.c = a.k;
      if (b.c.empty()) b.c = b.k;
    }
    const auto of = [&](std::vector<C>& p, const std::vector<C>& q) {
      if (q.empty()) return;
      if (p.empty()) p.resize(N_);
      for (int64_t i = 0; i < N_; ++i) p[i] = is_sum ? p[i] + q[i] : p[i] * q[i];
    };
    of(a.k, b.k);
    of(a.c, b.c);
  }

  // K + c̄ C + c C̄ + |c|² K̄ and C + c (K + K̄) + c² C̄, of u + c conj(u).
  void widely_linear(C w) {
    Covariances<R>& of = stack_.back();
    of.c.resize(N_);
    for (int64_t i = 0; i < N_; ++i) {
      const C k = of.k[i], c = of.c[i];
      const C cross = conj(w) * c;
      of.k[i] = k + square(w) * conj(k) + C{2 * cross.re, 0};
      of.c[i] = c + (2 * k.re) * w + (w * w) * conj(c);
    }
  }

  const double *first_, *last_;
  int64_t N_ = 0, D_ = 0;
  std::vector<Covariances<R>> stack_;
};

}  // namespace cgp
