/* A container's share of one card's time: pure, one clock reading in, one decision out.
 *
 * The whole state is one number: `paid_ns`, the moment at which everything launched so far will have been paid for
 * at the share's rate. A launch passes once that moment has come and moves it on by its length divided by the rate.
 * A late waker does not lose its turn: up to EGPU_BURST_NS of unused time stays good. The rate is lowered by what
 * such a burst, and what was launched before the second but runs in it, could add to a second, so that none holds
 * more than the share and one unit.
 *
 * Whoever stood behind others on the card has more to his credit. That alone would not keep the second, and so what it
 * held is looked at then: booked by spans of time, when work has ended. On a card that goes round this is always so, and
 * the rate of a share above half of it is lowered by less: 0.8 points of 70 were missing there, for seconds that had room.
 *
 * Lengths are estimates at launch; once measured, egpu_limiter_correct() books the difference. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "../../abi/activity.h"

enum {
    EGPU_BURST_NS = 8 * 1000 * 1000,
    EGPU_CREDIT_NS = 200 * 1000 * 1000,
    EGPU_LATER_NS = 4 * 1000 * 1000, /* so much later than it was launched a unit may run: others' queues are in front */
    EGPU_RATE_WHOLE = 1000 * 1000, /* rates are in millionths of the card's time */
    EGPU_RATE_FREE = 0,            /* no limit */
    EGPU_SHARERS = 128,
};

/* A share and, for soft ones, those that want the card now. */
struct egpu_share {
    uint32_t policy;           /* enum egpu_core_policy */
    uint32_t cores_percent;    /* 1..100 */
    uint32_t weight;           /* 1..100 */
    uint32_t others_soft;      /* sum of the weights of other soft shares that want the card now */
    uint32_t others_wanting;   /* how many others want it, of any policy */
    bool seconds_kept;         /* each launch is held against what the second besides holds: a burst adds nothing */
    uint64_t others_hard_ppm;  /* of its time, what others with a hard share lately took */
};

struct egpu_turn {
    bool pass;
    int64_t paid_ns; /* the new state where pass; else the old one */
    int64_t wake_ns; /* when to ask again where not */
};

/* What the share gives in millionths, burst allowed for; EGPU_RATE_FREE where nothing limits it. */
uint64_t egpu_limiter_rate(const struct egpu_share *share);

/* Whether a launch may pass now; where not, it may at `paid_ns`. */
static inline bool egpu_limiter_free(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns) {
    return rate_ppm == EGPU_RATE_FREE || rate_ppm >= EGPU_RATE_WHOLE || paid_ns <= now_ns;
}

/* Ask to launch a unit of about `cost_ns` at `now_ns`. */
struct egpu_turn egpu_limiter_ask(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns);

/* The state after a launch that may not be held, whatever it costs. */
int64_t egpu_limiter_charge(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns);

/* The same where time was not unused but waited for: of that, more than a burst may stay good, up to EGPU_CREDIT_NS. */
int64_t egpu_limiter_charge_with(int64_t paid_ns, uint64_t rate_ppm, int64_t now_ns, uint64_t cost_ns, int64_t credit_ns);

/* The state once a unit that was booked at `booked_ns` has turned out to be `measured_ns` long. */
int64_t egpu_limiter_correct(int64_t paid_ns, uint64_t rate_ppm, uint64_t booked_ns, uint64_t measured_ns);

/* Books device time that ended at `end_ns` for the second, or takes it out again where `off`. */
void egpu_second_book(struct egpu_second *second, int64_t end_ns, uint64_t length_ns, bool off);

/* What of the second before `now_ns` is booked. */
uint64_t egpu_second_used(const struct egpu_second *second, int64_t now_ns);

/* What the second will hold besides a unit when that ends, at the soonest: once all that is queued before it and itself
 * have run without a pause. What then lies further back is no longer in it, and no second until then holds more. */
uint64_t egpu_second_besides(const struct egpu_second *second, int64_t now_ns, uint64_t queued_ns, uint64_t unit_ns);

/* The state when the rate changes: what is owed stays, how fast it is paid changes. Of the time without a limit no more
 * than a burst stays good. */
int64_t egpu_limiter_rescale(int64_t paid_ns, uint64_t old_ppm, uint64_t new_ppm, int64_t now_ns);
