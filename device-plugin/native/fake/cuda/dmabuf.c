/* DMA-BUFs: ranges of a card's memory as files, for other devices. Such a file keeps the whole allocation until its last
 * descriptor is closed, wherever that went, also once the program has freed it. Here at most until the process ends. */
#define _GNU_SOURCE
#include "vmm.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

enum { DMA_BUF_FD = 1, OVER_PCIE = 1, HOST_PAGE = 4096 };

struct dmabuf {
    int watched;               /* the other end of a pipe: hung up once nobody has a descriptor */
    CUdeviceptr base;          /* of the allocation; 0: it was freed */
    unsigned long long id;     /* of the allocation: addresses are used again */
    uint32_t card;
    uint64_t bytes;            /* of an allocation that was freed: given back with its last file */
    struct physical *physical; /* of memory by handle, which counts its users itself; else NULL */
    struct dmabuf *next;
};
static struct dmabuf *files;

static CUresult allocation_of(CUdeviceptr pointer, size_t bytes, struct dmabuf *file) {
    const struct block *block = block_at(pointer);
    if (!block || pointer - block->base + bytes > block->bytes) return CUDA_ERROR_INVALID_VALUE;
    file->base = block->base;
    file->id = block->id;
    if (block->kind == BLOCK_MAPPED && block->device >= 0) {
        file->physical = (struct physical *)block->handle;
        return CUDA_SUCCESS;
    }
    if (block->kind != BLOCK_DEVICE || !block->charged || block->handle) return CUDA_ERROR_NOT_SUPPORTED;
    file->card = block->context->card;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetHandleForAddressRange(void *to, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,
                                           unsigned long long flags) {
    ENTER();
    if (!to || !bytes || type != DMA_BUF_FD || flags > OVER_PCIE || pointer % HOST_PAGE || bytes % HOST_PAGE)
        return CUDA_ERROR_INVALID_VALUE;
    int ends[2];
    struct dmabuf *file = calloc(1, sizeof *file);
    if (!file) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver.lock);
    CUresult result = allocation_of(pointer, bytes, file);
    if (result == CUDA_SUCCESS && pipe2(ends, O_CLOEXEC)) result = CUDA_ERROR_OPERATING_SYSTEM;
    if (result == CUDA_SUCCESS) {
        if (file->physical) file->physical->bindings++;
        file->watched = ends[0];
        file->next = files;
        files = file;
        driver.dmabufs++;
        *(int *)to = ends[1];
    }
    pthread_mutex_unlock(&driver.lock);
    if (result != CUDA_SUCCESS) free(file);
    return result;
}

bool dmabuf_keeps(const struct block *block) {
    bool kept = false;
    for (struct dmabuf *file = files; file; file = file->next) {
        if (file->physical || file->base != block->base) continue;
        file->base = 0;
        file->bytes = block->charged;
        kept = true;
    }
    return kept;
}

static bool is_last(const struct dmabuf *gone) {
    for (const struct dmabuf *file = files; file; file = file->next) {
        if (!file->physical && file->id == gone->id) return false;
    }
    return true;
}

void dmabufs_settle(void) {
    pthread_mutex_lock(&driver.lock);
    for (struct dmabuf **at = &files; *at;) {
        struct dmabuf *file = *at;
        struct pollfd look = {.fd = file->watched};
        if (poll(&look, 1, 0) != 1 || !(look.revents & POLLHUP)) {
            at = &file->next;
            continue;
        }
        *at = file->next;
        driver.dmabufs--;
        close(file->watched);
        if (file->physical) {
            file->physical->bindings--;
            physical_settle(file->physical);
        } else if (!file->base && is_last(file)) {
            discharge(file->card, file->bytes);
        }
        free(file);
    }
    pthread_mutex_unlock(&driver.lock);
}
