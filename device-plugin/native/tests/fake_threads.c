/* Four threads use the fake driver at once, in every way that has tables of its own. For the thread sanitizer. */
#include "../programs/program.h"

#include <pthread.h>
#include <stdio.h>

static struct program program;
static _Atomic int called;

static void note(void *unused) {
    (void)unused;
    called++;
}

static void *work(void *number) {
    CUstream stream;
    CUevent begin, end;
    CUgraph graph;
    CUgraphExec exec;
    CHECK(cuCtxSetCurrent(program.context));
    CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
    CHECK(cuThreadExchangeStreamCaptureMode(&relaxed));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int turn = 0; turn < 30; turn++) {
        CUdeviceptr small, large, async;
        CHECK(cuEventCreate(&begin, 0));
        CHECK(cuEventCreate(&end, 0));
        CHECK(cuMemAlloc_v2(&small, 4096));
        CHECK(cuMemAlloc_v2(&large, 8 << 20));
        CHECK(cuMemAllocAsync(&async, 1 << 20, stream));
        CHECK(cuEventRecord(begin, stream));
        for (int i = 0; i < 10; i++) launch_spin(&program, stream, 2000);
        CHECK(cuLaunchHostFunc(stream, note, number));
        CHECK(cuMemFreeAsync(async, stream));
        CHECK(cuEventRecord(end, stream));
        while (cuEventQuery(end) == CUDA_ERROR_NOT_READY) {}
        CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        launch_spin(&program, stream, 2000);
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuGraphExecDestroy(exec));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuMemFree_v2(small));
        CHECK(cuMemFree_v2(large));
        CHECK(cuEventDestroy_v2(begin));
        CHECK(cuEventDestroy_v2(end));
    }
    CHECK(cuStreamDestroy_v2(stream));
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[4];
    program_start(&program, count, arguments);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    say("called %d", called);
    return called == 120 ? 0 : 1;
}
