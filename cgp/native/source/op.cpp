// Registration of ops through TensorFlow's C interface, and what a call of one needs.
#include "op.h"

#include <cstring>
#include <memory>
#include <string>

#include "result_memory.h"

namespace cgp {
namespace {

struct DeleteStatus {
  void operator()(TF_Status* status) const { TF_DeleteStatus(status); }
};
using StatusHandle = std::unique_ptr<TF_Status, DeleteStatus>;

// Ops are registered while the library is loaded, where no exception can be caught.
std::string& first_refusal() {
  static std::string message;
  return message;
}

void note(const std::string& name, const TF_Status* status) {
  if (TF_GetCode(status) != TF_OK && first_refusal().empty())
    first_refusal() = "TensorFlow refused " + name + ": " + TF_Message(status);
}

bool has_numbers(std::initializer_list<const char*> inputs) {
  for (const char* input : inputs)
    if (std::strstr(input, ": T")) return true;
  return false;
}

// How a type is laid out: reals of 4 or 8 bytes, two of them in a complex number.
bool is_double(TF_DataType type) { return type == TF_DOUBLE || type == TF_COMPLEX128; }
int64_t parts_of(TF_DataType type) { return type == TF_COMPLEX64 || type == TF_COMPLEX128 ? 2 : 1; }
size_t bytes_of(TF_DataType type) {
  return type == TF_BOOL ? 1 : parts_of(type) * (is_double(type) ? 8 : 4);
}

CGP_FOR_EACH_PROCESSOR void convert(const float* from, int64_t count, double* to) {
  CGP_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = from[i];
}
CGP_FOR_EACH_PROCESSOR void convert(const double* from, int64_t count, float* to) {
  CGP_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = float(from[i]);
}

}  // namespace

Call::~Call() {
  for (const Copy& copy : copies_)
    if (copy.is_kept_memory)
      give_memory_back(copy.reals, copy.count * sizeof(double), nullptr);
    else
      ::operator delete(copy.reals);
  for (TF_Tensor* tensor : tensors_)
    if (tensor) TF_DeleteTensor(tensor);
  TF_DeleteStatus(status_);
}

TF_Tensor* Call::tensor(int i) {
  TF_Tensor*& tensor = tensors_.emplace_back(nullptr);
  TF_GetInput(context_, i, &tensor, status_);
  require_ok();
  return tensor;
}

Shape Call::shape_of(const TF_Tensor* tensor) {
  Shape shape(TF_NumDims(tensor));
  for (size_t axis = 0; axis < shape.size(); ++axis) shape[axis] = TF_Dim(tensor, axis);
  return shape;
}

const void* Call::data_of(const TF_Tensor* tensor, TF_DataType type) {
  const void* data = TF_TensorData(tensor);
  const TF_DataType stored = TF_TensorType(tensor);
  is_single_ |= stored == TF_FLOAT || stored == TF_COMPLEX64;
  if (!is_double(type) || is_double(stored)) return data;
  const int64_t count = parts_of(type) * size_of(shape_of(tensor));
  double* reals = make_reals(count);
  convert(static_cast<const float*>(data), count, reals);
  return reals;
}

void* Call::make_output(int i, TF_DataType type, const Shape& shape) {
  if (!is_double(type)) return allocate(i, type, shape);
  const TF_DataType expected = TF_ExpectedOutputDataType(context_, i);
  if (is_double(expected)) return allocate(i, type, shape);
  void* to = allocate(i, expected, shape);
  double* reals = make_reals(parts_of(type) * size_of(shape));
  copies_.back().to = static_cast<float*>(to);
  return reals;
}

void* Call::allocate(int i, TF_DataType type, const Shape& shape) {
  const size_t bytes = size_of(shape) * bytes_of(type);
  void* data = take_memory(bytes);
  TF_Tensor*& tensor = tensors_.emplace_back(nullptr);
  tensor =
      data ? TF_NewTensor(type, shape.data(), shape.size(), data, bytes, give_memory_back, nullptr)
           : TF_AllocateOutput(context_, i, type, shape.data(), shape.size(), bytes, status_);
  require_ok();
  if (data) TF_SetOutput(context_, i, tensor, status_);
  require_ok();
  return TF_TensorData(tensor);
}

double* Call::make_reals(int64_t count) {
  const size_t bytes = count * sizeof(double);
  Copy& copy = copies_.emplace_back(Copy{nullptr, count, false, nullptr});
  void* kept = take_memory(bytes);
  copy.is_kept_memory = kept != nullptr;
  copy.reals = static_cast<double*>(kept ? kept : ::operator new(bytes));
  return copy.reals;
}

void Call::deliver() {
  for (const Copy& copy : copies_)
    if (copy.to) convert(copy.reals, copy.count, copy.to);
}

void Call::fail(const char* message) {
  TF_SetStatus(status_, TF_INVALID_ARGUMENT, message);
  TF_OpKernelContext_Failure(context_, status_);
}

void Call::require_ok() {
  require(TF_GetCode(status_) == TF_OK, TF_Message(status_));
}

Kinds kinds_of(std::initializer_list<const char*> inputs) {
  Kinds kinds{false, false};
  for (const char* input : inputs) {
    kinds.reals |= input[std::strlen(input) - 1] == 'R';
    kinds.complexes |= input[std::strlen(input) - 1] == 'C';
  }
  return kinds;
}

void define(const char* name, std::initializer_list<const char*> inputs,
            std::initializer_list<const char*> outputs) {
  const Kinds kinds = kinds_of(inputs);
  TF_OpDefinitionBuilder* builder = TF_NewOpDefinitionBuilder(name);
  if (has_numbers(inputs))
    TF_OpDefinitionBuilderAddAttr(builder, "T: {complex128, complex64, float64, float32}");
  if (kinds.reals) TF_OpDefinitionBuilderAddAttr(builder, "R: {float64, float32}");
  if (kinds.complexes) TF_OpDefinitionBuilderAddAttr(builder, "C: {complex128, complex64}");
  for (const char* input : inputs) TF_OpDefinitionBuilderAddInput(builder, input);
  for (const char* output : outputs) TF_OpDefinitionBuilderAddOutput(builder, output);
  TF_OpDefinitionBuilderSetShapeInferenceFunction(builder,
                                                  &TF_ShapeInferenceContextSetUnknownShape);
  StatusHandle status(TF_NewStatus());
  TF_RegisterOpDefinition(builder, status.get());
  note(name, status.get());
}

void add_kernel(const char* name, Types types, Kinds kinds,
                void (*compute)(void*, TF_OpKernelContext*)) {
  TF_KernelBuilder* builder = TF_NewKernelBuilder(name, "CPU", nullptr, compute, nullptr);
  StatusHandle status(TF_NewStatus());
  const auto constrain = [&](const char* attribute, TF_DataType type) {
    if (TF_GetCode(status.get()) == TF_OK)
      TF_KernelBuilder_TypeConstraint(builder, attribute, type, status.get());
  };
  if (types.numbers != kNoNumbers) constrain("T", types.numbers);
  if (kinds.reals) constrain("R", types.reals);
  if (kinds.complexes) constrain("C", types.complexes);
  if (TF_GetCode(status.get()) == TF_OK) TF_RegisterKernelBuilder(name, builder, status.get());
  note(name, status.get());
}

}  // namespace cgp

// Why an op could not be registered; empty if all were.
extern "C" const char* cgp_refusal() { return cgp::first_refusal().c_str(); }
