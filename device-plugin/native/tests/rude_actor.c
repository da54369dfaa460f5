/* Ordinary programs that a library around the driver can spoil. Each prints one JSON object.
 *
 *   rude-actor legacy ROUNDS            short work on the legacy stream, then two kernels that meet on blocking streams
 *   rude-actor side ROUNDS              two long kernels on blocking streams, the second some ms later
 *   rude-actor captures SECONDS NS      one thread launches, the other captures in GLOBAL mode
 *   rude-actor between SECONDS WHAT MS  a short kernel, WHAT (copy, host, wait) of about MS, a short kernel
 *   rude-actor lazy KINDS NS            KINDS kernels for the first time, then 20 passes over all of them
 *   rude-actor stalled SECONDS NS MS    off the processor for MS of each 100 ms
 *   rude-actor leave NS                 ends while work is in flight
 *   rude-actor pool                     an allocation from a pool that keeps nearly all the container may have
 *   rude-actor maps COUNT ASKS          asks for the free memory with so many mappings; ASKS 0: only has them
 *   rude-actor streams COUNT            a stream for each of so many launches, one after the other
 *   rude-actor pace THREADS LAUNCHES NS what a launch costs, each thread on its stream
 *   rude-actor drop SECONDS             captures that end with their stream, then plain launches
 *   rude-actor fill PERCENT SECONDS     so much of what is free, in pieces of 16 MiB, held so long
 *   rude-actor term SECONDS NS          until SIGTERM is handled
 *   rude-actor graphs SECONDS NS        graph launches with memsets and copies on the card in between
 *   rude-actor events SECONDS NS        two streams that hand over to each other by events
 *
 * Each begins when a line comes on stdin. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"

__asm__(".section .rodata\n"
        ".global kernels_ptx\n"
        "kernels_ptx: .incbin \"programs/kernels.ptx\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char kernels_ptx[];

static CUcontext context;
static CUfunction spin, meet;
static uint64_t launched_ns; /* what all kernels take by their arguments */

