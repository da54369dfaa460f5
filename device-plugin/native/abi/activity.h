/* What one container tells its neighbours about its use of the cards: /run/egpu/activity.
 *
 * All processes of the container write it; neighbours map it read-only and believe only what they have checked:
 * a value out of range, a stamp in the future or a lease that ran out counts for nothing. Stamps are CLOCK_MONOTONIC
 * in ns, one clock for the whole node. A page of zeros is a good page of a container that has done nothing yet. */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define EGPU_ACTIVITY_MAGIC 0x41504745u /* "EGPA"; the library also takes 0: a fresh file */

enum { EGPU_ACTIVITY_CARDS = 16, EGPU_ACTIVITY_SLOTS = 32, EGPU_ACTIVITY_RUNS = 64 };
enum { EGPU_ACTIVITY_BYTES = 40960 }; /* of the file: whole pages */
enum { EGPU_WORD_ACTIVE = 1u }; /* the word's lowest bit; the others count its changes */

/* One card, by the index in the owner's control page. The first line is what neighbours read at each launch. */
struct egpu_activity_card {
    _Atomic uint32_t word;        /* futex; neighbours of lower class wait until its lowest bit falls */
    _Atomic uint32_t weight;      /* of a soft share, 1..100; 0: not a soft share */
    _Atomic uint64_t beat_ns;     /* renewed while active: older than the lease, and the word counts for nothing */
    _Atomic uint64_t progress_ns; /* when a unit last ended, or the first was queued after a pause */
    _Atomic uint64_t wanted_ns;   /* when a launch last was made, or waited for its share */
    uint64_t reserved0[2];
    _Atomic uint64_t measured_ns;    /* device time by the driver's count, as the agent sums it up */
    _Atomic uint64_t measured_at_ns; /* when it last did; 0: never */

    _Atomic uint64_t busy_ns;     /* device time as charged so far; 0 where nothing limits it */
    _Atomic uint64_t units;       /* kernels, graph launches, memsets, copies so far */
    _Atomic uint64_t longest_ns;  /* the longest unit that was measured */
    _Atomic uint64_t held_ns;     /* launches waited that long for a higher class, summed over time, not threads */
    _Atomic uint64_t capped_ns;   /* and for their own share */
    uint64_t reserved1[3];

    /* The share's books, for the container's own processes only. */
    _Atomic int64_t paid_ns;       /* when all that was launched will be paid for (bucket.h) */
    _Atomic int64_t floor_paid_ns; /* the same for what low may launch while it is held */
    _Atomic uint64_t rate_ppm;     /* at which paid_ns was reckoned */
    _Atomic uint64_t last_pass_ns; /* when a launch last passed because a unit was overdue */
    _Atomic uint64_t trued_at_ns, trued_measured_ns, trued_busy_ns; /* as they were when charges were last held against it */
    _Atomic uint64_t scale_ppm;    /* of a measured unit that is charged, in millionths; 0: all of it */

    uint64_t reserved2[8 + 3 * EGPU_ACTIVITY_RUNS]; /* older libraries wrote here what ran */
};

/* One process with work in flight. Free when `owner` is 0 or its beat is older than the lease. */
struct egpu_activity_slot {
    _Atomic uint64_t owner;  /* a number of the process's own choice, not 0 */
    _Atomic uint64_t beat_ns;
    _Atomic uint32_t active; /* bit i: active on card i */
    uint32_t reserved0;
    uint64_t reserved[5];
    _Atomic uint64_t queued_ns[EGPU_ACTIVITY_CARDS]; /* estimated device time of what is in flight */
    _Atomic uint64_t due_ns[EGPU_ACTIVITY_CARDS];    /* when the oldest of it is overdue; 0: nothing is in flight */
};

struct egpu_activity {
    uint32_t magic, abi_major, bytes, reserved0;
    _Atomic uint64_t slots_used; /* bit i: slots[i] may be taken */
    uint64_t reserved1[5];
    struct egpu_activity_card cards[EGPU_ACTIVITY_CARDS];
    struct egpu_activity_slot slots[EGPU_ACTIVITY_SLOTS];
    uint32_t reserved2[31 * EGPU_ACTIVITY_CARDS];
};

static_assert(sizeof(struct egpu_activity_card) == 256 + 24 * EGPU_ACTIVITY_RUNS, "layout of a card");
static_assert(sizeof(struct egpu_activity_slot) == 320, "layout of a slot");
static_assert(offsetof(struct egpu_activity, cards) == 64, "layout of the head");
static_assert(sizeof(struct egpu_activity) <= EGPU_ACTIVITY_BYTES, "the file holds it");
