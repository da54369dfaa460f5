/* One rank of a training gang: steps of collectives, whose kernels end only when those of all ranks run.
 *
 *   gang --parties 4 --key 7 --agree FILE --kernels 4 --ns 200000 --memory-mib 64 --steps 0 --every 1 [--rest] [--rest-s 120]
 *
 * Start it once a rank (fake driver only). With --rest it comes to rest at SIGUSR1: the ranks agree by FILE on a step
 * that none of them has begun, end the step before it, and wait for SIGCONT there, --rest-s at most. A real program
 * agrees by a collective of its own. The step counter lies in device memory. Prints "step N", "rests N" and "done N". */
#define _GNU_SOURCE
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t wanted;

static void on_signal(int number) {
    (void)number;
    wanted = 1;
}

/* The step before which all rest; shared by all ranks. */
static _Atomic uint64_t *agreed(const char *path) {
    static _Atomic uint64_t alone;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || ftruncate(file, 8) != 0) return &alone;
    void *at = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? &alone : at;
}

/* No rank is more than one step ahead of another: none has begun the next step but one. What is agreed on already stays:
 * another rank may rest there. */
static void ask(_Atomic uint64_t *at, uint64_t step) {
    uint64_t before = atomic_load(at);
    while (before < step && !atomic_compare_exchange_weak(at, &before, step + 2)) continue;
}

/* That the signal is ignored says that this process is at rest. One that comes late is dropped, and means nothing. */
static void rest(uint64_t step, long long longest_s) {
    struct timespec limit = {.tv_sec = (time_t)longest_s};
    sigset_t go_on;
    sigemptyset(&go_on);
    sigaddset(&go_on, SIGCONT);
    sigprocmask(SIG_BLOCK, &go_on, NULL);
    say("rests %llu", (unsigned long long)step);
    signal(SIGUSR1, SIG_IGN);
    sigtimedwait(&go_on, NULL, &limit);
    wanted = 0;
    signal(SIGUSR1, on_signal);
    sigprocmask(SIG_UNBLOCK, &go_on, NULL);
}

int main(int count, char **arguments) {
    struct program program = {0};
    program_start(&program, count, arguments);
    const struct calls *cu = &program.cu;
    uint64_t ns = (uint64_t)option(count, arguments, "ns", 200000), key = (uint64_t)option(count, arguments, "key", 1);
    long long kernels = option(count, arguments, "kernels", 4), every = option(count, arguments, "every", 1);
    uint64_t steps = (uint64_t)option(count, arguments, "steps", 0), seen = 0, rested = 0;
    long long memory_mib = option(count, arguments, "memory-mib", 64), rest_s = option(count, arguments, "rest-s", 120);
    uint32_t parties = (uint32_t)option(count, arguments, "parties", 2);
    _Atomic uint64_t *at = agreed(text_option(count, arguments, "agree", "/dev/null"));
    bool rests = flag(count, arguments, "rest");
    CUdeviceptr counter, weights;
    CUstream stream;
    if (rests) signal(SIGUSR1, on_signal);
    CHECK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cu->cuMemAlloc(&counter, 8));
    CHECK(cu->cuMemsetD8(counter, 0, 8));
    if (memory_mib) CHECK(cu->cuMemAlloc(&weights, (size_t)memory_mib << 20));
    say("ready");
    for (uint64_t step = 1; !steps || step <= steps; step++) {
        if (rests && wanted) {
            wanted = 0;
            ask(at, step);
        }
        if (rests && atomic_load(at) == step && rested != step) rest(rested = step, rest_s);
        for (long long i = 0; i < kernels; i++)
            launch_meet(&program, stream, ns, key << 40 | (step * (uint64_t)kernels + (uint64_t)i), parties);
        launch_add(&program, stream, ns, counter, 1);
        CHECK(cu->cuStreamSynchronize(stream));
        CHECK(cu->cuMemcpyDtoH(&seen, counter, sizeof seen));
        if (step % (uint64_t)every == 0) say("step %llu", (unsigned long long)seen);
    }
    say("done %llu", (unsigned long long)seen);
    return 0;
}
