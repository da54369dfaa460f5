/* Stream-ordered allocation. A pool holds what it has reserved, not what is in use of it: that is what is charged. */
#include "memory.h"

enum { MOST_DEVICES = 64, CELL = 512 };
#define PIECE (32ull << 20) /* what a pool takes from the card at a time */

static struct egpu_lock pool_lock; /* reading what a pool holds and charging it */
static _Atomic bool shrinking;     /* memory was freed into a pool, which lets go of it at the next synchronisation */

static uint64_t key_of(CUmemoryPool pool)
{
    return (uint64_t)(uintptr_t)pool;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute what)
{
    const struct egpu_real *real = egpu_driver();
    uint64_t value = 0;
    if (real->cuMemPoolGetAttribute && real->cuMemPoolGetAttribute(pool, what, &value) == CUDA_SUCCESS)
        return value;
    return 0;
}

/* Makes the charge what the pool holds, under the lock. What allocations under way were charged ahead may be in that
 * or not yet: as long as there are any, the charge is left between the two. False: the pool has more than fits, and
 * is charged for it all the same. */
static bool settle(CUmemoryPool pool, struct egpu_track *track)
{
    const uint64_t holds = egpu_sub(egpu_round(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)), track->passed);
    const uint64_t before = track->bytes, most = egpu_add(holds, track->ahead);
    bool good = true;
    track->bytes = before < holds ? holds : before > most ? most : before;
    egpu_discharge(track->card, egpu_sub(before, track->bytes), 0);
    if (track->bytes > before && !egpu_try_charge(track->card, track->bytes - before, 0)) {
        egpu_charge_anyway(track->card, track->bytes - before, 0);
        good = false;
    }
    egpu_put(track);
    return good;
}

/* An allocation from a pool, from before it is asked for until it is made or refused. */
struct under_way {
    CUmemoryPool pool;
    int card;
    uint64_t cells;    /* what it takes of the pool */
    uint64_t charged;  /* for what the pool takes from the card for it, as far as one can tell */
    uint64_t reserved; /* by the pool, before */
};

/* What the pool takes from the card for it: what it has inside is used first. */
static uint64_t lacks(const struct under_way *ask, uint64_t asked_before)
{
    const uint64_t used = egpu_add(attribute(ask->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), asked_before);
    return egpu_add(egpu_sub(ask->cells, egpu_sub(ask->reserved, used)), PIECE - 1) / PIECE * PIECE;
}

