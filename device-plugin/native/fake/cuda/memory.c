/* Linear, pitched, managed and pinned memory. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SMALL = 1 << 20, CELL = 512, CELLS = (2 << 20) / CELL };

/* Small allocations share granules of 2 MiB; each is given back when it is empty. */
struct chunk {
    CUdeviceptr base;
    unsigned used;
    bool taken[CELLS];
    struct chunk *next;
};

static CUdeviceptr carve(struct chunk *chunk, size_t cells) {
    for (size_t i = 0, run = 0; i < CELLS; i++) {
        run = chunk->taken[i] ? 0 : run + 1;
        if (run < cells) continue;
        memset(&chunk->taken[i + 1 - cells], true, cells);
        chunk->used += (unsigned)cells;
        return chunk->base + (i + 1 - cells) * CELL;
    }
    return 0;
}

static CUresult allocate_small(CUcontext context, size_t bytes, struct block *block) {
    size_t cells = (bytes + CELL - 1) / CELL;
    for (struct chunk *chunk = context->chunks; chunk; chunk = chunk->next) {
        block->base = carve(chunk, cells);
        block->chunk = chunk;
        if (block->base) return CUDA_SUCCESS;
    }
    TRY(charge(context->card, FC_GRANULE));
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (!chunk) return CUDA_ERROR_OUT_OF_MEMORY;
    chunk->base = space_take(FC_GRANULE);
    chunk->next = context->chunks;
    context->chunks = chunk;
    block->base = carve(chunk, cells);
    block->chunk = chunk;
    return CUDA_SUCCESS;
}

static void free_small(CUcontext context, const struct block *block) {
    struct chunk *chunk = block->chunk;
    size_t cells = (block->bytes + CELL - 1) / CELL, first = (block->base - chunk->base) / CELL;
    memset(&chunk->taken[first], false, cells);
    chunk->used -= (unsigned)cells;
    if (chunk->used) return;
    for (struct chunk **at = &context->chunks; *at; at = &(*at)->next) {
        if (*at != chunk) continue;
        *at = chunk->next;
        break;
    }
    space_give(chunk->base, FC_GRANULE);
    discharge(context->card, FC_GRANULE);
    free(chunk);
}

CUresult memory_allocate(CUcontext context, size_t bytes, CUdeviceptr *to) {
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
    if (context->of) context = context->of;
    struct block block = {.bytes = bytes, .kind = BLOCK_DEVICE, .context = context, .device = context->device};
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_SUCCESS;
    if (bytes <= SMALL) {
        result = allocate_small(context, bytes, &block);
    } else {
        block.charged = granules(bytes);
        result = charge(context->card, block.charged);
        if (result == CUDA_SUCCESS) block.base = space_take(bytes);
    }
    if (result == CUDA_SUCCESS && (!block.base || !block_add(block))) result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) *to = block.base;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static void forget_managed(const struct block *block) {
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    struct fc_use *use = &s->processes[driver.slot].use[block->context->card];
    use->managed -= block->bytes < use->managed ? block->bytes : use->managed;
    /* Which bytes others pushed out is not known block by block: never more than there are. */
    if (use->managed_resident > use->managed) use->managed_resident = use->managed;
    fc_unlock(s);
}

/* Under driver.lock. */
static void give_back(struct block block) {
    block_remove(block.base);
    if (block.kind == BLOCK_DEVICE && block.handle) ipc_drop((uint32_t)block.handle - 1);
    if (block.chunk) {
        free_small(block.context, &block);
        return;
    }
    if (block.kind == BLOCK_REGISTERED) return;
    if (block.kind == BLOCK_MANAGED) forget_managed(&block);
    if (block.charged && !dmabuf_keeps(&block)) discharge(block.context->card, block.charged);
    space_give(block.base, block.bytes);
}

bool block_of_context(CUcontext context, CUdeviceptr *base);

void blocks_of_context_gone(CUcontext context) {
    CUdeviceptr base;
    while (block_of_context(context, &base)) {
        struct block block = *block_at(base);
        if (block.kind == BLOCK_IPC) ipc_drop((uint32_t)block.handle - 1);
        if (block.kind == BLOCK_POOL || block.kind == BLOCK_IPC || block.kind == BLOCK_GRAPH) block_remove(base);
        else give_back(block);
    }
}

API CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    return memory_allocate(context, bytes, to);
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *to, unsigned bytes) {
    ENTER();
    (void)to, (void)bytes;
    return CUDA_ERROR_OUT_OF_MEMORY; /* no address here fits into 32 bits */
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *to, size_t *pitch, size_t width, size_t height, unsigned element) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
    if (width > SIZE_MAX / 4) return CUDA_ERROR_OUT_OF_MEMORY;
    *pitch = (width + 511) & ~(size_t)511;
    if (height > SIZE_MAX / 2 / *pitch) return CUDA_ERROR_OUT_OF_MEMORY;
    return memory_allocate(context, *pitch * height, to);
}

API CUresult cuMemAllocManaged(CUdeviceptr *to, size_t bytes, unsigned flags) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    if (!to || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = space_take(bytes), .bytes = bytes, .kind = BLOCK_MANAGED, .context = context,
                          .device = context->device, .flags = flags};
    CUresult result = block.base && block_add(block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver.lock);
    if (result != CUDA_SUCCESS) return result;
    fc_lock(driver.s, driver.slot);
    driver.s->processes[driver.slot].use[context->card].managed += bytes;
    driver.s->processes[driver.slot].cannot_checkpoint |= 1;
    fc_unlock(driver.s);
    *to = block.base;
    return CUDA_SUCCESS;
}

