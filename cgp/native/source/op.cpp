// Registration of ops through TensorFlow's C interface.
#include "op.h"

#include <cstring>

namespace cgp {
namespace {

// Ops are registered while the library is loaded, where no exception can be caught.
std::string& first_refusal() {
  static std::string message;
  return message;
}

void note(const std::string& name, const StatusHandle& status) {
  if (TF_GetCode(status.get()) != TF_OK && first_refusal().empty())
    first_refusal() = "TensorFlow refused " + name + ": " + TF_Message(status.get());
}

bool has_numbers(std::initializer_list<const char*> inputs) {
  for (const char* input : inputs)
    if (std::strstr(input, ": T")) return true;
  return false;
}

}  // namespace

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
  note(name, status);
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
  note(name, status);
}

}  // namespace cgp

// Why an op could not be registered; empty if all were.
extern "C" const char* cgp_refusal() { return cgp::first_refusal().c_str(); }
