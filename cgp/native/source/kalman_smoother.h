// The Rauch-Tung-Striebel smoother along series that have been filtered, in square-root form. With
//
//     [[F L, G], [L, 0]] = [[L⁺, 0], [X, Y]] Θ ,   Θ unitary,
//
// the gain is J = X / L⁺ and [J Lₛ⁺, Y] a root of the smoothed covariance (Park & Kailath, IEEE
// Trans. Autom. Control 40, 1995). cgp/statespace/smoothing.py has it in TensorFlow.
#pragma once
#include "gram_schmidt.h"
#include "kalman_system.h"

namespace cgp {

// What the filter found, with the part of the system that leads from one step to the next.
template <class T>
struct Filtered {
  explicit Filtered(Call& call) {
    const Shape means_shape = call.shape(3), chols_shape = call.shape(4);
    const Shape G_shape = call.shape(1);
    require(means_shape.size() == 3 && chols_shape.size() == 4 &&
                (G_shape.size() == 2 || G_shape.size() == 4),
            "an array has not the axes of a filtered series");
    batch = means_shape[0];
    steps = means_shape[1];
    n = means_shape[2];
    q = G_shape[G_shape.size() / 2];
    matrices = chols_shape[3];
    require(n > 0 && steps > 0 && batch > 0 && (matrices == 1 || matrices == batch),
            "an array is empty, or the batches differ");
    F = input_of<T>(call, 0, {n, n}, steps, matrices);
    G = input_of<T>(call, 1, {n, q}, steps, matrices);
    b = input_of<T>(call, 2, {n}, steps, batch);
    means = series_input_of<T>(call, 3, n, steps, batch);
    chols = input_of<T>(call, 4, {n, n}, steps, matrices);
    epsilon = call.epsilon();
  }

  // Whether the matrices that lead from step t to the next are those of the step after.
  bool repeats(int64_t t, Tile tile) const {
    if (F.varies() || G.varies()) return false;
    for (int64_t e = 0; e < n * n; ++e)
      for (int64_t i = tile.first; i < tile.first + tile.count; ++i)
        if (square(chols.pointer(t, e)[i] - chols.pointer(t + 1, e)[i]) != 0) return false;
    return true;
  }

  Input<T> F, G, b, chols;
  OfSeries<const T> means;
  int64_t n, q, steps, batch, matrices;
  double epsilon;  // rounding of the arguments
};

// The moments as they are returned: means of each series, matrices [T, n, n, B or 1]. No gain or
// lag-one covariance goes with the last step; they are zero.
template <class T>
struct Smoothed {
  Smoothed(Call& call, const Filtered<T>& filtered)
      : steps(filtered.steps),
        n(filtered.n),
        batch(filtered.batch),
        matrices(filtered.matrices),
        largest(call.largest()) {
    means = series_output_of<T>(call, 0, {batch, steps, n});
    chols = call.output<T>(1, {steps, n, n, matrices}).data;
    lags = call.output<T>(2, {steps, n, n, matrices}).data;
    gains = call.output<T>(3, {steps, n, n, matrices}).data;
  }

  // Stores the elements of a matrix of step t, by columns.
  template <class C, class Matrix>
  CGP_INLINE void set(T* to, int64_t t, Tile tile, const Matrix& a) const {
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        store<C>(a[j * n + i], to + ((t * n + i) * n + j) * matrices + tile.first, tile.count);
  }

  template <class M, class Vector>
  CGP_INLINE void set_mean(int64_t t, Tile tile, const Vector& mean) const {
    for (int64_t i = 0; i < n; ++i) means.template set<M>(t, i, tile, mean[i]);
  }

  void require_finite_values() const {
    require(are_within(largest, means.data, steps * n * batch) &&
                are_within(largest, chols, steps * n * n * matrices),
            "a result is not finite");
  }

  int64_t steps, n, batch, matrices;
  double largest;  // finite number of the precision that is returned
  OfSeries<T> means;
  T *chols, *lags, *gains;
};

template <class C, int N>
struct SmootherWork {
  SmootherWork(int64_t n, int64_t q, double epsilon)
      : F(n * n), L(n * n), both(2 * n * (n + q)), factor(4 * n * n), J(n * n), Y(n * n),
        later(n * n), spread(n * n), root(2 * n * n), lag(n * n), pairs(2 * n, n + q, epsilon),
        rows(n, 2 * n, epsilon) {}

