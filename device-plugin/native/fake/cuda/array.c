/* Arrays: device memory without an address. */
#include "driver.h"

#include <stdlib.h>

struct CUarray_st {
    uint32_t magic;
    CUDA_ARRAY3D_DESCRIPTOR shape;
    CUcontext context;
    size_t charged;
    bool level; /* of a mipmapped array, which owns the memory */
};

struct CUmipmappedArray_st {
    uint32_t magic;
    unsigned count;
    size_t charged;
    CUcontext context;
    struct CUarray_st levels[16];
};

enum { LAYERED = 1, CUBEMAP = 4 }; /* of Flags: Depth counts layers, of which each level has all */

static unsigned width_of(CUarray_format format) {
    switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8: case CU_AD_FORMAT_SIGNED_INT8: return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16: case CU_AD_FORMAT_SIGNED_INT16: case CU_AD_FORMAT_HALF: return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32: case CU_AD_FORMAT_SIGNED_INT32: case CU_AD_FORMAT_FLOAT: return 4;
        default: return 0;
    }
}

/* 0: not a shape of an array. Rows are padded to 512 bytes. */
static size_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    size_t element = width_of(shape->Format) * (size_t)shape->NumChannels;
    if (!element || !shape->Width || shape->NumChannels > 4 || shape->NumChannels == 3) return 0;
    if (shape->Width > 131072 || shape->Height > 131072 || shape->Depth > 16384) return 0;
    size_t row = (shape->Width * element + 511) & ~(size_t)511;
    return row * (shape->Height ? shape->Height : 1) * (shape->Depth ? shape->Depth : 1);
}

static CUresult create(CUarray *to, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    CUcontext context;
    TRY(current(&context));
    TRY(capture_forbids());
    size_t bytes = to && shape ? bytes_of(shape) : 0;
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    CUarray array = calloc(1, sizeof *array);
    if (!array) return CUDA_ERROR_OUT_OF_MEMORY;
    *array = (struct CUarray_st){.magic = MAGIC_ARRAY, .shape = *shape, .context = context, .charged = granules(bytes)};
    CUresult result = charge(context->card, array->charged);
    if (result != CUDA_SUCCESS) {
        free(array);
        return result;
    }
    context->charged += array->charged; /* goes with the context at the latest */
    *to = array;
    return CUDA_SUCCESS;
}

API CUresult cuArrayCreate_v2(CUarray *to, const CUDA_ARRAY_DESCRIPTOR *flat) {
    ENTER();
    if (!flat) return CUDA_ERROR_INVALID_VALUE;
    CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = flat->Width, .Height = flat->Height, .Format = flat->Format,
                                     .NumChannels = flat->NumChannels};
    return create(to, &shape);
}

API CUresult cuArray3DCreate_v2(CUarray *to, const CUDA_ARRAY3D_DESCRIPTOR *shape) {
    ENTER();
    return create(to, shape);
}

static void release(CUcontext context, size_t bytes) {
    if (context->magic != MAGIC_CONTEXT) return;
    context->charged -= bytes;
    discharge(context->card, bytes);
}

static CUresult array_of(CUarray array) {
    return array && array->magic == MAGIC_ARRAY ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuArrayDestroy(CUarray array) {
    ENTER();
    TRY(array_of(array));
    if (array->level) return CUDA_ERROR_INVALID_HANDLE;
    release(array->context, array->charged);
    array->magic = MAGIC_DEAD;
    free(array);
    return CUDA_SUCCESS;
}

API CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *to, CUarray array) {
    ENTER();
    TRY(array_of(array));
    *to = array->shape;
    return CUDA_SUCCESS;
}

API CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *to, CUarray array) {
    ENTER();
    TRY(array_of(array));
    *to = (CUDA_ARRAY_DESCRIPTOR){array->shape.Width, array->shape.Height, array->shape.Format, array->shape.NumChannels};
    return CUDA_SUCCESS;
}

API CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *to, CUarray array, CUdevice device) {
    struct visible_card *card;
    ENTER();
    TRY(array_of(array));
    TRY(card_of(device, &card));
    *to = (CUDA_ARRAY_MEMORY_REQUIREMENTS){.size = array->charged, .alignment = FC_GRANULE};
    return CUDA_SUCCESS;
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *to, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    if (!to || !shape || !levels || !bytes_of(shape)) return CUDA_ERROR_INVALID_VALUE;
    CUmipmappedArray pyramid = calloc(1, sizeof *pyramid);
    if (!pyramid) return CUDA_ERROR_OUT_OF_MEMORY;
    pyramid->magic = MAGIC_ARRAY;
    pyramid->context = context;
    CUDA_ARRAY3D_DESCRIPTOR level = *shape;
    size_t bytes = 0;
    while (pyramid->count < levels && pyramid->count < 16) {
        pyramid->levels[pyramid->count++] = (struct CUarray_st){.magic = MAGIC_ARRAY, .shape = level, .context = context,
                                                                .level = true};
        bytes += bytes_of(&level);
        level.Width = level.Width > 1 ? level.Width / 2 : level.Width;
        level.Height = level.Height > 1 ? level.Height / 2 : level.Height;
        if (!(level.Flags & (LAYERED | CUBEMAP))) level.Depth = level.Depth > 1 ? level.Depth / 2 : level.Depth;
    }
    pyramid->charged = granules(bytes);
    CUresult result = charge(context->card, pyramid->charged);
    if (result != CUDA_SUCCESS) {
        free(pyramid);
        return result;
    }
    context->charged += pyramid->charged;
    *to = pyramid;
    return CUDA_SUCCESS;
}

API CUresult cuMipmappedArrayGetLevel(CUarray *to, CUmipmappedArray pyramid, unsigned level) {
    ENTER();
    if (!pyramid || pyramid->magic != MAGIC_ARRAY) return CUDA_ERROR_INVALID_HANDLE;
    if (level >= pyramid->count) return CUDA_ERROR_INVALID_VALUE;
    *to = &pyramid->levels[level];
    return CUDA_SUCCESS;
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray pyramid) {
    ENTER();
    if (!pyramid || pyramid->magic != MAGIC_ARRAY) return CUDA_ERROR_INVALID_HANDLE;
    release(pyramid->context, pyramid->charged);
    pyramid->magic = MAGIC_DEAD;
    free(pyramid);
    return CUDA_SUCCESS;
}
