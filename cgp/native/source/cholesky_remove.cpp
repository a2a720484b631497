// cgp.linalg.cholesky_remove: the factor of a covariance with a row and its column removed.
#include "factor_arguments.h"
#include "parallel.h"
#include "removal.h"

namespace cgp {
namespace {

template <class T>
void remove_row_pullback(Rows<const T> chol, Rows<const T> bar, Rows<T> by_chol, int64_t removed,
                         int64_t n, Workspace<T>& work, Workspace<T>& bars, T* column,
                         T* by_column) {
  copy_column(chol, removed, n, column);
  rank_one_pullback<T>(chol.from(removed + 1, removed + 1), column, Real<T>(1),
                       bar.from(removed, removed), by_chol.from(removed + 1, removed + 1),
                       by_column, n - 1 - removed, work, bars);
  for (int64_t j = 0; j < n; ++j) {
    T* to = by_chol[j];
    if (j < removed) {
      std::fill(std::copy(bar[j], bar[j] + j + 1, to), to + n, T{});
    } else if (j == removed) {
      std::fill(to, to + n, T{});
    } else {
      std::copy(bar[j - 1], bar[j - 1] + removed, to);
      to[removed] = by_column[j - removed - 1];
    }
  }
}

// The arguments of one call. With `size`, a buffer keeps its number of rows.
template <class T>
struct Arguments {
  Arguments(Call& call, bool in_buffer)
      : chol(call.input<T>(0)), index(call.input<int32_t>(1)) {
    const Shape batch = batch_of(chol);
    n = chol.axis(-1);
    require(index.shape == batch, "index does not fit chol");
    rows = in_buffer ? n : n - 1;
    const int32_t* sizes = nullptr;
    if (in_buffer) {
      const auto size = call.input<int32_t>(2);
      require(size.shape == batch, "size does not fit chol");
      sizes = size.data;
    }
    for (int64_t i = 0; i < index.size(); ++i) {
      const int64_t used = sizes ? sizes[i] : n;
      require(used >= 1 && used <= n && index.data[i] >= 0 && index.data[i] < used,
              "index is outside the rows in use");
    }
  }

  Array<const T> chol;
  Array<const int32_t> index;
  int64_t n, rows;  // of the result
};

template <class T, bool in_buffer>
struct Remove {
  static void run(Call& call) {
    const Arguments<T> given(call, in_buffer);
    const int64_t n = given.n, rows = given.rows;
    require(n > 0, "there is no row to remove");
    const auto result =
        call.output<T>(0, with(without_last(given.chol.shape, 2), {rows, rows}));
    for_each(given.index.size(), n * n, [&](int64_t i) {
      const Rows<T> to{result.data + i * rows * rows, rows};
      Workspace<T> work(n);
      std::vector<T> column(n);
      require(remove_row<T>({given.chol.data + i * n * n, n}, to, given.index.data[i], n, work,
                            column.data()),
              "chol is no factor");
      if (!in_buffer) return;
      for (int64_t j = 0; j < n; ++j) to[j][n - 1] = to[n - 1][j] = T{};
      to[n - 1][n - 1] = number<T>(1);
    });
  }
};

template <class T, bool in_buffer>
struct RemovePullback {
  static void run(Call& call) {
    const Arguments<T> given(call, in_buffer);
    const auto bar = call.input<T>(in_buffer ? 3 : 2);
    const int64_t n = given.n, rows = given.rows;
    require(n > 0 && bar.shape == with(without_last(given.chol.shape, 2), {rows, rows}),
            "the cotangent does not fit");
    const auto by_chol = call.output<T>(0, given.chol.shape);
    for_each(given.index.size(), 4 * n * n, [&](int64_t i) {
      Workspace<T> work(n), bars(n);
      std::vector<T> column(n), by_column(n);
      remove_row_pullback<T>({given.chol.data + i * n * n, n}, {bar.data + i * rows * rows, rows},
                             {by_chol.data + i * n * n, n}, given.index.data[i], n, work, bars,
                             column.data(), by_column.data());
    });
  }
};

template <class T> using CholeskyRemove = Remove<T, false>;
template <class T> using CholeskyRemovePullback = RemovePullback<T, false>;
template <class T> using CholeskyRemoveFromBuffer = Remove<T, true>;
template <class T> using CholeskyRemoveFromBufferPullback = RemovePullback<T, true>;

const bool registered = [] {
  register_op<CholeskyRemove>("CgpCholeskyRemove", {"chol: T", "index: int32"}, {"result: T"});
  register_op<CholeskyRemovePullback>("CgpCholeskyRemovePullback",
                                      {"chol: T", "index: int32", "bar: T"}, {"by_chol: T"});
  register_op<CholeskyRemoveFromBuffer>("CgpCholeskyRemoveFromBuffer",
                                        {"chol: T", "index: int32", "size: int32"}, {"result: T"});
  register_op<CholeskyRemoveFromBufferPullback>(
      "CgpCholeskyRemoveFromBufferPullback",
      {"chol: T", "index: int32", "size: int32", "bar: T"}, {"by_chol: T"});
  return true;
}();

}  // namespace
}  // namespace cgp
