/* Ordinary programs that know nothing of the library: what they see must be what they see without it.
 *
 *   plain_actor meet ROUNDS        a short kernel in the legacy stream, then two that wait for each other, on two
 *                                  blocking streams and with a pause between them
 *   plain_actor side ROUNDS NS     the same with two kernels of that length, which wait for nobody
 *   plain_actor capture SECONDS NS one thread captures graphs again and again, in the mode that is usual, while another
 *                                  launches kernels of that length
 *   plain_actor pool THRESHOLD     a pool keeps nearly all that may be had, then one small piece is asked of it
 *   plain_actor full               as pool, but the piece is larger than what the pool has and the card has left
 *   plain_actor leave NS           ends by exit() while its kernels run
 *   plain_actor open SECONDS NS HOW  a capture was begun and never ended: its stream is destroyed (stream), its context
 *                                  is (context), or it stays (stays); then kernels
 *
 * Each begins when a line comes on stdin, and says in JSON what it saw. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"

enum { STUCK_NS = 1000 * 1000 * 1000, MIB = 1 << 20 };

static CUcontext context;
static CUfunction spin, meet;

static void pause_us(long us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* Kernels with other grids are of other kinds. */
static void launch_grid(CUstream stream, uint64_t ns, unsigned blocks) {
    void *words[] = {&ns};
    TRY(cuLaunchKernel(spin, blocks, 1, 1, 32, 1, 1, 0, stream, words, NULL));
}

static void launch(CUstream stream, uint64_t ns) { launch_grid(stream, ns, 1); }

static void launch_meeting(CUstream stream, uint64_t key) {
    uint64_t ns = 50000;
    uint32_t parties = 2;
    void *words[] = {&ns, &key, &parties};
    TRY(cuLaunchKernel(meet, 1, 1, 1, 32, 1, 1, 0, stream, words, NULL));
}

/* Often enough that the library knows the kernel, and keeps a batch open behind it. */
static void get_known(CUstream stream) {
    for (int i = 0; i < 200; i++) {
        launch(stream, 5000);
        pause_us(50);
    }
    TRY(cuCtxSynchronize());
}

static bool ends(CUstream stream, uint64_t until_ns) {
    while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
        if (now() > until_ns)
            return false;
        pause_us(500);
    }
    return true;
}

/* --- the legacy stream: what is put there waits for all blocking streams, and they for it ----------- */

static void pair(CUstream *first, CUstream *second) {
    TRY(cuStreamCreate(first, CU_STREAM_DEFAULT));
    TRY(cuStreamCreate(second, CU_STREAM_DEFAULT));
    get_known(NULL);
}

static void meetings(int rounds) {
    CUstream first, second;
    int done = 0;
    pair(&first, &second);
    for (; done < rounds; done++) {
        launch(NULL, 5000);
        pause_us(200);
        launch_meeting(first, 100 + (uint64_t)done);
        pause_us(3000);
        launch_meeting(second, 100 + (uint64_t)done);
        uint64_t until = now() + STUCK_NS;
        if (!ends(first, until) || !ends(second, until))
            break;
    }
    printf("{\"rounds\": %d}\n", done);
    fflush(stdout);
    _exit(0); /* without a wait for kernels that may never end */
}

static void side_by_side(int rounds, uint64_t ns) {
    CUstream first, second;
    uint64_t all = 0;
    pair(&first, &second);
    for (int i = 0; i < rounds; i++) {
        launch(NULL, 5000);
        uint64_t began = now();
        launch_grid(first, ns, 2);
        pause_us(6000);
        launch_grid(second, ns, 3);
        TRY(cuStreamSynchronize(first));
        TRY(cuStreamSynchronize(second));
        all += now() - began;
    }
    printf("{\"round_ns\": %lu}\n", all / (uint64_t)rounds);
}

/* --- captures -------------------------------------------------------------------------------------- */

static _Atomic bool over;

