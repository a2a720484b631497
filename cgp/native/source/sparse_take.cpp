// SparseGP.step and SparseGP.process as a plain C function on the arrays of a state, whose equations
// are in cgp/gp/sparse/sparse_cell.py: the kernel is evaluated here, from its instructions, and
// nothing passes through TensorFlow.
#include <atomic>

#include "covariance_program.h"
#include "parallel.h"
#include "rank_one.h"
#include "stream_arrays.h"
#include "triangular.h"

extern "C" {

// As cgp.gp.sparse.sparse_cell declares it.
struct cgp_SparseTake {
  int64_t streams, inducing, steps, dimensions, program_size;
  const double* program;
  double forgetting;
  const void *x, *z;               // the samples, [B, T, D] and, NaN where missing, complex [B, T]
  const void* mean;                // the mean function, complex [B, T], or null
  const void *noise_k, *noise_c;   // the moments of their noise, [B, T] and complex [B, T]
  const void *points, *chol;       // the inducing points [M, D], and their factor L, [n, n]
  void *vector, *precision;        // the states, which are replaced: b [B, n], and R [B, n, n]
  int32_t* coordinate;             // [B]
  void* memory;                    // to work in, [B, 2, n, n]
  cgp_StreamMoments predicted, filtered;
};
}

namespace cgp {
namespace {

// The state of one stream: b, and the factor R of Λ, in memory for two, as an update is written
// elsewhere.
template <class T>
struct State {
  using R = Real<T>;

  State(const T* vector, const T* precision, int64_t n, T* memory)
      : n(n), vector(vector, vector + n), now_(memory), next_(memory + n * n), work_(n) {
    for (int64_t i = 0; i < n; ++i)
      std::copy(precision + i * n, precision + i * n + i + 1, now_ + i * n);
  }

  Rows<T> rows() { return {now_, n}; }
  Rows<const T> factor() const { return {now_, n}; }

  // Λ + v vᴴ; false where it is not finite.
  bool add(const T* v) {
    const bool ok = rank_one<T>(factor(), v, R(1), {next_, n}, n, work_);
    std::swap(now_, next_);
    return ok;
  }

  // Forgets by a factor λ, and restores the prior of a coordinate that has fallen to λⁿ.
  bool fade(R forgetting, int64_t coordinate) {
    const R root = std::sqrt(forgetting);
    for (T& a : vector) a = forgetting * a;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) rows()[i][j] = root * rows()[i][j];
    std::vector<T> prior(n);
    prior[coordinate] = number<T>(std::sqrt(1 - std::pow(forgetting, R(n))));
    return add(prior.data());
  }

  void store(T* vector, T* precision) const {
    std::copy(this->vector.begin(), this->vector.end(), vector);
    for (int64_t i = 0; i < n; ++i)
      std::copy(factor()[i], factor()[i] + i + 1, precision + i * n);
  }

  int64_t n;
  std::vector<T> vector;

 private:
  T *now_, *next_;  // lower triangles; what is above them is not set
  Workspace<T> work_;
};

// What a state says of the signal at a place with whitened covariances a.
template <class T>
struct Prediction {
  Vector<T> mean;
  Moments<Real<T>> variance;  // of the part that the inducing points explain
};

// vᴴ R⁻¹ b and vᴴ v, with v = R⁻¹ a.
template <class T>
Prediction<T> predict(const State<T>& state, const std::vector<T>& a, std::vector<T>& v,
                      std::vector<T>& w) {
  const int64_t n = state.n;
  Prediction<T> result;
  solve<T>(state.factor(), state.vector.data(), n, w.data());
  for (int r = 0; r < kRowsOfPoint<T>; ++r) {
    T* column = v.data() + r * n;
    solve<T>(state.factor(), a.data() + r * n, n, column);
    T mean{};
    for (int64_t i = 0; i < n; ++i) mean += conj(column[i]) * w[i];
    result.mean[r] = mean;
  }
  result.variance = moments(v.data(), n);
  return result;
}

// Divides columns and target by the factor of the noise of the sample.
template <class T>
void whiten(Lower<T> noise, std::vector<T>& a, int64_t n, Vector<T>& target) {
  using R = Real<T>;
  const auto divide = [&](T* column, T& y, R root) {
    for (int64_t i = 0; i < n; ++i) column[i] = (1 / root) * column[i];
    y = (1 / root) * y;
  };
  divide(a.data(), target[0], real(noise.a));
  if constexpr (kRowsOfPoint<T> == 2) {
    for (int64_t i = 0; i < n; ++i) a[n + i] -= noise.b * a[i];
    target[1] -= noise.b * target[0];
    divide(a.data() + n, target[1], noise.d);
  }
}

template <class T>
struct Taking {
  using R = Real<T>;
  static constexpr int m = kRowsOfPoint<T>;

