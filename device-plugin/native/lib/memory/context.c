/* Contexts, which take memory themselves, and what the driver says about a card's memory. */
#include "memory.h"

#include <limits.h>
#include <stdlib.h>

/* --- contexts --- */

uint64_t egpu_context_overhead(int card)
{
    const struct egpu_control *control = egpu_control_now();
    return control && card >= 0 && card < (int)control->card_count ? egpu_round(control->cards[card].context_bytes) : 0;
}

CUresult egpu_context_reserve(int card)
{
    if (card == EGPU_NO_CARD)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return egpu_charge(card, egpu_context_overhead(card), 0);
}

void egpu_context_keep(CUcontext context, int card, uint64_t bytes)
{
    const struct egpu_track track = {.key = (uint64_t)(uintptr_t)context, .kind = EGPU_CONTEXT, .card = card,
                                     .bytes = bytes, .shared = -1, .references = 1};
    if (card < 0 || egpu_join(&track) != EGPU_FIRST) {
        egpu_discharge(card, bytes, 0); /* another thread was faster */
        return;
    }
    egpu_mark_context(card, true);
    if (egpu_time_context_made)
        egpu_time_context_made(context);
}

static bool on_card(const struct egpu_track *track, void *data)
{
    return track->kind == EGPU_CONTEXT && track->card == *(int *)data;
}

struct egpu_ending egpu_context_ending(CUcontext context)
{
    struct egpu_ending ending = {0};
    if (context && egpu_time_context_gone)
        egpu_time_context_gone(context);
    ending.tracks = egpu_context_take((uint64_t)(uintptr_t)context, &ending.count);
    return ending;
}

void egpu_context_ended(struct egpu_ending *ending, bool really)
{
    for (size_t i = 0; i < ending->count && !really; i++)
        egpu_put(&ending->tracks[i]);
    if (really)
        egpu_end_of_context(ending->tracks, ending->count);
    for (size_t i = 0; i < ending->count && really; i++)
        if (ending->tracks[i].kind == EGPU_CONTEXT)
            egpu_mark_context(ending->tracks[i].card, egpu_each(on_card, &ending->tracks[i].card));
    free(ending->tracks);
    *ending = (struct egpu_ending){0};
}

/* Makes a context by `call`, within the cap. */
#define CREATE(context, device, call)                               \
    do {                                                            \
        const int card = egpu_charged_device(device);               \
        const uint64_t bytes = egpu_context_overhead(card);         \
        CUresult result = egpu_context_reserve(card);               \
        if (result != CUDA_SUCCESS)                                 \
            return result;                                          \
        result = (call);                                            \
        if (result == CUDA_SUCCESS && (context))                    \
            egpu_context_keep(*(context), card, bytes);             \
        else                                                        \
            egpu_discharge(card, bytes, 0);                         \
        return result;                                              \
    } while (0)

EGPU_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    EGPU_DRIVER(real, cuCtxCreate);
    CREATE(context, device, real->cuCtxCreate(context, flags, device));
}

EGPU_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    EGPU_DRIVER(real, cuCtxCreate_v2);
    CREATE(context, device, real->cuCtxCreate_v2(context, flags, device));
}

EGPU_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int count, unsigned flags,
                                    CUdevice device)
{
    EGPU_DRIVER(real, cuCtxCreate_v3);
    CREATE(context, device, real->cuCtxCreate_v3(context, affinity, count, flags, device));
}

EGPU_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *parameters, unsigned flags,
                                    CUdevice device)
{
    EGPU_DRIVER(real, cuCtxCreate_v4);
    CREATE(context, device, real->cuCtxCreate_v4(context, parameters, flags, device));
}

/* Contexts that share with OpenGL and VDPAU. */

EGPU_EXPORT CUresult cuGLCtxCreate(CUcontext *context, unsigned flags, CUdevice device)
{
    EGPU_DRIVER(real, cuGLCtxCreate);
    CREATE(context, device, real->cuGLCtxCreate(context, flags, device));
}

EGPU_EXPORT CUresult cuGLCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device)
{
    EGPU_DRIVER(real, cuGLCtxCreate_v2);
    CREATE(context, device, real->cuGLCtxCreate_v2(context, flags, device));
}

