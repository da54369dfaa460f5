#include "limiter.h"

#include "../../abi/control.h"

enum { SECOND_NS = 1000 * 1000 * 1000 };

static const int64_t FAR_NS = INT64_MAX / 4; /* nothing is owed for longer than this: sums cannot overflow */

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Device time to time on the clock, at that rate. Saturates. */
static int64_t stretched(uint64_t cost_ns, uint64_t rate_ppm) {
    if (cost_ns > (uint64_t)FAR_NS / EGPU_RATE_WHOLE)
        return cost_ns > (uint64_t)FAR_NS / (EGPU_RATE_WHOLE / rate_ppm + 1) ? FAR_NS
               : (int64_t)(cost_ns / rate_ppm) * EGPU_RATE_WHOLE;
    return (int64_t)(cost_ns * EGPU_RATE_WHOLE / rate_ppm);
}

static uint64_t less_burst(uint64_t rate_ppm, bool seconds_kept) {
    const uint64_t more_us = (seconds_kept ? EGPU_LATER_NS : EGPU_BURST_NS + EGPU_LATER_NS) / 1000;
    return rate_ppm - rate_ppm * more_us / (SECOND_NS / 1000 + more_us);
}

uint64_t egpu_limiter_rate(const struct egpu_share *share) {
    if (share->policy != EGPU_CORES_HARD && share->policy != EGPU_CORES_SOFT)
        return EGPU_RATE_FREE;
    uint64_t cores = (uint64_t)clamp(share->cores_percent, 1, 100) * (EGPU_RATE_WHOLE / 100);
    if (share->policy == EGPU_CORES_HARD && cores == EGPU_RATE_WHOLE)
        return EGPU_RATE_FREE;
    /* Only a share above half keeps its whole burst. Tried on the fake card: smaller shares took theirs from the
       largest share, which was a point shorter with kernels of 5 ms. */
    if (share->policy == EGPU_CORES_HARD)
        return less_burst(cores, share->seconds_kept && cores > EGPU_RATE_WHOLE / 2);
    if (share->others_wanting == 0)
        return EGPU_RATE_FREE;
    uint64_t taken = share->others_hard_ppm < EGPU_RATE_WHOLE ? share->others_hard_ppm : EGPU_RATE_WHOLE;
    uint64_t weight = (uint64_t)clamp(share->weight, 1, 100);
    uint64_t mine = (EGPU_RATE_WHOLE - taken) * weight / (weight + share->others_soft);
    if (mine < cores)
        mine = cores; /* what was granted is granted, whatever weights the others claim */
    return mine >= EGPU_RATE_WHOLE ? EGPU_RATE_FREE : mine;
}

int64_t egpu_limiter_charge_with(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns, int64_t credit_ns) {
    now_ns = clamp(now_ns, 0, FAR_NS);
    credit_ns = clamp(credit_ns, EGPU_BURST_NS, EGPU_CREDIT_NS);
    paid_ns = clamp(paid_ns, now_ns - credit_ns, now_ns + FAR_NS);
    if (rate_ppm == EGPU_RATE_FREE || rate_ppm >= EGPU_RATE_WHOLE)
        return paid_ns < now_ns ? paid_ns : now_ns; /* no debt is carried into a limit that comes later */
    return clamp(paid_ns + stretched(cost_ns, rate_ppm), now_ns - credit_ns, now_ns + FAR_NS);
}

int64_t egpu_limiter_charge(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns) {
    return egpu_limiter_charge_with(paid_ns, rate_ppm, now_ns, cost_ns, EGPU_BURST_NS);
}

struct egpu_turn egpu_limiter_ask(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns) {
    if (!egpu_limiter_free(paid_ns, rate_ppm, now_ns))
        return (struct egpu_turn){.pass = false, .paid_ns = paid_ns, .wake_ns = paid_ns};
    return (struct egpu_turn){.pass = true, .paid_ns = egpu_limiter_charge(paid_ns, rate_ppm, now_ns, cost_ns)};
}

int64_t egpu_limiter_correct(int64_t paid_ns, uint64_t rate_ppm, uint64_t booked_ns, uint64_t measured_ns) {
    if (rate_ppm == EGPU_RATE_FREE || rate_ppm >= EGPU_RATE_WHOLE)
        return paid_ns;
    paid_ns = clamp(paid_ns, -FAR_NS, 2 * FAR_NS);
    return measured_ns >= booked_ns ? paid_ns + stretched(measured_ns - booked_ns, rate_ppm)
                                    : paid_ns - stretched(booked_ns - measured_ns, rate_ppm);
}

