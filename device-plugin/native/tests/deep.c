/* A library that takes memory of the card, in a program that loads it as it likes: its calls are bound by the dynamic
 * linker (it is linked to the driver), or it asks for each name, as NVIDIA's runtime does. */
#include "../include/egpu_cuda.h"

#include <dlfcn.h>

static CUresult take(CUresult (*init)(unsigned), CUresult (*retain)(CUcontext *, CUdevice),
                     CUresult (*make_current)(CUcontext), CUresult (*allocate)(CUdeviceptr *, size_t), size_t bytes)
{
    static CUcontext context;
    CUdeviceptr pointer;
    CUresult result = context ? CUDA_SUCCESS : init(0);
    result = result || context ? result : retain(&context, 0);
    result = result ? result : make_current(context);
    return result ? result : allocate(&pointer, bytes);
}

__attribute__((visibility("default"))) int take_linked(size_t bytes)
{
    return take(cuInit, cuDevicePrimaryCtxRetain, cuCtxSetCurrent, cuMemAlloc_v2, bytes);
}

__attribute__((visibility("default"))) int take_asked(size_t bytes)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver ? (int)take((CUresult(*)(unsigned))dlsym(driver, "cuInit"),
                              (CUresult(*)(CUcontext *, CUdevice))dlsym(driver, "cuDevicePrimaryCtxRetain"),
                              (CUresult(*)(CUcontext))dlsym(driver, "cuCtxSetCurrent"),
                              (CUresult(*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2"), bytes)
                  : -1;
}
