// What every op needs: its arguments as arrays with a shape, its results, its failure, and its
// registration. A failure ends the op and leaves its results unused.
#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "number.h"
#include "result_memory.h"
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
  std::string message;
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

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
struct DeleteStatus {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
using TensorHandle = std::unique_ptr<TF_Tensor, DeleteTensor>;
using StatusHandle = std::unique_ptr<TF_Status, DeleteStatus>;

// An array in C order; the memory is TensorFlow's as long as the call.
template <class T>
struct Array {
  T* data;
  Shape shape;

  int64_t axis(int i) const { return shape[i < 0 ? shape.size() + i : i]; }
  int64_t size() const { return size_of(shape); }
};

// The arguments and results of one call.
class Call {
 public:
  explicit Call(TF_OpKernelContext* context) : context_(context), status_(TF_NewStatus()) {}

  template <class T>
  Array<const T> input(int i) {
    TF_Tensor* tensor = nullptr;
    TF_GetInput(context_, i, &tensor, status_.get());
    require_ok();
    kept_.emplace_back(tensor);
    Shape shape(TF_NumDims(tensor));
    for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] = TF_Dim(tensor, axis);
    return {static_cast<const T*>(TF_TensorData(tensor)), std::move(shape)};
  }

  template <class T>
  Array<T> output(int i, Shape shape) {
    const size_t bytes = size_of(shape) * sizeof(T);
    void* data = bytes >= kLeastResult && bytes <= kLargestResult ? take_memory(bytes) : nullptr;
    TF_Tensor* tensor =
        data ? TF_NewTensor(data_type<T>, shape.data(), shape.size(), data, bytes,
                            give_memory_back, nullptr)
             : TF_AllocateOutput(context_, i, data_type<T>, shape.data(), shape.size(), bytes,
                                 status_.get());
    if (tensor) kept_.emplace_back(tensor);
    require_ok();
    if (data) TF_SetOutput(context_, i, tensor, status_.get());
    require_ok();
    return {static_cast<T*>(TF_TensorData(tensor)), std::move(shape)};
  }

  void fail(const std::string& message) {
    TF_SetStatus(status_.get(), TF_INVALID_ARGUMENT, message.c_str());
    TF_OpKernelContext_Failure(context_, status_.get());
  }

 private:
  void require_ok() { require(TF_GetCode(status_.get()) == TF_OK, TF_Message(status_.get())); }

  TF_OpKernelContext* context_;
  StatusHandle status_;
  std::vector<TensorHandle> kept_;
};

// Runs an op on a call. No exception may leave it: its caller is C.
template <void (*op)(Call&)>
void compute(void*, TF_OpKernelContext* context) {
  Call call(context);
  try {
    op(call);
  } catch (const Failure& failure) {
    call.fail(failure.message);
  } catch (const std::exception& exception) {
    call.fail(exception.what());
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

// Declares an op with kernels for all four kinds of numbers; Op<T>::run(Call&) computes it.
template <template <class> class Op>
void register_op(const char* name, std::initializer_list<const char*> inputs,
                 std::initializer_list<const char*> outputs) {
  constexpr Types of_double{TF_DOUBLE, TF_DOUBLE, TF_COMPLEX128};
  constexpr Types of_float{TF_FLOAT, TF_FLOAT, TF_COMPLEX64};
  const Kinds kinds = kinds_of(inputs);
  define(name, inputs, outputs);
  add_kernel(name, {TF_COMPLEX128, TF_DOUBLE, TF_COMPLEX128}, kinds,
             compute<Op<Complex<double>>::run>);
  add_kernel(name, {TF_COMPLEX64, TF_FLOAT, TF_COMPLEX64}, kinds, compute<Op<Complex<float>>::run>);
  add_kernel(name, of_double, kinds, compute<Op<double>::run>);
  add_kernel(name, of_float, kinds, compute<Op<float>::run>);
}

}  // namespace cgp
