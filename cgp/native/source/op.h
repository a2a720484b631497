// What every op needs: its arguments as arrays with a shape, its results, its failure, and its
// registration. A failure ends the op and leaves its results unused.
#pragma once
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <utility>
#include <vector>

#include "number.h"
#include "tensorflow_abi.h"

namespace cgp {

using Shape = std::vector<int64_t>;

inline int64_t size_of(const Shape& shape, size_t first = 0, size_t last = SIZE_MAX) {
  int64_t size = 1;
  for (size_t i = first; i < shape.size() && i < last; ++i) size *= shape[i];
  return size;
}

// The shape without its last axes.
inline Shape without_last(const Shape& shape, size_t axes) {
  return Shape(shape.begin(), shape.end() - axes);
}

// The shape with further axes.
inline Shape with(Shape shape, std::initializer_list<int64_t> axes) {
  shape.insert(shape.end(), axes);
  return shape;
}

// Thrown by an op that cannot go on; its caller in Python takes the TensorFlow path, which says
// what was wrong.
struct Failure {
  const char* message;
};
inline void require(bool condition, const char* message) {
  if (!condition) throw Failure{message};
}

template <class T> constexpr TF_DataType data_type = TF_FLOAT;
template <> inline constexpr TF_DataType data_type<double> = TF_DOUBLE;
template <> inline constexpr TF_DataType data_type<int32_t> = TF_INT32;
template <> inline constexpr TF_DataType data_type<bool> = TF_BOOL;
template <> inline constexpr TF_DataType data_type<Complex<float>> = TF_COMPLEX64;
template <> inline constexpr TF_DataType data_type<Complex<double>> = TF_COMPLEX128;

// An array in C order, whose memory lasts as long as the call.
template <class T>
struct Array {
  T* data;
  Shape shape;

  int64_t axis(int i) const { return shape[i < 0 ? shape.size() + i : i]; }
  int64_t size() const { return size_of(shape); }
};

// The arguments and results of one call. Where an op asks for double precision and a tensor is
// single, it gets a copy, and its results are converted when it is done: such an op is not compiled
// for single precision.
class Call {
 public:
  explicit Call(TF_OpKernelContext* context) : context_(context), status_(TF_NewStatus()) {}
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Shape shape(int i) { return shape_of(tensor(i)); }

  template <class T>
  Array<const T> input(int i) {
    TF_Tensor* const tensor = this->tensor(i);
    return {static_cast<const T*>(data_of(tensor, data_type<T>)), shape_of(tensor)};
  }

  template <class T>
  Array<T> output(int i, Shape shape) {
    T* const data = static_cast<T*>(make_output(i, data_type<T>, shape));
    return {data, std::move(shape)};
  }

  // Of the numbers that came in, once an input has been read: their rounding, relative to them, and
  // the largest there are.
  double epsilon() const { return is_single_ ? Single::epsilon() : Double::epsilon(); }
  double largest() const { return is_single_ ? Single::max() : Double::max(); }

  // Converts results where they are to be single.
  void deliver();
  void fail(const char* message);

 private:
  using Single = std::numeric_limits<float>;
  using Double = std::numeric_limits<double>;

  TF_Tensor* tensor(int i);
  static Shape shape_of(const TF_Tensor* tensor);
  const void* data_of(const TF_Tensor* tensor, TF_DataType type);
  void* make_output(int i, TF_DataType type, const Shape& shape);
  void* allocate(int i, TF_DataType type, const Shape& shape);
  double* make_reals(int64_t count);
  void require_ok();

  // Reals that live as long as the call; those of results are to be converted.
  struct Copy {
    double* reals;
    int64_t count;
    bool is_kept_memory;
    float* to;
  };

  TF_OpKernelContext* context_;
  TF_Status* status_;
  std::vector<TF_Tensor*> tensors_;
  std::vector<Copy> copies_;
  bool is_single_ = false;
};

// Runs an op on a call. No exception may leave it: its caller is C.
template <void (*op)(Call&)>
void compute(void*, TF_OpKernelContext* context) {
  Call call(context);
  try {
    op(call);
    call.deliver();
  } catch (const Failure& failure) {
    call.fail(failure.message);
  } catch (const std::exception& exception) {
    call.fail(exception.what());
  } catch (...) {
    call.fail("an op has failed");
  }
}

// Which types besides T the inputs of an op have. An attribute that no input determines would have
// to be given at each call.
struct Kinds {
  bool reals, complexes;
};
Kinds kinds_of(std::initializer_list<const char*> inputs);

// For T, of an op none of whose inputs has that type.
constexpr TF_DataType kNoNumbers = TF_DataType(0);

// The types of a kernel: T, R and C.
struct Types {
  TF_DataType numbers, reals, complexes;
};

// Declares an op: its name, inputs and outputs as "name: type", of type T (the numbers), R (the
// real ones of their precision), C (the complex ones) or another of TensorFlow's.
void define(const char* name, std::initializer_list<const char*> inputs,
            std::initializer_list<const char*> outputs);

// Registers a kernel of an op, on the CPU.
void add_kernel(const char* name, Types types, Kinds kinds,
                void (*compute)(void*, TF_OpKernelContext*));

constexpr Types kComplexDouble{TF_COMPLEX128, TF_DOUBLE, TF_COMPLEX128};
constexpr Types kComplexSingle{TF_COMPLEX64, TF_FLOAT, TF_COMPLEX64};
constexpr Types kDouble{TF_DOUBLE, TF_DOUBLE, TF_COMPLEX128};
constexpr Types kSingle{TF_FLOAT, TF_FLOAT, TF_COMPLEX64};

// Declares an op with kernels for all four kinds of numbers; Op<T>::run(Call&) computes it.
template <template <class> class Op>
void register_op(const char* name, std::initializer_list<const char*> inputs,
                 std::initializer_list<const char*> outputs) {
  const Kinds kinds = kinds_of(inputs);
  define(name, inputs, outputs);
  add_kernel(name, kComplexDouble, kinds, compute<Op<Complex<double>>::run>);
  add_kernel(name, kComplexSingle, kinds, compute<Op<Complex<float>>::run>);
  add_kernel(name, kDouble, kinds, compute<Op<double>::run>);
  add_kernel(name, kSingle, kinds, compute<Op<float>::run>);
}

// The same of an op that computes in double precision whatever comes.
template <template <class> class Op>
void register_op_in_double(const char* name, std::initializer_list<const char*> inputs,
                           std::initializer_list<const char*> outputs) {
  const Kinds kinds = kinds_of(inputs);
  define(name, inputs, outputs);
  for (const Types& types : {kComplexDouble, kComplexSingle})
    add_kernel(name, types, kinds, compute<Op<Complex<double>>::run>);
  for (const Types& types : {kDouble, kSingle})
    add_kernel(name, types, kinds, compute<Op<double>::run>);
}

}  // namespace cgp
