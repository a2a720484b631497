// cgp.linalg.toeplitz: Hermitian Toeplitz matrices by the Schur recursion, in O(n) memory.
//
// K − Z K Zᴴ = u uᴴ − v vᴴ, Z being the shift by one row. Each step shifts u, and a hyperbolic
// rotation makes the next element of v zero; u is then a column of the Cholesky factor of K. The
// rotation is in mixed form, v from the new u (Chandrasekaran & Sayed, SIAM J. Matrix Anal. Appl. 17,
// 1996, §7), which is as stable as a factorisation.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lapack.h"
#include "op.h"
#include "parallel.h"

namespace cgp {
namespace {

using C = Complex<double>;

// Real and imaginary parts in arrays of their own, so that loops become vector instructions.
struct Vector {
  explicit Vector(int64_t size) : re(size), im(size) {}
  C operator[](int64_t i) const { return {re[i], im[i]}; }
  void set(int64_t i, C x) { re[i] = x.re, im[i] = x.im; }
  std::vector<double> re, im;
};

// u ← (u − ρ̄ v)/c and v ← c v − ρ u, of `count` elements, c = √(1 − |ρ|²).
CGP_FOR_EACH_PROCESSOR void rotate(double* ur, double* ui, double* vr, double* vi, C rho, double c,
                                   int64_t count) {
  const double over = 1 / c;
  CGP_INDEPENDENT
  for (int64_t j = 0; j < count; ++j) {
    const double a = (ur[j] - (rho.re * vr[j] + rho.im * vi[j])) * over;
    const double b = (ui[j] - (rho.re * vi[j] - rho.im * vr[j])) * over;
    vr[j] = c * vr[j] - (rho.re * a - rho.im * b);
    vi[j] = c * vi[j] - (rho.re * b + rho.im * a);
    ur[j] = a;
    ui[j] = b;
  }
}

// y ← y + a x, of `count` elements.
CGP_FOR_EACH_PROCESSOR void add_multiple(double* yr, double* yi, const double* xr, const double* xi,
                                         C a, int64_t count) {
  CGP_INDEPENDENT
  for (int64_t j = 0; j < count; ++j) {
    yr[j] += a.re * xr[j] - a.im * xi[j];
    yi[j] += a.re * xi[j] + a.im * xr[j];
  }
}

// x ← x + κ times the conjugate of x in reverse, of `count` elements.
CGP_FOR_EACH_PROCESSOR void step_up(double* xr, double* xi, C kappa, int64_t count) {
  double *endr = xr + count - 1, *endi = xi + count - 1;
  CGP_INDEPENDENT
  for (int64_t j = 0; j < count / 2; ++j) {
    const double ar = xr[j], ai = xi[j], br = endr[-j], bi = endi[-j];
    xr[j] += kappa.re * br + kappa.im * bi;
    xi[j] += kappa.im * br - kappa.re * bi;
    endr[-j] += kappa.re * ar + kappa.im * ai;
    endi[-j] += kappa.im * ar - kappa.re * ai;
  }
  if (count % 2) {
    const int64_t j = count / 2;
    const double ar = xr[j], ai = xi[j];
    xr[j] += kappa.re * ar + kappa.im * ai;
    xi[j] += kappa.im * ar - kappa.re * ai;
  }
}

struct Indefinite {};

// The recursion over the columns of the factor, with vectors that it whitens on its way.
class Schur {
 public:
  Schur(Array<const C> column, Array<const C> vectors)
      : n_(column.size()), u_(n_), v_(n_), predictor_(n_), vectors_(vectors) {
    const double scale = std::sqrt(column.data[0].re);
    if (!is_positive_and_finite(scale)) throw Indefinite{};
    for (int64_t i = 0; i < n_; ++i) {
      u_.set(i, (1 / scale) * column.data[i]);
      v_.set(i, u_[i]);
    }
    v_.set(0, {0, 0});
    predictor_.set(0, {1, 0});
    error_ = u_.re[0] * u_.re[0];
    // Reflections below their rounding error are left out: v has the rounding of the column, and u
    // that of itself. What is left out of K is L(v) L(v)ᴴ, at most n bound² in each element.
    settled_ = 4 * std::numeric_limits<double>::epsilon() * u_.re[0];
    for (int64_t s = 0; s < vectors.axis(0); ++s) {
      targets_.emplace_back(n_);
      for (int64_t i = 0; i < n_; ++i) targets_[s].set(i, vectors.data[s * n_ + i]);
    }
  }