EGPU_EXPORT CUresult cuVDPAUCtxCreate(CUcontext *context, unsigned flags, CUdevice device, unsigned vdpau, void *look_up)
{
    EGPU_DRIVER(real, cuVDPAUCtxCreate);
    CREATE(context, device, real->cuVDPAUCtxCreate(context, flags, device, vdpau, look_up));
}

EGPU_EXPORT CUresult cuVDPAUCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device, unsigned vdpau,
                                         void *look_up)
{
    EGPU_DRIVER(real, cuVDPAUCtxCreate_v2);
    CREATE(context, device, real->cuVDPAUCtxCreate_v2(context, flags, device, vdpau, look_up));
}

static CUresult destroy(CUcontext context, CUresult (*call)(CUcontext))
{
    struct egpu_ending ending = egpu_context_ending(context);
    CUresult result = call(context);
    egpu_context_ended(&ending, result == CUDA_SUCCESS);
    return result;
}

EGPU_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    EGPU_DRIVER(real, cuCtxDestroy_v2);
    return destroy(context, real->cuCtxDestroy_v2);
}

EGPU_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    EGPU_DRIVER(real, cuCtxDestroy);
    return destroy(context, real->cuCtxDestroy);
}

static bool attached(struct egpu_track *context, void *data)
{
    context->references += *(bool *)data ? 1u : -1u;
    return false;
}

/* From before CUDA 4: contexts with a count of their users. */
EGPU_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned flags)
{
    EGPU_DRIVER(real, cuCtxAttach);
    CUresult result = real->cuCtxAttach(context, flags);
    bool more = true;
    if (result == CUDA_SUCCESS && context)
        egpu_change(EGPU_CONTEXT, (uint64_t)(uintptr_t)*context, attached, &more);
    return result;
}

EGPU_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    EGPU_DRIVER(real, cuCtxDetach);
    struct egpu_track track;
    bool more = false;
    if (!egpu_get(EGPU_CONTEXT, (uint64_t)(uintptr_t)context, &track) || track.references == 1)
        return destroy(context, real->cuCtxDetach);
    CUresult result = real->cuCtxDetach(context);
    if (result == CUDA_SUCCESS)
        egpu_change(EGPU_CONTEXT, (uint64_t)(uintptr_t)context, attached, &more);
    return result;
}

/* --- what there is --- */

static size_t smaller(size_t left, size_t right)
{
    return left < right ? left : right;
}

EGPU_EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total)
{
    EGPU_DRIVER(real, cuMemGetInfo_v2);
    CUresult result = real->cuMemGetInfo_v2(left, total);
    const int card = result == CUDA_SUCCESS && left && total ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return result;
    const struct egpu_room room = egpu_room_on(card);
    const struct egpu_control *control = egpu_control_now();
    const bool spills = card >= 0 && control->cards[card].flags & EGPU_CARD_SPILL;
    *total = room.total;
    *left = spills ? room.largest_free : smaller(room.largest_free, *left & ~(size_t)(EGPU_GRANULE - 1));
    return result;
}

EGPU_EXPORT CUresult cuMemGetInfo(unsigned *left, unsigned *total)
{
    EGPU_DRIVER(real, cuMemGetInfo);
    CUresult result = real->cuMemGetInfo(left, total);
    const int card = result == CUDA_SUCCESS && left && total ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return result;
    const struct egpu_room room = egpu_room_on(card);
    *total = (unsigned)smaller(room.total, UINT_MAX);
    *left = (unsigned)smaller(room.largest_free, UINT_MAX);
    return result;
}

/* The cap of a device, or `actual` where no limits are known. */
static size_t total_of(CUdevice device, size_t actual)
{
    const int card = egpu_charged_device(device);
    if (card == EGPU_NO_LIMITS)
        return actual;
    return card < 0 ? 0 : egpu_control_now()->cards[card].memory_bytes;
}

EGPU_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    EGPU_DRIVER(real, cuDeviceTotalMem_v2);
    CUresult result = real->cuDeviceTotalMem_v2(bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = total_of(device, *bytes);
    return result;
}

EGPU_EXPORT CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device)
{
    EGPU_DRIVER(real, cuDeviceTotalMem);
    CUresult result = real->cuDeviceTotalMem(bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned)smaller(total_of(device, *bytes), UINT_MAX);
    return result;
}
