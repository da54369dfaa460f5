/* The clock, a lock for a few lines, and what is known of each kind of unit. */
#define _GNU_SOURCE
#include "flight.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) && !defined(EGPU_ONE_CLOCK) /* the one of a test */
#include <cpuid.h>
#define EGPU_COUNTER
#endif

enum { KINDS = 4096 };
static struct egpu_kind_row kinds[KINDS];

static int64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#ifdef EGPU_COUNTER
/* The processor's counter, where the kernel's own clock goes by it: half the price, and nothing waits for it. Each
 * thread ties it to the clock anew at least every SPAN ticks. */
enum { SPAN = 1 << 22, AT_ONCE = 2000, NEVER = 1, FRACTION = 32, INVARIANT = 1 << 8 };
static const int64_t MEASURE_NS = 20000000;
static _Atomic uint64_t ns_per_tick; /* in 2^-FRACTION; 0: not known yet */

static bool counter_is_the_clock(void) {
    unsigned a, b, c, d = 0;
    char name[8] = "";
    const int kept_errno = errno;
    int file = open("/sys/devices/system/clocksource/clocksource0/current_clocksource", O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, name, sizeof name - 1) > 0 && __get_cpuid(0x80000007, &a, &b, &c, &d) == 0)
        d = 0;
    if (file >= 0)
        close(file);
    errno = kept_errno;
    return d & INVARIANT && strcmp(name, "tsc\n") == 0;
}

/* Finds how long a tick is, from two looks that are far enough from each other. */
static void measure(uint64_t ticks, int64_t now_ns) {
    static struct egpu_spin lock;
    static uint64_t first_ticks;
    static int64_t first_ns;
    if (atomic_exchange_explicit(&lock.held, 1, memory_order_acquire))
        return;
    if (first_ns == 0) {
        first_ticks = ticks;
        first_ns = now_ns;
        if (!counter_is_the_clock())
            atomic_store_explicit(&ns_per_tick, NEVER, memory_order_relaxed);
    } else if (now_ns - first_ns > MEASURE_NS && ticks > first_ticks) {
        unsigned __int128 passed = (unsigned __int128)(uint64_t)(now_ns - first_ns) << FRACTION;
        atomic_store_explicit(&ns_per_tick, (uint64_t)(passed / (ticks - first_ticks)), memory_order_relaxed);
    }
    egpu_spin_unlock(&lock);
}

int64_t egpu_now_ns(void) {
    static __thread __attribute__((tls_model("initial-exec"))) struct { uint64_t ticks; int64_t ns; } anchor;
    const uint64_t length = atomic_load_explicit(&ns_per_tick, memory_order_relaxed);
    if (length == NEVER)
        return clock_ns();
    const uint64_t before = __builtin_ia32_rdtsc();
    if (length != 0 && before - anchor.ticks < SPAN)
        return anchor.ns + (int64_t)((before - anchor.ticks) * length >> FRACTION);
    const int64_t now = clock_ns();
    const uint64_t after = __builtin_ia32_rdtsc();
    if (after - before > AT_ONCE)
        return now; /* interrupted: the two do not belong together */
    if (length == 0)
        measure(after, now);
    anchor.ticks = before + (after - before) / 2;
    anchor.ns = now;
    return now;
}
#else
int64_t egpu_now_ns(void) { return clock_ns(); }
#endif

void egpu_spin_lock(struct egpu_spin *lock) {
    for (unsigned tries = 0; atomic_exchange_explicit(&lock->held, 1, memory_order_acquire); tries++)
        if (tries > 100) /* not nanosleep(): there a thread may be cancelled, and it may hold what all others wait for */
            syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 5000}, NULL);
}

static struct egpu_kind_row *kind_at(uint64_t key, uint32_t nth) {
    return &kinds[(((key | 1) * 0x9e3779b97f4a7c15u >> 40) + nth) % KINDS];
}

struct egpu_kind_row *egpu_kind_of(uint64_t key) {
    key |= 1;
    for (uint32_t i = 0; i < 8; i++) {
        struct egpu_kind_row *row = kind_at(key, i);
        uint64_t there = atomic_load_explicit(&row->key, memory_order_acquire);
        if (there == key)
            return row;
        if (there == 0 && (atomic_compare_exchange_strong(&row->key, &there, key) || there == key))
            return row;
    }
    return kind_at(key, 0); /* full here: it shares a row, and what is known of it is a mean of both */
}

struct egpu_kind_row *egpu_kind_known(uint64_t key) {
    for (uint32_t i = 0; i < 8; i++)
        if (kind_at(key, i)->key == (key | 1))
            return kind_at(key, i);
    return NULL;
}
