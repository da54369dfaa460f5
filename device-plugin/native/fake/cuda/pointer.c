/* What the driver says about pointers, and advice on managed memory. */
#include "driver.h"

#include <string.h>

#define SAY(type, value)                       \
    do {                                       \
        type said_ = (type)(value);            \
        memcpy(to, &said_, sizeof said_);      \
        return CUDA_SUCCESS;                   \
    } while (0)

static CUresult say(void *to, CUpointer_attribute which, CUdeviceptr pointer, const struct block *block) {
    bool host = block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED;
    switch (which) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: SAY(CUcontext, block->kind == BLOCK_MAPPED ? NULL : block->context);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: SAY(unsigned, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: SAY(CUdeviceptr, pointer);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (!host && block->kind != BLOCK_MANAGED) return CUDA_ERROR_INVALID_VALUE;
            SAY(void *, pointer);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: SAY(unsigned char, 0);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: SAY(unsigned long long, block->id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: SAY(unsigned char, block->kind == BLOCK_MANAGED);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: SAY(int, block->device);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: SAY(unsigned char, block->kind == BLOCK_DEVICE);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: SAY(CUdeviceptr, block->base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: SAY(size_t, block->bytes);
        case CU_POINTER_ATTRIBUTE_MAPPED: SAY(unsigned char, 1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: SAY(unsigned long long, 0);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: SAY(CUmemoryPool, block->pool);
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API CUresult cuPointerGetAttribute(void *to, CUpointer_attribute which, CUdeviceptr pointer) {
    ENTER();
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    CUresult result = block ? say(to, which, pointer, block) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Unknown pointers are no error here: they are answered with nothing. */
API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **to, CUdeviceptr pointer) {
    ENTER();
    if (!which || !to) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    for (unsigned i = 0; i < count; i++) {
        if (block && say(to[i], which[i], pointer, block) == CUDA_SUCCESS) continue;
        size_t bytes = which[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE || which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? 4
                       : which[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED || which[i] == CU_POINTER_ATTRIBUTE_MAPPED ||
                                 which[i] == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
                                 which[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ? 1 : 8;
        memset(to[i], 0, bytes);
        if (which[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) memset(to[i], 0xff, 4);
    }
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute which, CUdeviceptr pointer) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    bool known = value && block_at(pointer);
    pthread_mutex_unlock(&driver.lock);
    return known && which == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- managed memory ----------------------------------------------------------------------------- */
static CUresult managed(CUdeviceptr pointer, size_t bytes) {
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool fits = block && block->kind == BLOCK_MANAGED && pointer - block->base + bytes <= block->bytes;
    pthread_mutex_unlock(&driver.lock);
    return fits && bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult advise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
    struct visible_card *card;
    TRY(managed(pointer, bytes));
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY) return CUDA_ERROR_INVALID_VALUE;
    bool about_place = advice >= CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    return about_place && device != CU_DEVICE_CPU ? card_of(device, &card) : CUDA_SUCCESS;
}

API CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUdevice device) {
    ENTER();
    return advise(pointer, bytes, advice, device);
}

API CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, CUmem_advise advice, CUmemLocation place) {
    ENTER();
    return advise(pointer, bytes, advice, place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU);
}

/* To a card: as much of it as fits becomes resident. To the host: none is. */
static CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream handle) {
    CUstream stream;
    struct visible_card *card;
    TRY(enter("cuMemPrefetchAsync"));
    TRY(stream_of(handle, &stream));
    TRY(managed(pointer, bytes));
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pthread_mutex_lock(&driver.lock);
    if (device == CU_DEVICE_CPU) {
        struct block *block = block_at(pointer);
        size_t less = bytes < block->resident ? bytes : block->resident;
        fc_lock(driver.s, driver.slot);
        uint64_t *resident = &driver.s->processes[driver.slot].use[block->context->card].managed_resident;
        *resident -= less < *resident ? less : *resident;
        block->resident -= less;
        fc_unlock(driver.s);
    } else if (card_of(device, &card) == CUDA_SUCCESS) {
        managed_touch(pointer, bytes, card->index);
    }
    pthread_mutex_unlock(&driver.lock);
    return submit(stream, FC_COPY_HOST, copy_ns(bytes, true), NULL, NULL);
}
EXPORT_TSZ(cuMemPrefetchAsync, (CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream),
           prefetch(pointer, bytes, device, stream))
EXPORT_TSZ(cuMemPrefetchAsync_v2,
           (CUdeviceptr pointer, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream),
           flags ? CUDA_ERROR_INVALID_VALUE
                 : prefetch(pointer, bytes, place.type == CU_MEM_LOCATION_TYPE_DEVICE ? place.id : CU_DEVICE_CPU, stream))

static CUresult attach(CUdeviceptr pointer, unsigned flags, CUstream handle) {
    CUstream stream;
    TRY(enter("cuStreamAttachMemAsync"));
    TRY(stream_of(handle, &stream));
    return flags && flags <= CU_MEM_ATTACH_SINGLE ? managed(pointer, 1) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT_TSZ(cuStreamAttachMemAsync, (CUstream stream, CUdeviceptr pointer, size_t bytes, unsigned flags),
           ((void)bytes, attach(pointer, flags, stream)))
