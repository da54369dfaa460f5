/* Plain, pitched and managed memory. What the driver cuts from one 2 MiB piece is charged once per piece. */
#include "memory.h"

enum { PITCH = 512 };

uint64_t egpu_current_context(void)
{
    const struct egpu_real *real = egpu_driver();
    CUcontext context = NULL;
    if (!real || !real->cuCtxGetCurrent || real->cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return 0;
    return (uint64_t)(uintptr_t)context;
}

static uint64_t chunk_of(CUdeviceptr pointer)
{
    return pointer / EGPU_GRANULE;
}

static bool one_less(struct egpu_track *chunk, void *data)
{
    *(struct egpu_track *)data = *chunk;
    return --chunk->references == 0;
}

/* A small allocation is at `pointer`, charged with a piece of its own: if it shares one, that charge goes back. Which
 * it will be is not known before, so where no piece is left no small allocation succeeds. */
static bool settle_small(CUdeviceptr pointer, int card)
{
    enum egpu_joined joined = egpu_join(&(struct egpu_track){.key = chunk_of(pointer), .kind = EGPU_CHUNK, .card = card,
                                                             .bytes = EGPU_GRANULE, .shared = -1, .references = 1});
    if (joined == EGPU_JOINED)
        egpu_discharge(card, EGPU_GRANULE, 0);
    return joined != EGPU_NOT_KEPT;
}

static void release_small(CUdeviceptr pointer)
{
    struct egpu_track chunk;
    if (egpu_change(EGPU_CHUNK, chunk_of(pointer), one_less, &chunk) && chunk.references == 1)
        egpu_end_track(&chunk);
}

/* A freed track's memory is the card's again. */
void egpu_end_linear(const struct egpu_track *track)
{
    if (track->other)
        release_small(track->key);
    else
        egpu_end_track(track);
}

static CUresult spill(CUdeviceptr *pointer, uint64_t bytes, int card)
{
    const struct egpu_real *real = egpu_driver();
    const struct egpu_control *control = egpu_control_now();
    if (card < 0 || !(control->cards[card].flags & EGPU_CARD_SPILL) || !real->cuMemAllocManaged)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const uint64_t charge = egpu_round(bytes);
    CUresult result = egpu_charge(card, 0, charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuMemAllocManaged(pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result == CUDA_SUCCESS &&
        egpu_put(&(struct egpu_track){.key = *pointer, .kind = EGPU_LINEAR, .card = card, .managed = charge,
                                      .context = egpu_current_context(), .shared = -1, .references = 1}))
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        real->cuMemFree_v2(*pointer);
    egpu_discharge(card, 0, charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult on_card(CUdeviceptr *pointer, uint64_t bytes, int card, CUresult (*allocate)(CUdeviceptr *, void *),
                        void *data)
{
    const struct egpu_real *real = egpu_driver();
    const bool small = bytes < EGPU_GRANULE;
    const uint64_t charge = egpu_round(bytes);
    CUresult result = egpu_charge(card, charge, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = allocate(pointer, data);
    if (result != CUDA_SUCCESS) {
        egpu_discharge(card, charge, 0);
        return result;
    }
    struct egpu_track track = {.key = *pointer, .kind = EGPU_LINEAR, .card = card, .bytes = small ? 0 : charge,
                               .context = egpu_current_context(), .other = small, .shared = -1, .references = 1};
    if (small && !settle_small(*pointer, card)) {
        real->cuMemFree_v2(*pointer);
        egpu_discharge(card, charge, 0);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (egpu_put(&track))
        return CUDA_SUCCESS;
    real->cuMemFree_v2(*pointer);
    egpu_end_linear(&track);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult egpu_linear(CUdeviceptr *pointer, uint64_t bytes, CUresult (*allocate)(CUdeviceptr *, void *), void *data)
{
    const int card = pointer && bytes ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return allocate(pointer, data);
    CUresult result = on_card(pointer, bytes, card, allocate, data);
    return result == CUDA_ERROR_OUT_OF_MEMORY ? spill(pointer, bytes, card) : result;
}

/* --- the entry points --- */

static CUresult plain(CUdeviceptr *pointer, void *bytes)
{
    return egpu_driver()->cuMemAlloc_v2(pointer, *(size_t *)bytes);
}

EGPU_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    EGPU_DRIVER(real, cuMemAlloc_v2);
    return egpu_linear(pointer, bytes, plain, &bytes);
}

struct narrow { /* the entry points from before CUDA 3.2 */
    unsigned bytes;
    CUdeviceptr_v1 pointer;
};

static CUresult plain_narrow(CUdeviceptr *pointer, void *data)
{
    struct narrow *narrow = data;
    CUresult result = egpu_driver()->cuMemAlloc(&narrow->pointer, narrow->bytes);
    *pointer = narrow->pointer;
    return result;
}

static CUresult narrowed(CUdeviceptr_v1 *pointer, CUdeviceptr wide, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return result;
    if (wide > UINT32_MAX) { /* spilled to where 32 bits do not reach */
        cuMemFree_v2(wide);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *pointer = (CUdeviceptr_v1)wide;
    return result;
}

EGPU_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned bytes)
{
    EGPU_DRIVER(real, cuMemAlloc);
    if (!pointer)
        return real->cuMemAlloc(pointer, bytes);
    CUdeviceptr wide = 0;
    struct narrow narrow = {.bytes = bytes};
    CUresult result = egpu_linear(&wide, bytes, plain_narrow, &narrow);
    return narrowed(pointer, wide, result);
}

struct pitched {
    size_t pitch, width, height;
    unsigned element;
    bool old, spilled;
};

static CUresult pitched(CUdeviceptr *pointer, void *data)
{
    struct pitched *ask = data;
    const struct egpu_real *real = egpu_driver();
    CUdeviceptr_v1 narrow = 0;
    unsigned pitch = 0;
    CUresult result;
    if (ask->old) {
        result = real->cuMemAllocPitch(&narrow, &pitch, (unsigned)ask->width, (unsigned)ask->height, ask->element);
        *pointer = narrow;
        ask->pitch = pitch;
    } else {
        result = real->cuMemAllocPitch_v2(pointer, &ask->pitch, ask->width, ask->height, ask->element);
    }
    ask->spilled = result != CUDA_SUCCESS; /* else what spills instead has the pitch of a call that failed */
    return result;
}

static CUresult allocate_pitched(CUdeviceptr *pointer, struct pitched *ask)
{
    size_t pitch = (ask->width + PITCH - 1) / PITCH * PITCH;
    size_t bytes;
    if (__builtin_mul_overflow(pitch, ask->height, &bytes))
        bytes = SIZE_MAX;
    ask->spilled = true; /* unless the driver gives pitched memory */
    CUresult result = egpu_linear(pointer, bytes, pitched, ask);
    if (result != CUDA_SUCCESS)
        return result;
    if (ask->spilled) {
        ask->pitch = pitch;
        return result;
    }
    /* The driver may have taken a wider pitch than ours. */
    struct egpu_track track;
    uint64_t actual = egpu_round((uint64_t)ask->pitch * ask->height);
    if (egpu_take(EGPU_LINEAR, *pointer, &track)) {
        uint64_t more = track.other ? 0 : egpu_sub(actual, track.bytes);
        bool good = egpu_charge(track.card, more, 0) == CUDA_SUCCESS;
        track.bytes += good ? more : 0;
        egpu_put(&track);
        if (!good) {
            cuMemFree_v2(*pointer);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    return CUDA_SUCCESS;
}

EGPU_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                        unsigned element)
{
    EGPU_DRIVER(real, cuMemAllocPitch_v2);
    if (!pointer || !pitch || !width || !height)
        return real->cuMemAllocPitch_v2(pointer, pitch, width, height, element);
    struct pitched ask = {.width = width, .height = height, .element = element};
    CUresult result = allocate_pitched(pointer, &ask);
    if (result == CUDA_SUCCESS)
        *pitch = ask.pitch;
    return result;
}

EGPU_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned *pitch, unsigned width, unsigned height,
                                     unsigned element)
{
    EGPU_DRIVER(real, cuMemAllocPitch);
    if (!pointer || !pitch || !width || !height)
        return real->cuMemAllocPitch(pointer, pitch, width, height, element);
    CUdeviceptr wide = 0;
    struct pitched ask = {.width = width, .height = height, .element = element, .old = true};
    CUresult result = allocate_pitched(&wide, &ask);
    result = narrowed(pointer, wide, result);
    if (result == CUDA_SUCCESS)
        *pitch = (unsigned)ask.pitch;
    return result;
}

EGPU_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned flags)
{
    EGPU_DRIVER(real, cuMemAllocManaged);
    const int card = pointer && bytes ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return real->cuMemAllocManaged(pointer, bytes, flags);
    const uint64_t charge = egpu_round(bytes);
    CUresult result = egpu_charge(card, 0, charge);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuMemAllocManaged(pointer, bytes, flags);
    if (result == CUDA_SUCCESS &&
        egpu_put(&(struct egpu_track){.key = *pointer, .kind = EGPU_LINEAR, .card = card, .managed = charge,
                                      .context = egpu_current_context(), .shared = -1, .references = 1}))
        return result;
    if (result == CUDA_SUCCESS) {
        real->cuMemFree_v2(*pointer);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    egpu_discharge(card, 0, charge);
    return result;
}

/* The track goes before the driver frees: afterwards another thread may be given the same address. */
static CUresult free_linear(CUdeviceptr pointer, CUresult (*release)(CUdeviceptr))
{
    struct egpu_track track;
    if (egpu_take(EGPU_LINEAR, pointer, &track)) {
        CUresult result = release(pointer);
        if (result == CUDA_SUCCESS)
            egpu_end_linear(&track);
        else
            egpu_put(&track);
        return result;
    }
    const bool pooled = egpu_pooled_free(pointer, &track);
    if (!pooled && !egpu_take(EGPU_OPENED, pointer, &track))
        return release(pointer);
    CUresult result = release(pointer);
    if (result != CUDA_SUCCESS)
        egpu_put(&track);
    else if (pooled)
        egpu_pooled_freed(&track);
    else
        egpu_end_track(&track);
    return result;
}

static CUresult wide_free(CUdeviceptr pointer)
{
    return egpu_driver()->cuMemFree_v2(pointer);
}

static CUresult narrow_free(CUdeviceptr pointer)
{
    return egpu_driver()->cuMemFree((CUdeviceptr_v1)pointer);
}

EGPU_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    EGPU_DRIVER(real, cuMemFree_v2);
    return free_linear(pointer, wide_free);
}

EGPU_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    EGPU_DRIVER(real, cuMemFree);
    return free_linear(pointer, narrow_free);
}

/* In the order of a stream: of a pool, most of all, but of any kind. */
static CUresult free_async(CUdeviceptr pointer, CUstream stream, __typeof__(cuMemFreeAsync) *release)
{
    struct egpu_track track;
    enum egpu_kind kind = egpu_take(EGPU_POOLED, pointer, &track)   ? EGPU_POOLED
                        : egpu_take(EGPU_LINEAR, pointer, &track) ? EGPU_LINEAR
                        : egpu_take(EGPU_OPENED, pointer, &track) ? EGPU_OPENED
                                                                  : 0;
    CUresult result = release(pointer, stream);
    if (kind && result != CUDA_SUCCESS)
        egpu_put(&track);
    else if (kind == EGPU_POOLED)
        egpu_pooled_freed(&track);
    else if (kind == EGPU_LINEAR)
        egpu_end_linear(&track);
    else if (kind == EGPU_OPENED)
        egpu_end_track(&track);
    return result;
}

EGPU_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    EGPU_DRIVER(real, cuMemFreeAsync);
    return free_async(pointer, stream, real->cuMemFreeAsync);
}

EGPU_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    EGPU_DRIVER(real, cuMemFreeAsync_ptsz);
    return free_async(pointer, stream, real->cuMemFreeAsync_ptsz);
}

/* --- the end of a context ends what was allocated in it --- */

static bool of_context(const struct egpu_track *track, void *data)
{
    const uint64_t context = *(uint64_t *)data;
    return track->context == context || (track->kind == EGPU_CONTEXT && track->key == context);
}

struct egpu_track *egpu_context_take(uint64_t context, size_t *count)
{
    *count = 0;
    return context ? egpu_take_all(of_context, &context, count) : NULL;
}

void egpu_end_of_context(const struct egpu_track *tracks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tracks[i].kind == EGPU_LINEAR)
            egpu_end_linear(&tracks[i]);
        else
            egpu_end_track(&tracks[i]);
}