static void pause_ms(double ms) {
    struct timespec left = {(time_t)(ms / 1000), (long)(ms * 1e6) % 1000000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static void launch(CUstream stream, uint64_t ns, unsigned grid) {
    void *params[] = {&ns};
    TRY(cuLaunchKernel(spin, grid, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    launched_ns += ns;
}

static void launch_meeting(CUstream stream, CUdeviceptr key) { /* a word of memory of 0 */
    uint64_t ns = 50000;
    uint32_t parties = 2;
    void *params[] = {&ns, &key, &parties};
    TRY(cuLaunchKernel(meet, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static CUstream stream_new(unsigned flags) {
    CUstream stream;
    TRY(cuStreamCreate(&stream, flags));
    return stream;
}

static void told(const char *what, double value, uint64_t began) {
    printf("{\"pid\": %d, \"%s\": %.3f, \"from_ns\": %lu, \"to_ns\": %lu, \"kernel_ns\": %lu}\n", getpid(), what, value, began,
           now(), launched_ns);
}

static void legacy(int rounds) {
    CUstream left = stream_new(CU_STREAM_DEFAULT), right = stream_new(CU_STREAM_DEFAULT);
    for (int i = 0; i < 100; i++)
        launch(NULL, 5000, 1);
    TRY(cuCtxSynchronize());
    CUdeviceptr words;
    TRY(cuMemAlloc_v2(&words, (size_t)rounds * 4));
    TRY(cuMemsetD8_v2(words, 0, (size_t)rounds * 4));
    TRY(cuCtxSynchronize());
    const uint64_t began = now();
    for (int round = 0; round < rounds; round++) {
        const CUdeviceptr key = words + (CUdeviceptr)round * 4;
        launch(NULL, 5000, 1);
        pause_ms(0.2);
        launch_meeting(left, key);
        pause_ms(3);
        launch_meeting(right, key);
        TRY(cuStreamSynchronize(left));
        TRY(cuStreamSynchronize(right));
    }
    told("rounds", rounds, began);
}

static void side(int rounds) {
    CUstream left = stream_new(CU_STREAM_DEFAULT), right = stream_new(CU_STREAM_DEFAULT);
    const uint64_t began = now();
    for (int round = 0; round < rounds; round++) {
        launch(NULL, 5000, 1);
        launch(left, 20000000, 2);
        pause_ms(6);
        launch(right, 20000000, 3);
        TRY(cuStreamSynchronize(left));
        TRY(cuStreamSynchronize(right));
    }
    told("ms", (double)(now() - began) / 1e6 / rounds, began);
}

static _Atomic int over, begun;
static void *launches_on(void *length) {
    TRY(cuCtxSetCurrent(context));
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (begun = 1; !over;)
        launch(stream, *(uint64_t *)length, 1);
    TRY(cuStreamSynchronize(stream));
    return NULL;
}

static void captures(double seconds, uint64_t ns) {
    pthread_t thread;
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    unsigned made = 0, spoilt = 0;
    if (pthread_create(&thread, NULL, launches_on, &ns) != 0)
        exit(1);
    while (!begun)
        pause_ms(1);
    const uint64_t began = now();
    for (; (double)(now() - began) < seconds * 1e9; made++) {
        CUgraph graph = NULL;
        uint64_t length = 20000;
        void *params[] = {&length};
        CUresult worst = CUDA_SUCCESS, end;
        TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < 8 && worst == CUDA_SUCCESS; i++) {
            worst = cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
            pause_ms(0.1);
        }
        end = cuStreamEndCapture(stream, &graph);
        spoilt += end != CUDA_SUCCESS || worst != CUDA_SUCCESS;
        if (end == CUDA_SUCCESS)
            TRY(cuGraphDestroy(graph));
        pause_ms(0.5);
    }
    over = 1;
    pthread_join(thread, NULL);
    printf("{\"made\": %u, \"spoilt\": %u}\n", made, spoilt);
}

static void rest(void *ms) { pause_ms(*(double *)ms); }

static void between(double seconds, const char *what, double ms) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING), other = stream_new(CU_STREAM_NON_BLOCKING);
    const size_t bytes = (size_t)(ms * 24) << 20; /* the fake card copies about 24 MiB a ms from the host */
    CUdeviceptr there;
    CUevent event;
    void *here;
    TRY(cuMemAlloc_v2(&there, bytes));
    TRY(cuMemHostAlloc(&here, bytes, 0));
    TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 50; i++)
        launch(stream, 10000, 1);
    TRY(cuStreamSynchronize(stream));
    launched_ns = 0;
    const uint64_t began = now();
    uint64_t rounds = 0;
    for (; (double)(now() - began) < seconds * 1e9; rounds++) {
        launch(stream, 10000, 1);
        if (strcmp(what, "copy") == 0) {
            TRY(cuMemcpyHtoDAsync_v2(there, here, bytes, stream));
        } else if (strcmp(what, "host") == 0) {
            TRY(cuLaunchHostFunc(stream, rest, &ms));
        } else {
            TRY(cuLaunchHostFunc(other, rest, &ms));
            TRY(cuEventRecord(event, other));
            TRY(cuStreamWaitEvent(stream, event, 0));
        }
        launch(stream, 10000, 1);
        TRY(cuStreamSynchronize(stream));
    }
    told("ms", (double)(now() - began) / 1e6 / (double)rounds, began);
}

static void lazy(int kinds, uint64_t ns) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    const uint64_t began = now();
    for (int i = 0; i < kinds; i++)
        launch(stream, ns, (unsigned)i + 1);
    TRY(cuStreamSynchronize(stream));
    const uint64_t loaded = now();
    for (int pass = 0; pass < 20; pass++) {
        for (int i = 0; i < kinds; i++)
            launch(stream, ns, (unsigned)i + 1);
        TRY(cuStreamSynchronize(stream));
    }
    printf("{\"first_ms\": %.3f, \"pass_ms\": %.3f}\n", (double)(loaded - began) / 1e6, (double)(now() - loaded) / 20e6);
}

static double stall_ms;
static void stall(int number) {
    (void)number;
    const int kept = errno;
    pause_ms(stall_ms);
    errno = kept;
}

static void stalled(double seconds, uint64_t ns, double ms) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    const struct sigaction how = {.sa_handler = stall, .sa_flags = SA_RESTART};
    const struct itimerval every = {{0, 100000}, {0, 100000}};
    stall_ms = ms;
    sigaction(SIGALRM, &how, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    const uint64_t began = now();
    while ((double)(now() - began) < seconds * 1e9) {
        for (int i = 0; i < 20; i++)
            launch(stream, ns, 1);
        TRY(cuStreamSynchronize(stream));
    }
    setitimer(ITIMER_REAL, &(struct itimerval){0}, NULL);
    told("percent", 100 * (double)launched_ns / (double)(now() - began), began);
}

static void leave(uint64_t ns) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < 60; i++)
        launch(stream, ns, 1);
    TRY(cuStreamSynchronize(stream));
    for (int i = 0; i < 40; i++)
        launch(stream, ns, 1);
    puts("{}");
}

