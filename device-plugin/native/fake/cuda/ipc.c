/* Memory of one process in another, the old way: by a handle of 64 bytes. The memory lives until exporter and all
 * that opened it are done with it. What lies in it is not shared here: only that it is there counts. */
#include "driver.h"

#include <string.h>

struct name { uint64_t magic, id, bytes; uint32_t exporter, place; };
#define NAME_MAGIC 0x4950434d454dull

/* Under driver.lock: a name by which other processes find the block. From the first one on its bytes of the card are
 * the memory's own, not this process's: it may outlive it. */
static CUresult name_block(struct block *block, uint32_t card, uint64_t bytes, void *to, size_t size) {
    struct fc_shared *s = driver.s;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    fc_lock(s, driver.slot);
    for (uint32_t i = 0; i < FC_HANDLES && !block->handle; i++) {
        if (s->handles[i].used) continue;
        s->handles[i] = (struct fc_handle){.used = 1, .card = card, .bytes = bytes, .id = s->next_handle++ | 1ull << 63,
                                           .holders = {driver.slot + 1}, .references = {1}};
        s->processes[driver.slot].use[card].used -= bytes;
        block->handle = i + 1;
    }
    if (block->handle) {
        struct name name = {NAME_MAGIC, s->handles[block->handle - 1].id, block->bytes, driver.slot,
                            (uint32_t)(block->handle - 1)};
        memset(to, 0, size);
        memcpy(to, &name, sizeof name);
        s->processes[driver.slot].cannot_checkpoint |= 2;
        result = CUDA_SUCCESS;
    }
    fc_unlock(s);
    return result;
}

API CUresult cuIpcGetMemHandle(CUipcMemHandle *to, CUdeviceptr pointer) {
    ENTER();
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at(pointer);
    if (block && block->kind == BLOCK_DEVICE) {
        /* Small allocations stay with their granule: nothing is charged for them alone. */
        result = name_block(block, block->context->card, block->charged, to, sizeof *to);
        if (block->handle) block->charged = 0;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Under driver.lock: this process holds the memory once less. */
void ipc_drop(uint32_t place) {
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    struct fc_handle *handle = &s->handles[place];
    bool held = false;
    for (int h = 0; h < FC_HOLDERS; h++) {
        if (handle->holders[h] == driver.slot + 1 && handle->references[h]) handle->references[h]--;
        if (!handle->references[h]) handle->holders[h] = 0;
        held = held || handle->references[h];
    }
    if (!held) handle->used = 0;
    fc_unlock(s);
}

static CUresult hold(const struct name *name) {
    struct fc_shared *s = driver.s;
    CUresult result = CUDA_ERROR_INVALID_HANDLE;
    fc_lock(s, driver.slot);
    struct fc_handle *handle = &s->handles[name->place % FC_HANDLES];
    if (handle->used && handle->id == name->id) {
        for (int h = 0; h < FC_HOLDERS && result != CUDA_SUCCESS; h++) {
            if (handle->holders[h] && handle->holders[h] != driver.slot + 1) continue;
            handle->holders[h] = driver.slot + 1;
            handle->references[h]++;
            result = CUDA_SUCCESS;
        }
    }
    s->processes[driver.slot].cannot_checkpoint |= 2;
    fc_unlock(s);
    return result;
}

/* --- allocations from pools: the same, and their pool only counts them ---------------------------- */
API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *to, CUdeviceptr pointer) {
    ENTER();
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at(pointer);
    if (block && block->kind == BLOCK_POOL)
        result = name_block(block, driver.cards[block->device].index, (block->bytes + 511) & ~511ull, to, sizeof *to);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* Under driver.lock, the exporter frees it. True: it went with somebody else, and is the pool's no more. */
bool ipc_pooled_gone(const struct block *block) {
    struct fc_shared *s = driver.s;
    uint32_t place = (uint32_t)block->handle - 1, card = driver.cards[block->device].index;
    ipc_drop(place);
    fc_lock(s, driver.slot);
    bool elsewhere = s->handles[place].used;
    if (!elsewhere) s->processes[driver.slot].use[card].used += (block->bytes + 511) & ~511ull;
    fc_unlock(s);
    return elsewhere;
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *to, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
    CUipcMemHandle handle;
    ENTER();
    if (!pool || !data) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&handle, data, sizeof handle);
    TRY(cuIpcOpenMemHandle_v2(to, handle, 0));
    pthread_mutex_lock(&driver.lock);
    struct block *block = block_at(*to);
    if (block) block->pool = pool; /* it is freed, not closed */
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *to, CUipcMemHandle handle, unsigned flags) {
    ENTER_CONTEXT(context);
    struct name name;
    memcpy(&name, &handle, sizeof name);
    if (!to || flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    if (name.magic != NAME_MAGIC) return CUDA_ERROR_INVALID_VALUE;
    if (name.exporter == driver.slot) return CUDA_ERROR_INVALID_CONTEXT; /* one's own needs no handle */
    TRY(hold(&name));
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = space_take(name.bytes), .bytes = name.bytes, .kind = BLOCK_IPC, .context = context,
                          .device = context->device, .handle = name.place + 1};
    bool added = block.base && block_add(block);
    if (!added) ipc_drop(name.place);
    pthread_mutex_unlock(&driver.lock);
    *to = block.base;
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuIpcOpenMemHandle(CUdeviceptr *to, CUipcMemHandle handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(to, handle, flags);
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr pointer) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool found = block && block->kind == BLOCK_IPC && block->base == pointer;
    if (found) {
        struct block gone = *block;
        block_remove(gone.base);
        space_give(gone.base, gone.bytes);
        ipc_drop((uint32_t)gone.handle - 1);
    }
    pthread_mutex_unlock(&driver.lock);
    take_time();
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
