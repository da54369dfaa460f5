/* Ways to a card that programs of today seldom take: contexts of graphics programs, green contexts, memory of other
 * interfaces, compressed data. */
#include "driver.h"

#include <stdlib.h>
#include <unistd.h>

/* --- contexts of programs that draw: plain ones here ---------------------------------------------- */
API CUresult cuGLCtxCreate_v2(CUcontext *to, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(to, flags, device);
}

API CUresult cuGLCtxCreate(CUcontext *to, unsigned flags, CUdevice device) {
    return cuCtxCreate_v2(to, flags, device);
}

API CUresult cuVDPAUCtxCreate_v2(CUcontext *to, unsigned flags, CUdevice device, unsigned vdpau, void *look_up) {
    (void)vdpau, (void)look_up;
    return cuCtxCreate_v2(to, flags, device);
}

API CUresult cuVDPAUCtxCreate(CUcontext *to, unsigned flags, CUdevice device, unsigned vdpau, void *look_up) {
    return cuVDPAUCtxCreate_v2(to, flags, device, vdpau, look_up);
}

/* --- green contexts: each retains the device's primary one, and has a handle and streams of its own; all of them have
 * the whole card ---------- */
enum { MAGIC_GREEN = 0x4752454e };
struct CUgreenCtx_st {
    uint32_t magic;
    CUdevice device;
    CUcontext context;
};

CUresult cuDevResourceGenerateDesc(void *to, void *resources, unsigned count);
CUresult cuCtxFromGreenCtx(CUcontext *to, CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *to, CUgreenCtx green, unsigned flags, int priority);

API CUresult cuDevResourceGenerateDesc(void *to, void *resources, unsigned count) {
    static char whole;
    ENTER();
    if (!to || !resources || !count) return CUDA_ERROR_INVALID_VALUE;
    *(void **)to = &whole;
    return CUDA_SUCCESS;
}

API CUresult cuGreenCtxCreate(CUgreenCtx *to, CUdevResourceDesc resources, CUdevice device, unsigned flags) {
    ENTER();
    if (!to || !resources || flags > 1) return CUDA_ERROR_INVALID_VALUE;
    CUgreenCtx green = calloc(1, sizeof *green);
    if (!green) return CUDA_ERROR_OUT_OF_MEMORY;
    *green = (struct CUgreenCtx_st){.magic = MAGIC_GREEN, .device = device};
    CUcontext primary;
    CUresult result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result == CUDA_SUCCESS) {
        result = context_green(primary, &green->context);
        if (result != CUDA_SUCCESS) cuDevicePrimaryCtxRelease_v2(device);
    }
    if (result != CUDA_SUCCESS) free(green);
    else *to = green;
    return result;
}

static CUresult green_of(CUgreenCtx green) {
    return green && green->magic == MAGIC_GREEN ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuGreenCtxDestroy(CUgreenCtx green) {
    ENTER();
    TRY(green_of(green));
    green->magic = MAGIC_DEAD;
    context_green_gone(green->context);
    return cuDevicePrimaryCtxRelease_v2(green->device);
}

API CUresult cuCtxFromGreenCtx(CUcontext *to, CUgreenCtx green) {
    ENTER();
    TRY(green_of(green));
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    *to = green->context;
    return CUDA_SUCCESS;
}

API CUresult cuGreenCtxStreamCreate(CUstream *to, CUgreenCtx green, unsigned flags, int priority) {
    ENTER();
    TRY(green_of(green));
    if (!to || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    return stream_new(green->context, flags, priority, to);
}

/* --- memory of another interface: it was taken there, and only comes into sight here --------------- */
enum { MAGIC_EXTERNAL = 0x45585431 };
struct CUextMemory_st {
    uint32_t magic;
    CUcontext context;
    size_t bytes;
    int kept; /* a DMA-BUF, which stays open as long as this is; else -1 */
};

API CUresult cuImportExternalMemory(CUexternalMemory *to, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what) {
    ENTER_CONTEXT(context);
    enum { OPAQUE_FILE = 1, DMA_BUF_FILE = 9 };
    if (!to || !what || !what->size) return CUDA_ERROR_INVALID_VALUE;
    const bool shared = what->type == DMA_BUF_FILE;
    if (!shared && what->type != OPAQUE_FILE) return CUDA_ERROR_INVALID_VALUE;
    CUexternalMemory memory = calloc(1, sizeof *memory);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct CUextMemory_st){.magic = MAGIC_EXTERNAL, .context = context, .bytes = what->size,
                                      .kept = shared ? what->handle.fd : -1};
    if (!shared) close(what->handle.fd); /* the driver's from now on */
    *to = memory;
    return CUDA_SUCCESS;
}

API CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *to, CUexternalMemory memory,
                                             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *part) {
    ENTER();
    if (!memory || memory->magic != MAGIC_EXTERNAL) return CUDA_ERROR_INVALID_HANDLE;
    if (!to || !part || part->offset > memory->bytes || part->size > memory->bytes - part->offset)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = space_take(part->size), .bytes = part->size, .kind = BLOCK_DEVICE,
                          .context = memory->context, .device = memory->context->device};
    bool added = block.base && block_add(block);
    pthread_mutex_unlock(&driver.lock);
    *to = block.base;
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuDestroyExternalMemory(CUexternalMemory memory) {
    ENTER();
    if (!memory || memory->magic != MAGIC_EXTERNAL) return CUDA_ERROR_INVALID_HANDLE;
    memory->magic = MAGIC_DEAD;
    if (memory->kept >= 0) close(memory->kept);
    return CUDA_SUCCESS;
}
