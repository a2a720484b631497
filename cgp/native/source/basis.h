// The basis of a window on a budget: the prior of the signal at its points, by which a full window
// prunes the point that is least informative, and keeps its information on the others. The
// derivation is in cgp/gp/recursive/budget.py, after Van Vaerenbergh, Lázaro-Gredilla & Santamaría
// (IEEE TNNLS 23, 2012).
#pragma once
#include "window.h"

namespace cgp {

// A matrix of the rows of one point, by rows.
template <class T>
struct Block {
  static constexpr int m = kRowsOfPoint<T>;
  T e[m * m] = {};

  T* operator[](int i) { return e + i * m; }
  const T* operator[](int i) const { return e + i * m; }
};

// The factor of a block; NaN where it is not positive.
template <class T>
Block<T> factor_of(Block<T> a) {
  constexpr int m = Block<T>::m;
  Block<T> L;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j <= i; ++j) {
      T sum = a[i][j];
      for (int k = 0; k < j; ++k) sum -= L[i][k] * conj(L[j][k]);
      L[i][j] = i == j ? number<T>(std::sqrt(real(sum))) : (1 / real(L[j][j])) * sum;
    }
  return L;
}

// x ← L⁻¹ x, for a column of which elements are `stride` apart.
template <class T>
void solve_block(const Block<T>& L, T* x, int stride = 1) {
  for (int i = 0; i < Block<T>::m; ++i) {
    for (int k = 0; k < i; ++k) x[i * stride] -= L[i][k] * x[k * stride];
    x[i * stride] = (1 / real(L[i][i])) * x[i * stride];
  }
}

// x ← x L⁻ᴴ, for a row.
template <class T>
void solve_block_adjoint(const Block<T>& L, T* x) {
  for (int i = 0; i < Block<T>::m; ++i) {
    for (int k = 0; k < i; ++k) x[i] -= x[k] * conj(L[i][k]);
    x[i] = (1 / real(L[i][i])) * x[i];
  }
}

template <class T>
class Basis {
 public:
  using R = Real<T>;
  static constexpr int m = kRowsOfPoint<T>;

  Basis(int64_t capacity, R nugget, T* memory)
      : chol_((capacity + 1) * m, memory), precision_(capacity + 1), nugget_(nugget) {}

  // The factor of K_ε, and the diagonal blocks of its inverse.
  void load(int64_t size, int64_t capacity, const T* chol, const Block<T>* precision) {
    chol_.load(chol, capacity * m, size * m);
    std::copy(precision, precision + size, precision_.begin());
  }
  void store(int64_t size, int64_t capacity, T* chol, Block<T>* precision) const {
    chol_.store(chol, capacity * m, size * m);
    std::copy(precision_.begin(), precision_.begin() + size, precision);
  }

  // Whether a point has been pruned: the targets of a window are no observations then.
  bool has_pruned = false;

  // The last point of a window, a sample, joins. False where the factor fails.
  bool append(const Window<T>& window, const PriorOfBlock<T>& prior, Moments<R> noise, int64_t t) {
    const int64_t points = window.size - 1, n = points * m;
    std::vector<T> white(n * m);
    for (int a = 0; a < m; ++a) {
      T* w = white.data() + a * n;
      window.covariances(prior, t, a, points, w);
      solve<T>(chol_.rows(), w, n, w);
      for (int64_t j = 0; j < n; ++j) chol_.row(n + a)[j] = conj(w[j]);
    }
    Moments<R> rest = clipped(Moments<R>{prior.k[t], prior.c[t]} - moments(white.data(), n));
    rest = rest + Moments<R>{nugget_ * noise.k + prior.jitter[t], nugget_ * noise.c};
    const Lower<T> corner = root<T>(rest);
    if (!is_positive_and_finite(real(corner.a)) ||
        (m == 2 && !is_positive_and_finite(real(corner.d))))
      return false;
    chol_.set_corner(corner, n);
    Block<T> pivot;
    pivot[0][0] = corner.a;
    if (m == 2) pivot[m - 1][0] = corner.b, pivot[m - 1][m - 1] = corner.d;
    // The inverse of the larger matrix is K⁻¹ + g gᴴ, g = L⁻ᴴ w pivot⁻ᴴ, and beside it the new
    // block, pivot⁻ᴴ pivot⁻¹.
    for (int a = 0; a < m; ++a) solve_adjoint<T>(chol_.rows(), n, white.data() + a * n);
    for (int64_t i = 0; i < points; ++i) add(white, n, i, pivot, R(1));
    Block<T> inverse;
    for (int a = 0; a < m; ++a) {
      inverse[a][a] = number<T>(1);
      solve_block(pivot, &inverse.e[a], m);
    }
    Block<T> own;
    for (int i = 0; i < m; ++i)
      for (int j = 0; j < m; ++j)
        for (int k = 0; k < m; ++k) own[i][j] += conj(inverse[k][i]) * inverse[k][j];
    precision_[points] = own;
    return true;
  }

