/* What time is it? By the host's clock, read without a system call where that is possible. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) && !defined(EGPU_ONE_CLOCK) /* the one of a test */
#include <cpuid.h>
#define EGPU_COUNTER
#endif

static int64_t clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

#ifdef EGPU_COUNTER
/* The processor's counter, where the kernel's own clock goes by it: half the price, and nothing waits for it. Each
 * thread ties it to the clock again at least every SPAN ticks. */
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
