/* Arrays. The driver does not say what an array takes: whole granules of what it holds. */
#include "memory.h"

/* Of CUDA_ARRAY3D_DESCRIPTOR.Flags: memory is mapped into it later; Depth counts layers. */
enum { SPARSE = 0x40, DEFERRED = 0x80, LAYERED = 0x01, CUBEMAP = 0x04 };

static uint64_t element_bytes(CUarray_format format)
{
    switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: return 4;
    default: return 8; /* packed and compressed ones: not more than that for each channel */
    }
}

static uint64_t times(uint64_t left, uint64_t right)
{
    uint64_t product;
    return __builtin_mul_overflow(left, right, &product) ? UINT64_MAX : product;
}

static uint64_t one(uint64_t extent)
{
    return extent ? extent : 1;
}

/* Bytes of `levels` levels, each half as wide, high and deep as the one before, or of as many layers. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
    if (shape->Flags & (SPARSE | DEFERRED))
        return 0;
    const bool layers = shape->Flags & (LAYERED | CUBEMAP);
    uint64_t width = one(shape->Width), height = one(shape->Height), depth = one(shape->Depth), sum = 0;
    for (unsigned i = 0; i < levels; i++) {
        sum = egpu_add(sum, times(times(times(width, height), depth),
                                  element_bytes(shape->Format) * one(shape->NumChannels)));
        if (width == 1 && height == 1 && (depth == 1 || layers))
            break;
        width = one(width / 2);
        height = one(height / 2);
        depth = layers ? depth : one(depth / 2);
    }
    return egpu_round(sum);
}

/* Charges, makes by `call`, and keeps what `made` then points to. */
#define MAKE(made, what, bytes_wanted, call, unmake)                                                              \
    do {                                                                                                          \
        const int card = egpu_charged_current();                                                                  \
        const uint64_t bytes = (bytes_wanted);                                                                    \
        CUresult result = egpu_charge(card, bytes, 0);                                                            \
        if (result != CUDA_SUCCESS)                                                                               \
            return result;                                                                                        \
        result = (call);                                                                                          \
        if (result != CUDA_SUCCESS || card < 0) {                                                                 \
            egpu_discharge(card, bytes, 0);                                                                       \
            return result;                                                                                        \
        }                                                                                                         \
        if (egpu_put(&(struct egpu_track){.key = (uint64_t)(uintptr_t)*(made), .kind = (what), .card = card,      \
                                          .bytes = bytes, .context = egpu_current_context(), .shared = -1,        \
                                          .references = 1}))                                                      \
            return result;                                                                                        \
        unmake(*(made));                                                                                          \
        egpu_discharge(card, bytes, 0);                                                                           \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                                          \
    } while (0)

EGPU_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
    EGPU_DRIVER(real, cuArrayCreate_v2);
    if (!array || !shape)
        return real->cuArrayCreate_v2(array, shape);
    const CUDA_ARRAY3D_DESCRIPTOR full = {shape->Width, shape->Height, 0, shape->Format, shape->NumChannels, 0};
    MAKE(array, EGPU_ARRAY, bytes_of(&full, 1), real->cuArrayCreate_v2(array, shape), real->cuArrayDestroy);
}

EGPU_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
    EGPU_DRIVER(real, cuArray3DCreate_v2);
    if (!array || !shape)
        return real->cuArray3DCreate_v2(array, shape);
    MAKE(array, EGPU_ARRAY, bytes_of(shape, 1), real->cuArray3DCreate_v2(array, shape), real->cuArrayDestroy);
}

/* As programs from before CUDA 3.2 describe arrays. */
struct old_shape { unsigned width, height; CUarray_format format; unsigned channels; };
struct old_shape3 { unsigned width, height, depth; CUarray_format format; unsigned channels, flags; };

EGPU_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
    EGPU_DRIVER(real, cuArrayCreate);
    if (!array || !shape)
        return real->cuArrayCreate(array, shape);
    const struct old_shape *old = (const struct old_shape *)(const void *)shape;
    const CUDA_ARRAY3D_DESCRIPTOR full = {old->width, old->height, 0, old->format, old->channels, 0};
    MAKE(array, EGPU_ARRAY, bytes_of(&full, 1), real->cuArrayCreate(array, shape), real->cuArrayDestroy);
}

EGPU_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
    EGPU_DRIVER(real, cuArray3DCreate);
    if (!array || !shape)
        return real->cuArray3DCreate(array, shape);
    const struct old_shape3 *old = (const struct old_shape3 *)(const void *)shape;
    const CUDA_ARRAY3D_DESCRIPTOR full = {old->width, old->height, old->depth, old->format, old->channels, old->flags};
    MAKE(array, EGPU_ARRAY, bytes_of(&full, 1), real->cuArray3DCreate(array, shape), real->cuArrayDestroy);
}

EGPU_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                                            unsigned levels)
{
    EGPU_DRIVER(real, cuMipmappedArrayCreate);
    if (!array || !shape)
        return real->cuMipmappedArrayCreate(array, shape, levels);
    MAKE(array, EGPU_MIPMAP, bytes_of(shape, levels), real->cuMipmappedArrayCreate(array, shape, levels),
         real->cuMipmappedArrayDestroy);
}

EGPU_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    EGPU_DRIVER(real, cuArrayDestroy);
    struct egpu_track track;
    const bool known = egpu_take(EGPU_ARRAY, (uint64_t)(uintptr_t)array, &track);
    CUresult result = real->cuArrayDestroy(array);
    if (known && result == CUDA_SUCCESS)
        egpu_end_track(&track);
    else if (known)
        egpu_put(&track);
    return result;
}

EGPU_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    EGPU_DRIVER(real, cuMipmappedArrayDestroy);
    struct egpu_track track;
    const bool known = egpu_take(EGPU_MIPMAP, (uint64_t)(uintptr_t)array, &track);
    CUresult result = real->cuMipmappedArrayDestroy(array);
    if (known && result == CUDA_SUCCESS)
        egpu_end_track(&track);
    else if (known)
        egpu_put(&track);
    return result;
}
