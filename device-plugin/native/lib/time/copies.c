/* Memsets, and copies inside a card or between cards. Those to and from the host use no time of the card's own. */
#include "launch.h"

/* --- memsets -------------------------------------------------------------------------------------- */

#define SET(name, Value, bytes)                                                                                  \
    EGPU_UNIT_TDS(name##_v2, (CUdeviceptr to, Value value, size_t count), (to, value, count), NULL,             \
                  egpu_size_key(EGPU_MEMSET, count * bytes))                                                     \
    EGPU_UNIT_TSZ(name##Async, (CUdeviceptr to, Value value, size_t count, CUstream stream),                    \
                  (to, value, count, stream), stream, egpu_size_key(EGPU_MEMSET, count * bytes))                 \
    EGPU_UNIT(name, false, (CUdeviceptr_v1 to, Value value, unsigned count), (to, value, count), NULL,          \
              egpu_size_key(EGPU_MEMSET, (uint64_t)count * bytes))
#define SET_2D(name, Value, bytes)                                                                               \
    EGPU_UNIT_TDS(name##_v2, (CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height),          \
                  (to, pitch, value, width, height), NULL, egpu_size_key(EGPU_MEMSET, width * height * bytes))   \
    EGPU_UNIT_TSZ(name##Async,                                                                                   \
                  (CUdeviceptr to, size_t pitch, Value value, size_t width, size_t height, CUstream stream),    \
                  (to, pitch, value, width, height, stream), stream,                                             \
                  egpu_size_key(EGPU_MEMSET, width * height * bytes))                                            \
    EGPU_UNIT(name, false, (CUdeviceptr_v1 to, unsigned pitch, Value value, unsigned width, unsigned height),   \
              (to, pitch, value, width, height), NULL, egpu_size_key(EGPU_MEMSET, (uint64_t)width * height * bytes))

SET(cuMemsetD8, unsigned char, 1)
SET(cuMemsetD16, unsigned short, 2)
SET(cuMemsetD32, unsigned, 4)
SET_2D(cuMemsetD2D8, unsigned char, 1)
SET_2D(cuMemsetD2D16, unsigned short, 2)
SET_2D(cuMemsetD2D32, unsigned, 4)

/* --- copies whose name says that both ends are on cards ------------------------------------------- */

#define COPY(bytes) egpu_size_key(EGPU_COPY, bytes)

EGPU_UNIT_TDS(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes), NULL, COPY(bytes))
EGPU_UNIT_TSZ(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
              (to, from, bytes, stream), stream, COPY(bytes))
EGPU_UNIT(cuMemcpyDtoD, false, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes), (to, from, bytes), NULL,
          COPY(bytes))
EGPU_UNIT(cuMemcpyDtoDAsync, false, (CUdeviceptr_v1 to, CUdeviceptr_v1 from, unsigned bytes, CUstream stream),
          (to, from, bytes, stream), stream, COPY(bytes))
EGPU_UNIT_TDS(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t bytes), (to, at, from, bytes), NULL,
              COPY(bytes))
EGPU_UNIT_TDS(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t bytes), (to, from, at, bytes), NULL,
              COPY(bytes))
EGPU_UNIT_TDS(cuMemcpyAtoA_v2, (CUarray to, size_t at, CUarray from, size_t from_at, size_t bytes),
              (to, at, from, from_at, bytes), NULL, COPY(bytes))
EGPU_UNIT(cuMemcpyDtoA, false, (CUarray to, unsigned at, CUdeviceptr_v1 from, unsigned bytes), (to, at, from, bytes),
          NULL, COPY(bytes))
EGPU_UNIT(cuMemcpyAtoD, false, (CUdeviceptr_v1 to, CUarray from, unsigned at, unsigned bytes), (to, from, at, bytes),
          NULL, COPY(bytes))
EGPU_UNIT(cuMemcpyAtoA, false, (CUarray to, unsigned at, CUarray from, unsigned from_at, unsigned bytes),
          (to, at, from, from_at, bytes), NULL, COPY(bytes))
