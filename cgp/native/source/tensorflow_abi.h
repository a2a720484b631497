// The part of TensorFlow's C interface that the ops use (tensorflow/c/{ops,kernels,tf_tensor}.h).
//
// The functions are in libtensorflow_framework, which is in the process once TensorFlow has been
// imported. They are declared here so that building needs no TensorFlow, and one file serves all
// versions that keep this interface (tried with 2.18 to 2.21).
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeInferenceContext;
struct TF_ShapeHandle;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;

enum TF_DataType : int {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_COMPLEX64 = 8,
  TF_BOOL = 10,
  TF_COMPLEX128 = 18,
};
enum TF_Code : int { TF_OK = 0, TF_INVALID_ARGUMENT = 3 };

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status*);
void TF_SetStatus(TF_Status*, TF_Code, const char* message);
TF_Code TF_GetCode(const TF_Status*);
const char* TF_Message(const TF_Status*);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(
    TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder*, TF_Status*);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext*, TF_Status*);

TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*));
void TF_KernelBuilder_TypeConstraint(TF_KernelBuilder*, const char* attr, TF_DataType, TF_Status*);
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder*, TF_Status*);

void TF_GetInput(TF_OpKernelContext*, int i, TF_Tensor**, TF_Status*);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int i, TF_DataType, const int64_t* sizes,
                             int rank, size_t bytes, TF_Status*);
TF_DataType TF_ExpectedOutputDataType(TF_OpKernelContext*, int i);
void TF_SetOutput(TF_OpKernelContext*, int i, const TF_Tensor*, TF_Status*);
void TF_OpKernelContext_Failure(TF_OpKernelContext*, TF_Status*);

TF_Tensor* TF_NewTensor(TF_DataType, const int64_t* sizes, int rank, void* data, size_t bytes,
                        void (*give_back)(void* data, size_t bytes, void*), void*);
void TF_DeleteTensor(TF_Tensor*);
TF_DataType TF_TensorType(const TF_Tensor*);
int TF_NumDims(const TF_Tensor*);
int64_t TF_Dim(const TF_Tensor*, int axis);
void* TF_TensorData(const TF_Tensor*);
}
