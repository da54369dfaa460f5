/* A container's share of one card's time: pure.
 *
 * The whole state is one number: `paid_ns`, the moment at which all that was launched will have been paid for at the
 * share's rate. A launch passes once that moment has come, and moves it on by its length divided by the rate. Of time
 * that was not used so much stays good that one unit, or EGPU_DEPTH_NS, may run at once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    EGPU_DEPTH_NS = 20 * 1000 * 1000,
    EGPU_DEPTH_MOST_NS = 200 * 1000 * 1000, /* of one unit: no longer one is waited for as a whole */
    EGPU_RATE_WHOLE = 1000 * 1000, /* rates are in millionths of the card's time */
    EGPU_RATE_FREE = 0,            /* no limit */
};

/* A share and, for soft ones, those that want the card now. */
struct egpu_share {
    uint32_t policy;          /* enum egpu_core_policy */
    uint32_t cores_percent;   /* 1..100 */
    uint32_t weight;          /* 1..100 */
    uint32_t others_soft;     /* sum of the weights of other soft shares that want the card now */
    uint32_t others_wanting;  /* how many others want it, of any policy */
    uint64_t others_hard_ppm; /* of its time, what others with a hard share lately took */
};

/* What the share gives in millionths; EGPU_RATE_FREE where nothing limits it. */
uint64_t egpu_bucket_rate(const struct egpu_share *share);

/* The state after device time was booked (negative: taken back); `unit_ns`: the length of one unit. */
int64_t egpu_bucket_book(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, int64_t length_ns, uint64_t unit_ns);

/* The state when the rate changes: what is owed stays, how fast it is paid changes. */
int64_t egpu_bucket_rescale(int64_t paid_ns, uint64_t old_ppm, uint64_t new_ppm, int64_t now_ns);
