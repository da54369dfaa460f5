/* Physical memory with handles, mapped into reserved addresses. It lives as long as its handle, one of its mappings,
 * or a process that imported it. */
#define _GNU_SOURCE
#include "vmm.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct { CUdeviceptr base; size_t bytes; } *reservations;
static size_t reservation_count;

CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **to) {
    *to = (struct physical *)handle;
    return *to && (*to)->magic == MAGIC_PHYSICAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Of cards in parts each has one: the card. */
CUdevice device_at(const CUmemLocation *place) {
    if (place->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN) return place->id >> 8 ? -1 : place->id;
    return place->type == CU_MEM_LOCATION_TYPE_DEVICE ? place->id : -1;
}

static bool on_device(const CUmemAllocationProp *properties) {
    return device_at(&properties->location) >= 0;
}

static CUresult check(const CUmemAllocationProp *properties) {
    struct visible_card *card;
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
    if (properties->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if (on_device(properties)) return card_of(device_at(&properties->location), &card);
    bool host = properties->location.type >= CU_MEM_LOCATION_TYPE_HOST &&
                properties->location.type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
    return host ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetAllocationGranularity(size_t *to, const CUmemAllocationProp *properties,
                                           CUmemAllocationGranularity_flags option) {
    ENTER();
    TRY(check(properties));
    if (!to || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
    *to = FC_GRANULE;
    return CUDA_SUCCESS;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *to, size_t bytes, const CUmemAllocationProp *properties,
                         unsigned long long flags) {
    ENTER();
    TRY(check(properties));
    if (!to || !bytes || bytes % FC_GRANULE || flags) return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical = calloc(1, sizeof *physical);
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    *physical = (struct physical){.magic = MAGIC_PHYSICAL, .shared = FC_NONE, .bytes = bytes, .handles = 1, .fd = -1,
                                  .properties = *properties, .card = FC_NONE};
    if (on_device(properties)) {
        physical->properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device_at(&properties->location)};
        physical->card = driver.cards[physical->properties.location.id].index;
    }
    CUresult result = physical->card == FC_NONE ? CUDA_SUCCESS : charge(physical->card, bytes);
    if (result != CUDA_SUCCESS) free(physical);
    else *to = (CUmemGenericAllocationHandle)physical;
    return result;
}

/* Gives up a place among the holders; whether others hold it. */
static bool let_go(uint32_t shared) {
    bool held = false;
    fc_lock(driver.s, driver.slot);
    struct fc_handle *handle = &driver.s->handles[shared];
    for (int i = 0; i < FC_HOLDERS; i++) {
        if (handle->holders[i] == driver.slot + 1 && --handle->references[i] == 0) handle->holders[i] = 0;
        held = held || handle->references[i];
    }
    if (!held) handle->used = 0;
    fc_unlock(driver.s);
    return held;
}

void physical_settle(struct physical *physical) {
    if (physical->handles || physical->mappings || physical->bindings) return;
    bool held = false;
    if (physical->shared != FC_NONE) held = let_go(physical->shared);
    else if (physical->card != FC_NONE) discharge(physical->card, physical->bytes);
    if (!held) multicast_gone(physical); /* else what is bound stays, here until its process ends */
    if (physical->fd >= 0) close(physical->fd);
    if (physical->kept) munmap(physical->kept, physical->bytes);
    physical->magic = MAGIC_DEAD;
    free(physical);
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    struct physical *physical;
    ENTER();
    TRY(physical_of(handle, &physical));
    pthread_mutex_lock(&driver.lock);
    CUresult result = physical->handles ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        physical->handles--;
        physical_settle(physical);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *to, CUmemGenericAllocationHandle handle) {
    struct physical *physical;
    ENTER();
    TRY(physical_of(handle, &physical));
    *to = physical->properties;
    return CUDA_SUCCESS;
}

/* --- addresses ---------------------------------------------------------------------------------- */
API CUresult cuMemAddressReserve(CUdeviceptr *to, size_t bytes, size_t alignment, CUdeviceptr wish,
                                 unsigned long long flags) {
    ENTER();
    (void)wish;
    if (!to || !bytes || bytes % FC_GRANULE || alignment & (alignment - 1) || flags) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    void *grown = realloc(reservations, (reservation_count + 1) * sizeof *reservations);
    CUdeviceptr base = grown ? space_take(bytes) : 0;
    if (grown) reservations = grown;
    if (base) {
        mprotect((void *)base, bytes, PROT_NONE);
        reservations[reservation_count].base = base;
        reservations[reservation_count++].bytes = bytes;
        *to = base;
    }
    pthread_mutex_unlock(&driver.lock);
    return base ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAddressFree(CUdeviceptr base, size_t bytes) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < reservation_count && result; i++) {
        if (reservations[i].base != base || reservations[i].bytes != bytes) continue;
        reservations[i] = reservations[--reservation_count];
        space_give(base, bytes);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static bool reserved(CUdeviceptr base, size_t bytes) {
    for (size_t i = 0; i < reservation_count; i++) {
        if (base >= reservations[i].base && base + bytes <= reservations[i].base + reservations[i].bytes) return true;
    }
    return false;
}

static bool place(struct physical *physical, CUdeviceptr base, size_t bytes, size_t offset) {
    void *at = (void *)base;
    if (physical->fd >= 0) {
        return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, physical->fd, (off_t)offset) == at;
    }
    if (physical->kept && !offset && bytes == physical->bytes) {
        bool moved = mremap(physical->kept, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at;
        if (moved) physical->kept = NULL;
        return moved;
    }
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == at;
}

API CUresult cuMemMap(CUdeviceptr base, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
    struct physical *physical;
    ENTER();
    TRY(physical_of(handle, &physical));
    if (flags || !bytes || bytes % FC_GRANULE || offset + bytes > physical->bytes) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    const struct block *taken = block_at(base);
    bool fits = reserved(base, bytes) && !(taken && taken->kind == BLOCK_MAPPED);
    struct block block = {.base = base, .bytes = bytes, .kind = BLOCK_MAPPED, .handle = handle,
                          .device = on_device(&physical->properties) ? physical->properties.location.id : CU_DEVICE_CPU};
    fits = fits && place(physical, base, bytes, offset) && block_add(block);
    if (fits) physical->mappings++;
    pthread_mutex_unlock(&driver.lock);
    return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static void unmap(struct block block) {
    struct physical *physical = (struct physical *)block.handle;
    block_remove(block.base);
    void *at = (void *)block.base;
    if (physical->fd < 0 && !physical->kept && block.bytes == physical->bytes) {
        void *moved = mremap(at, block.bytes, block.bytes, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
        if (moved != MAP_FAILED) physical->kept = moved;
    }
    mmap(at, block.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    physical->mappings--;
    physical_settle(physical);
}

API CUresult cuMemUnmap(CUdeviceptr base, size_t bytes) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    for (CUdeviceptr at = base; at < base + bytes;) {
        const struct block *block = block_at(at);
        if (!block || block->kind != BLOCK_MAPPED || block->base != at || at + block->bytes > base + bytes) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        at += block->bytes;
        unmap(*block);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuMemSetAccess(CUdeviceptr base, size_t bytes, const CUmemAccessDesc *access, size_t count) {
    ENTER();
    if (!access || !count) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_SUCCESS;
    for (CUdeviceptr at = base; at < base + bytes && result == CUDA_SUCCESS;) {
        struct block *block = block_at(at);
        if (!block || block->kind != BLOCK_MAPPED) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            block->flags = (unsigned)access[0].flags;
            at = block->base + block->bytes;
        }
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer) {
    ENTER();
    (void)location;
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at(pointer);
    bool found = block && block->kind == BLOCK_MAPPED;
    if (found) *flags = block->flags;
    pthread_mutex_unlock(&driver.lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *to, void *pointer) {
    ENTER();
    pthread_mutex_lock(&driver.lock);
    const struct block *block = block_at((CUdeviceptr)pointer);
    bool found = block && block->kind == BLOCK_MAPPED;
    if (found) ((struct physical *)(*to = block->handle))->handles++;
    pthread_mutex_unlock(&driver.lock);
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- between processes -------------------------------------------------------------------------- */
/* The memory file's inode names the memory: descriptors are passed on in ways that the driver does not see. */
static CUresult share(struct physical *physical) {
    struct stat seen;
    physical->fd = memfd_create("fake-cuda", MFD_CLOEXEC);
    if (physical->fd < 0 || ftruncate(physical->fd, (off_t)physical->bytes) || fstat(physical->fd, &seen)) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    const bool object = physical->team_size;
    if (physical->card == FC_NONE && !object) return CUDA_SUCCESS;
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    for (uint32_t i = 0; i < FC_HANDLES && physical->shared == FC_NONE; i++) {
        if (s->handles[i].used) continue;
        s->handles[i] = (struct fc_handle){.used = 1, .card = physical->card, .id = seen.st_ino, .bytes = physical->bytes,
                                           .holders = {driver.slot + 1}, .references = {1}};
        if (!object) s->processes[driver.slot].use[physical->card].used -= physical->bytes;
        physical->shared = i;
    }
    fc_unlock(s);
    return physical->shared == FC_NONE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

API CUresult cuMemExportToShareableHandle(void *to, CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType type, unsigned long long flags) {
    struct physical *physical;
    ENTER();
    TRY(physical_of(handle, &physical));
    if (!to || flags) return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
    if (!(physical->properties.requestedHandleTypes & type)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    CUresult result = physical->fd < 0 ? share(physical) : CUDA_SUCCESS;
    int copy = result == CUDA_SUCCESS ? dup(physical->fd) : -1;
    pthread_mutex_unlock(&driver.lock);
    if (result == CUDA_SUCCESS && copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
    if (copy >= 0) memcpy(to, &copy, sizeof copy);
    driver.s->processes[driver.slot].cannot_checkpoint |= 2;
    return result;
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *to, void *os_handle,
                                            CUmemAllocationHandleType type) {
    struct stat seen;
    ENTER();
    int fd = (int)(intptr_t)os_handle;
    if (!to || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &seen)) return CUDA_ERROR_INVALID_VALUE;
    struct physical *physical = calloc(1, sizeof *physical);
    if (!physical) return CUDA_ERROR_OUT_OF_MEMORY;
    *physical = (struct physical){.magic = MAGIC_PHYSICAL, .shared = FC_NONE, .bytes = (size_t)seen.st_size, .handles = 1,
                                  .card = FC_NONE};
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    for (uint32_t i = 0; i < FC_HANDLES && physical->shared == FC_NONE; i++) {
        struct fc_handle *handle = &s->handles[i];
        if (!handle->used || handle->id != seen.st_ino) continue;
        for (int h = 0; h < FC_HOLDERS && physical->shared == FC_NONE; h++) {
            if (handle->holders[h] && handle->holders[h] != driver.slot + 1) continue;
            handle->holders[h] = driver.slot + 1;
            handle->references[h]++;
            physical->shared = i;
            physical->card = handle->card;
            physical->team_size = handle->card == FC_NONE; /* only objects are of no card */
        }
    }
    fc_unlock(s);
    physical->fd = dup(fd);
    physical->properties = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = type};
    for (int i = 0; i < driver.count; i++) {
        if (driver.cards[i].index != physical->card) continue;
        physical->properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, i};
    }
    if (physical->shared == FC_NONE || physical->fd < 0) {
        free(physical);
        return CUDA_ERROR_INVALID_VALUE;
    }
    driver.s->processes[driver.slot].cannot_checkpoint |= 2;
    *to = (CUmemGenericAllocationHandle)physical;
    return CUDA_SUCCESS;
}