static uint64_t reserved(CUmemoryPool pool) {
    uint64_t bytes = 0;
    TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes >> 20;
}

static void keeps(void) {
    enum { PIECE_MIB = 32, NEXT_MIB = 200 };
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CUmemoryPool pool;
    CUdeviceptr at;
    uint64_t all = UINT64_MAX;
    size_t left, total;
    TRY(cuDeviceGetDefaultMemPool(&pool, 0));
    TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
    TRY(cuMemGetInfo_v2(&left, &total));
    TRY(cuMemAllocAsync(&at, ((left >> 20) - 2 * PIECE_MIB) / PIECE_MIB * PIECE_MIB << 20, stream));
    TRY(cuMemFreeAsync(at, stream));
    TRY(cuStreamSynchronize(stream));
    const uint64_t before = reserved(pool);
    TRY(cuMemAllocAsync(&at, (size_t)NEXT_MIB << 20, stream));
    printf("{\"before_mib\": %lu, \"after_mib\": %lu}\n", before, reserved(pool));
}

static void maps(int count, int asks) {
    CUdeviceptr some;
    for (int i = 0; i < count; i++) /* neighbours of other rights: the kernel does not join them */
        if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            break;
    TRY(cuMemAlloc_v2(&some, 4 << 20));
    if (asks == 0) {
        puts("{}");
        fflush(stdout);
        pause();
    }
    uint64_t worst = 0, sum = 0;
    for (int i = 0; i < asks; i++) {
        size_t left, total;
        const uint64_t at = now();
        TRY(cuMemGetInfo_v2(&left, &total));
        const uint64_t took = now() - at;
        sum += took;
        worst = took > worst ? took : worst;
    }
    printf("{\"mean_ms\": %.3f, \"worst_ms\": %.3f}\n", (double)sum / 1e6 / asks, (double)worst / 1e6);
}

static void streams(int count) {
    const uint64_t began = now();
    for (int i = 0; i < count; i++) {
        CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
        launch(stream, 2000, 1);
        if (i % 2) /* the others stay */
            TRY(cuStreamDestroy_v2(stream));
    }
    TRY(cuCtxSynchronize());
    told("us", (double)(now() - began) / 1e3 / count, began);
}

