#include "bucket.h"

#include "../../abi/control.h"

static const int64_t FAR_NS = 1000ll * 1000 * 1000 * 1000; /* 1000 s: nothing is owed for longer, and sums cannot overflow */

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Device time to time on the clock, at that rate. */
static int64_t stretched(int64_t length_ns, uint64_t rate_ppm) {
    return clamp(length_ns, -FAR_NS, FAR_NS) / (int64_t)rate_ppm * EGPU_RATE_WHOLE +
           clamp(length_ns, -FAR_NS, FAR_NS) % (int64_t)rate_ppm * EGPU_RATE_WHOLE / (int64_t)rate_ppm;
}

uint64_t egpu_bucket_rate(const struct egpu_share *share) {
    if (share->policy != EGPU_CORES_HARD && share->policy != EGPU_CORES_SOFT)
        return EGPU_RATE_FREE;
    const uint64_t cores = (uint64_t)clamp(share->cores_percent, 1, 100) * (EGPU_RATE_WHOLE / 100);
    if (share->policy == EGPU_CORES_HARD)
        return cores == EGPU_RATE_WHOLE ? EGPU_RATE_FREE : cores;
    if (share->others_wanting == 0)
        return EGPU_RATE_FREE;
    const uint64_t taken = share->others_hard_ppm < EGPU_RATE_WHOLE ? share->others_hard_ppm : EGPU_RATE_WHOLE;
    const uint64_t weight = (uint64_t)clamp(share->weight, 1, 100);
    const uint64_t part = (EGPU_RATE_WHOLE - taken) * weight / (weight + share->others_soft);
    const uint64_t mine = part < cores ? cores : part; /* what was granted is granted, whatever weights others claim */
    return mine >= EGPU_RATE_WHOLE ? EGPU_RATE_FREE : mine;
}

int64_t egpu_bucket_book(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, int64_t length_ns, uint64_t unit_ns) {
    if (rate_ppm == EGPU_RATE_FREE || rate_ppm >= EGPU_RATE_WHOLE)
        return paid_ns < now_ns ? paid_ns : now_ns; /* no debt is carried into a limit that comes later */
    const int64_t unit = unit_ns < EGPU_DEPTH_MOST_NS ? (int64_t)unit_ns : EGPU_DEPTH_MOST_NS;
    const int64_t credit = stretched(unit > EGPU_DEPTH_NS ? unit : EGPU_DEPTH_NS, rate_ppm);
    return clamp(clamp(paid_ns, now_ns - credit, now_ns + FAR_NS) + stretched(length_ns, rate_ppm), now_ns - credit,
                 now_ns + FAR_NS);
}

int64_t egpu_bucket_rescale(int64_t paid_ns, uint64_t old_ppm, uint64_t new_ppm, int64_t now_ns) {
    if (old_ppm == new_ppm)
        return paid_ns;
    if (new_ppm == EGPU_RATE_FREE || old_ppm == EGPU_RATE_FREE || paid_ns <= now_ns)
        return now_ns;
    const int64_t wait = clamp(paid_ns - now_ns, 0, FAR_NS);
    return now_ns + stretched(wait / EGPU_RATE_WHOLE * (int64_t)old_ppm +
                              wait % EGPU_RATE_WHOLE * (int64_t)old_ppm / EGPU_RATE_WHOLE, new_ppm);
}