  void run(C* white) {
    int64_t k = 0;
    for (; k < n_ && !is_settled(k); ++k) {
      if (k > 0) reflect(k);
      whiten(k, white);
    }
    order_ = std::max<int64_t>(k - 1, 0);
    log_det_ += (n_ - k) * std::log(error_);
    for (; k < n_; ++k) predict(k, white);
  }

  double log_det() const { return log_det_; }
  // The first column of K⁻¹.
  void write_inverse(C* column) const {
    for (int64_t i = 0; i < n_; ++i) column[i] = (1 / error_) * predictor_[i];
  }

 private:
  // Whether all reflections from k on are below their rounding error. The element that showed the
  // contrary is looked at first.
  bool is_settled(int64_t k) {
    const double bound = std::max(settled_, 1e-14 * u_.re[0]);
    if (k == 0) return false;
    const auto is_within = [&](int64_t i) { return square(v_[i]) <= bound * bound; };  // not NaN
    far_ = std::max(far_, k);
    if (!is_within(far_)) return false;
    for (far_ = k; far_ < n_; ++far_)
      if (!is_within(far_)) return false;
    return true;
  }

  void reflect(int64_t k) {
    const C rho = (1 / u_.re[0]) * v_[k];
    const double share = 1 - square(rho);
    if (!(share > 0)) throw Indefinite{};  // also of NaN
    rotate(&u_.re[0], &u_.im[0], &v_.re[k], &v_.im[k], rho, std::sqrt(share), n_ - k);
    u_.im[0] = 0;
    step_up(&predictor_.re[0], &predictor_.im[0], {-rho.re, -rho.im}, k + 1);
    error_ *= share;
  }

  void whiten(int64_t k, C* white) {
    const double pivot = u_.re[0];
    if (!is_positive_and_finite(pivot)) throw Indefinite{};
    log_det_ += 2 * std::log(pivot);
    for (size_t s = 0; s < targets_.size(); ++s) {
      const C w = (1 / pivot) * targets_[s][k];
      white[s * n_ + k] = w;
      add_multiple(&targets_[s].re[k], &targets_[s].im[k], &u_.re[0], &u_.im[0], {-w.re, -w.im},
                   n_ - k);
    }
  }

  // The innovation of sample k by the predictor, which changes no more.
  void predict(int64_t k, C* white) {
    for (size_t s = 0; s < targets_.size(); ++s) {
      const C* const samples = vectors_.data + s * n_;
      C sum{0, 0};
      for (int64_t j = 0; j <= order_; ++j) sum += predictor_[j] * samples[k - j];
      white[s * n_ + k] = (1 / std::sqrt(error_)) * sum;
    }
  }