/* From here on others leave it what it takes of the pool. */
static void begin(struct under_way *ask)
{
    struct egpu_track track = {0};
    egpu_lock(&pool_lock);
    const bool known = egpu_get(EGPU_POOL, key_of(ask->pool), &track);
    ask->reserved = attribute(ask->pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    ask->charged = lacks(ask, track.asked);
    track.asked = egpu_add(track.asked, ask->cells);
    if (known)
        egpu_put(&track);
    egpu_unlock(&pool_lock);
}

/* What it lacks was charged. */
static void charged(const struct under_way *ask)
{
    struct egpu_track track;
    egpu_lock(&pool_lock);
    if (egpu_get(EGPU_POOL, key_of(ask->pool), &track)) {
        track.bytes = egpu_add(track.bytes, ask->charged);
        track.ahead = egpu_add(track.ahead, ask->charged);
        egpu_put(&track);
    } else {
        egpu_discharge(ask->card, ask->charged, 0);
    }
    egpu_unlock(&pool_lock);
}

/* It was made, or refused, or never asked for: then nothing is charged. False: the pool took more than fits. */
static bool end(const struct under_way *ask)
{
    struct egpu_track track;
    bool good = true;
    egpu_lock(&pool_lock);
    if (egpu_get(EGPU_POOL, key_of(ask->pool), &track)) {
        track.ahead = egpu_sub(track.ahead, ask->charged);
        track.asked = egpu_sub(track.asked, ask->cells);
        good = settle(ask->pool, &track);
    }
    egpu_unlock(&pool_lock);
    return good;
}

void egpu_pool_refresh(CUmemoryPool pool)
{
    struct egpu_track track;
    egpu_lock(&pool_lock);
    if (egpu_get(EGPU_POOL, key_of(pool), &track) && !track.other)
        settle(pool, &track);
    egpu_unlock(&pool_lock);
}

int egpu_pool_pass(uint64_t pool, uint64_t key, uint64_t bytes)
{
    struct egpu_track track;
    int entry = -1;
    egpu_lock(&pool_lock);
    if (egpu_get(EGPU_POOL, pool, &track) && !track.other && track.bytes >= bytes)
        entry = egpu_share(key, track.card, bytes);
    if (entry >= 0) {
        track.bytes -= bytes;
        track.passed = egpu_add(track.passed, bytes);
        egpu_put(&track);
    }
    egpu_unlock(&pool_lock);
    return entry;
}

static bool known_pool(CUmemoryPool pool, struct egpu_track *track)
{
    return egpu_get(EGPU_POOL, key_of(pool), track);
}

static bool add_pool(CUmemoryPool pool, int card, struct egpu_track *track)
{
    *track = (struct egpu_track){.key = key_of(pool), .kind = EGPU_POOL, .card = card, .shared = -1, .references = 1};
    if (card < 0)
        return false;
    egpu_lock(&pool_lock);
    bool good = known_pool(pool, track) || egpu_put(track);
    egpu_unlock(&pool_lock);
    return good;
}

/* Where a pool's memory lies that was not made here, as newer drivers tell. What is managed comes to the card where it is
 * used, whatever place was preferred. */
static int card_of_pool(CUmemoryPool pool)
{
    const CUmemLocation place = {(CUmemLocationType)attribute(pool, CU_MEMPOOL_ATTR_LOCATION_TYPE),
                                 (int)attribute(pool, CU_MEMPOOL_ATTR_LOCATION_ID)};
    const CUdevice device = egpu_device_at(&place);
    if (device >= 0)
        return egpu_charged_device(device);
    const bool managed = attribute(pool, CU_MEMPOOL_ATTR_ALLOCATION_TYPE) == CU_MEM_ALLOCATION_TYPE_MANAGED;
    return managed ? egpu_charged_current() : EGPU_NO_LIMITS;
}

/* Devices' own pools come without being made: this is one of them, or a pool of the host's memory. */
static bool find_pool(const struct egpu_real *real, CUmemoryPool pool, struct egpu_track *track)
{
    int devices = 0;
    CUmemoryPool own;
    if (known_pool(pool, track))
        return true;
    if (!real->cuDeviceGetCount || !real->cuDeviceGetDefaultMemPool || real->cuDeviceGetCount(&devices) != CUDA_SUCCESS)
        return false;
    for (CUdevice device = 0; device < devices && device < MOST_DEVICES; device++)
        if (real->cuDeviceGetDefaultMemPool(&own, device) == CUDA_SUCCESS && own == pool)
            return add_pool(pool, egpu_charged_device(device), track);
    return add_pool(pool, card_of_pool(pool), track);
}

/* --- allocation --- */

struct ask {
    CUdeviceptr *pointer;
    size_t bytes;
    CUmemoryPool pool; /* NULL: the stream's device's current one */
    CUstream stream;
    bool per_thread;
};

static bool capturing(const struct egpu_real *real, const struct ask *ask)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    __typeof__(real->cuStreamIsCapturing) question =
        ask->per_thread ? real->cuStreamIsCapturing_ptsz : real->cuStreamIsCapturing;
    return question && question(ask->stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static CUresult call(const struct egpu_real *real, const struct ask *ask)
{
    if (ask->pool)
        return ask->per_thread ? real->cuMemAllocFromPoolAsync_ptsz(ask->pointer, ask->bytes, ask->pool, ask->stream)
                               : real->cuMemAllocFromPoolAsync(ask->pointer, ask->bytes, ask->pool, ask->stream);
    return ask->per_thread ? real->cuMemAllocAsync_ptsz(ask->pointer, ask->bytes, ask->stream)
                           : real->cuMemAllocAsync(ask->pointer, ask->bytes, ask->stream);
}

/* Exchanges the thread's capture mode: what the program did not ask for spoils no capture of its threads. */
static void relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode)
{
    if (real->cuThreadExchangeStreamCaptureMode)
        real->cuThreadExchangeStreamCaptureMode(mode);
}

static CUmemoryPool current_pool(const struct egpu_real *real, CUstream stream)
{
    CUcontext context = NULL, before = NULL;
    CUdevice device;
    CUmemoryPool pool = NULL;
    bool other = stream > CU_STREAM_PER_THREAD && real->cuStreamGetCtx && real->cuCtxPushCurrent_v2 &&
                 real->cuStreamGetCtx(stream, &context) == CUDA_SUCCESS && context &&
                 real->cuCtxPushCurrent_v2(context) == CUDA_SUCCESS;
    if (real->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        real->cuDeviceGetMemPool(&pool, device);
    if (other)
        real->cuCtxPopCurrent_v2(&before);
    return pool;
}

static void trim(const struct egpu_real *real, CUmemoryPool pool, uint64_t keep)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    relaxed(real, &mode);
    real->cuMemPoolTrimTo(pool, keep);
    relaxed(real, &mode);
    egpu_pool_refresh(pool);
}

/* Takes back what was just allocated, with what the pool took from the card for it. */
static void undo(const struct egpu_real *real, const struct ask *ask, const struct under_way *made)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    relaxed(real, &mode);
    if (ask->per_thread) {
        real->cuMemFreeAsync_ptsz(*ask->pointer, ask->stream);
        real->cuStreamSynchronize_ptsz(ask->stream);
    } else {
        real->cuMemFreeAsync(*ask->pointer, ask->stream);
        real->cuStreamSynchronize(ask->stream);
    }
    relaxed(real, &mode);
    trim(real, made->pool, made->reserved);
}

