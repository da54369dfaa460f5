/* A program that gives its card work in one of many ways, then says what it did and stays until its stdin ends:
 *
 *   ways_actor WAY SECONDS NS   bursts of 16 units, and a wait after each; memsets and copies are of 1500 bytes per ns
 *   ways_actor count UNITS NS WAY   exactly so many units
 *   ways_actor hang SECONDS 0   a kernel that waits for one that never comes
 *   ways_actor cards SECONDS NS kernels on all its cards in turn
 *   ways_actor fork SECONDS NS  kernels; meanwhile children are forked and end
 *   ways_actor child SECONDS NS the kernels are those of a child, forked before its parent or it had used a card
 *   ways_actor capture SECONDS NS   kernels, and one of a new shape after each while another stream is being captured
 *   ways_actor regraph UNITS NS     so many graphs of a kernel, then as many of another that lasts a thousand times as
 *                                   long, and has the first one's handle
 *   ways_actor captured UNITS NS    so many kernels; the last is not waited for, and then their stream is captured
 *
 * Begins when a line comes on stdin. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"

enum { CARDS = 2, BURST = 16, BYTES_PER_NS = 1500, WIDTH = 1 << 20 };
#define MOST_BYTES (3ull << 30)
/* The fake keeps what lies in the first bytes of a block, and copies it on the host. That takes longer than the unit. */
#define KEPT (16ull << 20)

static CUcontext contexts[CARDS];
static CUstream streams[CARDS];
static CUfunction spin[CARDS], meet[CARDS];
static CUdeviceptr here, there;
static int cards;
static size_t bytes;
static uint64_t length_ns;

/* --- the ways: one unit each ---------------------------------------------------------------------- */

