/* Memory in the order of streams. A pool takes memory from the card in pieces of 32 MiB and keeps it: beyond the
 * release threshold until the next synchronisation. */
#define _GNU_SOURCE
#include "driver.h"
#include "graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE (32ull << 20)

struct CUmemPoolHandle_st {
    uint32_t magic, card;
    CUdevice device;
    uint64_t reserved, reserved_high, used, used_high, threshold, limit;
    int reuse[3];
    bool host, imported; /* host: takes none of the card's; imported: gives no memory of its own */
    CUmemAllocationType type;
    CUmemLocation place;
    CUmemoryPool next;
};

static CUmemoryPool pools, defaults[FC_CARDS], chosen[FC_CARDS], managed[FC_CARDS];

static CUresult pool_of(CUmemoryPool pool) {
    return pool && pool->magic == MAGIC_POOL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUmemoryPool pool_new(CUdevice device) {
    CUmemoryPool pool = calloc(1, sizeof *pool);
    if (!pool) return NULL;
    *pool = (struct CUmemPoolHandle_st){.magic = MAGIC_POOL, .device = device, .card = driver.cards[device].index,
                                        .reuse = {1, 1, 1}, .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                        .place = {CU_MEM_LOCATION_TYPE_DEVICE, device}, .next = pools};
    pools = pool;
    return pool;
}

static CUmemoryPool default_pool(CUdevice device) {
    if (!defaults[device]) defaults[device] = pool_new(device);
    return defaults[device];
}

/* Under driver.lock. */
static void trim(CUmemoryPool pool, uint64_t keep) {
    uint64_t least = (pool->used + PIECE - 1) / PIECE * PIECE;
    if (pool->reserved <= keep) return; /* also where it keeps all that there is: UINT64_MAX */
    keep = (keep + FC_GRANULE - 1) / FC_GRANULE * FC_GRANULE;
    if (keep < least) keep = least;
    if (pool->reserved <= keep) return;
    if (!pool->host) discharge(pool->card, pool->reserved - keep);
    pool->reserved = keep;
}

void pools_synchronised(void) {
    if (!pools) return;
    pthread_mutex_lock(&driver.lock);
    for (CUmemoryPool pool = pools; pool; pool = pool->next) trim(pool, pool->threshold);
    pthread_mutex_unlock(&driver.lock);
}

static CUresult take(CUmemoryPool pool, size_t bytes) {
    uint64_t rounded = (bytes + 511) & ~511ull;
    if (pool->limit && pool->used + rounded > pool->limit) return CUDA_ERROR_OUT_OF_MEMORY;
    if (pool->used + rounded > pool->reserved) {
        uint64_t more = (pool->used + rounded - pool->reserved + PIECE - 1) / PIECE * PIECE;
        if (!pool->host && charge(pool->card, more) != CUDA_SUCCESS) {
            /* Pools of the same card give back what they only keep. */
            for (CUmemoryPool other = pools; other; other = other->next) trim(other, 0);
            if (pool->used + rounded > pool->reserved) {
                more = (pool->used + rounded - pool->reserved + PIECE - 1) / PIECE * PIECE;
                TRY(charge(pool->card, more));
            }
        }
        pool->reserved += more;
    }
    pool->used += rounded;
    if (pool->used > pool->used_high) pool->used_high = pool->used;
    if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *to, size_t bytes, CUmemoryPool pool, CUstream handle) {
    CUstream stream;
    TRY(stream_of(handle, &stream));
    if (!to || !bytes) return CUDA_ERROR_INVALID_VALUE;
    if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC, .memory = {bytes, 0, stream->context->device}};
        TRY(graph_memory_reserve(stream->context->device, bytes, &content.memory.at));
        *to = content.memory.at;
        return capture_add(stream, &content);
    }
    pthread_mutex_lock(&driver.lock);
    if (!pool) {
        CUdevice device = stream->context->device;
        pool = chosen[device] ? chosen[device] : default_pool(device);
    }
    CUresult result = pool_of(pool);
    if (result == CUDA_SUCCESS && pool->imported) result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) result = take(pool, bytes);
    if (result == CUDA_SUCCESS) {
        struct block block = {.base = space_take(bytes), .bytes = bytes, .kind = BLOCK_POOL, .context = stream->context,
                              .device = pool->device, .pool = pool};
        result = block.base && block_add(block) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
        *to = block.base;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static CUresult allocate_async(CUdeviceptr *to, size_t bytes, CUstream stream) {
    TRY(enter("cuMemAllocAsync"));
    return allocate(to, bytes, NULL, stream);
}
EXPORT_TSZ(cuMemAllocAsync, (CUdeviceptr *to, size_t bytes, CUstream stream), allocate_async(to, bytes, stream))
static CUresult allocate_from(CUdeviceptr *to, size_t bytes, CUmemoryPool pool, CUstream stream) {
    TRY(enter("cuMemAllocFromPoolAsync"));
    return pool ? allocate(to, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT_TSZ(cuMemAllocFromPoolAsync, (CUdeviceptr *to, size_t bytes, CUmemoryPool pool, CUstream stream),
           allocate_from(to, bytes, pool, stream))

static CUresult free_async(CUdeviceptr pointer, CUstream handle) {
    CUstream stream;
    TRY(enter("cuMemFreeAsync"));
    TRY(stream_of(handle, &stream));
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .memory = {0, pointer, 0}};
        return capture_add(stream, &content);
    }
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at(pointer);
    bool pooled = block && block->base == pointer && block->kind == BLOCK_POOL;
    CUresult result = pooled ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (pooled) {
        block->pool->used -= (block->bytes + 511) & ~511ull;
        if (block->handle && ipc_pooled_gone(block)) block->pool->reserved -= (block->bytes + 511) & ~511ull;
        space_give(block->base, block->bytes);
        block_remove(pointer);
    } else if (block && block->base == pointer && block->kind == BLOCK_DEVICE) {
        result = CUDA_SUCCESS;
    }
    bool opened = block && !pooled && block->base == pointer && block->kind == BLOCK_IPC && block->pool;
    pthread_mutex_unlock(&driver.lock);
    if (opened) return cuIpcCloseMemHandle(pointer);
    if (!pooled && result == CUDA_SUCCESS) return cuMemFree_v2(pointer);
    /* Allocation nodes of a graph may be freed outside it. */
    return pooled ? CUDA_SUCCESS : graph_memory_use(pointer, false);
}
EXPORT_TSZ(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), free_async(pointer, stream))

