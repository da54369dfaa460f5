/* Primary contexts, of which a device has one, and green contexts, each of which retains it. */
#include "memory.h"

enum { DEVICES = 64 };

/* However often it is retained it is one, and its handle comes again. So one thread at a time makes or ends that of a
 * device: of several that begin together each would take the room of one, and what one ends would be what another has
 * just made. Held over calls of the driver, which lets one in at a time as well. */
static struct primary {
    struct egpu_lock lock;
    uint32_t users; /* references that the program has on it, as far as it took them here */
} primaries[DEVICES];
/* This thread does: what a tool calls that the driver tells of it (CUPTI) belongs to that. */
static __thread __attribute__((tls_model("initial-exec"))) bool within;

static struct primary *of_device(CUdevice device)
{
    return &primaries[(unsigned)device % DEVICES];
}

static bool begin_with(CUdevice first, int count)
{
    if (within)
        return false;
    for (int i = 0; i < count; i++)
        egpu_lock(&of_device(first + i)->lock);
    return within = true;
}

static void end_with(CUdevice first, int count, bool begun)
{
    within = within && !begun;
    for (int i = 0; begun && i < count; i++)
        egpu_unlock(&of_device(first + i)->lock);
}

static bool primary_is_active(const struct egpu_real *real, CUdevice device)
{
    unsigned flags;
    int active = 0;
    return real->cuDevicePrimaryCtxGetState &&
           real->cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
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

/* --- made --- */

struct green {
    CUgreenCtx *made;
    CUdevResourceDesc resources;
    unsigned flags;
};

static CUresult call(const struct egpu_real *real, CUcontext *context, const struct green *green, CUdevice device)
{
    return green ? real->cuGreenCtxCreate(green->made, green->resources, device, green->flags)
                 : real->cuDevicePrimaryCtxRetain(context, device);
}

/* Retains it; whoever is the first makes it, within the cap. */
static CUresult retain(const struct egpu_real *real, CUcontext *context, const struct green *green, CUdevice device)
{
    if (primary_is_active(real, device))
        return call(real, context, green, device);
    const int card = egpu_charged_device(device);
    const uint64_t bytes = egpu_context_overhead(card);
    CUresult result = egpu_context_reserve(card);
    if (result != CUDA_SUCCESS)
        return result;
    result = call(real, context, green, device);
    CUcontext made = result != CUDA_SUCCESS ? NULL : green ? primary(real, device) : context ? *context : NULL;
    if (made)
        egpu_context_keep(made, card, bytes);
    else
        egpu_discharge(card, bytes, 0);
    return result;
}

EGPU_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    EGPU_DRIVER(real, cuDevicePrimaryCtxRetain);
    const bool begun = begin_with(device, 1);
    CUresult result = retain(real, context, NULL, device);
    of_device(device)->users += result == CUDA_SUCCESS;
    end_with(device, 1, begun);
    return result;
}

EGPU_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned flags)
{
    EGPU_DRIVER(real, cuGreenCtxCreate);
    const struct green ask = {green, resources, flags};
    CUcontext stands_for = NULL;
    const bool begun = begin_with(device, 1);
    CUresult result = retain(real, NULL, &ask, device);
    if (result == CUDA_SUCCESS && green) {
        if (real->cuCtxFromGreenCtx && real->cuCtxFromGreenCtx(&stands_for, *green) != CUDA_SUCCESS)
            stands_for = NULL;
        egpu_put(&(struct egpu_track){.key = (uint64_t)(uintptr_t)*green, .kind = EGPU_GREEN, .card = EGPU_NO_CARD,
                                      .other = (uint64_t)device, .passed = (uint64_t)(uintptr_t)stands_for,
                                      .shared = -1, .references = 1});
        of_device(device)->users++;
    }
    end_with(device, 1, begun);
    return result;
}

/* --- ended --- */

struct heir {
    uint64_t green, primary;
};

static bool inherit(const struct egpu_track *track, void *data)
{
    const struct heir *heir = data;
    if (track->context == heir->green)
        ((struct egpu_track *)track)->context = heir->primary;
    return false;
}

/* A green context ends, and so does what was made in it, but for memory: that is the primary one's. */
static void green_ends(const struct egpu_track *green, CUcontext primary)
{
    struct heir heir = {green->passed, (uint64_t)(uintptr_t)primary};
    if (heir.green == heir.primary || !heir.green)
        return;
    if (egpu_time_context_gone)
        egpu_time_context_gone((CUcontext)(uintptr_t)heir.green);
    egpu_each(inherit, &heir);
}

static bool green_on(const struct egpu_track *track, void *device)
{
    return track->kind == EGPU_GREEN && track->other == (uint64_t)*(CUdevice *)device && track->passed;
}

/* Before one reference less, or none any more. Who took references past us has more than are counted: then it lives on. */
static struct egpu_ending ending(CUdevice device, CUcontext context, bool all)
{
    struct egpu_track green;
    while (all && egpu_take_any(green_on, &device, &green)) {
        green_ends(&green, context);
        green.passed = 0; /* it has ended, and is still to be destroyed */
        egpu_put(&green);
    }
    return all || of_device(device)->users <= 1 ? egpu_context_ending(context) : (struct egpu_ending){0};
}

static void ended(const struct egpu_real *real, CUdevice device, CUcontext context, struct egpu_ending *end, bool less, bool all)
{
    struct primary *one = of_device(device);
    const bool gone = less && context && (all || !primary_is_active(real, device));
    const bool unforeseen = gone && !all && one->users > 1;
    if (less)
        one->users = all || !one->users || gone ? 0 : one->users - 1;
    egpu_context_ended(end, gone);
    if (unforeseen) {
        *end = egpu_context_ending(context);
        egpu_context_ended(end, true);
    }
}

static CUresult end_primary(CUdevice device, CUresult (*release)(CUdevice), bool all)
{
    const struct egpu_real *real = egpu_driver();
    const bool begun = begin_with(device, 1);
    CUcontext context = primary(real, device);
    struct egpu_ending end = ending(device, context, all);
    CUresult result = release(device);
    ended(real, device, context, &end, result == CUDA_SUCCESS, all);
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

EGPU_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    EGPU_DRIVER(real, cuGreenCtxDestroy);
    struct egpu_track track;
    if (!egpu_take(EGPU_GREEN, (uint64_t)(uintptr_t)green, &track))
        return real->cuGreenCtxDestroy(green);
    const CUdevice device = (CUdevice)track.other;
    const bool begun = begin_with(device, 1);
    CUcontext context = primary(real, device);
    green_ends(&track, context);
    struct egpu_ending end = ending(device, context, false);
    CUresult result = real->cuGreenCtxDestroy(green);
    ended(real, device, context, &end, result == CUDA_SUCCESS, false);
    if (result != CUDA_SUCCESS)
        egpu_put(&track);
    end_with(device, 1, begun);
    return result;
}
