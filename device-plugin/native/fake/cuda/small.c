/* Calls that frameworks make in passing, with answers that do not matter to time or memory. */
#include "driver.h"

#include <string.h>

#define KERNEL(kernel, function)                                                                  \
    CUfunction function = (CUfunction)(kernel);                                                   \
    ENTER();                                                                                      \
    if (!function || function->magic != MAGIC_FUNCTION) return CUDA_ERROR_INVALID_HANDLE

API CUresult cuKernelGetAttribute(int *value, CUfunction_attribute which, CUkernel kernel, CUdevice device) {
    KERNEL(kernel, function);
    (void)device;
    return cuFuncGetAttribute(value, which, function);
}

API CUresult cuKernelSetAttribute(CUfunction_attribute which, int value, CUkernel kernel, CUdevice device) {
    KERNEL(kernel, function);
    (void)device;
    return cuFuncSetAttribute(function, which, value);
}

API CUresult cuKernelGetName(const char **name, CUkernel kernel) {
    KERNEL(kernel, function);
    *name = function->name;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetLibrary(CUlibrary *to, CUkernel kernel) {
    KERNEL(kernel, function);
    *to = (CUlibrary)function->module;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *offset, size_t *size) {
    KERNEL(kernel, function);
    return cuFuncGetParamInfo(function, index, offset, size);
}

API CUresult cuKernelGetParamCount(CUkernel kernel, size_t *count) {
    KERNEL(kernel, function);
    *count = function->parameter_count;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetParamCount(CUfunction kernel, size_t *count) {
    KERNEL(kernel, function);
    *count = function->parameter_count;
    return CUDA_SUCCESS;
}

API CUresult cuLibraryGetKernelCount(unsigned *count, CUlibrary library) {
    return cuModuleGetFunctionCount(count, (CUmodule)library);
}

API CUresult cuModuleEnumerateFunctions(CUfunction *to, unsigned count, CUmodule module) {
    ENTER();
    if (!module || module->magic != MAGIC_MODULE) return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < count && i < module->count; i++) to[i] = module->functions[i];
    return CUDA_SUCCESS;
}

API CUresult cuLibraryEnumerateKernels(CUkernel *to, unsigned count, CUlibrary library) {
    return cuModuleEnumerateFunctions((CUfunction *)to, count, (CUmodule)library);
}

API CUresult cuOccupancyMaxPotentialBlockSize(int *grid, int *block, CUfunction kernel, CUoccupancyB2DSize size_of,
                                              size_t shared, int limit) {
    KERNEL(kernel, function);
    (void)size_of, (void)shared;
    *block = limit > 0 && limit < 1024 ? limit : 1024;
    *grid = 132 * (2048 / *block);
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, CUfunction function,
                                                       CUoccupancyB2DSize size_of, size_t shared, int limit,
                                                       unsigned flags) {
    (void)flags;
    return cuOccupancyMaxPotentialBlockSize(grid, block, function, size_of, shared, limit);
}

API CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
    ENTER_CONTEXT(context);
    (void)context;
    *config = 0;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
    ENTER_CONTEXT(context);
    (void)context, (void)config;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetSharedMemConfig(CUsharedconfig *config) {
    return cuCtxGetCacheConfig(config);
}

API CUresult cuCtxSetSharedMemConfig(CUsharedconfig config) {
    return cuCtxSetCacheConfig(config);
}

API CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
    return cuFuncSetCacheConfig(function, config);
}

API CUresult cuCtxResetPersistingL2Cache(void) {
    ENTER_CONTEXT(context);
    (void)context;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetExecAffinitySupport(int *supported, CUexecAffinityType type, CUdevice device) {
    struct visible_card *card;
    ENTER();
    (void)type;
    TRY(card_of(device, &card));
    *supported = 0;
    return CUDA_SUCCESS;
}

/* --- managed memory: where it was last sent ------------------------------------------------------ */
API CUresult cuMemRangeGetAttribute(void *to, size_t bytes, CUmem_range_attribute which, CUdeviceptr pointer, size_t count) {
    ENTER();
    if (!to || !bytes || !count) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool managed = block && block->kind == BLOCK_MANAGED && pointer - block->base + count <= block->bytes;
    int place = managed && block->resident ? block->device : CU_DEVICE_CPU;
    pthread_mutex_unlock(&driver.lock);
    if (!managed || which < 1 || which > 8) return CUDA_ERROR_INVALID_VALUE;
    int answer = which == 4 ? place : which == 1 ? 0 : -2; /* -2: no such place was named */
    memset(to, 0, bytes);
    memcpy(to, &answer, bytes < sizeof answer ? bytes : sizeof answer);
    return CUDA_SUCCESS;
}

API CUresult cuMemRangeGetAttributes(void **to, size_t *bytes, CUmem_range_attribute *which, size_t kinds,
                                     CUdeviceptr pointer, size_t count) {
    ENTER();
    for (size_t i = 0; i < kinds; i++) TRY(cuMemRangeGetAttribute(to[i], bytes[i], which[i], pointer, count));
    return CUDA_SUCCESS;
}
