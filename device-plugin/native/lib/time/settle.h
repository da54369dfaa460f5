/* How much device time did a unit take? Pure: its own times, what is known of its kind, what neighbours say.
 *
 * The driver tells when work on a stream ended, not how long the card worked on it: in between others may have run.
 * Where the card runs units one after another, a unit's time is that since the last end before its own. Where it
 * switches between containers in slices, a long unit's time is an even part of its stay, by how many had work then.
 * Of a kind of steady length it is known from when nobody else was there, which is more exact than both. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* What is known of one kind of unit: a kernel with one grid, a graph, a copy of one size. */
struct egpu_kind {
    uint64_t key;        /* 0: free row */
    uint64_t mean_ns;    /* running mean of all measured lengths */
    uint64_t spread_ns;  /* running mean of the distance from it */
    uint64_t clean_ns;   /* the same two of those measured with nobody else about, or at this program's own turn */
    uint64_t clean_spread_ns;
    int64_t clean_at_ns; /* the last of them */
    uint32_t count, clean;
    uint32_t confirmed;  /* not 0: one beside others lately was through in no more time than those alone; counts down */
    uint32_t longer;     /* 64 times 1/1000: of those at their program's own turn, how many were far longer than such are */
    uint32_t differs;    /* 1/1000 of those that others ran beside were of quite another length than those alone */
};

enum { EGPU_TURN_NS = 2000 * 1000 }; /* for so long a card that switches leaves one at it (FC_SLICE_NS of the fake one) */

struct egpu_run { int64_t begin_ns, end_ns; uint64_t length_ns; };

struct egpu_unit {
    int64_t begin_ns; /* from when it could run: launched, and all before it in its stream ended */
    int64_t end_ns;
    uint64_t idle_ns; /* of that, not covered by work because the program was late */
    uint64_t booked_ns;
    uint32_t count;   /* launches in it, of one kind where `kind` is not NULL */
    struct egpu_kind *kind;
    int64_t own_end_ns; /* the last end before it of this process, on any stream; 0: none */
    bool sliced;        /* the card was lately seen to switch between containers in the midst of units */
    bool followed;      /* see egpu_followed() */
    bool began_alone;   /* see egpu_began_alone() */
    bool lasting;       /* others have lately run units that are longer than a turn: no end tells what they had of it */
    uint64_t even_ns;   /* where it is: what an even part of its stay comes to; 0: not known */
    int64_t launched_ns; /* the last of its launches; 0: there is one */
    uint64_t known_ns;  /* of several kinds: what they take alone; 0: not known of each */
};

/* How many others had work at that moment. */
struct egpu_sample { int64_t at_ns; uint32_t others; };

/* Of a span of time, what a card gave each of those that had work then, if it went round among them. Samples in the
 * order of time; between two of them the nearer one counts. */
uint64_t egpu_even_part(const struct egpu_sample *samples, uint32_t count, int64_t begin_ns, int64_t end_ns);

/* A way to reckon lengths, by what it makes of units of one kind: in 1/1000 of what was expected, 8 times the mean and
 * 8 times the mean distance from that. */
struct egpu_way { uint64_t mean, off; };

/* What speaks for a card that leaves units for others' in their midst: one that runs whole units never runs another's
 * that was launched later and ended sooner; how far each of the two ways to reckon is off where a unit's length
 * is known from when it was alone; and which of them says the same of the same kind again and again where it is not.
 * In 1/1000: 32 times the mean of the first, 8 times that of the others. Zeros at first. */
struct egpu_slices {
    int64_t at_ns;   /* the last that spoke for it */
    int64_t sure_ns; /* and that was no guess */
    uint64_t nested, whole_off, even_off;
    uint32_t units, guesses;
    struct egpu_way whole, even;
};
bool egpu_sliced(struct egpu_slices *seen, const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count);

/* The same of a neighbour's unit, as far as the order of launches and ends tells. `others`: runs of all but its owner. */
void egpu_slices_watch(struct egpu_slices *seen, const struct egpu_run *run, const struct egpu_run *others, uint32_t count);

/* Somebody else on the card, or this container before, was sure of it then: one with few units would need seconds to
 * see that. What comes of no guess is believed of neighbours as their runs are, from which it could be made as well. */
void egpu_slices_hear(struct egpu_slices *seen, uint64_t sure_ns, int64_t now_ns);

/* Of units that seem so long, where the card goes round, what they surely took: as long as such are by themselves, or at
 * their program's own turn. 0: that was not measured often enough. */
uint64_t egpu_sure_length(const struct egpu_kind *kind, uint32_t count, uint64_t length_ns);

/* Whether enough was seen to tell. */
bool egpu_slices_told(const struct egpu_slices *seen, const struct egpu_unit *unit);

/* What the share pays for a unit that was settled at `length_ns`: the longer reading, until one can tell which is right.
 * What was then paid too much is not given back: all at once it would be more than a second may hold. */
uint64_t egpu_charged(const struct egpu_slices *seen, const struct egpu_unit *unit, uint64_t length_ns);

/* Its device time. `others`: the neighbours' runs, in any order; `crowd`: somebody has work in flight besides. */
uint64_t egpu_settle(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd);

/* Learns from a settled unit. `clean`: nobody else ran meanwhile, or it followed. */
void egpu_learn(struct egpu_kind *kind, uint64_t length_ns, bool clean, int64_t now_ns);

/* True: no run of others overlaps the unit, and none is in flight. */
bool egpu_ran_alone(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd);

/* True: on a card that goes round it stood behind another of its program when that ended, and nobody else's ended before
 * its own. So the card was at this program: the unit's stay is no wait for a turn, and no less than its length. */
bool egpu_followed(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count);

/* True: on a card that goes round it found nobody's work there. So it has the card at once, and its stay is no less than
 * its length: of one shorter than a turn it is that, whoever came meanwhile. `crowd`: somebody has had work since before. */
bool egpu_began_alone(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd);

/* What one takes alone; 0: nobody knows, or not all take the same. */
uint64_t egpu_alone(const struct egpu_kind *kind);

/* Its launches differ much in length: what one took is not to be told before it is settled. */
bool egpu_varies(const struct egpu_kind *kind);

/* What a launch of that kind will take; false: not known yet. */
bool egpu_expect(const struct egpu_kind *kind, uint64_t *length_ns);

/* --- when this process had work on a card, over all of its streams ---
 *
 * Units are told in the order of their ends, and each has the time since the last end before it. That is all of it
 * where a card runs one after the other. Where streams run side by side a short unit may begin and end while a long
 * one runs: what that ran by itself before is counted when it ends, where one knows when it began. */
enum { EGPU_STRETCHES = 512 };

struct egpu_stretch { int64_t launched_ns, from_ns, end_ns; };

/* In the order of time, apart from each other. Zeros at first. Where there are too many the oldest two become one. */
struct egpu_stretches {
    struct egpu_stretch ring[EGPU_STRETCHES];
    uint32_t first, count;
};

/* One unit more. `began_ns`: when it did; 0: nobody knows, it was launched then. Returns how much of the time before
 * the last end is its own and was not counted yet. `overtaken`: one that was launched after it ended before. */
uint64_t egpu_stretches_add(struct egpu_stretches *all, int64_t launched_ns, int64_t began_ns, int64_t end_ns, bool *overtaken);
