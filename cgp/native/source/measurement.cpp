// The factor of a covariance after a scalar measurement: see measurement.h.
#include "measurement.h"

namespace cgp {

template <class T>
CGP_FOR_EACH_PROCESSOR bool condition(Rows<const T> chol, const T* h, Real<T> r, Rows<T> result,
                                      T* gain, Real<T>* variance, int64_t n, Workspace<T>& work) {
  const Scaling<T> by = work.scaling();
  *variance = scale_by_measurement(chol, h, r, n, by, work.s());
  scale_columns(chol, result, n, by, gain);
  const Real<T> inverse = inverse_unless_zero(*variance);
  bool ok = r >= 0 && is_not_negative_and_finite(*variance);
  for (int64_t i = 0; i < n; ++i) {
    gain[i] = inverse * gain[i];
    ok &= is_not_negative_and_finite(real(chol[i][i])) && imag(chol[i][i]) == 0 &&
          is_not_negative_and_finite(real(result[i][i]));
  }
  return ok;
}

#define CGP_CONDITION(T)                                                                      \
  template bool condition<T>(Rows<const T>, const T*, Real<T>, Rows<T>, T*, Real<T>*, int64_t, \
                             Workspace<T>&)
CGP_FOR_EACH_NUMBER(CGP_CONDITION);

}  // namespace cgp
