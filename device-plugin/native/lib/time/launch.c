/* Kernels and graphs. */
#include "../memory/hooks.h"
#include "launch.h"

enum { DEVICES_MOST = 64, COUNTERS = 16, CARD_SHIFT = 58, TYPICAL_NS = 20 * 1000 /* a unit of which nothing is known */ };

/* By thread, more or less: no line goes from one to the next. */
static struct { EGPU_LINE _Atomic uint64_t launches; } counters[COUNTERS];

void egpu_launch_count(void) {
    static __thread __attribute__((tls_model("initial-exec"))) char here;
    atomic_fetch_add_explicit(&counters[(uintptr_t)&here >> 12 & (COUNTERS - 1)].launches, 1, memory_order_relaxed);
}

uint64_t egpu_launches(void) {
    uint64_t sum = 0;
    for (int i = 0; i < COUNTERS; i++)
        sum += atomic_load_explicit(&counters[i].launches, memory_order_relaxed);
    return sum;
}

/* In the context of the launch. */
static void begin(struct egpu_launch *launch, uint64_t key) {
    const int card = launch->context->card;
    launch->now_ns = egpu_now_ns();
    launch->plain = (key & EGPU_EVENTS_FIT) == 0;
    if (launch->needs & (EGPU_NEED_CAP | EGPU_NEED_BOUND)) {
        launch->kind = egpu_kind_of(key + ((uint64_t)card << CARD_SHIFT));
        const uint64_t mean = atomic_load_explicit(&launch->kind->mean_ns, memory_order_relaxed);
        launch->unknown = mean == 0;
        launch->expected_ns = mean != 0 ? mean : TYPICAL_NS;
        launch->booked_ns = launch->needs & EGPU_NEED_CAP ? egpu_scaled(card, launch->expected_ns) : 0;
    }
    egpu_watch_launch(card, launch->needs, launch->now_ns);
    egpu_hold(launch);
    atomic_fetch_add_explicit(&egpu_activity_own()->cards[card].units, 1, memory_order_relaxed);
    egpu_stream_begin(launch);
    if (launch->kind != NULL)
        launch->measured = egpu_kind_launched(launch->kind, launch->booked_ns, &launch->standing);
    egpu_stream_start(launch);
}

bool egpu_launch_begin(struct egpu_launch *launch, const struct egpu_real *real, CUstream stream, bool per_thread,
                       uint64_t key) {
    CUcontext elsewhere, same;
    if (stream == NULL && per_thread)
        stream = EGPU_PER_THREAD;
    if (key == 0 || egpu_control_now() == NULL || egpu_capturing(real, stream))
        return false;
    struct egpu_context *context = egpu_context_of(real, stream, &elsewhere);
    const uint32_t needs = context != NULL ? atomic_load_explicit(&egpu_needs[context->card], memory_order_relaxed) : 0;
    if (needs == EGPU_NEED_WANT) {
        egpu_watch_launch(context->card, needs, egpu_now_ns());
        egpu_launch_count();
    } else if (needs != 0) {
        *launch = (struct egpu_launch){.real = real, .context = context, .elsewhere = elsewhere, .stream = stream, .needs = needs};
        begin(launch, key);
    }
    if (__builtin_expect(elsewhere != NULL, 0))
        real->cuCtxPopCurrent_v2(&same);
    return (needs & ~(uint32_t)EGPU_NEED_WANT) != 0;
}

CUresult egpu_launch_end(struct egpu_launch *launch, CUresult result) {
    CUcontext same = launch->elsewhere;
    const bool there = __builtin_expect(same != NULL, 0) && launch->real->cuCtxPushCurrent_v2(same) == CUDA_SUCCESS;
    egpu_stream_end(launch, result == CUDA_SUCCESS);
    if (result != CUDA_SUCCESS && launch->kind != NULL) {
        egpu_kind_failed(launch->kind, launch->booked_ns);
        egpu_charge_time(launch->context->card, -(int64_t)launch->booked_ns, true);
    }
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
/* A kernel that may begin before the one in front of it ends: an event between the two would keep it from that. */
static uint64_t ex_key(const CUlaunchConfig *how, CUfunction f) {
    enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
    uint64_t key = egpu_kernel_key(f, how->gridDimX, how->gridDimY, how->gridDimZ, how->blockDimX * how->blockDimY * how->blockDimZ);
    for (unsigned i = 0; how->attrs != NULL && i < how->numAttrs; i++)
        if ((int)how->attrs[i].id == PROGRAMMATIC_STREAM_SERIALIZATION)
            key &= ~(uint64_t)EGPU_EVENTS_FIT;
    return key;
}

EGPU_UNIT_TSZ(cuLaunchKernelEx, (const CUlaunchConfig *how, CUfunction f, void **params, void **extra),
              (how, f, params, extra), how ? how->hStream : NULL,
              how ? ex_key(how, f) : 0)
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
    struct egpu_launch launches[DEVICES_MOST];
    CUcontext contexts[DEVICES_MOST], before;
    bool counted[DEVICES_MOST] = {false};
    if (egpu_unneeded() || list == NULL || count > DEVICES_MOST || real->cuStreamGetCtx == NULL)
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

/* A graph's handle may be one that was used before. */
void egpu_time_exec_made(CUgraphExec exec, CUgraph graph) {
    (void)graph;
    for (uint64_t card = 0; card < EGPU_ACTIVITY_CARDS; card++)
        egpu_kind_forget(egpu_key(EGPU_GRAPH, (uint64_t)(uintptr_t)exec, 0) + (card << CARD_SHIFT));
}
