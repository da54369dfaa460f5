/* Contexts, which take memory themselves, and what the driver says about a card's memory. */
#include "memory.h"

#include <limits.h>
#include <stdlib.h>

enum { DEVICES = 64 };

/* --- contexts --- */

/* What one context is expected to take, as the agent has learnt it. */
static uint64_t overhead(int card)
{
    const struct egpu_control *control = egpu_control_now();
    return control && card >= 0 && card < (int)control->card_count ? egpu_round(control->cards[card].context_bytes) : 0;
}

static CUresult reserve(int card)
{
    if (card == EGPU_NO_CARD)
        return CUDA_ERROR_OUT_OF_MEMORY;
    return egpu_charge(card, overhead(card), 0);
}

static void keep(CUcontext context, int card, uint64_t bytes)
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

static void end(struct egpu_track *tracks, size_t count)
{
    egpu_context_ended(tracks, count);
    for (size_t i = 0; i < count; i++)
        if (tracks[i].kind == EGPU_CONTEXT)
            egpu_mark_context(tracks[i].card, egpu_each(on_card, &tracks[i].card));
    free(tracks);
}

static void ended(CUcontext context)
{
    size_t count;
    struct egpu_track *tracks = egpu_context_take((uint64_t)(uintptr_t)context, &count);
    end(tracks, count);
}

/* Makes a context by `call`, within the cap. */
#define CREATE(context, device, call)                               \
    do {                                                            \
        const int card = egpu_charged_device(device);               \
        const uint64_t bytes = overhead(card);                      \
        CUresult result = reserve(card);                            \
        if (result != CUDA_SUCCESS)                                 \
            return result;                                          \
        result = (call);                                            \
        if (result == CUDA_SUCCESS && (context))                    \
            keep(*(context), card, bytes);                          \
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

/* The tracks go before the driver does it: handle and addresses may be another thread's then. */
static CUresult destroy(CUcontext context, CUresult (*call)(CUcontext))
{
    size_t count;
    if (egpu_time_context_gone)
        egpu_time_context_gone(context);
    struct egpu_track *tracks = egpu_context_take((uint64_t)(uintptr_t)context, &count);
    CUresult result = call(context);
    if (result == CUDA_SUCCESS) {
        end(tracks, count);
        return result;
    }
    for (size_t i = 0; i < count; i++)
        egpu_put(&tracks[i]);
    free(tracks);
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

/* A primary context is one, however often it is retained, and its handle comes again. So one thread at a time makes or
 * ends that of a device: of several that begin together each would take the room of one, and what one ends would be
 * what another has just made. Held over calls of the driver, which lets one in at a time as well. */
static struct egpu_lock primaries[DEVICES];
/* This thread does: what a tool calls that the driver tells of it (CUPTI) belongs to that. */
static __thread __attribute__((tls_model("initial-exec"))) bool within;

static bool begin_with(CUdevice first, int count)
{
    if (within)
        return false;
    for (int i = 0; i < count; i++)
        egpu_lock(&primaries[(unsigned)(first + i) % DEVICES]);
    return within = true;
}

static void end_with(CUdevice first, int count, bool begun)
{
    within = within && !begun;
    for (int i = 0; begun && i < count; i++)
        egpu_unlock(&primaries[(unsigned)(first + i) % DEVICES]);
}

static bool primary_is_active(const struct egpu_real *real, CUdevice device)
{
    unsigned flags;
    int active = 0;
    return real->cuDevicePrimaryCtxGetState &&
           real->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

static CUresult retain(const struct egpu_real *real, CUcontext *context, CUdevice device)
{
    if (primary_is_active(real, device))
        return real->cuDevicePrimaryCtxRetain(context, device);
    CREATE(context, device, real->cuDevicePrimaryCtxRetain(context, device));
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxRetain);
    const bool begun = begin_with(device, 1);
    CUresult result = retain(real, context, device);
    end_with(device, 1, begun);
    return result;
}

/* The primary context's handle, found by one more reference on it while it is there. */
static CUcontext primary(const struct egpu_real *real, CUdevice device)
{
    CUcontext context = NULL;
    if (!primary_is_active(real, device) || !real->cuDevicePrimaryCtxRetain ||
        real->cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS)
        return NULL;
    if (real->cuDevicePrimaryCtxRelease_v2)
        real->cuDevicePrimaryCtxRelease_v2(device);
    else if (real->cuDevicePrimaryCtxRelease)
        real->cuDevicePrimaryCtxRelease(device);
    return context;
}

static CUresult end_primary(CUdevice device, CUresult (*call)(CUdevice), bool always)
{
    const struct egpu_real *real = egpu_driver();
    const bool begun = begin_with(device, 1);
    CUcontext context = primary(real, device);
    CUresult result = call(device);
    if (result == CUDA_SUCCESS && context && (always || !primary_is_active(real, device))) {
        if (egpu_time_context_gone)
            egpu_time_context_gone(context);
        ended(context);
    }
    end_with(device, 1, begun);
    return result;
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxRelease_v2);
    return end_primary(device, real->cuDevicePrimaryCtxRelease_v2, false);
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxRelease);
    return end_primary(device, real->cuDevicePrimaryCtxRelease, false);
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxReset_v2);
    return end_primary(device, real->cuDevicePrimaryCtxReset_v2, true);
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxReset);
    return end_primary(device, real->cuDevicePrimaryCtxReset, true);
}

/* --- green contexts, each of which retains the device's primary one --- */

static CUresult make_green(const struct egpu_real *real, CUgreenCtx *green, CUdevResourceDesc resources,
                           CUdevice device, unsigned flags)
{
    if (primary_is_active(real, device))
        return real->cuGreenCtxCreate(green, resources, device, flags);
    const int card = egpu_charged_device(device);
    const uint64_t bytes = overhead(card);
    CUresult result = reserve(card);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuGreenCtxCreate(green, resources, device, flags);
    CUcontext context = result == CUDA_SUCCESS ? primary(real, device) : NULL;
    if (context)
        keep(context, card, bytes);
    else
        egpu_discharge(card, bytes, 0);
    return result;
}

EGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned flags)
{
    EGPU_DRIVER(real, cuGreenCtxCreate);
    const bool begun = begin_with(device, 1);
    CUresult result = make_green(real, green, resources, device, flags);
    end_with(device, 1, begun);
    return result;
}

EGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    EGPU_DRIVER(real, cuGreenCtxDestroy);
    CUcontext before[DEVICES];
    int count = 0;
    if (!real->cuDeviceGetCount || real->cuDeviceGetCount(&count) != CUDA_SUCCESS)
        count = 0;
    count = count < DEVICES ? count : DEVICES;
    const bool begun = begin_with(0, count);
    for (CUdevice device = 0; device < count; device++) /* it does not say whose it is */
        before[device] = primary(real, device);
    CUresult result = real->cuGreenCtxDestroy(green);
    for (CUdevice device = 0; device < count; device++)
        if (result == CUDA_SUCCESS && before[device] && !primary_is_active(real, device)) {
            if (egpu_time_context_gone)
                egpu_time_context_gone(before[device]);
            ended(before[device]);
        }
    end_with(0, count, begun);
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
