/* Kernels and graphs, and what is known of each kind of them. */
#include "../memory/hooks.h"
#include "launch.h"

enum { DEVICES_MOST = 64, MEET_NS = 50 * 1000, KINDS = 4096 };

/* --- what is known of each kind of unit --- */

static struct egpu_kind_row kinds[KINDS];

static struct egpu_kind_row *kind_at(uint64_t key, uint32_t nth) {
    return &kinds[(((key | 1) * 0x9e3779b97f4a7c15u >> 40) + nth) % KINDS];
}

static struct egpu_kind_row *kind_of(uint64_t key) {
    key |= 1;
    for (uint32_t i = 0; i < 8; i++) {
        struct egpu_kind_row *row = kind_at(key, i);
        uint64_t there = atomic_load_explicit(&row->key, memory_order_acquire);
        if (there == key)
            return row;
        if (there == 0 && (atomic_compare_exchange_strong(&row->key, &there, key) || there == key))
            return row;
    }
    return kind_at(key, 0); /* full here: it shares a row, and what is known of it is a mean of both */
}

/* NULL: there is none. */
static struct egpu_kind_row *kind_known(uint64_t key) {
    for (uint32_t i = 0; i < 8; i++)
        if (kind_at(key, i)->key == (key | 1))
            return kind_at(key, i);
    return NULL;
}

static void kind_forget(struct egpu_kind_row *kind) { /* under the card's lock */
    kind->steady = kind->seen = 0;
    kind->expects = kind->alone_ns = 0;
    kind->stats = (struct egpu_kind){0};
}

/* --- one launch --- */

/* In the context of the launch. */
static void begin(struct egpu_launched *launch, uint64_t key) {
    struct egpu_kind_row *kind = kind_of(key + ((uint64_t)launch->context->card << 58));
    uint64_t expects = atomic_load_explicit(&kind->expects, memory_order_relaxed);
    bool meets = atomic_load_explicit(&kind->meets, memory_order_relaxed) != 0;
    launch->per_thread = launch->stream == EGPU_PER_THREAD;
    launch->kind = kind;
    launch->unknown = expects == 0 && !meets;
    launch->booked_ns = expects;
    launch->now_ns = egpu_now_ns();
    launch->queued_ns = !meets ? expects : expects / 8 < MEET_NS ? expects / 8 : MEET_NS; /* some pass beside it */
    if (!egpu_flight_ride(launch)) {
        egpu_hold(launch);
        if (__builtin_expect(kind->overtaken != 0, 0))
            egpu_flight_mark(launch);
    }
}

bool egpu_launch_begin(struct egpu_launched *launch, const struct egpu_real *real, CUstream stream, bool per_thread,
                       uint64_t key) {
    CUcontext elsewhere, same;
    if (key == 0)
        return false;
    if (stream == NULL && per_thread)
        stream = EGPU_PER_THREAD;
    if (__builtin_expect(atomic_load_explicit(&egpu_captures, memory_order_acquire) != 0, 0) && egpu_capturing(real, stream))
        return false;
    if (__builtin_expect(!egpu_watch_start(), 0) || __builtin_expect(egpu_control_now() == NULL, 0))
        return false; /* the program ends, or nothing is known of this container: no card of it either */
    struct egpu_context *context = egpu_context_of(real, stream, &elsewhere);
    if (context != NULL) {
        *launch = (struct egpu_launched){.real = real, .context = context, .elsewhere = elsewhere, .stream = stream};
        begin(launch, key);
    }
    if (__builtin_expect(elsewhere != NULL, 0))
        real->cuCtxPopCurrent_v2(&same);
    return context != NULL;
}

CUresult egpu_launch_end(struct egpu_launched *launch, CUresult result) {
    CUcontext same = launch->elsewhere;
    const bool there = __builtin_expect(same != NULL, 0) && launch->real->cuCtxPushCurrent_v2(same) == CUDA_SUCCESS;
    if (launch->rides != NULL)
        egpu_flight_rode(launch, result == CUDA_SUCCESS);
    else if (__builtin_expect(result == CUDA_SUCCESS, 1))
        egpu_flight_add(launch);
    else
        egpu_refund(launch);
    if (there)
        launch->real->cuCtxPopCurrent_v2(&same);
    return result;
}

