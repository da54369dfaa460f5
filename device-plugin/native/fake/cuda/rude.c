/* What real drivers do besides working: calls take time on the host, code is loaded at the first launch, calls are counted. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { NAMES = 512, LOADED = 1 << 16 };
static struct { _Atomic(const char *) name; _Atomic unsigned long calls; } counts[NAMES];
static const char *counts_path;
static bool slow;
static uint64_t load_ns;
static _Atomic uint64_t loaded[LOADED];

void rude_begin(void) {
    slow = setting("FAKE_CUDA_HOST_TIME", 0) != 0;
    load_ns = setting("FAKE_CUDA_LOAD_US", 0) * 1000;
    counts_path = getenv("FAKE_CUDA_CALLS");
    driver.rude = slow || counts_path;
}

/* Until then the processor is busy, as in a real driver. */
static void spin(uint64_t ns) {
    for (uint64_t end = fc_now() + ns; fc_now() < end;) {}
}

static void count(const char *name) {
    for (unsigned i = 0; i < NAMES; i++) {
        const char *there = NULL;
        if (!atomic_compare_exchange_strong(&counts[i].name, &there, name) && strcmp(there, name) != 0) continue;
        atomic_fetch_add(&counts[i].calls, 1);
        return;
    }
}

void rude_call(const char *name) {
    if (counts_path) count(name);
    if (!slow) return;
    if (strncmp(name, "cuLaunch", 8) == 0 || strncmp(name, "cuGraphLaunch", 13) == 0) spin(2000);
    else if (strcmp(name, "cuEventQuery") == 0) spin(1000);
    else if (strncmp(name, "cuCtxPushCurrent", 16) == 0 || strncmp(name, "cuCtxPopCurrent", 15) == 0) spin(300);
}

/* An event that keeps the time costs ten times what another does. */
void rude_record(bool timed) {
    if (slow) spin(timed ? 2500 : 250);
}

void rude_load(const void *function, const unsigned grid[3]) {
    if (!load_ns) return;
    const uint64_t key = ((uint64_t)(uintptr_t)function ^ (uint64_t)grid[0] << 32 ^ grid[1]) | 1;
    for (unsigned i = 0; i < LOADED; i++) {
        uint64_t there = 0;
        _Atomic uint64_t *row = &loaded[((key * 0x9E3779B97F4A7C15ull >> 48) + i) % LOADED];
        if (atomic_compare_exchange_strong(row, &there, key)) break;
        if (there == key) return;
    }
    struct timespec time = {(time_t)(load_ns / 1000000000), (long)(load_ns % 1000000000)};
    nanosleep(&time, NULL);
}

void rude_end(void) {
    FILE *to = counts_path ? fopen(counts_path, "we") : NULL;
    for (unsigned i = 0; to && i < NAMES && counts[i].name; i++) fprintf(to, "%s %lu\n", counts[i].name, counts[i].calls);
    if (to) fclose(to);
}
