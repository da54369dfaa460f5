/* What the programs of the tests of time have in common. */
#ifndef EGPU_TESTS_ACTOR_H
#define EGPU_TESTS_ACTOR_H
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../include/egpu_cuda.h"

#define TRY(call)                                                          \
    do {                                                                   \
        CUresult result_ = (call);                                         \
        if (result_ != CUDA_SUCCESS) {                                     \
            fprintf(stderr, "line %d: %s: %d\n", __LINE__, #call, result_); \
            exit(1);                                                       \
        }                                                                  \
    } while (0)

static inline uint64_t now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}
static inline uint64_t now(void) { return now_ns(CLOCK_MONOTONIC); }
#endif
