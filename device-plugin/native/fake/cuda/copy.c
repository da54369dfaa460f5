/* Copies and sets. What they do to memory is done when they are called, in the order of the program; the time it
 * takes is a unit of the stream. */
#include "driver.h"
#include "graph.h"

#include <string.h>

/* 1.5 TB/s on the card and 24 GB/s over the bus, on top of what any copy costs. */
uint64_t copy_ns(size_t bytes, bool over_bus) {
    return over_bus ? 4000 + bytes / 24 : 2000 + bytes / 1500;
}

static bool on_card(CUdeviceptr pointer) {
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool device = block && block->kind != BLOCK_HOST && block->kind != BLOCK_REGISTERED;
    pthread_mutex_unlock(&driver.lock);
    return device;
}

static bool pinned(CUdeviceptr pointer) {
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    pthread_mutex_unlock(&driver.lock);
    return block != NULL;
}

static CUresult in_range(CUdeviceptr pointer, size_t bytes) {
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool fits = !block || block->kind == BLOCK_MAPPED ||
                pointer - block->base + bytes <= block->bytes;
    pthread_mutex_unlock(&driver.lock);
    return fits && pointer ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult copy_range(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle, bool wait) {
    CUstream stream;
    TRY(stream_of(handle, &stream));
    if (!bytes) return CUDA_SUCCESS;
    TRY(in_range(to, bytes));
    TRY(in_range(from, bytes));
    bool device = on_card(to) && on_card(from);
    if (stream->capture) {
        if (wait) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = {to, from, bytes, device}};
        return capture_add(stream, &content);
    }
    if (wait) TRY(capture_forbids());
    /* Work before it in the stream may still write what is read: effects are in the program's order already. */
    content_copy(to, from, bytes);
    managed_touch(device ? to : 0, bytes, stream->context->card);
    TRY(submit(stream, device ? FC_COPY_DEVICE : FC_COPY_HOST, copy_ns(bytes, !device), NULL, NULL));
    /* Copies from and to pageable memory are not asynchronous. */
    if (wait && device) return CUDA_SUCCESS;
    return wait || !pinned(to) || !pinned(from) ? stream_drain(stream) : CUDA_SUCCESS;
}

static CUresult entered_copy(const char *name, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, bool wait) {
    TRY(enter(name));
    return copy_range(to, from, bytes, stream, wait);
}
#define COPY(to, from, wait) entered_copy(__func__, (CUdeviceptr)(to), (CUdeviceptr)(from), bytes, stream, wait)

EXPORT_TDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), COPY(to, from, true))
EXPORT_TDS(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes), COPY(to, from, true))
EXPORT_TDS(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes), COPY(to, from, true))
EXPORT_TDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), COPY(to, from, true))
EXPORT_TSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), COPY(to, from, false))
EXPORT_TSZ(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), COPY(to, from, false))
EXPORT_TSZ(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), COPY(to, from, false))
EXPORT_TSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), COPY(to, from, false))
EXPORT_TDS(cuMemcpyPeer, (CUdeviceptr to, CUcontext target, CUdeviceptr from, CUcontext source, size_t bytes),
           ((void)target, (void)source, COPY(to, from, true)))
EXPORT_TSZ(cuMemcpyPeerAsync,
           (CUdeviceptr to, CUcontext target, CUdeviceptr from, CUcontext source, size_t bytes, CUstream stream),
           ((void)target, (void)source, COPY(to, from, false)))

/* --- copies of rectangles and boxes: row by row ------------------------------------------------- */
struct side { CUdeviceptr at; size_t pitch, height; bool device; };

static CUresult side_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, struct side *side) {
    side->device = type != CU_MEMORYTYPE_HOST;
    if (type == CU_MEMORYTYPE_HOST) side->at = (CUdeviceptr)host;
    else if (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) side->at = device;
    else if (type == CU_MEMORYTYPE_ARRAY) return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE; /* no content kept */
    else return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEMORYTYPE_UNIFIED) side->device = on_card(device);
    return side->at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_box(const CUDA_MEMCPY3D *box, CUstream handle, bool wait) {
    CUstream stream;
    struct side from = {0}, to = {0};
    if (!box) return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &stream));
    TRY(side_of(box->srcMemoryType, box->srcHost, box->srcDevice, box->srcArray, &from));
    TRY(side_of(box->dstMemoryType, box->dstHost, box->dstDevice, box->dstArray, &to));
    size_t bytes = box->WidthInBytes * box->Height * box->Depth;
    bool device = from.device && to.device;
    if (stream->capture) {
        if (wait) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = {0, 0, bytes, device}};
        content.copy_parameters = *box;
        return capture_add(stream, &content);
    }
    from.pitch = box->srcPitch ? box->srcPitch : box->WidthInBytes;
    to.pitch = box->dstPitch ? box->dstPitch : box->WidthInBytes;
    from.height = box->srcHeight ? box->srcHeight : box->Height;
    to.height = box->dstHeight ? box->dstHeight : box->Height;
    for (size_t z = 0; from.at && to.at && z < box->Depth; z++) {
        for (size_t y = 0; y < box->Height; y++) {
            content_copy(to.at + ((box->dstZ + z) * to.height + box->dstY + y) * to.pitch + box->dstXInBytes,
                         from.at + ((box->srcZ + z) * from.height + box->srcY + y) * from.pitch + box->srcXInBytes,
                         box->WidthInBytes);
        }
    }
    if (!bytes) return CUDA_SUCCESS;
    TRY(submit(stream, device ? FC_COPY_DEVICE : FC_COPY_HOST, copy_ns(bytes, !device), NULL, NULL));
    return wait && !device ? stream_drain(stream) : CUDA_SUCCESS;
}