/* Charges what the pool may take from the card for it. */
static CUresult reserve(const struct egpu_real *real, struct under_way *made)
{
    begin(made);
    CUresult result = egpu_charge(made->card, made->charged, 0);
    if (result != CUDA_SUCCESS) { /* so much, and no more of what the pool keeps, goes back first */
        const uint64_t keep = egpu_sub(made->reserved, made->charged);
        made->charged = 0;
        end(made);
        trim(real, made->pool, keep);
        begin(made);
        result = egpu_charge(made->card, made->charged, 0);
    }
    if (result == CUDA_SUCCESS) {
        charged(made);
    } else {
        made->charged = 0;
        end(made);
    }
    return result;
}

static CUresult allocate(const struct ask *ask)
{
    const struct egpu_real *real = egpu_driver();
    struct egpu_track track;
    if (!ask->pointer || !ask->bytes || !real->cuDeviceGetMemPool || !real->cuMemPoolTrimTo || capturing(real, ask))
        return call(real, ask); /* captured: the graph is charged when it is instantiated */
    if (!egpu_control_refresh())
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUmemoryPool pool = ask->pool ? ask->pool : current_pool(real, ask->stream);
    if (!pool || !find_pool(real, pool, &track)) {
        int card = pool && !ask->pool ? egpu_charged_current() : EGPU_NO_LIMITS;
        if (!add_pool(pool, card, &track))
            return card == EGPU_NO_CARD ? CUDA_ERROR_OUT_OF_MEMORY : call(real, ask);
    }
    struct under_way made = {.pool = pool, .card = track.card, .cells = egpu_add(ask->bytes, CELL - 1) / CELL * CELL};
    CUresult result = reserve(real, &made);
    if (result != CUDA_SUCCESS)
        return result;
    result = call(real, ask);
    const bool fits = end(&made);
    if (result != CUDA_SUCCESS)
        return result;
    const struct egpu_track pooled = {.key = *ask->pointer, .kind = EGPU_POOLED, .card = track.card,
                                      .other = key_of(pool), .shared = -1, .references = 1};
    if (fits && egpu_put(&pooled))
        return CUDA_SUCCESS;
    undo(real, ask, &made);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define ALLOCATE(name, ...)                             \
    EGPU_DRIVER(real, name);                            \
    (void)real;                                         \
    return allocate(&(struct ask){__VA_ARGS__})

EGPU_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync, pointer, bytes, NULL, stream, false);
}

