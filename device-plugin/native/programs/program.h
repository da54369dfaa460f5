/* What the test programs share: the driver, found as real programs find it, and their arguments.
 *
 * They load libcuda.so.1 with dlopen and look every call up with dlsym; built with -DDIRECT they are linked to it;
 * with EGPU_LOOKUP=proc in the environment they use cuGetProcAddress, as the CUDA runtime does. */
#pragma once

#include "egpu_cuda.h"

#include <stdbool.h>
#include <stdint.h>

#define PROGRAM_CALLS(X)                                                                                             \
    X(cuInit, cuInit) X(cuDeviceGet, cuDeviceGet) X(cuDeviceGetCount, cuDeviceGetCount)                              \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent, cuCtxSetCurrent)                        \
    X(cuCtxSynchronize, cuCtxSynchronize) X(cuMemGetInfo, cuMemGetInfo_v2) X(cuMemAlloc, cuMemAlloc_v2)              \
    X(cuMemFree, cuMemFree_v2) X(cuMemsetD8, cuMemsetD8_v2) X(cuMemcpyDtoH, cuMemcpyDtoH_v2)                         \
    X(cuModuleLoadData, cuModuleLoadData) X(cuModuleGetFunction, cuModuleGetFunction)                                \
    X(cuStreamCreate, cuStreamCreate) X(cuStreamSynchronize, cuStreamSynchronize)                                    \
    X(cuEventCreate, cuEventCreate) X(cuEventRecord, cuEventRecord) X(cuEventQuery, cuEventQuery)                    \
    X(cuEventSynchronize, cuEventSynchronize) X(cuLaunchKernel, cuLaunchKernel)                                      \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2) X(cuStreamEndCapture, cuStreamEndCapture)                       \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags) X(cuGraphLaunch, cuGraphLaunch)                      \
    X(cuMemAddressReserve, cuMemAddressReserve) X(cuMemCreate, cuMemCreate) X(cuMemMap, cuMemMap)                    \
    X(cuMemSetAccess, cuMemSetAccess) X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity)

struct calls {
#define X(name, symbol) __typeof__(symbol) *name;
    PROGRAM_CALLS(X)
#undef X
};

struct program {
    struct calls cu;
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction spin, add, meet;
};

/* Ends the program with a line that names call and code, unless the call was successful. */
#define CHECK(call) program_check((call), #call)
void program_check(CUresult result, const char *call);

/* Driver, context on --device (0), kernels. Ends the program where there is no card. */
void program_start(struct program *program, int count, char **arguments);

/* --name value, else `otherwise`; a flag is --name without value. */
long long option(int count, char **arguments, const char *name, long long otherwise);
const char *text_option(int count, char **arguments, const char *name, const char *otherwise);
bool flag(int count, char **arguments, const char *name);

uint64_t now_ns(void);
void sleep_until_ns(uint64_t at);

void launch_spin(struct program *program, CUstream stream, uint64_t ns);
void launch_add(struct program *program, CUstream stream, uint64_t ns, CUdeviceptr counter, uint64_t more);
void launch_meet(struct program *program, CUstream stream, uint64_t ns, CUdeviceptr key, uint32_t parties);

/* Prints a line and flushes it: readers wait for lines. */
__attribute__((format(printf, 1, 2))) void say(const char *format, ...);
