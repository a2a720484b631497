// The arrays of series and their model: cgp.statespace.engines.filter_step.KalmanSystem.
#pragma once
#include <algorithm>
#include <cmath>

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

// Whether all of them are numbers of at most this size, beyond which they would become infinite.
inline bool are_within(double largest, const double* values, int64_t count) {
  int64_t beyond = 0;
  for (int64_t i = 0; i < count; ++i) beyond += !(std::abs(values[i]) <= largest);
  return beyond == 0;
}
inline bool are_within(double largest, const Complex<double>* values, int64_t count) {
  return are_within(largest, &values->re, 2 * count);
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

// An input of the shape [T or 1, own axes, B or 1], or of its own axes alone; `at_start` without the
// axis of time.
template <class T>
Input<T> input_of(Call& call, int i, Shape own, int64_t steps, int64_t batch,
                  bool at_start = false) {
  const Array<const T> array = call.input<T>(i);
  Shape shape = array.shape;
  const bool is_alone = shape.size() == own.size();
  if (is_alone || at_start) shape.insert(shape.begin(), 1);
  if (is_alone) shape.push_back(1);
  require(shape.size() == own.size() + 2 && Shape(shape.begin() + 1, shape.end() - 1) == own,
          "an array has not the shape of its step");
  require(shape.front() == steps || shape.front() == 1, "an array has not the length of z");
  require(shape.back() == batch || shape.back() == 1, "an array has not the batch of z");
  return {array.data, shape.front(), size_of(own), shape.back()};
}

// Numbers of each series in one piece, [B, T or 1, size].
template <class T>
struct OfSeries {
  using Number = std::remove_const_t<T>;
  T* data;
  int64_t steps, size;

  int64_t stride() const { return steps * size; }
  T* pointer(int64_t t, int64_t element, Tile tile) const {
    return data + tile.first * stride() + (steps > 1 ? t * size : 0) + element;
  }

  template <class N>
  CGP_INLINE N at(int64_t t, int64_t element, Tile tile) const {
    return load<N, Number>(pointer(t, element, tile), tile.count, nullptr, stride());
  }
  // The same, with zeros in the lanes that no series has.
  template <class N>
  CGP_INLINE N at_or_zero(int64_t t, int64_t element, Tile tile) const {
    const Number zero{};
    return load<N, Number>(pointer(t, element, tile), tile.count, &zero, stride());
  }
  template <class N>
  CGP_INLINE void set(int64_t t, int64_t element, Tile tile, N x) const {
    store(x, pointer(t, element, tile), tile.count, stride());
  }
};

template <class T>
OfSeries<const T> series_input_of(Call& call, int i, int64_t size, int64_t steps, int64_t batch) {
  const Array<const T> array = call.input<T>(i);
  const Shape& shape = array.shape;
  require(shape.size() == 3 && shape[0] == batch && shape[2] == size &&
              (shape[1] == steps || shape[1] == 1),
          "an array has not the shape of its series");
  return {array.data, shape[1], size};
}

template <class T>
OfSeries<T> series_output_of(Call& call, int i, Shape shape) {
  T* data = call.output<T>(i, shape).data;
  return {data, shape[1], shape.size() > 2 ? shape[2] : 1};
}

template <class T>
struct System {
  using R = Real<T>;
  Input<T> F, G, h;
  Input<R> r;
  Input<T> b;
  OfSeries<const T> z;
  Input<R> observed;
  Input<T> mean, chol;  // of the first state
  int64_t n, q, m, steps, batch;
  double epsilon;  // rounding of the arguments

  // The last two are the covariances whose factors are G and chol: gradients flow to them.
  static constexpr int inputs = 11, noise = 9;

  explicit System(Call& call) {
    const Shape G_shape = call.shape(1), z_shape = call.shape(5);
    const Shape chol_shape = call.shape(8);
    require((G_shape.size() == 2 || G_shape.size() == 4) && z_shape.size() == 3 &&
                (chol_shape.size() == 2 || chol_shape.size() == 3),
            "an array has not the axes of a system");
    n = chol_shape[0];
    q = G_shape[G_shape.size() / 2];
    batch = z_shape[0];
    steps = z_shape[1];
    m = z_shape[2];
    const int64_t matrices = chol_shape.size() == 3 ? chol_shape[2] : 1;
    require(n > 0 && m > 0 && steps > 0 && batch > 0, "an array is empty");
    require(matrices == 1 || matrices == batch, "an array has not the batch of z");
    F = input_of<T>(call, 0, {n, n}, steps, matrices);
    G = input_of<T>(call, 1, {n, q}, steps, matrices);
    h = input_of<T>(call, 2, {m, n}, steps, matrices);
    r = input_of<R>(call, 3, {m}, steps, matrices);
    b = input_of<T>(call, 4, {n}, steps, batch);
    z = series_input_of<T>(call, 5, m, steps, batch);
    observed = input_of<R>(call, 6, {m}, steps, matrices);
    mean = input_of<T>(call, 7, {n}, 1, batch, true);
    chol = input_of<T>(call, 8, {n, n}, 1, batch, true);
    epsilon = call.epsilon();
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
