/* The clock, a lock for a few lines, and what is known of each kind of unit. */
#define _GNU_SOURCE
#include "flight.h"

#include <time.h>

enum { KINDS = 4096 };
static struct egpu_kind_row kinds[KINDS];

int64_t egpu_now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void egpu_spin_lock(struct egpu_spin *lock) {
    for (unsigned tries = 0; atomic_exchange_explicit(&lock->held, 1, memory_order_acquire); tries++)
        if (tries > 100)
            nanosleep(&(struct timespec){.tv_nsec = 5000}, NULL);
}

struct egpu_kind_row *egpu_kind_of(uint64_t key) {
    key |= 1;
    uint64_t hash = key * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < 8; i++) {
        struct egpu_kind_row *row = &kinds[((hash >> 40) + i) % KINDS];
        uint64_t there = atomic_load_explicit(&row->key, memory_order_acquire);
        if (there == key)
            return row;
        if (there == 0 && (atomic_compare_exchange_strong(&row->key, &there, key) || there == key))
            return row;
    }
    return &kinds[(hash >> 40) % KINDS]; /* full here: it shares a row, and what is known of it is a mean of both */
}
