/* Memory, streams, events and graphs: mostly one call of the driver each. */
#include "runtime.h"

#include <string.h>

PASS(cudaMemGetInfo, (size_t *left, size_t *total), CU(cuMemGetInfo_v2, "cuMemGetInfo", 3020)(left, total))
PASS(cudaMalloc, (void **to, size_t bytes), CU(cuMemAlloc_v2, "cuMemAlloc", 3020)((CUdeviceptr *)to, bytes))
PASS(cudaFree, (void *at), at ? CU(cuMemFree_v2, "cuMemFree", 3020)(IN(at)) : CUDA_SUCCESS)
PASS(cudaMallocManaged, (void **to, size_t bytes, unsigned flags),
     CU(cuMemAllocManaged, "cuMemAllocManaged", 6000)((CUdeviceptr *)to, bytes, flags))
PASS(cudaMallocAsync, (void **to, size_t bytes, CUstream stream),
     CU(cuMemAllocAsync, "cuMemAllocAsync", 11020)((CUdeviceptr *)to, bytes, stream))
PASS(cudaFreeAsync, (void *at, CUstream stream), CU(cuMemFreeAsync, "cuMemFreeAsync", 11020)(IN(at), stream))
PASS(cudaHostAlloc, (void **to, size_t bytes, unsigned flags),
     CU(cuMemHostAlloc, "cuMemHostAlloc", 2020)(to, bytes, flags))
PASS(cudaMallocHost, (void **to, size_t bytes), CU(cuMemHostAlloc, "cuMemHostAlloc", 2020)(to, bytes, 0))
PASS(cudaFreeHost, (void *at), CU(cuMemFreeHost, "cuMemFreeHost", 2000)(at))
PASS(cudaHostRegister, (void *at, size_t bytes, unsigned flags),
     CU(cuMemHostRegister_v2, "cuMemHostRegister", 6050)(at, bytes, flags))
PASS(cudaHostUnregister, (void *at), CU(cuMemHostUnregister, "cuMemHostUnregister", 4000)(at))
PASS(cudaMemset, (void *at, int value, size_t bytes),
     CU(cuMemsetD8_v2, "cuMemsetD8", 3020)(IN(at), (unsigned char)value, bytes))
PASS(cudaMemsetAsync, (void *at, int value, size_t bytes, CUstream stream),
     CU(cuMemsetD8Async, "cuMemsetD8Async", 3020)(IN(at), (unsigned char)value, bytes, stream))

/* kind: 0 host to host, 1 host to device, 2 device to host, 3 device to device, 4 as the addresses say. */
static CUresult copy(void *to, const void *from, size_t bytes, int kind) {
    if (kind == 1) return CU(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020)(IN(to), from, bytes);
    if (kind == 2) return CU(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020)(to, IN(from), bytes);
    if (kind == 3) return CU(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020)(IN(to), IN(from), bytes);
    return CU(cuMemcpy, "cuMemcpy", 4000)(IN(to), IN(from), bytes);
}

static CUresult copy_async(void *to, const void *from, size_t bytes, int kind, CUstream stream) {
    if (kind == 1) return CU(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020)(IN(to), from, bytes, stream);
    if (kind == 2) return CU(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020)(to, IN(from), bytes, stream);
    if (kind == 3) return CU(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020)(IN(to), IN(from), bytes, stream);
    return CU(cuMemcpyAsync, "cuMemcpyAsync", 4000)(IN(to), IN(from), bytes, stream);
}

PASS(cudaMemcpy, (void *to, const void *from, size_t bytes, int kind), copy(to, from, bytes, kind))
PASS(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int kind, CUstream stream),
     copy_async(to, from, bytes, kind, stream))

static CUresult copy_rows(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height,
                          int kind, CUstream stream) {
    CUresult result = CUDA_SUCCESS;
    for (size_t row = 0; row < height && result == CUDA_SUCCESS; row++) {
        result = copy_async(to + row * to_pitch, from + row * from_pitch, width, kind, stream);
    }
    return result;
}
PASS(cudaMemcpy2DAsync, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                         int kind, CUstream stream),
     copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream))

struct where { int type, device; void *on_device, *on_host; long reserved[8]; };

static CUresult where(struct where *to, const void *at) {
    int type = 0, card = -2, managed = 0;
    *to = (struct where){.device = -2, .on_host = (void *)(uintptr_t)at}; /* nobody's: of the host, unregistered */
    if (CU(cuPointerGetAttribute, "cuPointerGetAttribute", 4000)(&type, 2, IN(at)) != CUDA_SUCCESS || !type) {
        return CUDA_SUCCESS;
    }
    CU(cuPointerGetAttribute, "cuPointerGetAttribute", 4000)(&card, 9, IN(at));
    CU(cuPointerGetAttribute, "cuPointerGetAttribute", 4000)(&managed, 8, IN(at));
    to->type = managed ? 3 : type;
    to->device = card;
    to->on_device = (void *)(uintptr_t)at;
    if (type == 2 && !managed) to->on_host = NULL;
    return CUDA_SUCCESS;
}
PASS(cudaPointerGetAttributes, (struct where *to, const void *at), where(to, at))

PASS(cudaDeviceGetDefaultMemPool, (CUmemoryPool *to, int card),
     CU(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool", 11020)(to, card))
PASS(cudaMemPoolGetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
     CU(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020)(pool, which, value))
PASS(cudaMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute which, void *value),
     CU(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020)(pool, which, value))
PASS(cudaMemPoolSetAccess, (CUmemoryPool pool, const CUmemAccessDesc *list, size_t count),
     CU(cuMemPoolSetAccess, "cuMemPoolSetAccess", 11020)(pool, list, count))
PASS(cudaMemPoolTrimTo, (CUmemoryPool pool, size_t keep), CU(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020)(pool, keep))

PASS(cudaIpcGetMemHandle, (CUipcMemHandle *to, void *at), CU(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010)(to, IN(at)))
PASS(cudaIpcOpenMemHandle, (void **to, CUipcMemHandle handle, unsigned flags),
     CU(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000)((CUdeviceptr *)to, handle, flags))
PASS(cudaIpcCloseMemHandle, (void *at), CU(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010)(IN(at)))
PASS(cudaIpcGetEventHandle, (CUipcEventHandle *to, CUevent event),
     CU(cuIpcGetEventHandle, "cuIpcGetEventHandle", 4010)(to, event))
PASS(cudaIpcOpenEventHandle, (CUevent *to, CUipcEventHandle handle),
     CU(cuIpcOpenEventHandle, "cuIpcOpenEventHandle", 4010)(to, handle))
