/* A CUDA runtime of our own over the driver's interface, as far as PyTorch calls one: NVIDIA's makes sure of NVIDIA's
 * driver, so that nothing above it runs on the fake one. What it knows of the driver it asks cuGetProcAddress for, as
 * NVIDIA's does. Error codes of both interfaces are the same numbers. */
#pragma once

#include "egpu_cuda.h"

#define RUNTIME __attribute__((visibility("default")))

struct dim3 { unsigned x, y, z; };

/* The driver's entry point of that name as of that CUDA version; `like` has its type. */
void *driver_asked(const char *name, int version);
#define CU(like, name, version)                                             \
    ({                                                                      \
        static void *asked_;                                                \
        if (!asked_) asked_ = driver_asked(name, version);                  \
        (__typeof__(like) *)(uintptr_t)asked_;                              \
    })

/* Keeps the error for cudaGetLastError. */
CUresult told(CUresult result);
/* Makes sure of a current context: the primary one of this thread's card. */
CUresult ready(void);
int device_now(void);

/* A runtime function that is one call of the driver in a context. */
#define PASS(name, parameters, call)                                        \
    RUNTIME CUresult name parameters;                                       \
    RUNTIME CUresult name parameters {                                      \
        CUresult result = ready();                                          \
        return told(result == CUDA_SUCCESS ? (call) : result);              \
    }
#define IN(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
