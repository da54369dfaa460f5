/* Kernels that wait for each other, as collectives do.
 *
 *   meet --rounds 100 --ns 20000            pairs in two streams of this process
 *   meet --rounds 100 --parties 2 --key 7   one side; start it once for each party, on any cards (fake driver only)
 *
 * Prints "done N". Whoever holds back one side for good never sees it. */
#include "program.h"

int main(int count, char **arguments) {
    struct program program = {0};
    program_start(&program, count, arguments);
    long long rounds = option(count, arguments, "rounds", 100);
    uint64_t ns = (uint64_t)option(count, arguments, "ns", 20000);
    uint64_t key = (uint64_t)option(count, arguments, "key", 0);
    uint32_t parties = (uint32_t)option(count, arguments, "parties", 2);
    CUstream left, right;
    CUdeviceptr words;
    CHECK(program.cu.cuStreamCreate(&left, CU_STREAM_NON_BLOCKING));
    CHECK(program.cu.cuStreamCreate(&right, CU_STREAM_NON_BLOCKING));
    CHECK(program.cu.cuMemAlloc(&words, (size_t)rounds * 4));
    CHECK(program.cu.cuMemsetD8(words, 0, (size_t)rounds * 4));
    CHECK(program.cu.cuCtxSynchronize());
    say("ready");
    for (long long i = 0; i < rounds; i++) {
        CUdeviceptr at = key ? key << 20 | (uint64_t)i : words + (uint64_t)i * 4;
        launch_meet(&program, left, ns, at, parties);
        if (!key) launch_meet(&program, right, ns, at, parties);
    }
    CHECK(program.cu.cuStreamSynchronize(left));
    CHECK(program.cu.cuStreamSynchronize(right));
    say("done %lld", rounds);
    return 0;
}
