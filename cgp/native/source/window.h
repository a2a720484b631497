// The window of a Gaussian process over a stream: its points, their targets y, and the factor L of
// their covariance with noise (cgp/gp/recursive/window_recursion.py has the recursion).
#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "factor.h"
#include "point.h"

namespace cgp {

// What the kernel says of the points that a block can meet: those held, and those of the block.
template <class T>
struct PriorOfBlock {
  // Working covariances between all points, [points · m, steps · m], and the points of the block.
  // Rows come point after point, columns with all real parts first.
  Rows<const T> cross;
  int64_t steps;
  const Real<T>* k;            // E|f|² of the block's points, [steps]
  const Complex<Real<T>>* c;   // E f², [steps]
  const Real<T>* jitter;       // rounding of variances, which counts as noise, [steps]
  const Real<T>* observed;     // E|f + n|² of all points, [points]
  const Moments<Real<T>>* noise;  // of the block's observations, [steps]
};

// Rows without those of point i, `rows` to a point.
template <class A>
void without(A& values, int64_t i, int64_t rows) {
  const int64_t last = static_cast<int64_t>(values.size()) - rows;
  for (int64_t k = i * rows; k < last; ++k) values[k] = values[k + rows];
}

// The distribution of a sample given the window before it.
template <class T>
struct Sample {
  Vector<T> mean;
  Moments<Real<T>> signal;
  Lower<T> pivot;  // the factor of the innovation covariance, jitter included
};

template <class T>
class Window {
 public:
  using R = Real<T>;
  static constexpr int m = kRowsOfPoint<T>;

  // A window of at most `capacity` points, whose factor works in given memory.
  Window(int64_t capacity, T* memory)
      : capacity(capacity),
        chol((capacity + 1) * m, memory),
        y_((capacity + 1) * m),
        age_(capacity + 1),
        point_(capacity + 1),
        white_((capacity + 1) * m * (m + 1)) {}

  static int64_t memory(int64_t capacity) { return Factor<T>::memory((capacity + 1) * m); }

  void load(int64_t size, const T* chol, const T* y, const R* age) {
    this->size = size;
    this->chol.load(chol, capacity * m, size * m);
    for (int64_t i = 0; i < size * m; ++i) y_[i] = y[i];
    std::copy(age, age + size, age_.data());
    for (int64_t i = 0; i < size; ++i) point_[i] = i;
  }

  // Back to buffers of the capacity, whose rows have zeros to the right of the diagonal.
  void store(T* chol, R* age, int32_t* point) const {
    this->chol.store(chol, capacity * m, size * m);
    std::fill(std::copy(age_.data(), age_.data() + size, age), age + capacity, R(0));
    std::fill(std::copy(point_.data(), point_.data() + size, point), point + capacity, -1);
  }

  bool is_full() const { return size == capacity; }

  // One step back to the prior: rows of L and y divided by √λ, of points that are not beyond all
  // rounding; those would overflow one day.
  CGP_INLINE void forget(R factor, const R* observed) {
    constexpr R eps = std::numeric_limits<R>::epsilon();
    for (int64_t i = 0; i < size; ++i) {
      R power = 0;
      for (int r = 0; r < m; ++r)
        for (int64_t j = 0; j <= i * m + r; ++j) power += square(chol.row(i * m + r)[j]);
      if (power >= observed[point_[i]] / (eps * eps)) continue;
      for (int r = 0; r < m; ++r) {
        T* elements = chol.row(i * m + r);
        for (int64_t j = 0; j <= i * m + r; ++j) elements[j] = factor * elements[j];
        y_[i * m + r] = factor * y_[i * m + r];
      }
      age_[i] += 1;
    }
  }

  // w = L⁻¹ k, mean wᴴ L⁻¹ y, and the signal's variance k(x, x) − wᴴ w.
  CGP_INLINE Sample<T> predict(const PriorOfBlock<T>& prior, Moments<R> noise, int64_t t) {
    const int64_t n = size * m;
    T* y = white_.data() + m * n;
    solve<T>(chol.rows(), y_.data(), n, y);
    Sample<T> sample;
    for (int a = 0; a < m; ++a) {
      T* w = white_.data() + a * n;
      covariances(prior, t, a, size, w);
      solve<T>(chol.rows(), w, n, w);
      T mean{};
      for (int64_t i = 0; i < n; ++i) mean += conj(w[i]) * y[i];
      sample.mean[a] = mean;
    }
    sample.signal = clipped(Moments<R>{prior.k[t], prior.c[t]} - moments(white_.data(), n));
    sample.pivot = root<T>(sample.signal + noise + Moments<R>{prior.jitter[t], {}});
    return sample;
  }

  // The point as the last one, with the row [wᴴ √S] of the last prediction. There is room for one
  // more than the capacity.
  CGP_INLINE void append(const Sample<T>& sample, Vector<T> target, int64_t point) {
    const int64_t n = size * m;
    for (int a = 0; a < m; ++a) {
      const T* w = white_.data() + a * n;
      for (int64_t j = 0; j < n; ++j) chol.row(n + a)[j] = conj(w[j]);
      y_[n + a] = target[a];
    }
    chol.set_corner(sample.pivot, n);
    age_[size] = 0;
    point_[size] = point;
    ++size;
  }

  // Without the oldest point: each of its columns adds a rank-one term to the rows that stay.
  // False where the factor fails.
  CGP_INLINE bool remove_oldest() {
    bool ok = true;
    for (int a = 0; a < m; ++a) ok &= chol.remove(0, size * m - a);
    drop(0);
    return ok;
  }

  // Row i of everything but the factor goes.
  void drop(int64_t i) {
    without(y_, i, m);
    without(age_, i, 1);
    without(point_, i, 1);
    --size;
  }

  // The prediction of the last point from the others: the last row of L is [wᴴ √S], and the last of
  // L⁻¹ y is the innovation over √S.
  CGP_INLINE Sample<T> last_given_the_others(Moments<R> noise, R jitter, Vector<T> target) {
    const int64_t n = size * m;
    solve<T>(chol.rows(), y_.data(), n, white_.data());
    Lower<T> pivot{chol.row(n - m)[n - m], {}, {}};
    if (m == 2) pivot.b = chol.row(n - 1)[n - 2], pivot.d = chol.row(n - 1)[n - 1];
    Vector<T> white;
    for (int a = 0; a < m; ++a) white[a] = white_[n - m + a];
    const Vector<T> innovation = product(pivot, white);
    const Moments<R> floor = noise + Moments<R>{jitter, {}};
    Sample<T> sample;
    for (int a = 0; a < m; ++a) sample.mean[a] = target[a] - innovation[a];
    sample.signal = clipped(moments(pivot) - floor);
    sample.pivot = root<T>(sample.signal + floor);
    return sample;
  }

  // Column a of the covariances of the first `count` points and sample t.
  void covariances(const PriorOfBlock<T>& prior, int64_t t, int a, int64_t count, T* to) const {
    for (int64_t i = 0; i < count * m; ++i)
      to[i] = prior.cross[point_[i / m] * m + i % m][a * prior.steps + t];
  }

  // New targets take the place of those observed, and no point has aged since.
  void set_targets() { std::fill(age_.begin(), age_.end(), R(0)); }
  T* y() { return y_.data(); }
  const T* y() const { return y_.data(); }

  int64_t capacity, size = 0;
  Factor<T> chol;

 private:
  std::vector<T> y_;
  std::vector<R> age_;
  std::vector<int32_t> point_;  // which of all points each row is
  std::vector<T> white_;
};

}  // namespace cgp