  Split<C, N * N> F, L;
  Split<C, 4 * N * N> both, factor;  // [[F L, G], [L, 0]], and its triangular factor
  Split<C, N * N> J, Y, later, spread;
  Split<C, 2 * N * N> root;  // [J Lₛ⁺, Y]
  Split<C, N * N> lag;
  GramSchmidt<C, 2 * N, 2 * N> pairs;
  GramSchmidt<C, N, 2 * N> rows;
};

// Over any number of states compiled once, though a step needs it of two matrices.
template <class C>
CGP_FOR_EACH_PROCESSOR void triangularize(GramSchmidt<C, 0, 0>& by, Split<C, 0>& A, int64_t rows,
                                          int64_t columns, Split<C, 0>& L) {
  by.triangularize(A, rows, columns, L);
}
template <class C, int Rows, int Columns>
CGP_INLINE void triangularize(GramSchmidt<C, Rows, Columns>& by, Split<C, Rows * Columns>& A,
                              int64_t rows, int64_t columns, Split<C, Rows * Rows>& L) {
  by.triangularize(A, rows, columns, L);
}

// J and Y of a step, by F, its G and its filtered factor L.
template <class C, int N, class T>
CGP_INLINE void find_gain(const Filtered<T>& filtered, int64_t t, Tile tile,
                          SmootherWork<C, N>& work) {
  const int64_t n = N ? N : filtered.n, q = filtered.q;
  auto& [F, L, both, factor, J, Y, later, spread, root, lag, pairs, rows] = work;
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i) {
      F.set(k * n + i, filtered.F.template at<C>(t, i * n + k, tile));
      L.set(k * n + i, filtered.chols.template at<C>(t, i * n + k, tile));
    }
  multiply_lower(F, L, n, both, 2 * n);
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i) both.set(k * 2 * n + n + i, L[k * n + i]);
  for (int64_t k = 0; k < q; ++k)
    for (int64_t i = 0; i < n; ++i) {
      both.set((n + k) * 2 * n + i, filtered.G.template at<C>(t, i * q + k, tile));
      both.set((n + k) * 2 * n + n + i, C{});
    }
  triangularize(pairs, both, 2 * n, n + q, factor);
  // A column of J is zero where the pivot of L⁺ is: what is certain says nothing more.
  for (int64_t j = n - 1; j >= 0; --j) {
    for (int64_t i = 0; i < n; ++i) J.set(j * n + i, factor[j * 2 * n + n + i]);
    for (int64_t k = j + 1; k < n; ++k) {
      const C element = factor[j * 2 * n + k];
      CGP_INDEPENDENT
      for (int64_t i = 0; i < n; ++i) J.add(j * n + i, C{} - J[k * n + i] * element);
    }
    const Real<C> inverse = inverse_or_zero(real(factor[j * 2 * n + j]));
    for (int64_t i = 0; i < n; ++i) J.set(j * n + i, inverse * J[j * n + i]);
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i) Y.set(j * n + i, factor[(n + j) * 2 * n + n + i]);
}

// The covariances of the series of a tile, or of all that share them, and the gains.
template <class C, int N, class T>
CGP_INLINE void smooth_covariances(const Filtered<T>& filtered, Tile tile, const Smoothed<T>& to) {
  const int64_t n = N ? N : filtered.n, end = filtered.steps - 1;
  SmootherWork<C, N> work(n, filtered.q, filtered.epsilon);
  auto& [F, L, both, factor, J, Y, later, spread, root, lag, pairs, rows] = work;
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i)
      later.set(k * n + i, filtered.chols.template at<C>(end, i * n + k, tile));
  to.template set<C>(to.chols, end, tile, later);
  to.template set<C>(to.lags, end, tile, lag);  // zero
  to.template set<C>(to.gains, end, tile, J);
  for (int64_t t = end - 1; t >= 0; --t) {
    if (t == end - 1 || !filtered.repeats(t, tile)) find_gain<C, N>(filtered, t, tile, work);
    multiply_lower(J, later, n, spread, n);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i) lag.set(j * n + i, C{});
      for (int64_t k = 0; k < n; ++k) {
        const C element = conj(spread[k * n + j]);
        CGP_INDEPENDENT
        for (int64_t i = 0; i < n; ++i) lag.add(j * n + i, later[k * n + i] * element);
      }
    }
    for (int64_t e = 0; e < n * n; ++e) {
      root.set(e, spread[e]);
      root.set(n * n + e, Y[e]);
    }
    triangularize(rows, root, n, 2 * n, later);
    to.template set<C>(to.chols, t, tile, later);
    to.template set<C>(to.lags, t, tile, lag);
    to.template set<C>(to.gains, t, tile, J);
  }
}

template <class C, class T>
CGP_FOR_EACH_PROCESSOR void smooth_covariances(const Filtered<T>& filtered, Tile tile,
                                               const Smoothed<T>& to) {
  smooth_covariances<C, 0>(filtered, tile, to);
}

// Of N states that series share.
template <int N, class T>
void smooth_covariances_of_few(const Filtered<T>& filtered, const Smoothed<T>& to) {
  smooth_covariances<T, N>(filtered, kOne, to);
}

// The means of the series of a tile, given the gains.
template <class C, class M, class T>
CGP_FOR_EACH_PROCESSOR void smooth_means(const Filtered<T>& filtered, Tile tile,
                                         const Smoothed<T>& to) {
  const int64_t n = filtered.n, end = filtered.steps - 1;
  const Input<T> gains{to.gains, to.steps, n * n, to.matrices};
  Split<M, 0> later(n), mean(n), change(n);
  for (int64_t i = 0; i < n; ++i) later.set(i, filtered.means.template at<M>(end, i, tile));
  to.template set_mean<M>(end, tile, later);
  for (int64_t t = end - 1; t >= 0; --t) {
    for (int64_t i = 0; i < n; ++i) mean.set(i, filtered.means.template at<M>(t, i, tile));
    for (int64_t i = 0; i < n; ++i) {
      M predicted = filtered.b.template at<M>(t, i, tile);
      for (int64_t k = 0; k < n; ++k)
        predicted += filtered.F.template at<C>(t, i * n + k, tile) * mean[k];
      change.set(i, later[i] - predicted);
    }
    for (int64_t i = 0; i < n; ++i) {
      M sum = mean[i];
      for (int64_t k = 0; k < n; ++k)
        sum += gains.template at<C>(t, i * n + k, tile) * change[k];
      later.set(i, sum);
    }
    to.template set_mean<M>(t, tile, later);
  }
}

}  // namespace cgp
