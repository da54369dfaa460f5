/* What is known of each kind of unit: how long it takes, by a sample of its launches. */
#pragma once

#include "../base/internal.h"

struct egpu_kind {
    EGPU_LINE _Atomic uint64_t key;
    _Atomic uint64_t mean_ns;   /* 0: not known yet */
    _Atomic uint32_t seen;      /* how often it was measured, up to some number */
    _Atomic int32_t left;       /* launches until the next that is measured */
    _Atomic uint32_t since;     /* launches since the last one: those for which the next will stand */
    _Atomic uint64_t booked_ns; /* what they were booked for */
    _Atomic uint32_t open;      /* measured ones whose end is not seen */
};

/* The launches for which one that is measured stands, itself among them. */
struct egpu_standing {
    uint32_t launches;
    uint64_t booked_ns;
};

/* One row for each key; where there are too many, several share one, and what is known is a mean of them. */
struct egpu_kind *egpu_kind_of(uint64_t key);
/* What was known under that key is of no use any more. */
void egpu_kind_forget(uint64_t key);

/* A launch, and what is booked for it. True: it should be measured, and stands for those in `standing`. */
bool egpu_kind_launched(struct egpu_kind *kind, uint64_t booked_ns, struct egpu_standing *standing);
/* It could not be: the next one will stand for them. */
void egpu_kind_missed(struct egpu_kind *kind, const struct egpu_standing *standing);
/* The driver refused it. */
void egpu_kind_failed(struct egpu_kind *kind, uint64_t booked_ns);
/* It took that long. `crowded`: others are on the card, whose turns may lie in it. Returns what one unit is charged. */
uint64_t egpu_kind_measured(struct egpu_kind *kind, uint64_t length_ns, bool crowded);