struct pace { int launches; uint64_t ns, took; };
static void *paced(void *with) {
    struct pace *pace = with;
    TRY(cuCtxSetCurrent(context));
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    for (int i = 0; i < pace->launches; i++) {
        void *params[] = {&pace->ns};
        const uint64_t at = now();
        TRY(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
        pace->took += now() - at;
        if (i % 64 == 63)
            TRY(cuStreamSynchronize(stream));
    }
    TRY(cuStreamSynchronize(stream));
    return NULL;
}

static void pace(int threads, int launches, uint64_t ns) {
    pthread_t handles[16];
    struct pace paces[16];
    uint64_t sum = 0;
    for (int i = 0; i < threads && i < 16; i++) {
        paces[i] = (struct pace){launches, ns, 0};
        if (pthread_create(&handles[i], NULL, paced, &paces[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < threads && i < 16; i++) {
        pthread_join(handles[i], NULL);
        sum += paces[i].took;
    }
    printf("{\"ns\": %.1f}\n", (double)sum / threads / launches);
}

static void drop(double seconds) {
    for (int i = 0; i < 50; i++) {
        CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
        TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        TRY(cuStreamDestroy_v2(stream));
    }
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    const uint64_t began = now();
    while ((double)(now() - began) < seconds * 1e9) {
        for (int i = 0; i < 50; i++)
            launch(stream, 200000, 1);
        TRY(cuStreamSynchronize(stream));
    }
    told("percent", 100 * (double)launched_ns / (double)(now() - began), began);
}

static void fill(double percent, double seconds) {
    enum { PIECE_MIB = 16 };
    size_t left, total;
    CUdeviceptr at;
    TRY(cuMemGetInfo_v2(&left, &total));
    const size_t goal = (size_t)((double)(left >> 20) * percent / 100) / PIECE_MIB;
    size_t pieces = 0;
    while (pieces < goal && cuMemAlloc_v2(&at, PIECE_MIB << 20) == CUDA_SUCCESS)
        pieces++;
    printf("{\"free_mib\": %zu, \"goal_mib\": %zu, \"got_mib\": %zu}\n", left >> 20, goal * PIECE_MIB, pieces * PIECE_MIB);
    fflush(stdout);
    pause_ms(1000 * seconds);
}

static volatile sig_atomic_t asked;
static void ask(int number) { asked = number; }

static void term(double seconds, uint64_t ns) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    signal(SIGTERM, ask);
    const uint64_t began = now();
    while (!asked && (double)(now() - began) < seconds * 1e9) {
        launch(stream, ns, 1);
        if (!asked)
            TRY(cuStreamSynchronize(stream));
    }
    printf("{\"asked\": %d, \"at_ns\": %lu}\n", asked, now());
    fflush(stdout);
    _exit(0);
}

static void graphs(double seconds, uint64_t ns) {
    CUstream stream = stream_new(CU_STREAM_NON_BLOCKING);
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr here, there;
    const size_t bytes = 1 << 20;
    TRY(cuMemAlloc_v2(&here, bytes));
    TRY(cuMemAlloc_v2(&there, bytes));
    TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < 10; i++)
        launch(stream, ns, 1);
    TRY(cuStreamEndCapture(stream, &graph));
    TRY(cuGraphInstantiateWithFlags(&exec, graph, 0));
    const uint64_t began = now();
    uint64_t rounds = 0;
    for (; (double)(now() - began) < seconds * 1e9; rounds++) {
        TRY(cuGraphLaunch(exec, stream));
        TRY(cuMemsetD8Async(here, 0, bytes, stream));
        TRY(cuMemcpyDtoDAsync_v2(there, here, bytes, stream));
        if (rounds % 8 == 7)
            TRY(cuStreamSynchronize(stream));
    }
    TRY(cuStreamSynchronize(stream));
    told("rounds", (double)rounds, began);
}

static void events(double seconds, uint64_t ns) {
    CUstream pair[2] = {stream_new(CU_STREAM_NON_BLOCKING), stream_new(CU_STREAM_NON_BLOCKING)};
    CUevent turn[2];
    for (int i = 0; i < 2; i++)
        TRY(cuEventCreate(&turn[i], CU_EVENT_DISABLE_TIMING));
    const uint64_t began = now();
    while ((double)(now() - began) < seconds * 1e9) {
        for (int i = 0; i < 20; i++) {
            launch(pair[i % 2], ns, 1);
            TRY(cuEventRecord(turn[i % 2], pair[i % 2]));
            TRY(cuStreamWaitEvent(pair[1 - i % 2], turn[i % 2], 0));
        }
        TRY(cuStreamSynchronize(pair[0]));
        TRY(cuStreamSynchronize(pair[1]));
    }
    told("percent", 100 * (double)launched_ns / (double)(now() - began), began);
}

static bool started(int count) {
    CUmodule module;
    char line[8];
    if (count < 3)
        return false;
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
    TRY(cuModuleLoadData(&module, kernels_ptx));
    TRY(cuModuleGetFunction(&spin, module, "egpu_spin"));
    TRY(cuModuleGetFunction(&meet, module, "egpu_meet"));
    puts("ready");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL;
}

#define NUMBER(at) (count > (at) ? strtoull(words[at], NULL, 10) : 0)

int main(int count, char **words) {
    if (!started(count))
        return 2;
    const char *what = words[1];
    const double first = atof(words[2]);
    if (strcmp(what, "legacy") == 0) legacy((int)first);
    else if (strcmp(what, "side") == 0) side((int)first);
    else if (strcmp(what, "captures") == 0) captures(first, NUMBER(3));
    else if (strcmp(what, "between") == 0 && count == 5) between(first, words[3], atof(words[4]));
    else if (strcmp(what, "lazy") == 0) lazy((int)first, NUMBER(3));
    else if (strcmp(what, "stalled") == 0) stalled(first, NUMBER(3), (double)NUMBER(4));
    else if (strcmp(what, "leave") == 0) leave((uint64_t)first);
    else if (strcmp(what, "pool") == 0) keeps();
    else if (strcmp(what, "maps") == 0) maps((int)first, (int)NUMBER(3));
    else if (strcmp(what, "streams") == 0) streams((int)first);
    else if (strcmp(what, "pace") == 0) pace((int)first, (int)NUMBER(3), NUMBER(4));
    else if (strcmp(what, "drop") == 0) drop(first);
    else if (strcmp(what, "fill") == 0) fill(first, (double)NUMBER(3));
    else if (strcmp(what, "term") == 0) term(first, NUMBER(3));
    else if (strcmp(what, "graphs") == 0) graphs(first, NUMBER(3));
    else if (strcmp(what, "events") == 0) events(first, NUMBER(3));
    else return 2;
    return 0;
}