EGPU_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync_ptsz, pointer, bytes, NULL, stream, true);
}

EGPU_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync, pointer, bytes, pool, stream, false);
}

EGPU_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool,
                                                  CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pointer, bytes, pool, stream, true);
}

/* --- freeing --- */

bool egpu_pooled_free(CUdeviceptr pointer, struct egpu_track *track)
{
    return egpu_take(EGPU_POOLED, pointer, track);
}

static bool one_less(struct egpu_track *track, void *data)
{
    *(struct egpu_track *)data = *track;
    return track->other && --track->references == 0;
}

static bool less_passed(struct egpu_track *pool, void *bytes)
{
    pool->passed = egpu_sub(pool->passed, *(const uint64_t *)bytes);
    return false;
}

void egpu_pooled_freed(const struct egpu_track *track)
{
    struct egpu_track pool;
    uint64_t bytes = track->bytes;
    if (track->shared >= 0) { /* the pool may hold on to it */
        egpu_lock(&pool_lock);
        egpu_change(EGPU_POOL, track->other, less_passed, &bytes);
        egpu_unlock(&pool_lock);
        egpu_share_drop(track->shared);
        egpu_pool_refresh((CUmemoryPool)(uintptr_t)track->other);
    }
    atomic_store(&shrinking, true);
    if (egpu_change(EGPU_POOL, track->other, one_less, &pool) && pool.other && pool.references == 1)
        egpu_end_track(&pool); /* the last of a pool that was destroyed */
}

/* --- pools themselves --- */

EGPU_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    EGPU_DRIVER(real, cuMemPoolCreate);
    CUresult result = real->cuMemPoolCreate(pool, properties);
    struct egpu_track track;
    const CUdevice device = result == CUDA_SUCCESS && properties ? egpu_device_at(&properties->location) : -1;
    if (device >= 0)
        add_pool(*pool, egpu_charged_device(device), &track);
    else if (result == CUDA_SUCCESS && properties && properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED)
        add_pool(*pool, egpu_charged_current(), &track);
    return result;
}

struct destroyed {
    uint64_t pool, instead;
    uint32_t left;
};

static bool relabel(const struct egpu_track *track, void *data)
{
    struct destroyed *destroyed = data;
    if (track->kind == EGPU_POOLED && track->other == destroyed->pool) {
        ((struct egpu_track *)track)->other = destroyed->instead;
        destroyed->left++;
    }
    return false;
}

/* What is allocated from it lives on, and its memory with it. */
EGPU_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    static _Atomic uint64_t orphans = 1;
    EGPU_DRIVER(real, cuMemPoolDestroy);
    struct egpu_track track;
    if (real->cuMemPoolTrimTo)
        real->cuMemPoolTrimTo(pool, 0);
    egpu_pool_refresh(pool);
    egpu_lock(&pool_lock); /* nobody asks a pool that is gone what it holds */
    const bool known = egpu_take(EGPU_POOL, key_of(pool), &track);
    CUresult result = real->cuMemPoolDestroy(pool);
    if (known && result != CUDA_SUCCESS)
        egpu_put(&track);
    egpu_unlock(&pool_lock);
    if (!known || result != CUDA_SUCCESS)
        return result;
    struct destroyed destroyed = {.pool = track.key, .instead = atomic_fetch_add(&orphans, 1)}; /* no address */
    egpu_each(relabel, &destroyed);
    track.key = track.other = destroyed.instead;
    track.references = destroyed.left;
    if (!destroyed.left || !egpu_put(&track))
        egpu_end_track(&track);
    return result;
}

EGPU_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    EGPU_DRIVER(real, cuMemPoolTrimTo);
    CUresult result = real->cuMemPoolTrimTo(pool, keep);
    egpu_pool_refresh(pool);
    return result;
}

/* At a synchronisation pools let go of what is free. */
void egpu_pools_synchronised(void)
{
    if (atomic_load_explicit(&shrinking, memory_order_relaxed) && atomic_exchange(&shrinking, false))
        egpu_pools_refresh(EGPU_NO_LIMITS);
}