  // The window without its least informative point. False where a factor fails.
  bool prune(Window<T>& window) {
    const int64_t n = window.size * m;
    std::vector<T> dual(window.y(), window.y() + n);
    window.chol.solve_both(n, dual.data());
    const int64_t i = least_informative(dual, window.size);
    if (i < 0) return false;
    // With p = F Fᴴ, v p vᴴ is u uᴴ, u = v F, and F⁻¹ a_i measures uᴴ y with unit noise.
    std::vector<T> column(n * m), w(n * m);
    const Block<T> factor = factor_of(columns_of_inverse(window.chol, i, n, column));
    const Block<T> prior_factor = factor_of(columns_of_inverse(chol_, i, n, w));
    Block<T> turn = factor;  // prior_factor⁻¹ F
    for (int a = 0; a < m; ++a) solve_block(prior_factor, &turn.e[a], m);
    T values[m];
    std::copy(&dual[i * m], &dual[i * m] + m, values);
    solve_block(factor, values);
    // w wᴴ is what the inverse of K_ε loses with row and column i, so −q = w prior_factor⁻¹.
    std::vector<T> u(n * m);
    for (int64_t k = 0; k < n; ++k) {
      T of_column[m], of_prior[m];
      for (int a = 0; a < m; ++a) of_column[a] = column[a * n + k], of_prior[a] = w[a * n + k];
      solve_block_adjoint(factor, of_column);
      solve_block_adjoint(prior_factor, of_prior);
      for (int a = 0; a < m; ++a) {
        T sum = of_column[a];
        for (int b = 0; b < m; ++b) sum -= of_prior[b] * turn[b][a];
        u[a * n + k] = sum;
        w[a * n + k] = of_prior[a];
      }
    }
    for (int64_t k = 0; k < window.size; ++k) subtract(w, n, k);
    bool ok = true;
    for (int a = 0; a < m; ++a) {
      ok &= window.chol.remove(i * m, n - a);
      ok &= chol_.remove(i * m, n - a);
    }
    without(precision_, i, 1);
    window.drop(i);
    has_pruned = true;
    return ok & put_back(window, u, n, i, values);
  }

 private:
  // The information of a point that is gone on the others, as measurements of uᴴ y.
  bool put_back(Window<T>& window, const std::vector<T>& u, int64_t n, int64_t gone,
                const T* values) {
    const int64_t left = n - m;
    std::vector<T> h(left), gain(left);
    bool ok = true;
    for (int a = 0; a < m; ++a) {
      T innovation = values[a];
      for (int64_t k = 0; k < left; ++k) {
        h[k] = conj(u[a * n + (k < gone * m ? k : k + m)]);
        innovation -= h[k] * window.y()[k];
      }
      ok &= window.chol.condition(h.data(), R(1), left, gain.data());
      for (int64_t k = 0; k < left; ++k) window.y()[k] += gain[k] * innovation;
    }
    window.set_targets();
    return ok;
  }

  // The columns of the inverse that belong to point i, in `columns`; returns their rows of i.
  Block<T> columns_of_inverse(const Factor<T>& chol, int64_t i, int64_t n, std::vector<T>& columns) {
    Block<T> block;
    for (int a = 0; a < m; ++a) {
      T* column = columns.data() + a * n;
      column[i * m + a] = number<T>(1);
      chol.solve_both(n, column);
      for (int r = 0; r < m; ++r) block[r][a] = column[i * m + r];
    }
    return block;
  }

  // The point whose loss |a_i|² / [K⁻¹]_ii is least; -1 where that is no number.
  int64_t least_informative(const std::vector<T>& dual, int64_t points) const {
    int64_t least = -1;
    R smallest = std::numeric_limits<R>::infinity();
    for (int64_t i = 0; i < points; ++i) {
      T a[m];
      std::copy(&dual[i * m], &dual[i * m] + m, a);
      solve_block(factor_of(precision_[i]), a);
      R loss = 0;
      for (int r = 0; r < m; ++r) loss += square(a[r]);
      if (std::isnan(loss)) return -1;
      if (loss < smallest) smallest = loss, least = i;
    }
    return least;
  }

  // precision_i += g gᴴ, g being the rows of point i, in columns of n, times pivot⁻ᴴ.
  void add(const std::vector<T>& columns, int64_t n, int64_t i, const Block<T>& pivot, R sign) {
    Block<T> g;
    for (int r = 0; r < m; ++r) {
      for (int a = 0; a < m; ++a) g[r][a] = columns[a * n + i * m + r];
      solve_block_adjoint(pivot, g[r]);
    }
    add(g, i, sign);
  }
  void subtract(const std::vector<T>& columns, int64_t n, int64_t i) {
    Block<T> g;
    for (int r = 0; r < m; ++r)
      for (int a = 0; a < m; ++a) g[r][a] = columns[a * n + i * m + r];
    add(g, i, R(-1));
  }
  void add(const Block<T>& g, int64_t i, R sign) {
    for (int r = 0; r < m; ++r)
      for (int s = 0; s < m; ++s)
        for (int a = 0; a < m; ++a) precision_[i][r][s] += sign * (g[r][a] * conj(g[s][a]));
  }

  Factor<T> chol_;
  std::vector<Block<T>> precision_;
  R nugget_;
};

}  // namespace cgp
