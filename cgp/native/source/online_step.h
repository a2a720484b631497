// One step of the square-root Kalman filter for several streams, each with a state of its own: the
// same formulas as along a series (kalman_covariances.h), and the moments that a step returns.
// cgp.statespace.online.online_step does the same in TensorFlow.
#pragma once
#include <limits>
#include <vector>

#include "kalman_covariances.h"

namespace cgp {

// The arrays of a step, batch last; a batch axis is 1 where streams share a matrix.
template <class T>
struct OnlineStep {
  using R = Real<T>;
  int64_t n, q, m, streams;
  bool predicts_first;  // from the last observation to this one; else from this one to the next
  bool is_composite;    // real and imaginary parts of complex numbers, one half after the other
  Input<T> F, G, H, noise, b, z;  // z is NaN where missing
  Input<T> mean, chol;            // the state
  T *next_mean, *next_chol;       // the state after the step
  // Of the observation before it is seen; and, after it, of H x or else of the state.
  struct Moments {
    R *mean, *variance, *pseudo;  // [B, k], complex ones as pairs; `pseudo` of a composite alone
    R *covariance, *pseudo_covariance;  // [B, k, k], likewise; null where they are not asked for
  } predicted, filtered;
};

template <class T, class C>
struct StepWork {
  using R = Real<C>;
  StepWork(int64_t n, int64_t q, int64_t m)
      : covariances(n, q, std::numeric_limits<Lane<R>>::epsilon()),
        mean(n),
        next(n),
        rows(m * n),
        noise(m * m),
        z(m),
        seen(m),
        size(m * n) {}

