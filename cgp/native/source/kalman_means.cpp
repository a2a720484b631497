// The recursions of the means of a Kalman filter, given the gains: see kalman_means.h.
//
// The steps of one series wait for each other, and only the work within one can be shared out: the
// states lie side by side in lanes, and the product F m does not wait for the deviations v of the
// observations,
//
//     m' = F m + b + Σ c_i v_i,   c_i = F g_i .
//
// A product with the closed loop F Π (1 − g_i h_i) would not wait at all. But once its elements are
// rounded, what they lose of a large mean is the same at each step, and a slow filter adds it up.
#include "kalman_means.h"

namespace cgp {

template <class C, class M, class T>
CGP_FOR_EACH_PROCESSOR void means(const System<T>& system, Tile tile, const Gains<C>& gains,
                                  Real<T>* log_likelihoods, Means<M>* kept) {
  using R = Real<C>;
  const int64_t n = system.n, m = system.m;
  const Real<T> scale = density_scale<T>;
  std::vector<C> F_by_columns(n * n);
  Split<M, 0> mean(n), next(n);
  for (int64_t k = 0; k < n; ++k) mean.set(k, system.mean.template at<M>(0, k, tile));
  Real<M> sum(0);
  for (int64_t t = 0; t < system.steps; ++t) {
    if (kept)
      for (int64_t k = 0; k < n; ++k) kept->predicted[t * n + k] = mean[k];
    Real<M> loss(0);
    for (int64_t i = 0; i < m; ++i) {
      const int64_t at = gains.at(t) * m + i;
      const R seen = system.observed.template at<R>(t, i, tile), variance = gains.variance[at];
      const R inverse = inverse_or_zero(variance);
      const M z = system.z.template at<M>(t, i, tile);
      M expected{};
      for (int64_t k = 0; k < n; ++k)
        expected += system.h.template at<C>(t, i * n + k, tile) * mean[k];
      const M v = seen * (z - expected);
      Real<M> own = inverse * square(v) + Real<M>(log(variance) + density_constant<T> * seen);
      own = scale * own;
      if (!all_positive(variance)) {
        Real<M> size = sqrt(square(z));
        for (int64_t k = 0; k < n; ++k)
          size += sqrt(square(system.h.template at<C>(t, i * n + k, tile) * mean[k]));
        own = where_greater(Real<M>(variance), Real<M>(0), own,
                            loss_of_the_certain<Real<M>>(sqrt(square(v)), size, system.epsilon));
        own += Real<M>(variance - variance);  // NaN where the variance is
      }
      loss += own;
      const C* gain = gains.gain.get() + at * n;
      for (int64_t k = 0; k < n; ++k) mean.add(k, gain[k] * v);
      if (kept) kept->deviations[t * m + i] = v;
    }
    sum -= loss;
    if (kept) {
      for (int64_t k = 0; k < n; ++k) kept->filtered[t * n + k] = mean[k];
      kept->log_likelihoods[t] = -loss;
    }
    if (t + 1 == system.steps) break;
    if (t == 0 || system.F.varies())
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < n; ++i)
          F_by_columns[k * n + i] = system.F.template at<C>(t, i * n + k, tile);
    for (int64_t i = 0; i < n; ++i) next.set(i, system.b.template at<M>(t, i, tile));
    multiply_add(F_by_columns.data(), 1, n, n, mean, next);
    for (int64_t i = 0; i < n; ++i) mean.set(i, next[i]);
  }
  if (log_likelihoods) store(sum, log_likelihoods + tile.first, tile.count);
}

namespace {

// Vectors of n numbers in as many packs as it takes, with zeros after them.
template <class T>
class Packed {
 public:
  using P = Pack<T>;
  static constexpr int64_t width = lanes_of<P>;

  Packed(int64_t vectors, int64_t n)
      : n_(n), blocks_((n + width - 1) / width), packs_(vectors * blocks_) {}

  int64_t blocks() const { return blocks_; }
  CGP_INLINE P* operator[](int64_t i) { return packs_.data() + i * blocks_; }

  CGP_INLINE void load(int64_t i, const T* from, int64_t stride = 1) {
    const T zero{};
    for (int64_t b = 0; b < blocks_; ++b)
      (*this)[i][b] = cgp::load<P>(from + b * width * stride, count(b), &zero, stride);
  }
  // To memory for whole packs.
  CGP_INLINE void store(int64_t i, T* to) {
    for (int64_t b = 0; b < blocks_; ++b) cgp::store((*this)[i][b], to + b * width, width);
  }

 private:
  int64_t count(int64_t b) const { return std::min(width, n_ - b * width); }

  int64_t n_, blocks_;
  std::vector<P> packs_;
};

// F by columns, and c, of the gains of one step.
template <class T>
struct Transition {
  Transition(int64_t m, int64_t n) : m(m), n(n), F(n, n), c(m, n) {}

