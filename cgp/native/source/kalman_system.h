// The arrays of a series and its model, as cgp.statespace.forward_pass.System has them: time first,
// batch last, either of length 1 where nothing varies along it.
#pragma once
#include <algorithm>

#include "lanes.h"
#include "op.h"

namespace cgp {

// Series that are filtered side by side, one in each lane.
struct Tile {
  int64_t first, count;
};
constexpr Tile kOne{0, 1};

// The tiles of a batch of series, and about how many operations one of them takes.
template <class T>
struct Tiles {
  static constexpr int64_t width = lanes_of<Pack<T>>;

  Tiles(int64_t batch, int64_t work_of_one)
      : batch(batch), count((batch + width - 1) / width), work(width * work_of_one) {}
  Tile operator[](int64_t i) const { return {i * width, std::min(width, batch - i * width)}; }

  int64_t batch, count, work;
};

template <class R>
bool is_finite(const R* values, int64_t count) {
  R sum = 0;  // of zeros, or NaN
  for (int64_t i = 0; i < count; ++i) sum += values[i] * 0;
  return sum == 0;
}
template <class R>
bool is_finite(const Complex<R>* values, int64_t count) {
  return is_finite(&values->re, 2 * count);
}

template <class T>
struct Input {
  const T* data;
  int64_t steps, size, batch;  // `size` elements a step

  bool varies() const { return steps > 1; }

  const T* pointer(int64_t t, int64_t element) const {
    return data + ((varies() ? t : 0) * size + element) * batch;
  }

  // An element at a step, as a number or a number in each lane.
  template <class N>
  CGP_INLINE N at(int64_t t, int64_t element, Tile tile) const {
    const T* from = pointer(t, element);
    if (batch == 1) return broadcast<N>(*from);
    return load<N>(from + tile.first, tile.count);
  }

  // The same, with zeros in the lanes that no series has.
  template <class N>
  CGP_INLINE N at_or_zero(int64_t t, int64_t element, Tile tile) const {
    const T zero{}, *from = pointer(t, element);
    if (batch == 1) return broadcast<N>(*from);
    return load<N>(from + tile.first, tile.count, &zero);
  }
};

// An input of the shape [T or 1, own axes, B or 1]; `at_start` without the axis of time.
template <class T>
Input<T> input_of(Call& call, int i, Shape own, int64_t steps, int64_t batch,
                  bool at_start = false) {
  const Array<const T> array = call.input<T>(i);
  Shape shape = array.shape;
  if (at_start) shape.insert(shape.begin(), 1);
  require(shape.size() == own.size() + 2 && Shape(shape.begin() + 1, shape.end() - 1) == own,
          "an array has not the shape of its step");
  require(shape.front() == steps || shape.front() == 1, "an array has not the length of z");
  require(shape.back() == batch || shape.back() == 1, "an array has not the batch of z");
  return {array.data, shape.front(), size_of(own), shape.back()};
}

template <class T>
struct System {
  using R = Real<T>;
  Input<T> F, G, h;
  Input<R> r;
  Input<T> b, z;
  Input<R> observed;
  Input<T> mean, chol;  // of the first state
  int64_t n, q, m, steps, batch;

  static constexpr int inputs = 9;

  explicit System(Call& call) {
    const auto F_shape = call.input<T>(0).shape, G_shape = call.input<T>(1).shape;
    const auto z_shape = call.input<T>(5).shape, chol_shape = call.input<T>(8).shape;
    require(F_shape.size() == 4 && G_shape.size() == 4 && z_shape.size() == 3 &&
                chol_shape.size() == 3,
            "an array has not the axes of a system");
    n = F_shape[1];
    q = G_shape[2];
    m = z_shape[1];
    steps = z_shape[0];
    batch = z_shape[2];
    const int64_t matrices = chol_shape[2];
    require(n > 0 && m > 0 && steps > 0 && batch > 0, "an array is empty");
    F = input_of<T>(call, 0, {n, n}, steps, matrices);
    G = input_of<T>(call, 1, {n, q}, steps, matrices);
    h = input_of<T>(call, 2, {m, n}, steps, matrices);
    r = input_of<R>(call, 3, {m}, steps, matrices);
    b = input_of<T>(call, 4, {n}, steps, batch);
    z = input_of<T>(call, 5, {m}, steps, batch);
    observed = input_of<R>(call, 6, {m}, steps, matrices);
    mean = input_of<T>(call, 7, {n}, 1, batch, true);
    chol = input_of<T>(call, 8, {n, n}, 1, batch, true);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = (i * n + i + 1) * matrices; j < (i + 1) * n * matrices; ++j)
        require(square(chol.data[j]) == 0, "the factor of the state is not lower triangular");
  }

  // Whether all series have the same covariances.
  bool shared() const { return chol.batch == 1; }

  // Whether the covariances follow the same step again and again.
  bool constant() const {
    return !(F.varies() || G.varies() || h.varies() || r.varies() || observed.varies());
  }
};

// c and log π or log 2π: the negative log density is c (log S + |v|²/S + constant).
template <class T>
constexpr Real<T> density_scale = is_complex<T> ? Real<T>(1) : Real<T>(0.5);
template <class T>
constexpr Real<T> density_constant =
    is_complex<T> ? Real<T>(1.1447298858494001742) : Real<T>(1.8378770664093454836);

}  // namespace cgp
