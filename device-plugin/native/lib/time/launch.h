/* Around each call that gives the card work. */
#pragma once

#include "work.h"

enum egpu_work { EGPU_KERNEL = 1, EGPU_GRAPH = 2, EGPU_MEMSET = 3, EGPU_COPY = 4 };

enum { EGPU_EVENTS_FIT = 1 }; /* of a key: an event may come between this unit and the next */

/* Kinds of unit: what is alike takes about as long. 0: no work of the card's. */
static inline uint64_t egpu_key(enum egpu_work unit, uint64_t what, uint64_t size) {
    uint64_t key = (what ^ size * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return (key ^ key >> 29) << 3 | unit << 1 | EGPU_EVENTS_FIT;
}
static inline uint64_t egpu_kernel_key(CUfunction kernel, unsigned x, unsigned y, unsigned z, unsigned block) {
    return egpu_key(EGPU_KERNEL, (uint64_t)(uintptr_t)kernel, ((uint64_t)x * y * z) << 11 ^ block);
}
static inline uint64_t egpu_size_key(enum egpu_work unit, uint64_t bytes) {
    return bytes == 0 ? 0 : egpu_key(unit, 0, 64 - (uint64_t)__builtin_clzll(bytes));
}

/* Launches that nobody has to know of are counted, and no more. */
uint64_t egpu_launches(void);
void egpu_launch_count(void);

/* Waits for the launch's turn and books it. False: not to be looked at (another's card, inside a capture, key 0). */
bool egpu_launch_begin(struct egpu_launch *launch, const struct egpu_real *real, CUstream stream, bool per_thread,
                       uint64_t key);
CUresult egpu_launch_end(struct egpu_launch *launch, CUresult result);

/* True: it goes to the driver as it is. */
static inline bool egpu_unneeded(void) {
    if (__builtin_expect(egpu_watch_start(), 1) && atomic_load_explicit(&egpu_any_need, memory_order_relaxed) != 0)
        return false;
    egpu_launch_count();
    return true;
}

#define EGPU_UNIT(name, per_thread, arguments, values, stream, key)                                        \
    EGPU_EXPORT CUresult name arguments {                                                                  \
        EGPU_DRIVER(real, name);                                                                           \
        struct egpu_launch launch;                                                                         \
        if (__builtin_expect(egpu_unneeded(), 1))                                                          \
            return real->name values;                                                                      \
        bool counted = egpu_launch_begin(&launch, real, stream, per_thread, key);                          \
        CUresult result = real->name values;                                                               \
        return counted ? egpu_launch_end(&launch, result) : result;                                        \
    }
/* Also for programs whose default stream is per thread. */
#define EGPU_UNIT_TSZ(name, ...) EGPU_UNIT(name, false, __VA_ARGS__) EGPU_UNIT(name##_ptsz, true, __VA_ARGS__)
#define EGPU_UNIT_TDS(name, ...) EGPU_UNIT(name, false, __VA_ARGS__) EGPU_UNIT(name##_ptds, true, __VA_ARGS__)
