// The window of a Gaussian process over a stream: its points, their targets y, and the factor L of
// their covariance with noise (cgp/gp/recursive/window_recursion.py has the recursion).
#pragma once
#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "point.h"
#include "rank_one.h"

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
};

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

  // The numbers that a window works in. Large memory takes longer to get than a step, so that who
  // takes one step after another keeps it.
  static int64_t memory(int64_t capacity) { return 2 * square((capacity + 1) * m); }

  // A window of at most `capacity` points; a factor and targets are copied in by rows.
  explicit Window(int64_t capacity, T* memory = nullptr)
      : capacity(capacity),
        stride_((capacity + 1) * m),
        own_(memory ? nullptr : new T[Window::memory(capacity)]),
        chol_(memory ? memory : own_.get()),
        other_(chol_ + stride_ * stride_),
        y_(stride_),
        age_(capacity + 1),
        point_(capacity + 1),
        white_(stride_ * (m + 1)),
        gone_(stride_),
        work_(stride_) {}

  void load(int64_t size, const T* chol, const T* y, const R* age) {
    this->size = size;
    const int64_t n = capacity * m;
    for (int64_t i = 0; i < size * m; ++i) std::copy(chol + i * n, chol + i * n + i + 1, row(i));
    std::copy(y, y + size * m, y_.data());
    std::copy(age, age + size, age_.data());
    for (int64_t i = 0; i < size; ++i) point_[i] = i;
  }

  // Back to buffers of the capacity, whose rows have zeros to the right of the diagonal.
  void store(T* chol, R* age, int32_t* point) const {
    const int64_t n = capacity * m;
    for (int64_t i = 0; i < size * m; ++i) std::copy(row(i), row(i) + i + 1, chol + i * n);
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
        for (int64_t j = 0; j <= i * m + r; ++j) power += cgp::square(row(i * m + r)[j]);
      if (power >= observed[point_[i]] / (eps * eps)) continue;
      for (int r = 0; r < m; ++r) {
        T* elements = row(i * m + r);
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
    solve<T>(factor(), y_.data(), n, y);
    Sample<T> sample;
    for (int a = 0; a < m; ++a) {
      T* w = white_.data() + a * n;
      for (int64_t i = 0; i < n; ++i)
        w[i] = prior.cross[point_[i / m] * m + i % m][a * prior.steps + t];
      solve<T>(factor(), w, n, w);
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
      for (int64_t j = 0; j < n; ++j) row(n + a)[j] = conj(w[j]);
      y_[n + a] = target[a];
    }
    row(n)[n] = sample.pivot.a;
    if (m == 2) row(n + 1)[n] = sample.pivot.b, row(n + 1)[n + 1] = sample.pivot.d;
    age_[size] = 0;
    point_[size] = point;
    ++size;
  }

  // Without the oldest point: each of its columns adds a rank-one term to the rows that stay.
  // False where the factor fails.
  CGP_INLINE bool remove_oldest() {
    bool ok = true;
    for (int a = 0; a < m; ++a) {
      const int64_t n = size * m - a;
      for (int64_t i = 1; i < n; ++i) gone_[i - 1] = row(i)[0];
      ok &= rank_one<T>(factor().from(1, 1), gone_.data(), R(1), {other_, stride_}, n - 1,
                        work_);
      std::swap(chol_, other_);
    }
    --size;
    std::copy(y_.begin() + m, y_.begin() + (size + 1) * m, y_.begin());
    std::copy(age_.begin() + 1, age_.begin() + size + 1, age_.begin());
    std::copy(point_.begin() + 1, point_.begin() + size + 1, point_.begin());
    return ok;
  }

  // The prediction of the last point from the others: the last row of L is [wᴴ √S], and the last of
  // L⁻¹ y is the innovation over √S.
  CGP_INLINE Sample<T> last_given_the_others(Moments<R> noise, R jitter, Vector<T> target) {
    const int64_t n = size * m;
    solve<T>(factor(), y_.data(), n, white_.data());
    Lower<T> pivot{row(n - m)[n - m], {}, {}};
    if (m == 2) pivot.b = row(n - 1)[n - 2], pivot.d = row(n - 1)[n - 1];
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

  int64_t capacity, size = 0;

 private:
  static int64_t square(int64_t n) { return n * n; }
  T* row(int64_t i) { return chol_ + i * stride_; }
  const T* row(int64_t i) const { return chol_ + i * stride_; }
  Rows<const T> factor() const { return {chol_, stride_}; }

  int64_t stride_;
  std::unique_ptr<T[]> own_;
  T *chol_, *other_;  // lower triangles; what is above them is not set
  std::vector<T> y_;
  std::vector<R> age_;
  std::vector<int32_t> point_;  // which of all points each row is
  std::vector<T> white_, gone_;
  Workspace<T> work_;
};

}  // namespace cgp
