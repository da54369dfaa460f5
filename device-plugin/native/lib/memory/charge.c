/* May this much memory of that card be taken now? Before the answer is no, pools and graphs say what they have given
 * back; pools also after each wait for a card. */
#define _GNU_SOURCE
#include "hooks.h"
#include "memory.h"

#include <stdlib.h>
#include <time.h>

enum { FEW_POOLS = 64 };

/* --- which card is charged --- */

static int charged(int card)
{
    if (card < EGPU_NO_CARD)
        return EGPU_NO_LIMITS; /* the driver will refuse the call itself */
    if (card < 0 && egpu_control_now())
        egpu_say_once("card", "this card is not one of those granted to the container: no memory on it");
    return card < 0 ? EGPU_NO_CARD : card;
}

/* While the container is suspended, another one has its share of the card. The driver halts the processes that it
 * found; one that begins now, or that it did not find, waits here before it takes memory. Not with a lock held. */
static void wait_while_suspended(void)
{
    while (egpu_suspended(egpu_control_refresh())) {
        if (egpu_time_wanted)
            egpu_time_wanted();
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
}

int egpu_charged_device(CUdevice device)
{
    wait_while_suspended();
    return charged(egpu_card_of_device(device));
}

int egpu_charged_current(void)
{
    const struct egpu_real *real = egpu_driver();
    CUdevice device;
    wait_while_suspended();
    if (!real || !real->cuCtxGetDevice || real->cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return EGPU_NO_LIMITS; /* no context: the driver will refuse the call itself */
    return charged(egpu_card_of_device(device));
}

/* --- what pools have given back --- */

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

/* --- charges --- */

/* Pools and graphs give memory back without a call that we see. */
static void given_back(int card)
{
    egpu_pools_refresh(card);
    egpu_graphs_refresh(card);
}

CUresult egpu_charge(int card, uint64_t device, uint64_t managed)
{
    if (card == EGPU_NO_LIMITS || (!device && !managed))
        return CUDA_SUCCESS;
    if (card < 0 || card >= EGPU_MAX_CARDS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (egpu_try_charge(card, device, managed))
        return CUDA_SUCCESS;
    given_back(card);
    return egpu_try_charge(card, device, managed) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

struct egpu_room egpu_room_on(int card)
{
    const struct egpu_control *control = egpu_control_now();
    if (!control || card < 0 || card >= (int)control->card_count)
        return (struct egpu_room){0};
    given_back(card);
    return egpu_room_under(control, card);
}

/* --- waits for a card --- */

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

/* --- checkpoints --- */

/* A container that is suspended does not bring itself back: another one has its share of the card meanwhile. The agent
 * does, from outside. The container's own checkpoints are the program's affair. */
EGPU_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *how)
{
    EGPU_DRIVER(real, cuCheckpointProcessRestore);
    return egpu_suspended(egpu_control_refresh()) ? CUDA_ERROR_NOT_PERMITTED : real->cuCheckpointProcessRestore(pid, how);
}

/* What stands still before its memory goes would run on. */
EGPU_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *how)
{
    EGPU_DRIVER(real, cuCheckpointProcessUnlock);
    return egpu_suspended(egpu_control_refresh()) ? CUDA_ERROR_NOT_PERMITTED : real->cuCheckpointProcessUnlock(pid, how);
}