EGPU_UNIT_TDS(cuMemcpyPeer, (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes),
              (to, there, from, here, bytes), NULL, COPY(bytes))
EGPU_UNIT_TSZ(cuMemcpyPeerAsync,
              (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream),
              (to, there, from, here, bytes, stream), stream, COPY(bytes))

/* --- copies from the host: with one of them a program that has idled mostly begins ----------------- */

#define PLAIN(name, arguments, values)   \
    EGPU_EXPORT CUresult name arguments { \
        EGPU_DRIVER(real, name);         \
        return real->name values;        \
    }
#define FROM_HOST(name) PLAIN(name, (CUdeviceptr to, const void *from, size_t bytes), (to, from, bytes))
#define FROM_HOST_ASYNC(name) \
    PLAIN(name, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream))

FROM_HOST(cuMemcpyHtoD_v2)
FROM_HOST(cuMemcpyHtoD_v2_ptds)
FROM_HOST_ASYNC(cuMemcpyHtoDAsync_v2)
FROM_HOST_ASYNC(cuMemcpyHtoDAsync_v2_ptsz)
PLAIN(cuMemcpyHtoD, (CUdeviceptr_v1 to, const void *from, unsigned bytes), (to, from, bytes))
PLAIN(cuMemcpyHtoDAsync, (CUdeviceptr_v1 to, const void *from, unsigned bytes, CUstream stream), (to, from, bytes, stream))

/* --- copies that say it themselves ---------------------------------------------------------------- */

static uint64_t extent(CUmemorytype from, CUmemorytype to, uint64_t bytes) {
    return from == CU_MEMORYTYPE_HOST || to == CU_MEMORYTYPE_HOST ? 0 : COPY(bytes);
}
#define EXTENT_2D(copy)                                                      \
    ((copy) ? extent((copy)->srcMemoryType, (copy)->dstMemoryType,           \
                     (uint64_t)(copy)->WidthInBytes * (copy)->Height) : 0)
#define EXTENT_3D(copy)                                                      \
    ((copy) ? extent((copy)->srcMemoryType, (copy)->dstMemoryType,           \
                     (uint64_t)(copy)->WidthInBytes * (copy)->Height * (copy)->Depth) : 0)

EGPU_UNIT_TDS(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *copy), (copy), NULL, EXTENT_2D(copy))
EGPU_UNIT_TDS(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D *copy), (copy), NULL, EXTENT_2D(copy))
EGPU_UNIT_TSZ(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D *copy, CUstream stream), (copy, stream), stream, EXTENT_2D(copy))
EGPU_UNIT_TDS(cuMemcpy3D_v2, (const CUDA_MEMCPY3D *copy), (copy), NULL, EXTENT_3D(copy))
EGPU_UNIT_TSZ(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D *copy, CUstream stream), (copy, stream), stream, EXTENT_3D(copy))
EGPU_UNIT_TDS(cuMemcpy3DPeer, (const CUDA_MEMCPY3D_PEER *copy), (copy), NULL, EXTENT_3D(copy))
EGPU_UNIT_TSZ(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D_PEER *copy, CUstream stream), (copy, stream), stream,
              EXTENT_3D(copy))
EGPU_UNIT(cuMemcpy2D, false, (const CUDA_MEMCPY2D_v1 *copy), (copy), NULL, EXTENT_2D(copy))
EGPU_UNIT(cuMemcpy2DUnaligned, false, (const CUDA_MEMCPY2D_v1 *copy), (copy), NULL, EXTENT_2D(copy))
EGPU_UNIT(cuMemcpy2DAsync, false, (const CUDA_MEMCPY2D_v1 *copy, CUstream stream), (copy, stream), stream,
          EXTENT_2D(copy))
