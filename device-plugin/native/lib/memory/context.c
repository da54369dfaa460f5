/* Contexts, which take memory themselves and set more aside, and what the driver says about a card's memory. */
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

/* --- what a context is told to set aside on the card --- */

static bool grow(struct egpu_track *context, void *bytes)
{
    context->bytes = egpu_add(context->bytes, *(uint64_t *)bytes);
    return false;
}

/* What all threads that a card can hold at once have of local memory, at `bytes` each. */
static uint64_t local_memory(const struct egpu_real *real, uint64_t bytes)
{
    enum { CARD_PROCESSORS = 16, PROCESSOR_THREADS = 39 };
    CUdevice device;
    int processors = 0, threads = 0;
    uint64_t all;
    if (!real->cuDeviceGetAttribute || !real->cuCtxGetDevice || real->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        real->cuDeviceGetAttribute(&processors, CARD_PROCESSORS, device) != CUDA_SUCCESS ||
        real->cuDeviceGetAttribute(&threads, PROCESSOR_THREADS, device) != CUDA_SUCCESS || processors < 0 || threads < 0)
        return 0;
    return __builtin_mul_overflow((uint64_t)processors * (uint64_t)threads, bytes, &all) ? UINT64_MAX : egpu_round(all);
}

static bool start_stack(struct egpu_track *context, void *bytes)
{
    context->other = *(uint64_t *)bytes;
    return false;
}

static bool grow_stack(struct egpu_track *context, void *bytes)
{
    context->bytes = egpu_add(context->bytes, egpu_sub(*(uint64_t *)bytes, context->other));
    context->other = *(uint64_t *)bytes;
    return false;
}

/* Stacks of kernels: the first of the default size are part of the context. The driver keeps the most that was asked
 * for. What it adds for kernels that need more than was set is part of what the agent sees of the process. */
static CUresult set_stack(const struct egpu_real *real, CUlimit limit, size_t value, size_t before)
{
    struct egpu_track context = {0};
    uint64_t had = local_memory(real, before), wanted = local_memory(real, value);
    if (!egpu_get(EGPU_CONTEXT, egpu_current_context(), &context))
        return real->cuCtxSetLimit(limit, value);
    had = had > context.other ? had : context.other;
    const int card = egpu_charged_current();
    CUresult result = egpu_charge(card, egpu_sub(wanted, had), 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context.other) /* what comes with the context is not charged twice */
        egpu_change(EGPU_CONTEXT, egpu_current_context(), start_stack, &had);
    result = real->cuCtxSetLimit(limit, value);
    if (wanted > had && (result != CUDA_SUCCESS ||
                         !egpu_change(EGPU_CONTEXT, egpu_current_context(), grow_stack, &wanted)))
        egpu_discharge(card, wanted - had, 0);
    return result;
}

/* The heap of malloc() in kernels, the buffer of printf() and stacks lie on the card. */
EGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    enum { STACKS = 0, PRINTF_BUFFER = 1, MALLOC_HEAP = 2 };
    EGPU_DRIVER(real, cuCtxSetLimit);
    size_t before = 0;
    if (limit == STACKS && real->cuCtxGetLimit && real->cuCtxGetLimit(&before, limit) == CUDA_SUCCESS && value > before)
        return set_stack(real, limit, value, before);
    if ((limit != PRINTF_BUFFER && limit != MALLOC_HEAP) || !real->cuCtxGetLimit ||
        real->cuCtxGetLimit(&before, limit) != CUDA_SUCCESS || value <= before)
        return real->cuCtxSetLimit(limit, value);
    const int card = egpu_charged_current();
    uint64_t more = egpu_round(value - before);
    CUresult result = egpu_charge(card, more, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS || !egpu_change(EGPU_CONTEXT, egpu_current_context(), grow, &more))
        egpu_discharge(card, more, 0);
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