static void *params[] = {&length_ns};
#define SHAPE 1, 1, 1, 32, 1, 1, 0
static CUresult kernel(void) { return cuLaunchKernel(spin[0], SHAPE, streams[0], params, NULL); }
static CUresult kernel_default(void) { return cuLaunchKernel(spin[0], SHAPE, NULL, params, NULL); }
static CUresult kernel_ptsz(void) { return cuLaunchKernel_ptsz(spin[0], SHAPE, NULL, params, NULL); }
static CUresult cooperative(void) { return cuLaunchCooperativeKernel(spin[0], SHAPE, streams[0], params); }
static CUresult cooperative_ptsz(void) { return cuLaunchCooperativeKernel_ptsz(spin[0], SHAPE, NULL, params); }
static CUresult kernel_ex(void) {
    const CUlaunchConfig how = {1, 1, 1, 32, 1, 1, 0, streams[0], NULL, 0};
    return cuLaunchKernelEx(&how, spin[0], params, NULL);
}
static CUresult kernel_ex_ptsz(void) {
    const CUlaunchConfig how = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
    return cuLaunchKernelEx_ptsz(&how, spin[0], params, NULL);
}
static CUresult multi(void) {
    CUDA_LAUNCH_PARAMS each[CARDS];
    for (int i = 0; i < cards; i++)
        each[i] = (CUDA_LAUNCH_PARAMS){spin[i], SHAPE, streams[i], params};
    return cuLaunchCooperativeKernelMultiDevice(each, (unsigned)cards, 0);
}
static CUresult set(void) { return cuMemsetD8Async(here, 1, bytes, streams[0]); }
static CUresult set_sync(void) { return cuMemsetD32_v2(here, 1, bytes / 4); }
static CUresult set_ptds(void) { return cuMemsetD8_v2_ptds(here, 1, bytes); }
static CUresult set_ptsz(void) { return cuMemsetD16Async_ptsz(here, 1, bytes / 2, NULL); }
static CUresult set_2d(void) { return cuMemsetD2D8Async(here, WIDTH, 1, WIDTH, bytes / WIDTH, streams[0]); }
static CUresult copy(void) { return cuMemcpyDtoDAsync_v2(there, here, bytes, streams[0]); }
static CUresult copy_sync(void) { return cuMemcpyDtoD_v2(there, here, bytes); }
static CUresult copy_ptds(void) { return cuMemcpyDtoD_v2_ptds(there, here, bytes); }
static CUresult copy_ptsz(void) { return cuMemcpyDtoDAsync_v2_ptsz(there, here, bytes, NULL); }
static CUresult copy_any(void) { return cuMemcpyAsync(there, here, bytes, streams[0]); }
static CUresult copy_2d(void) {
    const CUDA_MEMCPY2D what = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = here, .srcPitch = WIDTH,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = there, .dstPitch = WIDTH,
                                .WidthInBytes = WIDTH, .Height = bytes / WIDTH};
    return cuMemcpy2DAsync_v2(&what, streams[0]);
}
static int next_card;
static CUresult in_turn(void) {
    const int card = next_card++ % cards;
    TRY(cuCtxSetCurrent(contexts[card]));
    return cuLaunchKernel(spin[card], SHAPE, streams[card], params, NULL);
}
static CUresult forking(void) {
    if (next_card++ % (4 * BURST) == 0) {
        pid_t child = fork();
        if (child == 0) {
            CUcontext none;
            if (next_card % 2 == 0)
                _exit(cuCtxGetCurrent(&none) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
            exit(kernel() == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1); /* with its handlers */
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return CUDA_ERROR_UNKNOWN;
    }
    return kernel();
}
static CUresult beside_capture(void) {
    static CUstream other;
    CUgraph graph;
    if (other == NULL)
        TRY(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    TRY(kernel());
    TRY(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
    TRY(cuLaunchKernel(spin[0], (unsigned)++next_card + 1, 1, 1, 32, 1, 1, 0, streams[0], params, NULL));
    TRY(cuStreamEndCapture(other, &graph));
    return cuGraphDestroy(graph);
}

static const struct { const char *name; CUresult (*unit)(void); } ways[] = {
    {"kernel", kernel}, {"kernel-default", kernel_default}, {"kernel-ptsz", kernel_ptsz}, {"cooperative", cooperative},
    {"cooperative-ptsz", cooperative_ptsz}, {"kernel-ex", kernel_ex}, {"kernel-ex-ptsz", kernel_ex_ptsz},
    {"multi", multi}, {"set", set}, {"set-sync", set_sync}, {"set-ptds", set_ptds}, {"set-ptsz", set_ptsz},
    {"set-2d", set_2d}, {"copy", copy}, {"copy-sync", copy_sync}, {"copy-ptds", copy_ptds}, {"copy-ptsz", copy_ptsz},
    {"copy-any", copy_any}, {"copy-2d", copy_2d}, {"cards", in_turn}, {"fork", forking}, {"child", kernel},
    {"capture", beside_capture},
};

/* --- the program ---------------------------------------------------------------------------------- */

static void prepare(void) {
    static const unsigned char image[64] = {0x7f, 0x45, 1}; /* the fake takes every name for a kernel of it */
    CUmodule module;
    TRY(cuInit(0));
    TRY(cuDeviceGetCount(&cards));
    cards = cards < CARDS ? cards : CARDS;
    for (int i = cards; i-- > 0;) { /* the first is the current one in the end */
        TRY(cuCtxCreate_v2(&contexts[i], 0, i));
        TRY(cuModuleLoadData(&module, image));
        TRY(cuModuleGetFunction(&spin[i], module, "egpu_spin"));
        TRY(cuModuleGetFunction(&meet[i], module, "egpu_meet"));
        TRY(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    }
    bytes = (length_ns * BYTES_PER_NS + WIDTH - 1) / WIDTH * WIDTH;
    TRY(cuMemAlloc_v2(&here, KEPT + bytes));
    TRY(cuMemAlloc_v2(&there, KEPT + bytes));
    here += KEPT, there += KEPT;
}

static void wait_all(void) {
    for (int i = cards; i-- > 0;) {
        TRY(cuCtxSetCurrent(contexts[i]));
        TRY(cuCtxSynchronize());
    }
}

static void stay(void) {
    char line[8];
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
    }
}

static void go(CUresult (*unit)(void), double seconds, uint64_t count) {
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9), units = 0;
    while (count != 0 ? units < count : now() < end) {
        TRY(unit());
        if (++units % BURST == 0)
            wait_all();
    }
    wait_all();
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"units\": %lu}\n", getpid(), began, now(), units);
    stay();
}

static void hang(double seconds) {
    uint64_t ns = 1000, key = (uint64_t)getpid() << 32, began = now();
    int parties = 2;
    void *with[] = {&ns, &key, &parties};
    TRY(cuLaunchKernel(meet[0], SHAPE, streams[0], with, NULL));
    for (uint64_t end = began + (uint64_t)(seconds * 1e9); now() < end;)
        usleep(10000);
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu}\n", getpid(), began, now());
}

/* One with the handle of `like`, which is gone then: allocators give that again, soon. NULL: any. */
static CUgraphExec graph_of(uint64_t ns, CUgraphExec like) {
    CUgraph graph;
    CUgraphExec exec;
    void *with[] = {&ns};
    TRY(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    TRY(cuLaunchKernel(spin[0], SHAPE, streams[0], with, NULL));
    TRY(cuStreamEndCapture(streams[0], &graph));
    CUgraphExec more[16]; /* the places that the fake's allocator keeps back */
    for (int i = 0; i < 16; i++)
        TRY(cuGraphInstantiateWithFlags(&more[i], graph, 0));
    for (int i = 0; i < 16; i++)
        TRY(cuGraphExecDestroy(more[i]));
    if (like != NULL)
        TRY(cuGraphExecDestroy(like));
    for (int tries = 0; tries < 64; tries++) {
        TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
        if (like == NULL || exec == like)
            return exec;
    }
    exit(3);
}

static void regraph(uint64_t count) {
    CUgraphExec exec = NULL;
    for (uint64_t ns = length_ns; ns <= 1000 * length_ns; ns *= 1000) {
        exec = graph_of(ns, exec);
        for (uint64_t i = 0; i < count; i++) {
            TRY(cuGraphLaunch(exec, streams[0]));
            TRY(cuStreamSynchronize(streams[0]));
            usleep(6000); /* it is settled */
        }
    }
    stay();
}

static void captured(uint64_t count) {
    CUgraph graph;
    for (uint64_t i = 0; i < count; i++) {
        TRY(kernel());
        if (i + 1 == count)
            break;
        TRY(cuStreamSynchronize(streams[0]));
        usleep(5000); /* then the next is not gathered with it */
    }
    TRY(cuStreamBeginCapture_v2(streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
    stay();
    TRY(cuStreamEndCapture(streams[0], &graph));
}

/* What is written when the program ends, after all that libraries do then: it stays until somebody reads it. */
static void leave_last_words(const char *path) {
    FILE *to = path ? fopen(path, "w") : NULL;
    if (to != NULL)
        fputs("bye\n", to);
}

int main(int count, char **values) {
    char line[8];
    leave_last_words(getenv("WAYS_LAST_WORDS"));
    if (count < 4 || strtoull(values[3], NULL, 10) > MOST_BYTES / BYTES_PER_NS)
        return 2;
    length_ns = strtoull(values[3], NULL, 10);
    if (strcmp(values[1], "child") == 0) {
        pid_t child = fork();
        int status = 1;
        if (child > 0)
            return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
    }
    prepare();
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    const bool exact = strcmp(values[1], "count") == 0 && count == 5;
    const char *way = exact ? values[4] : values[1];
    if (strcmp(way, "hang") == 0)
        return hang(atof(values[2])), 0;
    if (strcmp(way, "regraph") == 0)
        return regraph(strtoull(values[2], NULL, 10)), puts("{}"), 0;
    if (strcmp(way, "captured") == 0)
        return captured(strtoull(values[2], NULL, 10)), puts("{}"), 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strcmp(ways[i].name, way) == 0)
            return go(ways[i].unit, exact ? 0 : atof(values[2]), exact ? strtoull(values[2], NULL, 10) : 0), 0;
    return 2;
}
