// Takes the functions of LAPACK over from Python.
#include "lapack.h"

namespace cgp {
namespace {

template <class T>
void take(void* const* functions) {
  using Function = typename Lapack<T>::Function;
  lapack<T> = {reinterpret_cast<Function>(functions[0]), reinterpret_cast<Function>(functions[1])};
}

}  // namespace
}  // namespace cgp

// potrf and potri for complex128, complex64, float64 and float32, and ztrsm, with integers of 32
// bits; then OpenBLAS's functions that set and get its number of threads, or null.
extern "C" void cgp_use_lapack(void* const* functions) {
  cgp::take<cgp::Complex<double>>(functions);
  cgp::take<cgp::Complex<float>>(functions + 2);
  cgp::take<double>(functions + 4);
  cgp::take<float>(functions + 6);
  cgp::ztrsm = reinterpret_cast<cgp::TriangularSolve>(functions[8]);
  if (functions[9] && functions[10])
    cgp::threads = {reinterpret_cast<void (*)(int)>(functions[9]),
                    reinterpret_cast<int (*)()>(functions[10])};
}