static void *launcher(void *length) {
    CUstream stream;
    TRY(cuCtxSetCurrent(context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (!over)
        launch(stream, *(uint64_t *)length);
    return NULL;
}

static void captures(double seconds, uint64_t ns) {
    pthread_t other;
    CUstream stream;
    unsigned count = 0, spoilt = 0;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    pthread_create(&other, NULL, launcher, &ns);
    pause_us(300000);
    for (uint64_t until = now() + (uint64_t)(seconds * 1e9); now() < until; count++) {
        CUgraph graph = NULL;
        bool good = true;
        uint64_t length = 20000;
        void *words[] = {&length};
        TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        for (int i = 0; i < 10 && good; i++) {
            good = cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, words, NULL) == CUDA_SUCCESS;
            pause_us(100);
        }
        good &= cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS;
        spoilt += !good;
        if (graph)
            TRY(cuGraphDestroy(graph));
        pause_us(1000);
    }
    over = true;
    pthread_join(other, NULL);
    printf("{\"captures\": %u, \"spoilt\": %u}\n", count, spoilt);
}

static void left_open(double seconds, uint64_t ns, const char *how) {
    CUstream stream, captured;
    CUcontext second;
    const bool by_context = strcmp(how, "context") == 0;
    uint64_t launches = 0;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (by_context)
        TRY(cuCtxCreate_v2(&second, 0, 0));
    TRY(cuStreamCreate(&captured, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (by_context)
        TRY(cuCtxDestroy_v2(second));
    else if (strcmp(how, "stream") == 0)
        TRY(cuStreamDestroy_v2(captured));
    TRY(cuCtxSetCurrent(context));
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* it may wait for its kernels all the same */
    TRY(cuThreadExchangeStreamCaptureMode(&mode));
    uint64_t began = now(), until = began + (uint64_t)(seconds * 1e9);
    for (; now() < until; launches++) {
        launch(stream, ns);
        if (launches % 20 == 19)
            TRY(cuStreamSynchronize(stream));
    }
    printf("{\"percent\": %.1f}\n", 100.0 * (double)(launches * ns) / (double)(now() - began));
}

/* --- a pool near the cap --------------------------------------------------------------------------- */

static uint64_t reserved(CUmemoryPool pool) {
    uint64_t bytes;
    TRY(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes / MIB;
}

static CUmemoryPool full_pool(CUstream *stream, uint64_t keep, size_t *size) {
    CUmemoryPool pool;
    CUdeviceptr all;
    size_t left, total;
    TRY(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
    TRY(cuDeviceGetDefaultMemPool(&pool, 0));
    TRY(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    TRY(cuMemGetInfo_v2(&left, &total));
    *size = (left - 64ull * MIB) / (32 * MIB) * (32ull * MIB);
    TRY(cuMemAllocAsync(&all, *size, *stream));
    TRY(cuMemFreeAsync(all, *stream));
    TRY(cuStreamSynchronize(*stream));
    return pool;
}

static void pool_kept(uint64_t keep) {
    CUstream stream;
    CUdeviceptr piece;
    size_t size;
    CUmemoryPool pool = full_pool(&stream, keep, &size);
    uint64_t before = reserved(pool);
    TRY(cuMemAllocAsync(&piece, 200ull * MIB, stream));
    printf("{\"asked_mib\": %zu, \"before_mib\": %lu, \"after_mib\": %lu}\n", size / MIB, before, reserved(pool));
}

static void pool_full(void) {
    CUstream stream;
    CUdeviceptr piece;
    size_t size;
    CUmemoryPool pool = full_pool(&stream, UINT64_MAX, &size);
    CUresult result = cuMemAllocAsync(&piece, size + 4096ull * MIB, stream);
    CUresult within = cuMemAllocAsync(&piece, size, stream);
    printf("{\"result\": %d, \"within\": %d, \"left_mib\": %lu}\n", result, within, reserved(pool));
}

/* --- the end --------------------------------------------------------------------------------------- */

static void leave(uint64_t ns) {
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 200; i++)
        launch(stream, ns);
    TRY(cuStreamSynchronize(stream));
    for (int i = 0; i < 40; i++)
        launch(stream, ns);
    puts("{\"left\": 1}");
}

int main(int count, char **values) {
    static const unsigned char image[64] = {0x7f, 0x45, 1}; /* not text: the fake takes every name for a kernel of it */
    CUmodule module;
    char line[8];
    if (count < 2)
        return 2;
    TRY(cuInit(0));
    TRY(cuDevicePrimaryCtxRetain(&context, 0));
    TRY(cuCtxSetCurrent(context));
    TRY(cuModuleLoadData(&module, image));
    TRY(cuModuleGetFunction(&spin, module, "egpu_spin"));
    TRY(cuModuleGetFunction(&meet, module, "egpu_meet"));
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    if (strcmp(values[1], "meet") == 0 && count == 3)
        meetings(atoi(values[2]));
    else if (strcmp(values[1], "side") == 0 && count == 4)
        side_by_side(atoi(values[2]), strtoull(values[3], NULL, 10));
    else if (strcmp(values[1], "capture") == 0 && count == 4)
        captures(atof(values[2]), strtoull(values[3], NULL, 10));
    else if (strcmp(values[1], "pool") == 0 && count == 3)
        pool_kept(strtoull(values[2], NULL, 10));
    else if (strcmp(values[1], "full") == 0 && count == 2)
        pool_full();
    else if (strcmp(values[1], "leave") == 0 && count == 3)
        leave(strtoull(values[2], NULL, 10));
    else if (strcmp(values[1], "open") == 0 && count == 5)
        left_open(atof(values[2]), strtoull(values[3], NULL, 10), values[4]);
    else
        return 2;
    return 0;
}
