/* Where memory lies: address space, the table of blocks, their content, what the card has left. A device pointer is
 * an address of this process: pages that are touched exist, and only the first KEPT bytes of a block ever are. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { KEPT = 16 << 20 };

static struct block *blocks; /* by address */
static size_t block_count, block_room;

size_t granules(size_t bytes) {
    return (bytes + FC_GRANULE - 1) & ~(FC_GRANULE - 1);
}

/* --- the card's bytes --------------------------------------------------------------------------- */
static uint64_t elsewhere_of(uint32_t card) {
    for (int i = 0; i < driver.count; i++) {
        if (driver.cards[i].index == card) return driver.cards[i].elsewhere;
    }
    return 0;
}

/* Managed memory makes room: it goes to the host when the card is full. */
static void push_out(struct fc_shared *s, uint32_t card, uint64_t bytes) {
    for (uint32_t i = 0; i < FC_PROCESSES && bytes; i++) {
        if (!s->processes[i].taken) continue;
        uint64_t *resident = &s->processes[i].use[card].managed_resident;
        uint64_t part = *resident < bytes ? *resident : bytes;
        *resident -= part;
        bytes -= part;
    }
}

static uint64_t room_on(struct fc_shared *s, uint32_t card) {
    uint64_t used = fc_used(s, card) + elsewhere_of(card), total = s->cards[card].total_bytes;
    return used < total ? total - used : 0;
}

/* What the control group of this process may still take. */
static uint64_t limit_room(const struct fc_shared *s, uint32_t card) {
    uint64_t soft, hard, group = s->groups[driver.slot];
    if (!fc_limit_get(s->cards[card].uuid, group, &soft, &hard)) return UINT64_MAX;
    uint64_t used = fc_used_in(s, card, group);
    return used < hard ? hard - used : 0;
}

CUresult charge(uint32_t card, uint64_t bytes) {
    struct fc_shared *s = driver.s;
    if (bytes > s->cards[card].total_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
    fc_lock(s, driver.slot);
    uint64_t room = room_on(s, card);
    if (room < bytes) {
        fc_reap(s, driver.slot, true);
        room = room_on(s, card);
    }
    if (room < bytes) {
        push_out(s, card, bytes - room);
        room = room_on(s, card);
    }
    if (limit_room(s, card) < bytes) room = 0;
    if (room >= bytes) s->processes[driver.slot].use[card].used += bytes;
    fc_unlock(s);
    return room >= bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void discharge(uint32_t card, uint64_t bytes) {
    fc_lock(driver.s, driver.slot);
    _Atomic uint64_t *used = &driver.s->processes[driver.slot].use[card].used;
    *used -= bytes < *used ? bytes : *used;
    fc_unlock(driver.s);
}

void managed_touch(CUdeviceptr pointer, size_t bytes, uint32_t card) {
    struct block *block = block_at(pointer);
    if (!block || block->kind != BLOCK_MANAGED || block->resident >= block->bytes) return;
    size_t more = bytes > block->bytes - block->resident ? block->bytes - block->resident : bytes;
    fc_lock(driver.s, driver.slot);
    if (room_on(driver.s, card) < more) push_out(driver.s, card, more - room_on(driver.s, card));
    if (room_on(driver.s, card) < more) more = room_on(driver.s, card);
    driver.s->processes[driver.slot].use[card].managed_resident += more;
    block->resident += more;
    fc_unlock(driver.s);
}

/* --- address space and content ------------------------------------------------------------------ */
CUdeviceptr space_take(size_t bytes) {
    size_t room = granules(bytes) + FC_GRANULE;
    char *at = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return 0;
    uintptr_t start = ((uintptr_t)at + FC_GRANULE - 1) & ~(FC_GRANULE - 1);
    if (start > (uintptr_t)at) munmap(at, start - (uintptr_t)at);
    uintptr_t end = start + granules(bytes), last = (uintptr_t)at + room;
    if (last > end) munmap((void *)end, last - end);
    return start;
}

void space_give(CUdeviceptr at, size_t bytes) {
    munmap((void *)at, granules(bytes));
}

/* How many of the bytes at `pointer` have a content; those of the host all have. */
static size_t kept(CUdeviceptr pointer, size_t bytes) {
    const struct block *block = block_at(pointer);
    if (!block || block->kind == BLOCK_HOST || block->kind == BLOCK_REGISTERED || block->kind == BLOCK_MANAGED) {
        return bytes;
    }
    size_t before = pointer - block->base, limit = block->bytes < KEPT ? block->bytes : KEPT;
    if (before >= limit) return 0;
    return bytes < limit - before ? bytes : limit - before;
}

void content_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    pthread_mutex_lock(&driver.lock);
    size_t readable = kept(from, bytes), writable = kept(to, bytes);
    pthread_mutex_unlock(&driver.lock);
    if (readable > writable) readable = writable;
    memmove((void *)to, (const void *)from, readable);
    if (writable > readable) memset((char *)to + readable, 0, writable - readable);
}

void content_fill(CUdeviceptr to, uint64_t value, unsigned width, size_t count) {
    pthread_mutex_lock(&driver.lock);
    size_t bytes = kept(to, width * count);
    pthread_mutex_unlock(&driver.lock);
    unsigned char *at = (unsigned char *)to;
    if (value == 0 && bytes > 65536) { /* pages of zeros need not exist */
        uintptr_t first = ((uintptr_t)at + 4095) & ~(uintptr_t)4095, last = ((uintptr_t)at + bytes) & ~(uintptr_t)4095;
        memset(at, 0, first - (uintptr_t)at);
        if (madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
            memset((void *)last, 0, (uintptr_t)at + bytes - last);
            return;
        }
    }
    for (size_t i = 0; i + width <= bytes; i += width) memcpy(at + i, &value, width);
}

/* --- the table ---------------------------------------------------------------------------------- */
/* Index of the first block that begins after `pointer`. */
static size_t after(CUdeviceptr pointer) {
    size_t low = 0, high = block_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (blocks[middle].base <= pointer) low = middle + 1;
        else high = middle;
    }
    return low;
}

struct block *block_at(CUdeviceptr pointer) {
    size_t index = after(pointer);
    if (!index) return NULL;
    struct block *block = &blocks[index - 1];
    return pointer - block->base < (block->bytes ? block->bytes : 1) ? block : NULL;
}

struct block *block_add(struct block block) {
    if (block_count == block_room) {
        size_t room = block_room ? block_room * 2 : 256;
        struct block *grown = realloc(blocks, room * sizeof *blocks);
        if (!grown) return NULL;
        blocks = grown;
        block_room = room;
    }
    size_t index = after(block.base);
    memmove(&blocks[index + 1], &blocks[index], (block_count - index) * sizeof *blocks);
    block_count++;
    block.id = ++driver.ids;
    blocks[index] = block;
    return &blocks[index];
}

void block_remove(CUdeviceptr base) {
    size_t index = after(base);
    if (!index || blocks[index - 1].base != base) return;
    block_count--;
    memmove(&blocks[index - 1], &blocks[index], (block_count - index + 1) * sizeof *blocks);
}

bool block_of_context(CUcontext context, CUdeviceptr *base) {
    for (size_t i = 0; i < block_count; i++) {
        if (blocks[i].context != context || blocks[i].kind == BLOCK_MAPPED) continue;
        *base = blocks[i].base;
        return true;
    }
    return false;
}
