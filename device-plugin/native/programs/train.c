/* A training loop: steps of kernels, then a wait, as a framework does that reads its loss.
 *
 *   train --steps 0 --kernels 20 --ns 1000000 --memory-mib 0 --graph --every 100
 *
 * --steps 0: until it is ended. The step counter lies in device memory: it says whether that came back whole from a
 * checkpoint. Prints "step N" every so many steps and "done N" at the end. */
#include "program.h"

#include <string.h>

struct loop { uint64_t ns; long long kernels, steps, every; };

static void step(struct program *program, CUstream stream, const struct loop *loop, CUdeviceptr counter) {
    for (long long i = 1; i < loop->kernels; i++) launch_spin(program, stream, loop->ns);
    launch_add(program, stream, loop->ns, counter, 1);
}

int main(int count, char **arguments) {
    struct program program = {0};
    program_start(&program, count, arguments);
    const struct calls *cu = &program.cu;
    struct loop loop = {
        .ns = (uint64_t)option(count, arguments, "ns", 1000000), .kernels = option(count, arguments, "kernels", 20),
        .steps = option(count, arguments, "steps", 0), .every = option(count, arguments, "every", 100),
    };
    long long memory_mib = option(count, arguments, "memory-mib", 0);
    bool graphs = flag(count, arguments, "graph");
    CUdeviceptr counter, weights;
    CUstream stream;
    CHECK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu->cuMemAlloc(&counter, 8));
    CHECK(cu->cuMemsetD8(counter, 0, 8));
    if (memory_mib) {
        CHECK(cu->cuMemAlloc(&weights, (size_t)memory_mib << 20));
        CHECK(cu->cuMemsetD8(weights, 0, (size_t)memory_mib << 20));
    }
    CUgraph graph;
    CUgraphExec exec = NULL;
    if (graphs) {
        CHECK(cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        step(&program, stream, &loop, counter);
        CHECK(cu->cuStreamEndCapture(stream, &graph));
        CHECK(cu->cuGraphInstantiateWithFlags(&exec, graph, 0));
    }
    say("ready");
    uint64_t seen = 0;
    for (long long i = 1; !loop.steps || i <= loop.steps; i++) {
        if (graphs) CHECK(cu->cuGraphLaunch(exec, stream));
        else step(&program, stream, &loop, counter);
        CHECK(cu->cuStreamSynchronize(stream));
        if (i % loop.every) continue;
        CHECK(cu->cuMemcpyDtoH(&seen, counter, sizeof seen));
        say("step %llu", (unsigned long long)seen);
    }
    CHECK(cu->cuMemcpyDtoH(&seen, counter, sizeof seen));
    say("done %llu", (unsigned long long)seen);
    return 0;
}
