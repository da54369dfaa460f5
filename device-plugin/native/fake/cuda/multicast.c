/* Multicast objects: a write to one goes to the memory that is bound to it on each device of its team. Here nothing goes
 * anywhere; what is bound stays, that is all. */
#include "vmm.h"

#include <stdlib.h>

struct binding {
    CUdevice device;
    size_t at, bytes;
    struct physical *memory;
    struct binding *next;
};

static CUresult object_of(CUmemGenericAllocationHandle handle, struct physical **to) {
    TRY(physical_of(handle, to));
    return (*to)->team_size ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastGetGranularity(size_t *to, const CUmulticastObjectProp *wanted, CUmulticastGranularity_flags option) {
    ENTER();
    if (!to || !wanted || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
    *to = FC_GRANULE;
    return CUDA_SUCCESS;
}

API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *to, const CUmulticastObjectProp *wanted) {
    ENTER();
    if (!to || !wanted || !wanted->numDevices || !wanted->size || wanted->size % FC_GRANULE || wanted->flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct physical *object = calloc(1, sizeof *object);
    if (!object) return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct physical){.magic = MAGIC_PHYSICAL, .card = FC_NONE, .shared = FC_NONE, .bytes = wanted->size,
                                .handles = 1, .fd = -1, .team_size = wanted->numDevices,
                                .properties.requestedHandleTypes = (CUmemAllocationHandleType)wanted->handleTypes};
    *to = (CUmemGenericAllocationHandle)object;
    return CUDA_SUCCESS;
}

API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
    struct physical *object;
    struct visible_card *card;
    ENTER();
    TRY(object_of(handle, &object));
    TRY(card_of(device, &card));
    if (object->team >> device & 1) return CUDA_ERROR_INVALID_VALUE;
    object->team |= 1ull << device;
    return CUDA_SUCCESS;
}

static CUresult bind(CUmemGenericAllocationHandle handle, size_t at, struct physical *memory, size_t bytes) {
    struct physical *object;
    CUresult result = object_of(handle, &object);
    const CUdevice device = memory->properties.location.id;
    if (result != CUDA_SUCCESS) return result;
    if (memory->team_size || memory->card == FC_NONE || !bytes || bytes % FC_GRANULE || at % FC_GRANULE ||
        at > object->bytes || bytes > object->bytes - at || !(object->team >> device & 1))
        return CUDA_ERROR_INVALID_VALUE;
    struct binding *binding = malloc(sizeof *binding);
    if (!binding) return CUDA_ERROR_OUT_OF_MEMORY;
    *binding = (struct binding){device, at, bytes, memory, object->bound};
    object->bound = binding;
    memory->bindings++;
    return CUDA_SUCCESS;
}

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at, CUmemGenericAllocationHandle memory,
                                size_t from, size_t bytes, unsigned long long flags) {
    struct physical *physical;
    ENTER();
    TRY(physical_of(memory, &physical));
    if (flags || from > physical->bytes || bytes > physical->bytes - from) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    CUresult result = bind(object, at, physical, bytes);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                   CUmemGenericAllocationHandle memory, size_t from, size_t bytes, unsigned long long flags) {
    (void)device;
    return cuMulticastBindMem(object, at, memory, from, bytes, flags);
}

API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr pointer, size_t bytes,
                                 unsigned long long flags) {
    ENTER();
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    CUresult result = block && block->kind == BLOCK_MAPPED && block->handle
                          ? bind(object, at, (struct physical *)block->handle, bytes) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at, CUdeviceptr pointer,
                                    size_t bytes, unsigned long long flags) {
    (void)device;
    return cuMulticastBindAddr(object, at, pointer, bytes, flags);
}

API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t at, size_t bytes) {
    struct physical *object;
    ENTER();
    TRY(object_of(handle, &object));
    pthread_mutex_lock(&driver.lock);
    for (struct binding **next = &object->bound; *next;) {
        struct binding *binding = *next;
        if (binding->device != device || binding->at < at || binding->at - at >= bytes) {
            next = &binding->next;
            continue;
        }
        *next = binding->next;
        binding->memory->bindings--;
        physical_settle(binding->memory);
        free(binding);
    }
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

void multicast_gone(struct physical *object) {
    while (object->bound) {
        struct binding *binding = object->bound;
        object->bound = binding->next;
        binding->memory->bindings--;
        physical_settle(binding->memory);
        free(binding);
    }
}