  // Takes the samples of a stream into its state; false where that fails.
  bool take(int64_t b, State<T>& state, int32_t& coordinate) const {
    const int64_t S = given.steps, D = given.dimensions, n = state.n;
    CovarianceProgram<R> program(given.program, given.program_size);
    const R* x = static_cast<const R*>(given.x) + b * S * D;
    const auto z = numbers_of<R>(given.z, b, S), function = numbers_of<R>(given.mean, b, S);
    const auto noise_c = numbers_of<R>(given.noise_c, b, S);
    const R* noise_k = static_cast<const R*>(given.noise_k) + b * S;
    std::vector<T> a(m * n), v(m * n), w(n);
    bool ok = true;
    for (int64_t t = 0; t < S; ++t) {
      Moments<R> unexplained;  // of the variance of the prior, by inducing points
      if (!covariances(program, x + t * D, a, unexplained)) return false;
      const Moments<R> noise{noise_k[t], noise_c[t]};
      Prediction<T> signal = predict(state, a, v, w);
      const auto put_moments = [&](const cgp_StreamMoments& to, Moments<R> added) {
        set(to, b * S + t, function[t] + joined<T>(signal.mean.data()),
            clipped(unexplained + signal.variance) + added);
      };
      put_moments(given.predicted, noise);
      const Complex<R> deviation = z[t] - function[t];
      if (!std::isnan(deviation.re + deviation.im)) {
        if (given.forgetting != 1) {
          ok &= state.fade(R(given.forgetting), coordinate);
          coordinate = (coordinate + 1) % n;
          signal = predict(state, a, v, w);
        }
        Vector<T> target, innovation, gained;
        split<T>(deviation, target.data());
        for (int r = 0; r < m; ++r) innovation[r] = target[r] - signal.mean[r];
        const Lower<T> pivot = root<T>(signal.variance + noise);
        signal.variance = measured(signal.variance, pivot, noise, innovation, gained);
        for (int r = 0; r < m; ++r) signal.mean[r] += gained[r];
        whiten<T>(root<T>(noise), a, n, target);
        for (int r = 0; r < m; ++r) {
          const T* column = a.data() + r * n;
          for (int64_t i = 0; i < n; ++i) state.vector[i] += column[i] * target[r];
          ok &= state.add(column);
        }
      }
      put_moments(given.filtered, {});
    }
    for (const T& number : state.vector) ok &= std::isfinite(real(number) + imag(number));
    return ok;
  }

  // L⁻¹ k(u, x), a column for each row of the point, and the variance of the prior less that.
  bool covariances(CovarianceProgram<R>& program, const R* x, std::vector<T>& a,
                   Moments<R>& unexplained) const {
    const int64_t M = given.inducing, n = M * m;
    Covariances<R> of_points, of_place;
    if (!program.evaluate(static_cast<const R*>(given.points), M, x, given.dimensions, of_points))
      return false;
    program.evaluate(x, 1, x, given.dimensions, of_place);
    const bool is_proper = of_points.c.empty();
    for (int64_t i = 0; i < M; ++i)
      put<T>(of_points.k[i], is_proper ? Complex<R>{} : of_points.c[i], a.data() + i, M, n);
    const Rows<const T> chol{static_cast<const T*>(given.chol), n};
    for (int r = 0; r < m; ++r) solve<T>(chol, a.data() + r * n, n, a.data() + r * n);
    const Moments<R> prior{of_place.k[0].re, is_proper ? Complex<R>{} : of_place.c[0]};
    unexplained = prior - moments(a.data(), n);
    return true;
  }

  const cgp_SparseTake& given;
};

enum Outcome : int { kDone = 0, kRefused = 1 };

// Takes a block into the states, or leaves them as they are where one fails.
template <class T>
int run(const cgp_SparseTake* given) try {
  const int64_t n = given->inducing * kRowsOfPoint<T>, B = given->streams;
  T *vector = static_cast<T*>(given->vector), *precision = static_cast<T*>(given->precision);
  T* memory = static_cast<T*>(given->memory);
  std::vector<State<T>> states;
  for (int64_t b = 0; b < B; ++b)
    states.emplace_back(vector + b * n, precision + b * n * n, n, memory + 2 * b * n * n);
  std::vector<int32_t> coordinate(given->coordinate, given->coordinate + B);
  std::atomic<bool> is_sound{true};
  for_each(B, given->steps * 4 * n * n, [&](int64_t b) {
    if (!Taking<T>{*given}.take(b, states[b], coordinate[b])) is_sound = false;
  });
  if (!is_sound) return kRefused;
  for (int64_t b = 0; b < B; ++b) states[b].store(vector + b * n, precision + b * n * n);
  std::copy(coordinate.begin(), coordinate.end(), given->coordinate);
  return kDone;
} catch (const std::exception&) {  // none may leave a function that C calls
  return kRefused;
}

}  // namespace
}  // namespace cgp

extern "C" {
int cgp_sparse_take_complex128(const cgp_SparseTake* given) {
  return cgp::run<cgp::Complex<double>>(given);
}
int cgp_sparse_take_complex64(const cgp_SparseTake* given) {
  return cgp::run<cgp::Complex<float>>(given);
}
int cgp_sparse_take_float64(const cgp_SparseTake* given) { return cgp::run<double>(given); }
int cgp_sparse_take_float32(const cgp_SparseTake* given) { return cgp::run<float>(given); }
}
