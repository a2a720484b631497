// The functions of LAPACK that ops call. The core links with no LAPACK: Python hands over pointers
// to the functions of SciPy's, which is there anyway and is fast.
//
// Fortran reads the rows of an array in C order as columns: it sees the conjugate of a Hermitian
// matrix, and its upper triangle is the lower one here. Its factor Uᴴ U of that is the factor L Lᴴ
// of the matrix itself, with L in place of U: nothing has to be conjugated or transposed.
#pragma once
#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>

#include "op.h"
#include "parallel.h"

namespace cgp {

template <class T>
struct Lapack {
  using Function = void (*)(char* triangle, int* n, T* a, int* lda, int* info);
  Function potrf, potri;
};

// Null until they are handed over.
template <class T>
inline Lapack<T> lapack{};

// ztrsm of BLAS, which solves triangular systems in place; null until it is handed over.
using TriangularSolve = void (*)(char* side, char* triangle, char* transposed, char* diagonal, int* m,
                                 int* n, Complex<double>* alpha, Complex<double>* a, int* lda,
                                 Complex<double>* b, int* ldb);
inline TriangularSolve ztrsm = nullptr;

// The number of threads of OpenBLAS; null where it is another BLAS, or not known.
struct Threads {
  void (*set)(int);
  int (*get)();
};
inline Threads threads{};

// While there is one, OpenBLAS shares no work. Its threads wait for each other in loops: where cores
// have other work, a matrix of order 1000 takes them seconds in place of a tenth of one.
class OneThread {
 public:
  OneThread() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (users()++ == 0 && threads.set) {
      before() = threads.get();
      threads.set(1);
    }
  }
  ~OneThread() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (--users() == 0 && threads.set) threads.set(before());
  }
  OneThread(const OneThread&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }
  static int& users() {
    static int users = 0;
    return users;
  }
  static int& before() {
    static int before = 1;
    return before;
  }
};

// The order from which on threads are worth waiting for. Of small ones too: an inverse of order 5
// takes 20 ms in place of some microseconds while cores have other work.
constexpr int64_t kManyThreads = 2048;

// Calls such a function on the lower triangle of a matrix in C order; false where it fails.
template <class T>
bool on_lower_triangle(typename Lapack<T>::Function function, T* a, int64_t order) {
  if (order == 0) return true;
  char triangle = 'U';
  int n = static_cast<int>(order), info = 0;
  std::optional<OneThread> alone;
  if (order < kManyThreads) alone.emplace();
  function(&triangle, &n, a, &n, &info);
  return info == 0;
}

// B ← L⁻¹ B, with the lower triangle of L, `[k, k]`, and B `[k, n]`, in C order.
inline void whiten_rows(const Complex<double>* chol, Complex<double>* b, int64_t k, int64_t n) {
  if (k == 0) return;
  require(ztrsm, "there is no BLAS");
  // Fortran sees the transposes: Bᵀ ← Bᵀ L⁻ᵀ, and Lᵀ as an upper triangle.
  char side = 'R', triangle = 'U', transposed = 'N', diagonal = 'N';
  int rows = static_cast<int>(n), columns = static_cast<int>(k);
  Complex<double> one{1, 0};
  std::optional<OneThread> alone;
  if (k < kManyThreads) alone.emplace();
  ztrsm(&side, &triangle, &transposed, &diagonal, &rows, &columns, &one,
        const_cast<Complex<double>*>(chol), &columns, b, &rows);
}

// How much work a matrix is for the loop over a batch. It takes large ones one after the other, as
// LAPACK shares each of them among the cores.
inline int64_t work_of_matrix(int64_t n) { return n < kManyThreads ? n * n * n : 1; }

// What a matrix becomes that has no result.
template <class T>
T not_a_number() {
  constexpr Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
  if constexpr (sizeof(T) == sizeof(Real<T>))
    return nan;
  else
    return T{nan, nan};
}

// Calls such a function on the lower triangles of the matrices of an op's first input, `[..., n, n]`,
// with zeros above; a matrix where it fails becomes NaN. `finish(to, n)` ends the work on the others.
template <class T, class F>
void on_lower_triangles(Call& call, typename Lapack<T>::Function function, const F& finish) {
  const auto a = call.input<T>(0);
  require(a.shape.size() >= 2 && a.axis(-1) == a.axis(-2), "the matrix is not square");
  require(function, "there is no LAPACK");
  const auto result = call.output<T>(0, a.shape);
  const int64_t n = a.axis(-1), size = n * n;
  for_each(size_of(a.shape, 0, a.shape.size() - 2), work_of_matrix(n), [&](int64_t i) {
    const T* from = a.data + i * size;
    T* to = result.data + i * size;
    for (int64_t row = 0; row < n; ++row) {
      std::copy_n(from + row * n, row + 1, to + row * n);
      std::fill(to + row * n + row + 1, to + (row + 1) * n, T{});
    }
    if (on_lower_triangle<T>(function, to, n))
      finish(to, n);
    else
      std::fill_n(to, size, not_a_number<T>());
  });
}

}  // namespace cgp
