// Where the pullback of the Kalman filter adds gradients, and the cotangents that it is given.
#pragma once
#include <vector>

#include "kalman_system.h"

namespace cgp {

// The gradient with respect to one input, of its shape. Series and steps that share an element add
// to the same one.
template <class T>
struct Gradient {
  T* data;
  int64_t steps, size, batch;

  Gradient(Call& call, int i, Shape shape, const Input<T>& input)
      : data(call.output<T>(i, std::move(shape)).data),
        steps(input.steps),
        size(input.size),
        batch(input.batch) {
    std::fill(data, data + length(), T{});
  }

  bool varies() const { return steps > 1; }
  int64_t length() const { return steps * size * batch; }

  template <class N>
  CGP_INLINE void add(int64_t t, int64_t element, Tile tile, N x) {
    T* to = data + ((varies() ? t : 0) * size + element) * batch;
    if (batch == 1) {
      *to += total_as<T>(x);
    } else {
      store(load<N>(to + tile.first, tile.count) + x, to + tile.first, tile.count);
    }
  }
};

// Adds to a gradient of a tile, and sums over time first where the input is constant.
template <class T, class N>
class Accumulator {
 public:
  Accumulator(Gradient<T>& to, Tile tile)
      : to_(to), tile_(tile), varies_(to.varies()), sums_(varies_ ? 0 : to.size) {}

  CGP_INLINE void add(int64_t t, int64_t element, N x) {
    if (varies_)
      to_.add(t, element, tile_, x);
    else
      sums_[element] += x;
  }
  CGP_INLINE void finish() {
    for (size_t i = 0; i < sums_.size(); ++i) to_.add(0, i, tile_, sums_[i]);
  }

 private:
  Gradient<T>& to_;
  Tile tile_;
  bool varies_;
  std::vector<N> sums_;
};

template <class T>
struct Gradients {
  Gradient<T> F, Q, h;
  Gradient<Real<T>> r;
  Gradient<T> b;
  OfSeries<T> z;
  Gradient<T> mean, covariance;

  Gradients(Call& call, const System<T>& system)
      : F(call, 0, call.shape(0), system.F),
        Q(call, 1, call.shape(System<T>::noise),
          input_of<T>(call, System<T>::noise, {system.n, system.n}, system.steps,
                      system.chol.batch)),
        h(call, 2, call.shape(2), system.h),
        r(call, 3, call.shape(3), system.r),
        b(call, 4, call.shape(4), system.b),
        z(series_output_of<T>(call, 5, call.shape(5))),
        mean(call, 6, call.shape(7), system.mean),
        covariance(call, 7, call.shape(8), system.chol) {}
};

// The same gradients, but with sums over series in memory of their own until they are joined, in
// order, so that results do not depend on threads.
template <class T>
struct GradientsApart {
  explicit GradientsApart(const Gradients<T>& all) : own(all) {
    set_apart(own.F);
    set_apart(own.Q);
    set_apart(own.h);
    set_apart(own.r);
    set_apart(own.b);
    set_apart(own.mean);
  }

  void join() {
    for (auto& [to, sums] : sums_)
      for (size_t i = 0; i < sums.size(); ++i) to[i] += sums[i];
  }

  Gradients<T> own;

 private:
  template <class N>
  void set_apart(Gradient<N>& gradient) {
    if (gradient.batch > 1) return;
    auto* to = reinterpret_cast<Real<T>*>(gradient.data);
    sums_.emplace_back(to, gradient.length() * sizeof(N) / sizeof(Real<T>));
    gradient.data = reinterpret_cast<N*>(sums_.back().second.data());
  }

  std::vector<std::pair<Real<T>*, std::vector<Real<T>>>> sums_;
};

// Cotangents of the moments; those of means and covariances may be missing, which means zero.
template <class T>
struct Cotangents {
  OfSeries<const Real<T>> log_likelihoods;
  OfSeries<const T> predicted_means, filtered_means;
  Input<T> predicted_covariances, filtered_covariances;
  bool of_moments;

  Cotangents(Call& call, int first, const System<T>& system)
      : log_likelihoods(
            series_input_of<Real<T>>(call, first, 1, system.steps, system.batch)),
        of_moments(size_of(call.shape(first + 1)) > 0) {
    if (!of_moments) return;
    const int64_t n = system.n, steps = system.steps, matrices = system.chol.batch;
    predicted_means = series_input_of<T>(call, first + 1, n, steps, system.batch);
    predicted_covariances = input_of<T>(call, first + 2, {n, n}, steps, matrices);
    filtered_means = series_input_of<T>(call, first + 3, n, steps, system.batch);
    filtered_covariances = input_of<T>(call, first + 4, {n, n}, steps, matrices);
  }
};

}  // namespace cgp