  CovarianceWork<C, 0> covariances;
  Split<C, 0> mean, next, rows, noise, z;
  Split<R, 0> seen, size;
};

// Uncorrelates the noise of the components that are seen: with U D Uᴴ for its covariance, U⁻¹ H in
// `rows`, U⁻¹ z in `z` and D on the diagonal of `noise`, by elimination
// (cgp.statespace.engines.filter_step, where the scales and roundings are explained).
template <class T, class C>
CGP_INLINE void decorrelate(const OnlineStep<T>& step, Tile tile, StepWork<T, C>& work) {
  using R = Real<C>;
  const int64_t n = step.n, m = step.m;
  auto& [covariances, mean, next, rows, noise, z, seen, size] = work;
  for (int64_t i = 0; i < m; ++i) {
    const C value = step.z.template at<C>(0, i, tile);
    const R known = square(value) + R(1);  // NaN where missing
    seen.set(i, where_greater(known, R(0), R(1), R(0)));
    z.set(i, where_greater(known, R(0), value, C{}));
    for (int64_t k = 0; k < n; ++k) rows.set(i * n + k, step.H.template at<C>(0, i * n + k, tile));
    for (int64_t j = 0; j < m; ++j) {
      const C one = step.noise.template at<C>(0, i * m + j, tile);
      const C other = step.noise.template at<C>(0, j * m + i, tile);
      noise.set(i * m + j, R(0.5) * (one + conj(other)));
    }
  }
  if (m == 1) return;
  constexpr int kRoundingOfPivot = 8;
  const R eps = kRoundingOfPivot * std::numeric_limits<Lane<R>>::epsilon(), least = R(m) * eps;
  std::vector<R> unit(m);
  for (int64_t i = 0; i < m; ++i) {
    const R variance = real(noise[i * m + i]);
    unit[i] = where_greater(variance, R(0), sqrt(variance), R(1));
  }
  for (int64_t i = 0; i < m; ++i) {
    const R scale = R(1) / unit[i];
    z.set(i, scale * z[i]);
    for (int64_t k = 0; k < n; ++k) {
      rows.set(i * n + k, scale * rows[i * n + k]);
      size.set(i * n + k, sqrt(square(rows[i * n + k])));
    }
    for (int64_t j = 0; j < m; ++j)
      noise.set(i * m + j, (seen[i] * seen[j] * scale / unit[j]) * noise[i * m + j]);
  }
  for (int64_t j = 0; j < m; ++j) {
    const R diagonal = real(noise[j * m + j]);
    const R pivot = where_greater(diagonal, least, diagonal, R(0)), inverse = inverse_or_zero(pivot);
    noise.set(j * m + j, number<C>(pivot));
    for (int64_t i = j + 1; i < m; ++i) {
      const C factor = inverse * noise[i * m + j];
      const R weight = sqrt(square(factor));
      for (int64_t k = j + 1; k < m; ++k) noise.add(i * m + k, -R(1) * (factor * noise[j * m + k]));
      z.add(i, -R(1) * (factor * z[j]));
      for (int64_t k = 0; k < n; ++k) {
        const C left = rows[i * n + k] - factor * rows[j * n + k];
        size.add(i * n + k, weight * sqrt(square(rows[j * n + k])));
        const R most = eps * size[i * n + k];
        rows.set(i * n + k, where_greater(sqrt(square(left)), most, left, C{}));
      }
    }
  }
  for (int64_t i = 0; i < m; ++i) {
    noise.set(i * m + i, (unit[i] * unit[i]) * noise[i * m + i]);
    z.set(i, unit[i] * z[i]);
    for (int64_t k = 0; k < n; ++k) rows.set(i * n + k, unit[i] * rows[i * n + k]);
  }
}

// The measurement update, one component after another.
template <class T, class C>
CGP_INLINE void update(const OnlineStep<T>& step, Tile tile, StepWork<T, C>& work) {
  using R = Real<C>;
  const int64_t n = step.n;
  decorrelate(step, tile, work);
  auto& [covariances, mean, next, rows, noise, z, seen, size] = work;
  for (int64_t i = 0; i < step.m; ++i) {
    C expected{};
    for (int64_t k = 0; k < n; ++k) {
      expected += rows[i * n + k] * mean[k];
      covariances.h.set(k, seen[i] * rows[i * n + k]);
    }
    const R r = where_greater(seen[i], R(0), real(noise[i * step.m + i]), R(1));
    const R inverse = inverse_or_zero(measure<C, 0>(covariances, n, r));
    const C v = inverse * (seen[i] * (z[i] - expected));
    for (int64_t k = 0; k < n; ++k) mean.add(k, covariances.sum[k] * v);
  }
}

// The time update.
template <class T, class C>
CGP_INLINE void predict(const OnlineStep<T>& step, Tile tile, StepWork<T, C>& work) {
  const int64_t n = step.n, q = step.q;
  auto& [covariances, mean, next, rows, noise, z, seen, size] = work;
  for (int64_t i = 0; i < n; ++i) {
    next.set(i, step.b.template at<C>(0, i, tile));
    for (int64_t k = 0; k < n; ++k)
      covariances.F.set(k * n + i, step.F.template at<C>(0, i * n + k, tile));
    for (int64_t k = 0; k < q; ++k)
      covariances.A.set((n + k) * n + i, step.G.template at<C>(0, i * q + k, tile));
  }
  for (int64_t k = 0; k < n; ++k)
    for (int64_t i = 0; i < n; ++i) next.add(i, covariances.F[k * n + i] * mean[k]);
  for (int64_t i = 0; i < n; ++i) mean.set(i, next[i]);
  predict<C, 0>(covariances, n, q);
}

// The moments of `count` components x_i = Σ_k a(i, k) s_k of noise r(i, j); false if a variance is
// not finite.
template <class T, class C, class Row, class Noise>
CGP_INLINE bool set_moments(const OnlineStep<T>& step, Tile tile, const StepWork<T, C>& work,
                            int64_t count, const Row& row, const Noise& noise,
                            const typename OnlineStep<T>::Moments& to) {
  using R = Real<C>;
  using One = Real<T>;
  const int64_t n = step.n, half = step.is_composite ? count / 2 : count;
  const int parts = is_complex<T> || step.is_composite ? 2 : 1;
  std::vector<C> spread(count * n), value(count);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < n; ++k) {
      value[i] += row(i, k) * work.mean[k];
      for (int64_t l = k; l < n; ++l)  // L is lower triangular, by columns
        spread[i * n + k] += row(i, l) * work.covariances.L[k * n + l];
    }
  const auto covariance = [&](int64_t i, int64_t j) CGP_BODY {
    C sum = noise(i, j);
    for (int64_t k = 0; k < n; ++k) sum += spread[i * n + k] * conj(spread[j * n + k]);
    return sum;
  };
  R sound(0);  // or NaN
  const auto put_at = [&](R x, One* start, int64_t size, int64_t i, int stride, int part) CGP_BODY {
    One each[lanes_of<R>];
    store(x, each, tile.count);
    for (int64_t s = 0; s < tile.count; ++s)
      start[((tile.first + s) * size + i) * stride + part] = each[s];
  };
  const auto put = [&](R x, One* start, int64_t i, int stride, int part) CGP_BODY {
    put_at(x, start, half, i, stride, part);
  };
  for (int64_t i = 0; i < half; ++i) {
    R variance = real(covariance(i, i));
    put(real(value[i]), to.mean, i, parts, 0);
    if (step.is_composite) {
      const R other = real(covariance(i + half, i + half));
      put(real(value[i + half]), to.mean, i, parts, 1);
      put(variance - other, to.pseudo, i, 2, 0);
      put(R(2) * real(covariance(i, i + half)), to.pseudo, i, 2, 1);
      variance += other;
    } else if constexpr (is_complex<T>) {
      put(imag(value[i]), to.mean, i, parts, 1);
    }
    put(variance, to.variance, i, 1, 0);
    sound += R(0) * variance;
  }
  for (int64_t i = 0; to.covariance && i < half * half; ++i) {
    const int64_t row_of = i / half, column = i % half;
    const C element = covariance(row_of, column);
    if (!step.is_composite) {
      put_at(real(element), to.covariance, half * half, i, parts, 0);
      const R imaginary = row_of == column ? R(0) : imag(element);
      if constexpr (is_complex<T>) put_at(imaginary, to.covariance, half * half, i, parts, 1);
      continue;
    }
    // Of a = x + iy and b = u + iv: E[a b̄] = E[xu + yv] + i E[yu − xv], and E[a b] with the other
    // signs.
    const R xu = real(element), yv = real(covariance(row_of + half, column + half));
    const R yu = real(covariance(row_of + half, column));
    const R xv = real(covariance(row_of, column + half));
    put_at(xu + yv, to.covariance, half * half, i, 2, 0);
    put_at(yu - xv, to.covariance, half * half, i, 2, 1);
    put_at(xu - yv, to.pseudo_covariance, half * half, i, 2, 0);
    put_at(yu + xv, to.pseudo_covariance, half * half, i, 2, 1);
  }
  return all_positive(R(1) + sound);
}