/* --- pools themselves --------------------------------------------------------------------------- */
API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *to, CUdevice device) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    pthread_mutex_lock(&driver.lock);
    *to = default_pool(device);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *to, CUdevice device) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    pthread_mutex_lock(&driver.lock);
    *to = chosen[device] ? chosen[device] : default_pool(device);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    TRY(pool_of(pool));
    chosen[device] = pool;
    return CUDA_SUCCESS;
}

/* What is managed takes nothing of the card until it is used there, which is not imitated. */
API CUresult cuMemPoolCreate(CUmemoryPool *to, const CUmemPoolProps *properties) {
    struct visible_card *card;
    ENTER();
    if (!to || !properties) return CUDA_ERROR_INVALID_VALUE;
    const bool moves = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
    const CUdevice device = device_at(&properties->location);
    if ((!moves && properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) || (moves && properties->maxSize) ||
        (moves && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN))
        return CUDA_ERROR_INVALID_VALUE;
    if (device >= 0) TRY(card_of(device, &card));
    pthread_mutex_lock(&driver.lock);
    *to = pool_new(device < 0 ? 0 : device);
    if (*to) {
        (*to)->limit = properties->maxSize;
        (*to)->host = device < 0 || moves;
        (*to)->type = properties->allocType;
        if (device < 0) (*to)->place = properties->location;
    }
    pthread_mutex_unlock(&driver.lock);
    return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *to, CUmemLocation *place, CUmemAllocationType type) {
    struct visible_card *card;
    ENTER();
    if (!to || !place) return CUDA_ERROR_INVALID_VALUE;
    const CUdevice device = device_at(place);
    TRY(card_of(device, &card));
    if (type == CU_MEM_ALLOCATION_TYPE_PINNED) return cuDeviceGetDefaultMemPool(to, device);
    if (!managed[device]) {
        const CUmemPoolProps properties = {.allocType = type, .location = *place};
        TRY(cuMemPoolCreate(&managed[device], &properties));
    }
    *to = managed[device];
    return CUDA_SUCCESS;
}

/* A file that says of which card the pool is. */
API CUresult cuMemPoolExportToShareableHandle(void *to, CUmemoryPool pool, CUmemAllocationHandleType type,
                                              unsigned long long flags) {
    ENTER();
    TRY(pool_of(pool));
    if (!to || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pool->host) return CUDA_ERROR_INVALID_VALUE;
    int file = memfd_create("pool", MFD_CLOEXEC);
    if (file < 0 || write(file, &pool->device, sizeof pool->device) != sizeof pool->device) return CUDA_ERROR_OUT_OF_MEMORY;
    *(int *)to = file;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *to, void *handle, CUmemAllocationHandleType type,
                                                unsigned long long flags) {
    CUdevice device;
    ENTER();
    if (!to || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread((int)(intptr_t)handle, &device, sizeof device, 0) != sizeof device || device < 0 || device >= driver.count)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    *to = pool_new(device);
    if (*to) (*to)->imported = true;
    pthread_mutex_unlock(&driver.lock);
    return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    ENTER();
    TRY(pool_of(pool));
    for (int i = 0; i < FC_CARDS; i++) {
        if (defaults[i] == pool) return CUDA_ERROR_INVALID_VALUE;
        if (chosen[i] == pool) chosen[i] = NULL;
    }
    pthread_mutex_lock(&driver.lock);
    /* What is still in use keeps its memory; the pool itself keeps none. */
    pool->threshold = 0;
    trim(pool, 0);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    ENTER();
    TRY(pool_of(pool));
    pthread_mutex_lock(&driver.lock);
    trim(pool, keep);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *to) {
    ENTER();
    TRY(pool_of(pool));
    const int told[] = {(int)pool->type, 0, pool->place.id, (int)pool->place.type}; /* from 9 on */
    if (!to || which < 1 || which > 12) return CUDA_ERROR_INVALID_VALUE;
    if (which <= 3 || which > 8) {
        memcpy(to, which <= 3 ? &pool->reuse[which - 1] : &told[which - 9], sizeof(int));
        return CUDA_SUCCESS;
    }
    const uint64_t *values[] = {&pool->threshold, &pool->reserved, &pool->reserved_high, &pool->used, &pool->used_high};
    memcpy(to, values[which - 4], sizeof(uint64_t));
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void *from) {
    ENTER();
    TRY(pool_of(pool));
    uint64_t value = 0;
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&value, from, which <= 3 ? sizeof(int) : sizeof value);
    if (which >= 1 && which <= 3) pool->reuse[which - 1] = (int)value;
    else if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = value;
    else if (which == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !value) pool->reserved_high = pool->reserved;
    else if (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !value) pool->used_high = pool->used;
    else return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count) {
    ENTER();
    TRY(pool_of(pool));
    return access && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
    ENTER();
    TRY(pool_of(pool));
    *flags = location->id == pool->device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}
