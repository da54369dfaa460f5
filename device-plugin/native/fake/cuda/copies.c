/* Copies that come in batches, and those from and to arrays: these keep no content, and only take their time. */
#include "driver.h"
#include "graph.h"

static CUresult batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, size_t *failed, CUstream handle) {
    CUstream stream;
    TRY(enter("cuMemcpyBatchAsync"));
    TRY(stream_of(handle, &stream));
    if (failed) *failed = SIZE_MAX;
    if (!to || !from || !bytes || !count) return CUDA_ERROR_INVALID_VALUE;
    if (stream == &stream->context->null || stream->capture) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = copy_range(to[i], from[i], bytes[i], stream, false);
        if (result == CUDA_SUCCESS) continue;
        if (failed) *failed = i;
        return result;
    }
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuMemcpyBatchAsync,
           (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *how, size_t *which,
            size_t kinds, size_t *failed, CUstream stream),
           ((void)how, (void)which, (void)kinds, batch(to, from, bytes, count, failed, stream)))
EXPORT_TSZ(cuMemcpyBatchAsync_v2,
           (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *how, size_t *which,
            size_t kinds, CUstream stream),
           ((void)how, (void)which, (void)kinds, batch(to, from, bytes, count, NULL, stream)))
EXPORT_TSZ(cuMemcpyWithAttributesAsync,
           (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *how, CUstream stream),
           ((void)how, batch(&to, &from, &bytes, 1, NULL, stream)))

/* Time alone: `device` within the card, otherwise over the bus. */
static CUresult spend(CUstream handle, size_t bytes, bool device, bool wait) {
    CUstream stream;
    TRY(stream_of(handle, &stream));
    if (stream->capture) {
        if (wait) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy = {0, 0, bytes, device}};
        return capture_add(stream, &content);
    }
    if (wait) TRY(capture_forbids());
    TRY(submit(stream, device ? FC_COPY_DEVICE : FC_COPY_HOST, copy_ns(bytes, !device), NULL, NULL));
    return wait ? stream_drain(stream) : CUDA_SUCCESS;
}

static CUresult boxes(size_t count, const CUDA_MEMCPY3D_BATCH_OP *boxes, size_t *failed, CUstream stream) {
    TRY(enter("cuMemcpy3DBatchAsync"));
    if (failed) *failed = SIZE_MAX;
    if (!boxes || !count) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = boxes[i].extent.width * boxes[i].extent.height * boxes[i].extent.depth;
        const CUmemcpy3DOperand *to = &boxes[i].dst, *from = &boxes[i].src;
        bool rows = boxes[i].extent.height == 1 && boxes[i].extent.depth == 1 && to->type == 1 && from->type == 1;
        if (rows) TRY(copy_range(to->op.ptr.ptr, from->op.ptr.ptr, bytes, stream, false));
        else TRY(spend(stream, bytes, true, false));
    }
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuMemcpy3DBatchAsync,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags, CUstream stream),
           ((void)flags, boxes(count, list, failed, stream)))
EXPORT_TSZ(cuMemcpy3DBatchAsync_v2,
           (size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream),
           ((void)flags, boxes(count, list, NULL, stream)))
EXPORT_TSZ(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP *box, unsigned long long flags, CUstream stream),
           ((void)flags, boxes(1, box, NULL, stream)))

static CUresult array_copy(const char *name, CUarray array, const void *other, size_t bytes, CUstream stream,
                           bool device, bool wait) {
    TRY(enter(name));
    if (!array || !other) return CUDA_ERROR_INVALID_HANDLE;
    return bytes ? spend(stream, bytes, device, wait) : CUDA_SUCCESS;
}
#define ARRAY(array, other, device, wait) array_copy(__func__, array, (const void *)(other), bytes, stream, device, wait)
EXPORT_TDS(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes), ((void)at, ARRAY(to, from, true, false)))
EXPORT_TDS(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t bytes), ((void)at, ARRAY(from, to, true, false)))
EXPORT_TDS(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t bytes), ((void)at, ARRAY(to, from, false, true)))
EXPORT_TDS(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t bytes), ((void)at, ARRAY(from, to, false, true)))
EXPORT_TDS(cuMemcpyAtoA_v2, (CUarray to, size_t at, CUarray from, size_t start, size_t bytes),
           ((void)at, (void)start, ARRAY(to, from, true, false)))
EXPORT_TSZ(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t bytes, CUstream stream),
           ((void)at, ARRAY(to, from, false, false)))
EXPORT_TSZ(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t bytes, CUstream stream),
           ((void)at, ARRAY(from, to, false, false)))

/* Each piece takes the time of 4 MiB: what its struct says is nobody's business here. */
static CUresult decompress(const void *pieces, size_t count, size_t *failed, CUstream stream) {
    TRY(enter("cuMemBatchDecompressAsync"));
    if (!pieces || !count) return CUDA_ERROR_INVALID_VALUE;
    if (failed) *failed = SIZE_MAX;
    return spend(stream, count << 22, true, false);
}
EXPORT_TSZ(cuMemBatchDecompressAsync,
           (CUmemDecompressParams *pieces, size_t count, unsigned flags, size_t *failed, CUstream stream),
           ((void)flags, decompress(pieces, count, failed, stream)))

/* --- attributes of streams: accepted, and of no effect ------------------------------------------- */
static CUresult attributes(CUstream handle, bool there) {
    CUstream stream;
    TRY(enter("cuStreamSetAttribute"));
    return there ? stream_of(handle, &stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT_TSZ(cuStreamSetAttribute, (CUstream stream, CUstreamAttrID which, const CUstreamAttrValue *value),
           ((void)which, attributes(stream, value)))
EXPORT_TSZ(cuStreamGetAttribute, (CUstream stream, CUstreamAttrID which, CUstreamAttrValue *value),
           ((void)which, value ? (void)(*value = (CUstreamAttrValue){{0}}) : (void)0, attributes(stream, value)))
API CUresult cuStreamCopyAttributes(CUstream to, CUstream from) {
    ENTER();
    CUstream stream;
    TRY(stream_of(to, &stream));
    return stream_of(from, &stream);
}
API CUresult cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
    return cuStreamCopyAttributes(to, from);
}
