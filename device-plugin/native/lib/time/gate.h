/* May this launch go to the driver now? Pure: everything it needs comes in, one answer goes out.
 *
 * In this order: nothing passes while a checkpoint is about to be taken; a launch passes when a unit in flight is
 * overdue, since it may be waiting for this very launch; nothing passes while a higher class is active, but for the
 * floor; then the share of time; then the bound of what may be in flight. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    EGPU_RECHECK_NS = 20 * 1000 * 1000,      /* nobody waits longer without looking again */
    EGPU_HARD_QUEUE_NS = 4 * 1000 * 1000,    /* in flight under a cap: what was estimated wrongly is found soon */
    EGPU_UNKNOWN_DUE_NS = 40 * 1000 * 1000,  /* a unit of unknown length is overdue after that long */
    EGPU_OVERDUE_SLACK_NS = 2 * 1000 * 1000, /* others of a known length after twice the length and this */
    EGPU_SECOND_STEP_NS = 500 * 1000,        /* a waiter for room in a second looks again then */
    EGPU_PASS_STEP_NS = 1000 * 1000,         /* after a pass the next waits that long or an eighth of what the unit had,
                                              and each half as long again */
    EGPU_PASS_MAX_NS = 100 * 1000 * 1000,
    EGPU_PASS_FAR_NS = 250 * 1000 * 1000,    /* a pass is paid before the next, at most so long later */
    EGPU_PASS_UNKNOWN_NS = 5 * 1000 * 1000,  /* what one of unknown length pays */
    EGPU_PASS_COST_NS = 10 * 1000 * 1000,    /* the most that any other pays: its length is unknown */
};

/* How many units may be in flight before the first of them has shown that the estimates are true. */
enum { EGPU_WINDOW_LEAST = 8, EGPU_WINDOW_MOST = 1 << 16 };
uint32_t egpu_window(uint32_t window, uint32_t ended, uint64_t booked_ns, uint64_t length_ns);

enum egpu_reason {
    EGPU_PASS,          /* free to go */
    EGPU_PASS_OVERDUE,  /* let through because a unit in flight is overdue */
    EGPU_PASS_FLOOR,    /* let through under the floor, while held */
    EGPU_WAIT_SUSPEND,
    EGPU_WAIT_HELD,     /* a higher class is active */
    EGPU_WAIT_SHARE,    /* of the card's time */
    EGPU_WAIT_BOUND,    /* enough is in flight */
};

struct egpu_gate_in {
    int64_t now_ns;
    bool suspended;
    /* the higher class */
    bool held;              /* one is active on a card of this pod */
    int64_t held_since_ns;  /* by the first launch that found it so */
    uint64_t floor_ppm;     /* of time for low while held; 0: none */
    int64_t floor_after_ns;
    int64_t floor_paid_ns;
    /* the share */
    uint64_t rate_ppm;      /* EGPU_RATE_FREE: no limit */
    int64_t paid_ns;
    uint64_t second_ns;     /* what one may hold; 0: any */
    uint64_t used_ns;       /* what the one that ends with this unit holds besides it, with all that is in flight */
    bool spare;             /* there is time for this unit even if what is in flight is as long as any */
    int64_t ahead_ns;       /* so long before it is paid for it may go: what is in flight may run on until then */
    /* in flight on this card, over all processes of the container */
    uint64_t bound_ns;      /* 0: no bound */
    uint64_t queued_ns;     /* estimated length of what has not ended */
    uint32_t in_flight;     /* units, at least 1 where queued_ns is not 0 */
    uint32_t window;        /* so many may be in flight where there is a bound; 0: any number */
    bool alone;             /* one of them is of unknown length */
    uint64_t unit_ns;       /* estimate of this one */
    bool unit_known;
    /* the same of other low containers on the card, where low's work is bounded for the sake of high (turns.h) */
    uint64_t beside_ns;
    bool others_turn;       /* one of them stands at the gate, and has had less of the card */
    /* the oldest of them */
    int64_t due_ns;         /* when it is overdue; 0: nothing in flight */
    int64_t given_ns;       /* how long it was given until then */
    int64_t last_pass_ns;   /* when a launch last passed because of it */
    uint32_t passes;        /* how many did since a unit last ended */
    int64_t passes_paid_ns; /* when those that passed so are paid for, in all processes of the container */
};

struct egpu_gate_out {
    enum egpu_reason reason;
    int64_t wake_ns; /* of a wait: ask again by then at the latest; later than now */
};

struct egpu_gate_out egpu_gate(const struct egpu_gate_in *in);

static inline bool egpu_passes(enum egpu_reason reason) { return reason <= EGPU_PASS_FLOOR; }

/* When a launch of that length that passed because a unit is overdue will be paid for. `alone`: nobody else's work may
 * be what that unit waits for. */
int64_t egpu_pass_paid(int64_t now_ns, uint64_t cost_ns, bool known, uint64_t rate_ppm, bool alone);

/* When a unit that could begin at `begin_ns` is overdue. */
int64_t egpu_overdue_at(int64_t begin_ns, uint64_t unit_ns, bool known);

/* Whether work of one class on one card counts as active, and until when without new work.
 *
 * Active is what has work that has not ended, or had within a pause no longer than this work's own pauses usually
 * are: a server that queues kernel after kernel is not interrupted between two of them, and one that waits for the
 * next request lets others run at once. Waiting for its own share is no pause: it is not active then. */
struct egpu_pulse {
    bool busy;
    int64_t ended_ns;  /* where not busy: since when */
    uint64_t pause_ns; /* running mean of the short pauses */
    bool capped;       /* its next launch waits for its own share */
};

enum { EGPU_PAUSE_MIN_NS = 50 * 1000 };

void egpu_pulse_launch(struct egpu_pulse *pulse, int64_t now_ns, uint64_t most_ns);
void egpu_pulse_ended(struct egpu_pulse *pulse, int64_t ended_ns);
void egpu_pulse_capped(struct egpu_pulse *pulse);
/* 0: not active; INT64_MAX: as long as work is in flight; else the moment at which it stops being active. */
int64_t egpu_pulse_until(const struct egpu_pulse *pulse, int64_t now_ns, uint64_t most_ns);
