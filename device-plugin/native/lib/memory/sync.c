/* Waits for a card, after which pools may have given memory back. */
#include "memory.h"

#include <stdlib.h>

enum { FEW_POOLS = 64 };

struct list {
    int card; /* EGPU_NO_LIMITS: any */
    size_t count, room;
    uint64_t *pools;
};

static bool gather(const struct egpu_track *track, void *data)
{
    struct list *list = data;
    if (track->kind != EGPU_POOL || track->other || (list->card >= 0 && track->card != list->card))
        return false;
    if (list->count < list->room)
        list->pools[list->count] = track->key;
    list->count++;
    return false;
}

void egpu_pools_refresh(int card)
{
    uint64_t few[FEW_POOLS], *many = NULL;
    struct list list = {.card = card, .room = FEW_POOLS, .pools = few};
    egpu_each(gather, &list);
    if (list.count > list.room && (many = calloc(list.count, sizeof *many))) {
        list = (struct list){.card = card, .room = list.count, .pools = many};
        egpu_each(gather, &list);
    }
    for (size_t i = 0; i < list.count && i < list.room; i++)
        egpu_pool_refresh((CUmemoryPool)(uintptr_t)list.pools[i]);
    free(many);
}

static CUresult synchronised(CUresult result)
{
    egpu_pools_synchronised();
    return result;
}

EGPU_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    EGPU_DRIVER(real, cuStreamSynchronize);
    return synchronised(real->cuStreamSynchronize(stream));
}

EGPU_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    EGPU_DRIVER(real, cuStreamSynchronize_ptsz);
    return synchronised(real->cuStreamSynchronize_ptsz(stream));
}

EGPU_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    EGPU_DRIVER(real, cuEventSynchronize);
    return synchronised(real->cuEventSynchronize(event));
}

EGPU_EXPORT CUresult cuCtxSynchronize(void)
{
    EGPU_DRIVER(real, cuCtxSynchronize);
    return synchronised(real->cuCtxSynchronize());
}

EGPU_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    EGPU_DRIVER(real, cuCtxSynchronize_v2);
    return synchronised(real->cuCtxSynchronize_v2(context));
}
