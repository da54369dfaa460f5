/* May this launch go to the driver now? Pure: everything it needs comes in, one answer goes out.
 *
 * In this order: nothing passes while a checkpoint is about to be taken; a launch passes when a unit in flight is
 * overdue, since it may be waiting for this very launch, or when a signal waits for the program; nothing passes while a
 * higher class is active, but for the floor; then the share of time; then the bound of what may be in flight. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    EGPU_RECHECK_NS = 20 * 1000 * 1000,      /* nobody waits longer without looking again */
    EGPU_UNKNOWN_DUE_NS = 40 * 1000 * 1000,  /* a unit of unknown length is overdue after that long */
    EGPU_OVERDUE_SLACK_NS = 2 * 1000 * 1000, /* others after twice their length and this */
    EGPU_PASS_STEP_NS = 1000 * 1000,         /* after a pass the next waits that long, and each half as long again */
    EGPU_PASS_MAX_NS = 100 * 1000 * 1000,
    EGPU_SIGNAL_STEP_NS = 1000 * 1000 * 1000, /* so often a launch passes for a signal's sake */
    EGPU_UNKNOWN_MOST = 4,                   /* of a kind whose length nobody knows, until the first has ended */
};

enum egpu_reason {
    EGPU_PASS,          /* free to go */
    EGPU_PASS_OVERDUE,  /* let through because a unit in flight is overdue */
    EGPU_PASS_SIGNAL,   /* let through because the program has a signal to handle */
    EGPU_PASS_FLOOR,    /* let through under the floor, while held */
    EGPU_WAIT_SUSPEND,
    EGPU_WAIT_HELD,     /* a higher class is active */
    EGPU_WAIT_SHARE,    /* of the card's time */
    EGPU_WAIT_BOUND,    /* enough is in flight */
};

struct egpu_gate_in {
    int64_t now_ns;
    bool suspended;
    bool signalled;         /* the thread was interrupted while it waited, and no launch has passed for that lately */
    /* the higher class */
    bool held;              /* one is active on a card of this pod */
    int64_t held_since_ns;  /* by the first launch that found it so */
    uint64_t floor_ppm;     /* of time for low while held; 0: none */
    int64_t floor_after_ns;
    int64_t floor_paid_ns;
    /* the share */
    int64_t paid_ns;        /* 0: no limit */
    /* in flight on this card, over all processes of the container */
    uint64_t bound_ns;      /* 0: no bound */
    uint64_t queued_ns;     /* estimated length of what has not ended */
    uint32_t in_flight;     /* units */
    uint64_t unit_ns;       /* estimate of this one */
    bool unit_known;
    uint32_t unknown;       /* of its kind, launched and not yet measured */
    /* the oldest of them */
    int64_t due_ns;         /* when it is overdue; 0: nothing in flight */
    int64_t last_pass_ns;   /* when a launch last passed because of it */
    uint32_t passes;        /* how many did since a unit last ended */
};

struct egpu_gate_out {
    enum egpu_reason reason;
    int64_t wake_ns; /* of a wait: ask again by then at the latest; later than now */
};

struct egpu_gate_out egpu_gate(const struct egpu_gate_in *in);

static inline bool egpu_passes(enum egpu_reason reason) { return reason <= EGPU_PASS_FLOOR; }

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
