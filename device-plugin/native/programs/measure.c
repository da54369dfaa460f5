/* Loads whose times are known exactly: with --stamps each kernel does an amount of work that takes that long on an idle
 * card, and writes when it began and ended by the card's clock; the program turns that into the host's
 * (CLOCK_MONOTONIC). A fake card keeps its own log: no --stamps there.
 *
 *   measure run   --seconds 10 --depth 1000 --ns 50000,1000000   kernels of random lengths, so many before each wait
 *   measure serve --seconds 60 --load 20 --seed 1                requests of 40 kernels of 100 us, Poisson arrivals
 *   measure pulse --seconds 20 --period-us 50000 --ns 1000000    one kernel now and then
 *   measure train --seconds 10 --kernels 20 --ns 1000000         steps with a wait after each
 *   measure graph --seconds 10 --kernels 30 --ns 1000000         graphs of kernels, without stamps
 *   measure cost  --rounds 1000                                  what a launch costs the program
 *
 * Says "ready" and begins when a line comes on stdin. At the end one line of JSON; --stamps FILE holds three words
 * for each kernel: launched, began, ended. */
#define _GNU_SOURCE
#include "program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KERNELS = 40, KERNEL_NS = 100000, MOST_REQUESTS = 1 << 18, CLOCK_TRIES = 40 };

static struct program program;
static CUfunction stamp;
static CUstream stream;
static CUdeviceptr stamps;
static uint64_t *launched, launches, most, seed, began;
static bool stamping;
static double rounds_per_ns;
struct tie { uint64_t host, card; };

static uint64_t dice(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed >> 11;
}

