/* An inference server: requests arrive at random (Poisson), each is 40 kernels and a wait; one at a time, in order.
 *
 *   serve --rate 50 --seconds 10 --kernels 40 --ns 100000 --seed 1 --raw
 *
 * Prints one JSON object: requests, latencies in microseconds from arrival to the end of the request (mean, p50, p99,
 * max), and with --raw all of them. */
#define _GNU_SOURCE
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed;

/* Between 0 and 1, neither. */
static double any(void) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void report(double *latency, size_t count, bool raw) {
    double sum = 0;
    if (raw) {
        printf("{\"latencies_us\": [");
        for (size_t i = 0; i < count; i++) printf("%s%.1f", i ? ", " : "", latency[i]);
        printf("]}\n");
    }
    qsort(latency, count, sizeof *latency, ascending);
    for (size_t i = 0; i < count; i++) sum += latency[i];
    if (!count) count = 1;
    say("{\"requests\": %zu, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f}", count,
        sum / (double)count, latency[count / 2], latency[count * 99 / 100], latency[count - 1]);
}

int main(int count, char **arguments) {
    struct program program = {0};
    program_start(&program, count, arguments);
    double rate = (double)option(count, arguments, "rate", 50);
    uint64_t seconds = (uint64_t)option(count, arguments, "seconds", 10);
    uint64_t ns = (uint64_t)option(count, arguments, "ns", 100000);
    long long kernels = option(count, arguments, "kernels", 40);
    seed = (uint64_t)option(count, arguments, "seed", 1);
    size_t room = (size_t)(rate * (double)seconds * 2) + 64, served = 0;
    double *latency = calloc(room, sizeof *latency);
    CUstream stream;
    if (!latency) return 1;
    CHECK(program.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    launch_spin(&program, stream, 1000); /* what is loaded lazily is there before the first request */
    CHECK(program.cu.cuStreamSynchronize(stream));
    say("ready");
    uint64_t begin = now_ns(), arrival = begin, end = begin + seconds * 1000000000ull;
    while (served < room) {
        arrival += (uint64_t)(-log(any()) / rate * 1e9);
        if (arrival >= end) break;
        if (arrival > now_ns()) sleep_until_ns(arrival);
        for (long long i = 0; i < kernels; i++) launch_spin(&program, stream, ns);
        CHECK(program.cu.cuStreamSynchronize(stream));
        latency[served++] = (double)(now_ns() - arrival) / 1000.0;
    }
    report(latency, served, flag(count, arguments, "raw"));
    free(latency);
    return 0;
}