static CUresult copy_2d(const char *name, const CUDA_MEMCPY2D *flat, CUstream stream, bool wait) {
    TRY(enter(name));
    if (!flat) return CUDA_ERROR_INVALID_VALUE;
    CUDA_MEMCPY3D box = {
        .srcXInBytes = flat->srcXInBytes, .srcY = flat->srcY, .srcMemoryType = flat->srcMemoryType,
        .srcHost = flat->srcHost, .srcDevice = flat->srcDevice, .srcArray = flat->srcArray, .srcPitch = flat->srcPitch,
        .dstXInBytes = flat->dstXInBytes, .dstY = flat->dstY, .dstMemoryType = flat->dstMemoryType,
        .dstHost = flat->dstHost, .dstDevice = flat->dstDevice, .dstArray = flat->dstArray, .dstPitch = flat->dstPitch,
        .WidthInBytes = flat->WidthInBytes, .Height = flat->Height, .Depth = 1,
    };
    return copy_box(&box, stream, wait);
}
EXPORT_TDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *flat), copy_2d(__func__, flat, stream, true))
EXPORT_TDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *flat), copy_2d(__func__, flat, stream, true))
EXPORT_TSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *flat, CUstream stream), copy_2d(__func__, flat, stream, false))

static CUresult copy_3d(const char *name, const void *box, CUstream stream, bool wait) {
    TRY(enter(name));
    return copy_box(box, stream, wait);
}
EXPORT_TDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *box), copy_3d(__func__, box, stream, true))
EXPORT_TSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *box, CUstream stream), copy_3d(__func__, box, stream, false))
EXPORT_TDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *box), copy_3d(__func__, box, stream, true))
EXPORT_TSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *box, CUstream stream), copy_3d(__func__, box, stream, false))

/* --- sets --------------------------------------------------------------------------------------- */
static CUresult fill(const char *name, CUdeviceptr to, uint64_t value, unsigned width, size_t count, CUstream handle) {
    CUstream stream;
    TRY(enter(name));
    TRY(stream_of(handle, &stream));
    if (to % width || count > SIZE_MAX / 4) return CUDA_ERROR_INVALID_VALUE;
    if (!count) return CUDA_SUCCESS;
    TRY(in_range(to, width * count));
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = {to, value, width, count}};
        return capture_add(stream, &content);
    }
    content_fill(to, value, width, count);
    managed_touch(to, width * count, stream->context->card);
    return submit(stream, FC_MEMSET, copy_ns(width * count, false), NULL, NULL);
}

static CUresult fill_2d(const char *name, CUdeviceptr to, size_t pitch, uint64_t value, unsigned width, size_t columns,
                        size_t rows, CUstream handle) {
    if (rows && pitch == columns * width) return fill(name, to, value, width, columns * rows, handle);
    CUstream stream;
    TRY(enter(name));
    TRY(stream_of(handle, &stream));
    if (to % width || pitch < columns * width) return CUDA_ERROR_INVALID_VALUE;
    if (!rows || !columns) return CUDA_SUCCESS;
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill = {to, value, width, columns}};
        return capture_add(stream, &content);
    }
    for (size_t y = 0; y < rows; y++) content_fill(to + y * pitch, value, width, columns);
    return submit(stream, FC_MEMSET, copy_ns(width * columns * rows, false), NULL, NULL);
}

#define SETS(bits, type)                                                                                             \
    EXPORT_TDS(cuMemsetD##bits##_v2, (CUdeviceptr to, type value, size_t count),                                     \
               fill(__func__, to, value, bits / 8, count, stream))                                                   \
    EXPORT_TSZ(cuMemsetD##bits##Async, (CUdeviceptr to, type value, size_t count, CUstream stream),                  \
               fill(__func__, to, value, bits / 8, count, stream))                                                   \
    EXPORT_TDS(cuMemsetD2D##bits##_v2, (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows),      \
               fill_2d(__func__, to, pitch, value, bits / 8, columns, rows, stream))                                 \
    EXPORT_TSZ(cuMemsetD2D##bits##Async,                                                                             \
               (CUdeviceptr to, size_t pitch, type value, size_t columns, size_t rows, CUstream stream),             \
               fill_2d(__func__, to, pitch, value, bits / 8, columns, rows, stream))
SETS(8, unsigned char)
SETS(16, unsigned short)
SETS(32, unsigned)