/* Waits for all work of the context, as the real driver does. */
API CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    if (!pointer) return CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at(pointer);
    bool found = block && block->base == pointer &&
                 (block->kind == BLOCK_DEVICE || block->kind == BLOCK_MANAGED || block->kind == BLOCK_POOL);
    bool opened = block && block->base == pointer && block->kind == BLOCK_IPC && block->pool;
    bool pooled = found && block->kind == BLOCK_POOL;
    CUcontext owner = found ? block->context : context;
    pthread_mutex_unlock(&driver.lock);
    if (opened) return cuIpcCloseMemHandle(pointer);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    if (pooled) {
        TRY(cuMemFreeAsync(pointer, CU_STREAM_LEGACY));
        return stream_drain(&owner->null);
    }
    TRY(stream_drain(&owner->null));
    pthread_mutex_lock(&driver.lock);
    block = block_at(pointer);
    if (block && block->base == pointer) give_back(*block);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuMemFree(CUdeviceptr_v1 pointer) {
    return cuMemFree_v2(pointer);
}

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
    ENTER_CONTEXT(context);
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    fc_reap(s, driver.slot, true);
    uint64_t used = fc_used(s, context->card) + driver.cards[context->device].elsewhere;
    uint64_t all = s->cards[context->card].total_bytes, soft, hard;
    uint64_t group = s->groups[driver.slot];
    if (fc_limit_get(s->cards[context->card].uuid, group, &soft, &hard) && hard < all) {
        /* Free is what both the group and the card have left. */
        uint64_t own = fc_used_in(s, context->card, group), left = used < all ? all - used : 0;
        uint64_t rest = own < hard ? hard - own : 0;
        all = hard;
        used = all - (rest < left ? rest : left);
    }
    fc_unlock(s);
    if (available) *available = used < all ? all - used : 0;
    if (total) *total = all;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo(unsigned *available, unsigned *total) {
    size_t wide[2];
    TRY(cuMemGetInfo_v2(&wide[0], &wide[1]));
    *available = wide[0] > UINT32_MAX ? UINT32_MAX : (unsigned)wide[0];
    *total = wide[1] > UINT32_MAX ? UINT32_MAX : (unsigned)wide[1];
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    if (block && base) *base = block->base;
    if (block && bytes) *bytes = block->bytes;
    pthread_mutex_unlock(&driver.lock);
    return block ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* --- pinned memory of the host ------------------------------------------------------------------ */
static CUresult host_allocate(void **to, size_t bytes, unsigned flags) {
    CUcontext context;
    TRY(current(&context));
    TRY(capture_forbids());
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = space_take(bytes), .bytes = bytes, .kind = BLOCK_HOST, .context = context,
                          .device = context->device, .flags = flags};
    CUresult result = block.base && block_add(block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_unlock(&driver.lock);
    if (result == CUDA_SUCCESS) *to = (void *)block.base;
    return result;
}

API CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned flags) {
    ENTER();
    return host_allocate(to, bytes, flags);
}

API CUresult cuMemAllocHost_v2(void **to, size_t bytes) {
    ENTER();
    return host_allocate(to, bytes, 0);
}

API CUresult cuMemAllocHost(void **to, unsigned bytes) {
    ENTER();
    return host_allocate(to, bytes, 0);
}

static CUresult host_remove(void *pointer, enum block_kind kind, CUresult otherwise) {
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at((CUdeviceptr)pointer);
    bool found = block && block->base == (CUdeviceptr)pointer && block->kind == kind;
    if (found) give_back(*block);
    pthread_mutex_unlock(&driver.lock);
    return found ? CUDA_SUCCESS : otherwise;
}

API CUresult cuMemFreeHost(void *pointer) {
    ENTER();
    return host_remove(pointer, BLOCK_HOST, CUDA_ERROR_INVALID_VALUE);
}

API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags) {
    ENTER_CONTEXT(context);
    if (!pointer || !bytes) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    bool taken = block_at((CUdeviceptr)pointer) != NULL;
    struct block block = {.base = (CUdeviceptr)pointer, .bytes = bytes, .kind = BLOCK_REGISTERED, .context = context,
                          .device = context->device, .flags = flags};
    bool added = !taken && block_add(block);
    pthread_mutex_unlock(&driver.lock);
    return taken ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned flags) {
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

API CUresult cuMemHostUnregister(void *pointer) {
    ENTER();
    return host_remove(pointer, BLOCK_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

API CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *pointer, unsigned flags) {
    ENTER();
    (void)flags;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at((CUdeviceptr)pointer);
    bool found = block && (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED);
    pthread_mutex_unlock(&driver.lock);
    if (!found) return CUDA_ERROR_INVALID_VALUE;
    *to = (CUdeviceptr)pointer;
    return CUDA_SUCCESS;
}

API CUresult cuMemHostGetFlags(unsigned *flags, void *pointer) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at((CUdeviceptr)pointer);
    bool found = block && (block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED);
    if (found) *flags = block->flags;
    pthread_mutex_unlock(&driver.lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