  CGP_INLINE void set(const System<T>& system, const Gains<T>& gains, int64_t t) {
    if (t == 0 || system.F.varies())
      for (int64_t k = 0; k < n; ++k) F.load(k, system.F.pointer(t, k), n);
    for (int64_t i = 0; i < m; ++i) {
      const T* gain = gains.gain.get() + (gains.at(t) * m + i) * n;
      for (int64_t block = 0; block < F.blocks(); ++block) {
        Pack<T> sum{};
        for (int64_t k = 0; k < n; ++k) sum += gain[k] * F[k][block];
        c[i][block] = sum;
      }
    }
  }

  int64_t m, n;
  Packed<T> F, c;
};

}  // namespace

template <class T>
CGP_FOR_EACH_PROCESSOR void means_of_one(const System<T>& system, const Gains<T>& gains,
                                         Real<T>* log_likelihood, Means<T>* kept) {
  using R = Real<T>;
  const int64_t n = system.n, m = system.m;
  const R scale = density_scale<T>;
  Transition<T> transition(m, n);
  Packed<T> mean(1, n), updated(1, n), b(1, n), h(m, n), gain(m, n);
  const int64_t blocks = mean.blocks();
  std::vector<T> numbers(blocks * mean.width), after(numbers);  // the means once more
  std::vector<R> inverse(m), log_density(m);
  std::vector<T> deviations(m);
  mean.load(0, system.mean.pointer(0, 0));
  R sum(0);
  for (int64_t t = 0; t < system.steps; ++t) {
    const int64_t from = gains.at(t) * m;
    const bool is_new = t == 0 || gains.at(t - 1) != gains.at(t), is_last = t + 1 == system.steps;
    mean.store(0, numbers.data());
    if (kept) std::copy_n(numbers.data(), n, kept->predicted.get() + t * n);
    R loss(0);
    for (int64_t block = 0; block < blocks; ++block) updated[0][block] = mean[0][block];
    for (int64_t i = 0; i < m; ++i) {
      const R seen = *system.observed.pointer(t, i), variance = gains.variance[from + i];
      if (is_new) {
        gain.load(i, gains.gain.get() + (from + i) * n);
        h.load(i, system.h.pointer(t, i * n));
        inverse[i] = inverse_or_zero(variance);
        log_density[i] = log(variance) + density_constant<T> * seen;
      }
      Pack<T> products{};
      for (int64_t block = 0; block < blocks; ++block)
        products += h[i][block] * updated[0][block];
      const T z = *system.z.pointer(t, i, kOne), v = seen * (z - total(products));
      R own = scale * (inverse[i] * square(v) + log_density[i]);
      if (!(variance > 0)) {
        updated.store(0, after.data());
        R size = sqrt(square(z));
        for (int64_t k = 0; k < n; ++k)
          size += sqrt(square(system.h.pointer(t, i * n)[k] * after[k]));
        if (variance == 0) own = loss_of_the_certain(sqrt(square(v)), size, system.epsilon);
        own += variance - variance;  // NaN where the variance is
      }
      loss += own;
      for (int64_t block = 0; block < blocks; ++block) updated[0][block] += v * gain[i][block];
      deviations[i] = v;
    }
    sum -= loss;
    if (kept) {
      updated.store(0, after.data());
      std::copy_n(after.data(), n, kept->filtered.get() + t * n);
      std::copy_n(deviations.data(), m, kept->deviations.get() + t * m);
      kept->log_likelihoods[t] = -loss;
    }
    if (is_last) break;
    if (is_new) transition.set(system, gains, t);
    if (t == 0 || system.b.varies()) b.load(0, system.b.pointer(t, 0));
    for (int64_t block = 0; block < blocks; ++block) {
      Pack<T> even = b[0][block], odd{};  // two sums, which do not wait for each other
      int64_t k = 0;
      for (; k + 2 <= n; k += 2) {
        even += numbers[k] * transition.F[k][block];
        odd += numbers[k + 1] * transition.F[k + 1][block];
      }
      if (k < n) even += numbers[k] * transition.F[k][block];
      Pack<T> next = even + odd;
      for (int64_t i = 0; i < m; ++i) next += deviations[i] * transition.c[i][block];
      mean[0][block] = next;
    }
  }
  if (log_likelihood) *log_likelihood = sum;
}

#define CGP_MEANS(C, M, T) \
  template void means<C, M, T>(const System<T>&, Tile, const Gains<C>&, Real<T>*, Means<M>*)
#define CGP_MEANS_OF(T)           \
  CGP_MEANS(T, Pack<T>, T);       \
  CGP_MEANS(Pack<T>, Pack<T>, T); \
  template void means_of_one<T>(const System<T>&, const Gains<T>&, Real<T>*, Means<T>*)
CGP_MEANS_OF(double);
CGP_MEANS_OF(Complex<double>);

}  // namespace cgp