EGPU_UNIT(cuMemcpy3D, false, (const CUDA_MEMCPY3D_v1 *copy), (copy), NULL, EXTENT_3D(copy))
EGPU_UNIT(cuMemcpy3DAsync, false, (const CUDA_MEMCPY3D_v1 *copy, CUstream stream), (copy, stream), stream,
          EXTENT_3D(copy))

/* --- copies between any two addresses -------------------------------------------------------------- */

static bool on_card(const struct egpu_real *real, CUdeviceptr address) {
    unsigned type = CU_MEMORYTYPE_HOST;
    return real->cuPointerGetAttribute != NULL &&
           real->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) == CUDA_SUCCESS &&
           type == CU_MEMORYTYPE_DEVICE;
}
#define ANY(to, from, bytes) (on_card(real, to) && on_card(real, from) ? COPY(bytes) : 0)

EGPU_UNIT_TDS(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes), NULL, ANY(to, from, bytes))
EGPU_UNIT_TSZ(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),
              (to, from, bytes, stream), stream, ANY(to, from, bytes))
EGPU_UNIT_TSZ(cuMemcpyWithAttributesAsync,
              (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *how, CUstream stream),
              (to, from, bytes, how, stream), stream, ANY(to, from, bytes))

/* A list of copies is one unit: as long as all that lie on cards. */
static uint64_t many(const struct egpu_real *real, const CUdeviceptr *to, const CUdeviceptr *from, const size_t *bytes,
                     size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; to && from && bytes && i < count; i++)
        sum = egpu_add(sum, ANY(to[i], from[i], bytes[i]) ? bytes[i] : 0);
    return COPY(sum);
}

EGPU_UNIT_TSZ(cuMemcpyBatchAsync,
              (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *how, size_t *which,
               size_t hows, size_t *failed, CUstream stream),
              (to, from, bytes, count, how, which, hows, failed, stream), stream, many(real, to, from, bytes, count))
EGPU_UNIT_TSZ(cuMemcpyBatchAsync_v2,
              (CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *how, size_t *which,
               size_t hows, CUstream stream),
              (to, from, bytes, count, how, which, hows, stream), stream, many(real, to, from, bytes, count))

static uint64_t many_3d(const CUDA_MEMCPY3D_BATCH_OP *copies, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; copies && i < count; i++)
        sum = egpu_add(sum, copies[i].extent.width * copies[i].extent.height * copies[i].extent.depth);
    return COPY(sum);
}

EGPU_UNIT_TSZ(cuMemcpy3DBatchAsync,
              (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, size_t *failed, unsigned long long flags, CUstream stream),
              (count, copies, failed, flags, stream), stream, many_3d(copies, count))
EGPU_UNIT_TSZ(cuMemcpy3DBatchAsync_v2,
              (size_t count, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags, CUstream stream),
              (count, copies, flags, stream), stream, many_3d(copies, count))
EGPU_UNIT_TSZ(cuMemcpy3DWithAttributesAsync, (CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream),
              (copy, flags, stream), stream, many_3d(copy, 1))

/* --- what else works on a card's memory without a kernel of the program's ---------------------------- */

static uint64_t fabric(const CUDA_FABRIC_COPY_BATCH_OP *copies, size_t count) {
    uint64_t sum = 0;
    for (size_t i = 0; copies && i < count; i++)
        sum = egpu_add(sum, copies[i].size);
    return COPY(sum);
}

EGPU_UNIT_TSZ(cuFabricCpyBatchAsync,
              (size_t count, CUDA_FABRIC_COPY_BATCH_OP *copies, unsigned long long flags, CUstream stream),
              (count, copies, flags, stream), stream, fabric(copies, count))
/* How long it takes is learnt by the number of pieces, whose sizes lie in structs that only the driver reads. */
EGPU_UNIT_TSZ(cuMemBatchDecompressAsync,
              (CUmemDecompressParams *pieces, size_t count, unsigned flags, size_t *failed, CUstream stream),
              (pieces, count, flags, failed, stream), stream, egpu_size_key(EGPU_COPY, egpu_add(count, 1ull << 40)))