EGPU_UNIT_TSZ(cuLaunchKernel,
              (CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
               CUstream stream, void **params, void **extra),
              (f, x, y, z, bx, by, bz, shared, stream, params, extra), stream, egpu_kernel_key(f, x, y, z, bx *by *bz))
EGPU_UNIT_TSZ(cuLaunchCooperativeKernel,
              (CUfunction f, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz, unsigned shared,
               CUstream stream, void **params),
              (f, x, y, z, bx, by, bz, shared, stream, params), stream, egpu_kernel_key(f, x, y, z, bx *by *bz))
EGPU_UNIT_TSZ(cuLaunchKernelEx, (const CUlaunchConfig *how, CUfunction f, void **params, void **extra),
              (how, f, params, extra), how ? how->hStream : NULL,
              how ? egpu_kernel_key(f, how->gridDimX, how->gridDimY, how->gridDimZ,
                                    how->blockDimX * how->blockDimY * how->blockDimZ) : 0)
EGPU_UNIT_TSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), (exec, stream), stream,
              egpu_key(EGPU_GRAPH, (uint64_t)(uintptr_t)exec, 0))
EGPU_UNIT(cuLaunch, false, (CUfunction f), (f), NULL, egpu_kernel_key(f, 1, 1, 1, 0))
EGPU_UNIT(cuLaunchGrid, false, (CUfunction f, int x, int y), (f, x, y), NULL,
          egpu_kernel_key(f, (unsigned)x, (unsigned)y, 1, 0))
EGPU_UNIT(cuLaunchGridAsync, false, (CUfunction f, int x, int y, CUstream stream), (f, x, y, stream), stream,
          egpu_kernel_key(f, (unsigned)x, (unsigned)y, 1, 0))

/* One kernel on each of several cards, each in the context of its stream. */
EGPU_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags) {
    EGPU_DRIVER(real, cuLaunchCooperativeKernelMultiDevice);
    struct egpu_launched launches[DEVICES_MOST];
    CUcontext contexts[DEVICES_MOST], before;
    bool counted[DEVICES_MOST] = {false};
    if (list == NULL || count > DEVICES_MOST || real->cuStreamGetCtx == NULL)
        return real->cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *one = &list[i];
        if (real->cuStreamGetCtx(one->hStream, &contexts[i]) != CUDA_SUCCESS ||
            real->cuCtxPushCurrent_v2(contexts[i]) != CUDA_SUCCESS)
            continue;
        uint64_t key = egpu_kernel_key(one->function, one->gridDimX, one->gridDimY, one->gridDimZ,
                                       one->blockDimX * one->blockDimY * one->blockDimZ);
        counted[i] = egpu_launch_begin(&launches[i], real, one->hStream, false, key);
        real->cuCtxPopCurrent_v2(&before);
    }
    CUresult result = real->cuLaunchCooperativeKernelMultiDevice(list, count, flags);
    for (unsigned i = 0; i < count; i++)
        if (counted[i] && real->cuCtxPushCurrent_v2(contexts[i]) == CUDA_SUCCESS) {
            egpu_launch_end(&launches[i], result);
            real->cuCtxPopCurrent_v2(&before);
        }
    return result;
}

/* A graph's handle may be one that was used before: what was known of that is of no use, nor how long it took. */
void egpu_time_exec_made(CUgraphExec exec, CUgraph graph) {
    (void)graph;
    for (uint64_t card = 0; card < EGPU_ACTIVITY_CARDS; card++) {
        struct egpu_kind_row *kind = kind_known(egpu_key(EGPU_GRAPH, (uint64_t)(uintptr_t)exec, 0) + (card << 58));
        if (kind == NULL)
            continue;
        egpu_spin_lock(&egpu_cards[card].lock);
        kind_forget(kind);
        egpu_spin_unlock(&egpu_cards[card].lock);
    }
}