int64_t egpu_limiter_rescale(int64_t paid_ns, uint64_t old_ppm, uint64_t new_ppm, int64_t now_ns) {
    if (old_ppm == EGPU_RATE_FREE && new_ppm != EGPU_RATE_FREE && paid_ns < now_ns - EGPU_BURST_NS)
        paid_ns = now_ns - EGPU_BURST_NS; /* what it did not use then nobody kept from it */
    if (old_ppm == new_ppm || paid_ns <= now_ns)
        return paid_ns;
    if (new_ppm == EGPU_RATE_FREE || old_ppm == EGPU_RATE_FREE)
        return now_ns;
    int64_t wait = clamp(paid_ns - now_ns, 0, FAR_NS);
    uint64_t owed = (uint64_t)wait / EGPU_RATE_WHOLE * old_ppm + (uint64_t)wait % EGPU_RATE_WHOLE * old_ppm / EGPU_RATE_WHOLE;
    return now_ns + stretched(owed, new_ppm);
}

/* Each span: what was booked in it, in 16 ns, and which time it was, so that nobody has to empty it. */
enum { SPAN_BITS = 25, UNIT_BITS = 4, USED_BITS = 21 };
static const uint32_t USED_MOST = (1u << USED_BITS) - 1;

static void span_book(struct egpu_second *second, int64_t number, uint32_t units, bool off) {
    _Atomic uint32_t *span = &second->spans[number % EGPU_ACTIVITY_SPANS];
    const uint32_t time = (uint32_t)number << USED_BITS;
    uint32_t before = *span, after;
    do {
        uint32_t used = before >> USED_BITS == time >> USED_BITS ? before & USED_MOST : 0;
        used = off ? used - (units < used ? units : used) : used + units < USED_MOST ? used + units : USED_MOST;
        after = time | used;
    } while (!atomic_compare_exchange_weak(span, &before, after));
}

void egpu_second_book(struct egpu_second *second, int64_t end_ns, uint64_t length_ns, bool off) {
    if (length_ns > SECOND_NS)
        length_ns = SECOND_NS;
    if (end_ns < (int64_t)length_ns || end_ns > FAR_NS)
        return;
    for (int64_t begin = end_ns - (int64_t)length_ns; begin < end_ns;) {
        int64_t number = begin >> SPAN_BITS, to = (number + 1) << SPAN_BITS;
        to = to < end_ns ? to : end_ns;
        span_book(second, number, (uint32_t)((to - begin) >> UNIT_BITS), off);
        begin = to;
    }
}

static inline uint32_t used_in(const struct egpu_second *second, uint32_t at, uint32_t number) {
    const uint32_t span = atomic_load_explicit(&second->spans[at], memory_order_relaxed);
    return span & USED_MOST & -(uint32_t)(((span >> USED_BITS ^ number) << USED_BITS) == 0);
}

uint64_t egpu_second_used(const struct egpu_second *second, int64_t now_ns) {
    now_ns = clamp(now_ns, 0, FAR_NS);
    const int64_t begin = now_ns > SECOND_NS ? now_ns - SECOND_NS : 0, first = begin >> SPAN_BITS;
    const uint64_t within = (uint64_t)(((first + 1) << SPAN_BITS) - begin) >> UNIT_BITS;
    uint32_t at = (uint32_t)(first % EGPU_ACTIVITY_SPANS), number = (uint32_t)first, used = used_in(second, at, number);
    uint64_t sum = used * within >> (SPAN_BITS - UNIT_BITS); /* as if it were the same all through */
    for (int64_t left = (now_ns >> SPAN_BITS) - first; left > 0; left--) { /* at each look at the gate: no division, no branch */
        at = at + 1 < EGPU_ACTIVITY_SPANS ? at + 1 : 0;
        sum += used_in(second, at, ++number);
    }
    return sum << UNIT_BITS;
}

uint64_t egpu_second_besides(const struct egpu_second *second, int64_t now_ns, uint64_t queued_ns, uint64_t unit_ns) {
    if (queued_ns >= SECOND_NS)
        return queued_ns;
    const uint64_t ahead_ns = queued_ns + (unit_ns < SECOND_NS ? unit_ns : SECOND_NS);
    return egpu_second_used(second, clamp(now_ns, 0, FAR_NS) + (int64_t)ahead_ns) + queued_ns;
}
