// cgp.kernels.Rotation: cosine and sine of many angles, given in turns.
#include <algorithm>
#include <cmath>

#include "elementary.h"
#include "op.h"
#include "parallel.h"

namespace cgp {
namespace {

// Angles of one call of the loop: long enough for vectors, short enough for several threads.
constexpr int64_t kChunk = 4096;
// Beyond it, `turn` does not find the quarter. Neighbours are an eighth of a turn apart there.
constexpr double kFar = 562949953421312.0;

// Zeros, of a quarter of a turn, are left without a sign.
CGP_FOR_EACH_PROCESSOR
void turn_each(const double* turns, int64_t count, double* cosine, double* sine) {
  for (int64_t i = 0; i < count; ++i) {
    double c, s;
    turn(turns[i], c, s);
    cosine[i] = c + 0.0;
    sine[i] = s + 0.0;
  }
}

CGP_FOR_EACH_PROCESSOR
void turn_each(const float* turns, int64_t count, float* cosine, float* sine) {
  for (int64_t i = 0; i < count; ++i) {
    double c, s;
    turn(turns[i], c, s);
    cosine[i] = float(c) + 0.0f;
    sine[i] = float(s) + 0.0f;
  }
}

template <class R>
struct Turn {
  static void run(Call& call) {
    const auto turns = call.input<R>(0);
    const auto cosine = call.output<R>(0, turns.shape), sine = call.output<R>(1, turns.shape);
    const int64_t size = turns.size();
    for_each((size + kChunk - 1) / kChunk, 10 * kChunk, [&](int64_t chunk) {
      const int64_t first = chunk * kChunk, count = std::min(kChunk, size - first);
      const R* angle = turns.data + first;
      turn_each(angle, count, cosine.data + first, sine.data + first);
      for (int64_t i = 0; i < count; ++i)
        if (std::abs(angle[i]) >= R(kFar)) {
          const double rest = std::remainder(double(angle[i]), 1.0);
          double c, s;
          turn(rest, c, s);
          cosine.data[first + i] = R(c);
          sine.data[first + i] = R(s);
        }
    });
  }
};

const bool registered = [] {
  const auto inputs = {"turns: R"};
  define("CgpTurn", inputs, {"cosine: R", "sine: R"});
  const Kinds kinds = kinds_of(inputs);
  add_kernel("CgpTurn", {kNoNumbers, TF_DOUBLE, TF_COMPLEX128}, kinds, compute<Turn<double>::run>);
  add_kernel("CgpTurn", {kNoNumbers, TF_FLOAT, TF_COMPLEX64}, kinds, compute<Turn<float>::run>);
  return true;
}();

}  // namespace
}  // namespace cgp