// The step of the streams of a tile; false if a variance or the state after it is not finite.
template <class T, class C>
CGP_INLINE bool take(const OnlineStep<T>& step, Tile tile, StepWork<T, C>& work) {
  using R = Real<C>;
  const int64_t n = step.n;
  auto& L = work.covariances.L;
  for (int64_t i = 0; i < n; ++i) {
    work.mean.set(i, step.mean.template at<C>(0, i, tile));
    for (int64_t k = 0; k < n; ++k)
      L.set(k * n + i, i < k ? C{} : step.chol.template at<C>(0, i * n + k, tile));
  }
  bool sound = true;
  // Forecast and update, with the time update before or after them.
  const int time_update = step.predicts_first ? 0 : 2, measurement = step.predicts_first ? 2 : 1;
  for (int stage = 0; stage < 3; ++stage) {
    if (stage == time_update) {
      predict(step, tile, work);
      continue;
    }
    const bool is_seen = stage == measurement;
    if (is_seen) update(step, tile, work);
    const bool of_state = is_seen && !step.predicts_first;
    const auto row = [&](int64_t i, int64_t k) CGP_BODY {
      return of_state ? number<C>(R(i == k ? 1 : 0)) : step.H.template at<C>(0, i * n + k, tile);
    };
    const auto noise = [&](int64_t i, int64_t j) CGP_BODY {
      return is_seen ? C{} : step.noise.template at<C>(0, i * step.m + j, tile);
    };
    sound &= set_moments(step, tile, work, of_state ? n : step.m, row, noise,
                         is_seen ? step.filtered : step.predicted);
  }
  R sum(0);
  for (int64_t i = 0; i < n; ++i) {
    store(work.mean[i], step.next_mean + i * step.streams + tile.first, tile.count);
    sum += R(0) * (real(work.mean[i]) + imag(work.mean[i]));
    for (int64_t k = 0; k < n; ++k) {
      const C element = i < k ? C{} : L[k * n + i];
      store(element, step.next_chol + (i * n + k) * step.streams + tile.first, tile.count);
      sum += R(0) * (real(element) + imag(element));
    }
  }
  return sound && all_positive(R(1) + sum);
}

// The step of streams [first, last).
template <class T, class C>
CGP_INLINE bool take(const OnlineStep<T>& step, int64_t first, int64_t last) {
  StepWork<T, C> work(step.n, step.q, step.m);
  bool sound = true;
  for (; first < last; first += lanes_of<C>)
    sound &= take(step, {first, std::min<int64_t>(lanes_of<C>, last - first)}, work);
  return sound;
}

// A single stream has no use for lanes: what is to be put into them takes longer than a step.
template <class T>
bool take_one(const OnlineStep<T>& step) {
  return take<T, T>(step, 0, 1);
}
template <class T>
CGP_FOR_EACH_PROCESSOR bool take_side_by_side(const OnlineStep<T>& step, int64_t first,
                                              int64_t last) {
  return take<T, Pack<T>>(step, first, last);
}

}  // namespace cgp