  const int64_t n_;
  Vector u_, v_;
  Vector predictor_;  // of order k: K x = error e₀, x₀ = 1
  const Array<const C> vectors_;
  std::vector<Vector> targets_;
  double error_, settled_, log_det_ = 0;
  int64_t order_ = 0, far_ = 0;
};

// Of each matrix of a batch.
struct ToeplitzFactor {
  static void run(Call& call) {
    const auto columns = call.input<C>(0), vectors = call.input<C>(1);
    const size_t axes = columns.shape.size() - 1;
    const int64_t n = columns.axis(-1);
    require(vectors.shape.size() == axes + 2 && vectors.axis(-1) == n && n > 0 &&
                std::equal(columns.shape.begin(), columns.shape.end() - 1, vectors.shape.begin()),
            "the vectors do not fit the column");
    const int64_t count = vectors.axis(-2), size = count * n;
    const auto inverses = call.output<C>(0, columns.shape), white = call.output<C>(1, vectors.shape);
    const auto log_dets = call.output<double>(2, without_last(columns.shape, 1));
    for_each(size_of(columns.shape, 0, axes), n * n, [&](int64_t i) {
      C *const inverse = inverses.data + i * n, *const whitened = white.data + i * size;
      double& log_det = log_dets.data[i];
      try {
        Schur schur({columns.data + i * n, {n}}, {vectors.data + i * size, {count, n}});
        schur.run(whitened);
        schur.write_inverse(inverse);
        log_det = schur.log_det();
      } catch (const Indefinite&) {  // the log determinant says so
        log_det = std::numeric_limits<double>::quiet_NaN();
        std::fill_n(inverse, n, C{log_det, log_det});
        std::fill_n(whitened, size, C{log_det, log_det});
      }
    });
  }
};

// Rows of K⁻¹ from its first column g: K⁻¹ = (g gᴴ-shifts − ĝ ĝᴴ-shifts)/g₀ (Gohberg & Semencul),
// along whose diagonals elements differ by one term.
CGP_FOR_EACH_PROCESSOR void next_row(double* re, double* im, const Vector& g, const Vector& turned,
                                     C a, C b, int64_t n) {
  std::copy_backward(re, re + n - 1, re + n);
  std::copy_backward(im, im + n - 1, im + n);
  re[0] = im[0] = 0;
  add_multiple(re, im, &g.re[0], &g.im[0], a, n);
  add_multiple(re, im, &turned.re[0], &turned.im[0], b, n);
}

// Calls use(at, row) with each of some rows of K⁻¹, of numbers in order, from its first column.
template <class F>
void for_each_inverse_row(Array<const C> g, Array<const int32_t> rows, const F& use) {
  const int64_t n = g.size();
  require(g.shape.size() == 1 && n > 0 && rows.shape.size() == 1, "column and rows are vectors");
  // Conjugates, which rows of the inverse have: element j of g is ḡ_j here, and ĝ_j = ḡ_{n−j}.
  Vector column(n), turned(n), row(n);
  for (int64_t j = 0; j < n; ++j) {
    column.set(j, conj(g.data[j]));
    turned.set(j, j ? g.data[n - j] : C{0, 0});
  }
  const double over = 1 / g.data[0].re;
  int64_t at = 0;
  for (int64_t i = 0; i < n && at < rows.size(); ++i) {
    const C a = over * g.data[i], b = -over * (i ? conj(g.data[n - i]) : C{0, 0});
    next_row(&row.re[0], &row.im[0], column, turned, a, b, n);
    for (; at < rows.size() && rows.data[at] == i; ++at) use(at, row);
  }
  require(at == rows.size(), "rows are not in order");
}

// The block P_SS of P = K⁻¹, S being some rows.
struct ToeplitzInverseBlock {
  static void run(Call& call) {
    const auto rows = call.input<int32_t>(1);
    const int64_t k = rows.size();
    C* block = call.output<C>(0, {k, k}).data;
    for_each_inverse_row(call.input<C>(0), rows, [&](int64_t at, const Vector& row) {
      for (int64_t j = 0; j < k; ++j) block[at * k + j] = row[rows.data[j]];
    });
  }
};

// L⁻¹ P_S:, with L Lᴴ = P_SS. Rows that are whitened in place take half of the memory of two arrays.
struct ToeplitzWhiteRows {
  static void run(Call& call) {
    const auto g = call.input<C>(0), chol = call.input<C>(2);
    const auto rows = call.input<int32_t>(1);
    const int64_t n = g.size(), k = rows.size();
    require(chol.shape == Shape{k, k}, "the factor is not of these rows");
    C* white = call.output<C>(0, {k, n}).data;
    for_each_inverse_row(g, rows, [&](int64_t at, const Vector& row) {
      for (int64_t j = 0; j < n; ++j) white[at * n + j] = row[j];
    });
    whiten_rows(chol.data, white, k, n);
  }
};

const bool registered = [] {
  const auto factor = {"column: T", "vectors: T"}, block = {"column: T", "rows: int32"},
             white = {"column: T", "rows: int32", "chol: T"};
  define("CgpToeplitzFactor", factor, {"inverse: T", "white: T", "log_det: float64"});
  add_kernel("CgpToeplitzFactor", kComplexDouble, kinds_of(factor), compute<ToeplitzFactor::run>);
  define("CgpToeplitzInverseBlock", block, {"result: T"});
  add_kernel("CgpToeplitzInverseBlock", kComplexDouble, kinds_of(block),
             compute<ToeplitzInverseBlock::run>);
  define("CgpToeplitzWhiteRows", white, {"result: T"});
  add_kernel("CgpToeplitzWhiteRows", kComplexDouble, kinds_of(white),
             compute<ToeplitzWhiteRows::run>);
  return true;
}();

}  // namespace
}  // namespace cgp