static void launch(uint64_t ns) {
    if (!stamping || launches == most) {
        launch_spin(&program, stream, ns);
        launches += !stamping;
        return;
    }
    uint64_t rounds = (uint64_t)((double)ns * rounds_per_ns);
    void *arguments[] = {&rounds, &stamps, &launches};
    launched[launches] = now_ns();
    CHECK(program.cu.cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
    launches++;
}

static void wait_all(void) { CHECK(program.cu.cuStreamSynchronize(stream)); }

/* The same moment on both clocks, from the quickest of some kernels. */
static struct tie tie_clocks(void) {
    struct tie best = {0};
    uint64_t shortest = UINT64_MAX, ns = 0, at = most, card[2];
    for (int i = 0; stamping && i < CLOCK_TRIES; i++) {
        void *arguments[] = {&ns, &stamps, &at};
        uint64_t before = now_ns();
        CHECK(program.cu.cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
        wait_all();
        uint64_t took = now_ns() - before;
        CHECK(program.cu.cuMemcpyDtoH(card, stamps + at * 16, sizeof card));
        if (took < shortest) shortest = took, best = (struct tie){before + took / 2, card[0]};
    }
    return best;
}

/* How much work the card does in a ns: the best of some tries, after it has come up to speed. */
static void calibrate(void) {
    uint64_t rounds = 200000, at = most, card[2], until = now_ns() + 300000000;
    void *arguments[] = {&rounds, &stamps, &at};
    while (stamping && now_ns() < until) {
        CHECK(program.cu.cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
        wait_all();
        CHECK(program.cu.cuMemcpyDtoH(card, stamps + at * 16, sizeof card));
        double rate = card[1] > card[0] ? (double)rounds / (double)(card[1] - card[0]) : 0;
        rounds_per_ns = rate > rounds_per_ns ? rate : rounds_per_ns;
    }
}

static uint64_t on_host(uint64_t card, const struct tie *first, const struct tie *last) {
    double rate = last->card > first->card ? (double)(last->host - first->host) / (double)(last->card - first->card) : 1;
    return first->host + (uint64_t)(int64_t)((double)(int64_t)(card - first->card) * rate);
}

static void save(const char *path, const struct tie *first, const struct tie *last) {
    uint64_t *card = calloc(launches + 1, 16);
    FILE *file = fopen(path, "wb");
    if (!card || !file) exit(1);
    if (launches) CHECK(program.cu.cuMemcpyDtoH(card, stamps, launches * 16));
    for (uint64_t i = 0; i < launches; i++) {
        uint64_t row[3] = {launched[i], on_host(card[2 * i], first, last), on_host(card[2 * i + 1], first, last)};
        fwrite(row, sizeof row, 1, file);
    }
    fclose(file);
    free(card);
}

static void run(uint64_t end, long long depth, const char *list) {
    uint64_t lengths[16], count = 0;
    for (const char *at = list; *at && count < 16; at += strcspn(at, ","), at += *at == ',')
        lengths[count++] = strtoull(at, NULL, 10);
    while (now_ns() < end) {
        for (long long i = 0; i < depth && now_ns() < end; i++) launch(lengths[dice() % count]);
        wait_all();
    }
}

/* Arrivals depend on the seed alone: the same ones come whoever else runs. */
static double any(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(*state >> 11) + 0.5) / 9007199254740992.0;
}

static uint64_t serve(uint64_t end, double load, uint64_t arrivals, uint64_t *took) {
    uint64_t count = 0;
    double mean = KERNELS * (double)KERNEL_NS * 100 / load;
    for (uint64_t due = began; count < MOST_REQUESTS;) {
        due += (uint64_t)(-log(any(&arrivals)) * mean);
        if (due >= end) break;
        if (due > now_ns()) sleep_until_ns(due);
        for (int i = 0; i < KERNELS; i++) launch(KERNEL_NS);
        wait_all();
        took[count++] = now_ns() - due;
    }
    return count;
}

static uint64_t pulse(uint64_t end, uint64_t period, uint64_t ns, uint64_t *took) {
    uint64_t count = 0;
    for (uint64_t due = began; count < MOST_REQUESTS;) {
        due += period / 2 + dice() % (period + 1);
        if (due >= end) break;
        if (due > now_ns()) sleep_until_ns(due);
        launch(ns);
        wait_all();
        took[count++] = now_ns() - due;
    }
    return count;
}

static uint64_t train(uint64_t end, long long kernels, uint64_t ns) {
    uint64_t steps = 0;
    for (; now_ns() < end; steps++) {
        for (long long i = 0; i < kernels; i++) launch(ns);
        wait_all();
    }
    return steps;
}

static uint64_t graphs(uint64_t end, long long kernels, uint64_t ns) {
    const struct calls *cu = &program.cu;
    CUgraph graph;
    CUgraphExec exec;
    uint64_t count = 0;
    CHECK(cu->cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (long long i = 0; i < kernels; i++) launch_spin(&program, stream, ns);
    CHECK(cu->cuStreamEndCapture(stream, &graph));
    CHECK(cu->cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (; now_ns() < end; count++) CHECK(cu->cuGraphLaunch(exec, stream));
    wait_all();
    return count;
}

static int ascending(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* CPU time of a launch, less the timer's: batches of 100, and single ones. */
static uint64_t cost(long long rounds, uint64_t *batch, uint64_t *single) {
    uint64_t timer = UINT64_MAX;
    for (int i = 0; i < 1000; i++) {
        uint64_t at = now_ns(), took = now_ns() - at;
        timer = took < timer ? took : timer;
    }
    for (long long k = 0; k < rounds; k++) {
        uint64_t at = now_ns();
        for (int i = 0; i < 100; i++) launch_spin(&program, stream, 1000);
        batch[k] = (now_ns() - at) / 100;
        wait_all();
        at = now_ns();
        launch_spin(&program, stream, 1000);
        single[k] = now_ns() - at - timer;
        wait_all();
        sleep_until_ns(now_ns() + 300000);
    }
    return (uint64_t)rounds;
}

static void print_list(const char *name, uint64_t *list, uint64_t count) {
    qsort(list, count, sizeof *list, ascending);
    uint64_t none = 0, *of = count ? list : &none, last = count ? count - 1 : 0;
    printf("\"%s_p50_ns\": %lu, \"%s_p99_ns\": %lu, \"%s_max_ns\": %lu, ", name, of[count / 2 < last ? count / 2 : last], name,
           of[count * 99 / 100 < last ? count * 99 / 100 : last], name, of[last]);
}

int main(int count, char **arguments) {
    const char *mode = count > 1 ? arguments[1] : "", *path = text_option(count, arguments, "stamps", NULL);
    uint64_t ns = (uint64_t)option(count, arguments, "ns", 1000000);
    long long kernels = option(count, arguments, "kernels", 20), number = option(count, arguments, "seed", 1);
    uint64_t *took = calloc(MOST_REQUESTS, 8), *single = calloc(MOST_REQUESTS, 8), done = 0;
    char line[8];
    stamping = path != NULL;
    most = stamping ? (uint64_t)option(count, arguments, "most", 1 << 20) : 0;
    launched = calloc(most + 1, 8);
    seed = (uint64_t)number * 0x9e3779b97f4a7c15u | 1;
    program_start(&program, count, arguments);
    CHECK(program.cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (stamping) {
        CHECK(program.cu.cuModuleGetFunction(&stamp, program.module, "egpu_stamp"));
        CHECK(program.cu.cuMemAlloc(&stamps, (most + 1) * 16));
    }
    launch_spin(&program, stream, 1000); /* what is loaded lazily is there */
    wait_all();
    calibrate();
    struct tie first = tie_clocks();
    say("ready");
    if (!took || !single || !launched || !fgets(line, sizeof line, stdin)) return 1;
    began = now_ns();
    uint64_t end = began + (uint64_t)option(count, arguments, "seconds", 10) * 1000000000ull;
    if (strcmp(mode, "run") == 0)
        run(end, option(count, arguments, "depth", 1000), text_option(count, arguments, "ns", "1000000"));
    else if (strcmp(mode, "serve") == 0)
        done = serve(end, (double)option(count, arguments, "load", 20), (uint64_t)number, took);
    else if (strcmp(mode, "pulse") == 0)
        done = pulse(end, (uint64_t)option(count, arguments, "period-us", 50000) * 1000, ns, took);
    else if (strcmp(mode, "train") == 0)
        done = train(end, kernels, ns);
    else if (strcmp(mode, "graph") == 0)
        done = graphs(end, kernels, ns);
    else if (strcmp(mode, "cost") == 0)
        done = cost(option(count, arguments, "rounds", 1000), took, single);
    else
        return 2;
    uint64_t ended = now_ns();
    struct tie last = tie_clocks();
    if (stamping) save(path, &first, &last);
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"launches\": %lu, ", getpid(), began, ended, launches);
    print_list("took", took, strcmp(mode, "train") == 0 || strcmp(mode, "graph") == 0 ? 0 : done);
    print_list("single", single, strcmp(mode, "cost") == 0 ? done : 0);
    say("\"done\": %lu}", done);
    return 0;
}
