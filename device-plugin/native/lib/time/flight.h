/* Work of this process that the driver has and the card may not have ended yet.
 *
 * Launches on one stream are gathered into batches of about 40 us; the first books the share's time for all of them,
 * and an event behind each batch tells when it ended (flight.c). Batches that ended are taken out (resolve.c), and a little later, when the neighbours have said what
 * they ran meanwhile, their device time is settled (settle.c) and the share's books corrected (account.c). One watcher thread
 * does this in the background (watch.c); launches that wait do it for themselves. */
#pragma once

#include "../activity/activity.h"
#include "gate.h"
#include "../base/internal.h"
#include "limiter.h"
#include "settle.h"
#include "turns.h"

enum { EGPU_BATCHES = 2048, EGPU_BATCH_NS = 40 * 1000, EGPU_BATCH_LAUNCHES = 64, EGPU_SETTLE_NS = 3 * 1000 * 1000 };
/* Batches of short units that were so often as long as expected, where nobody else is on the card: the launches that open
 * and close one cost most. */
enum { EGPU_LONG_BATCH_NS = 8 * EGPU_BATCH_NS, EGPU_STEADY = 16 };
/* Longer units ask each time, and under a limit may wait each time: so each has an event of its own. One behind the next
 * would tell of that wait as of work, and the longer they seem, the longer they wait. */
enum { EGPU_RIDES_NS = EGPU_BATCH_NS / 2 };
/* A launch rides only where its kind was measured so often: a first look may be wrong by any factor. */
enum { EGPU_RIDES = 8 };

/* A kind of unit. Launches read the first line and nothing else. */
struct egpu_kind_row {
    EGPU_LINE _Atomic uint64_t key;
    _Atomic uint64_t expects; /* length in ns, as of late; 0: not known */
    _Atomic uint32_t meets;   /* not 0: it lately waited for another launch of this program; counts down */
    _Atomic uint32_t hints;   /* how often it looked like that */
    _Atomic uint32_t steady;  /* how often it has lately been as long as expected */
    _Atomic uint32_t seen;    /* how often it was measured, up to EGPU_RIDES */
    _Atomic uint32_t waits;   /* not 0: it lately ran on for a launch that stood at the gate; counts down */
    _Atomic uint32_t overtaken; /* not 0: others that were launched later lately ended before it; counts down */
    _Atomic uint64_t alone_ns;  /* what it takes alone; 0: not known, or not always the same */
    EGPU_LINE struct egpu_kind stats; /* under the card's lock */
};

enum { EGPU_ANCHORS = 2, EGPU_EVENTS = 4096 };

struct egpu_context {
    EGPU_LINE _Atomic(CUcontext) handle; /* NULL: free row */
    int card;
    CUstream clock;            /* our own stream: nothing but anchors runs on it */
    CUstream behind;           /* and one that waits for the legacy stream, while nothing waits for it; NULL: not yet made */
    CUevent anchor[EGPU_ANCHORS], trial;
    int64_t anchor_ns[EGPU_ANCHORS]; /* on the host's clock; 0: none */
    _Atomic uint32_t anchor_now;
    _Atomic int64_t anchored_ns;
    EGPU_LINE struct egpu_spin lock; /* of the events */
    CUevent *events;
    uint32_t events_free;
};

struct egpu_batch {
    struct egpu_batch *next;
    struct egpu_context *context;
    CUstream stream;
    bool per_thread;
    CUevent event;
    CUevent before;              /* the event before its first launch; NULL: there is none */
    uint32_t anchor, count;
    int64_t begin_ns, last_ns;   /* first and last launch */
    int64_t apart_ns;            /* the longest from one to the next */
    int64_t predicted_ns;        /* end, as far as one can tell */
    int64_t closed_ns;           /* its last launch had returned by then */
    int64_t late_ns;             /* when its event was recorded, where that was not at once; 0: it was */
    int64_t end_ns;
    int64_t began_ns;            /* when the card came to it; 0: nobody knows */
    uint64_t idle_ns, booked_ns, queued_ns;
    uint64_t charged_ns;         /* what the share's books have for it, once it has ended */
    uint64_t second_ns;          /* and those of the second: until it is settled, rather too much */
    uint64_t beside_ns;          /* of its time: before the last end of others of this process that it outlasted */
    uint64_t waited_ns;          /* of its time: for a launch that stood at the gate, as far as one can tell */
    uint64_t ahead_ns;          /* booked and queued for launches that may still join it; part of queued_ns */
    uint32_t flew;               /* launches that are counted in `flying`: those that did not ride */
    struct egpu_kind_row *kind;  /* NULL: of several */
    uint64_t known_ns;           /* what these take alone */
    bool unknown, floor, untold; /* untold: of one of them that is not known */
};

struct egpu_card {
    EGPU_LINE _Atomic uint32_t flying; /* launches of this process that have not ended */
    _Atomic uint32_t unknown;   /* one of them is of unknown length */
    _Atomic uint32_t capped;    /* launches that wait for the share */
    _Atomic int64_t held_since_ns;
    EGPU_LINE _Atomic uint32_t used; /* anything was ever launched here */
    _Atomic uint64_t rate_ppm;
    EGPU_LINE _Atomic int64_t ended_ns; /* when the last batch did; 0: none has */
    _Atomic int64_t begin_ns;   /* from when the oldest batch runs; 0: none */
    _Atomic uint64_t oldest_ns; /* its estimate */
    _Atomic int64_t due_ns, last_pass_ns;
    _Atomic(const void *) pending_on; /* the stream of all that is pending; NULL: of several, or of one without a name */
    _Atomic uint32_t window;    /* see egpu_window(); 0: nothing has ended yet */
    _Atomic uint32_t passes;
    _Atomic uint32_t turns;     /* this container is low, and a high share sits here */
    _Atomic uint32_t sliced;    /* it lately switched between programs in the midst of units */
    EGPU_LINE _Atomic int64_t lone_pass_ns; /* the last while nobody else could have been in the unit's way */
    _Atomic(const void *) lone_pass_stream; /* on which that launch was: what is before it there does not wait for it */
    _Atomic int64_t let_ns;     /* when a launch last passed that had stood at the gate */
    _Atomic int64_t stood_ns;   /* from when on it had, and those just before it while nothing ended */
    _Atomic(const void *) let_stream;
    _Atomic uint32_t polling;   /* one thread asks the driver at a time */
    struct egpu_spin lock;      /* of all that follows */
    struct egpu_batch *pending, **pending_end, *settling, *settling_last;
    int64_t last_end_ns, settled_end_ns;
    _Atomic int64_t patience_ns; /* by so much units lately were overdue that waited for no launch, but for their turn */
    struct egpu_slices slices;
    struct egpu_pulse pulse;
    struct egpu_stretches stretches; /* large, and launches do not look at it */
};
extern struct egpu_card egpu_cards[EGPU_ACTIVITY_CARDS];

/* The default streams have the same handle in all contexts and threads. */
static inline const void *egpu_named_stream(CUstream stream) { return (uintptr_t)stream > 2 ? stream : NULL; }

/* --- contexts.c --- */
/* Of work on that stream, if on a card of ours; else NULL. `elsewhere`: if not NULL, that is another than the thread's own,
 * and is current until the caller pops it. */
struct egpu_context *egpu_context_of(const struct egpu_real *real, CUstream stream, CUcontext *elsewhere);
void egpu_handle_gone(void); /* a context or a stream is about to end */
/* Exchanges the thread's capture mode, so that what we do meanwhile disturbs nobody's capture. */
CUresult egpu_relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode);
CUevent egpu_event_take(const struct egpu_real *real, struct egpu_context *context); /* in that context; may be NULL */
void egpu_event_give(struct egpu_context *context, CUevent event);
CUstream egpu_behind(const struct egpu_real *real, struct egpu_context *context); /* in that context, with the streams' lock; may be NULL */
void egpu_anchor(const struct egpu_real *real, struct egpu_context *context);
void egpu_contexts_anchor(const struct egpu_real *real, int64_t now_ns);

/* --- flight.c --- */
extern _Atomic uint64_t egpu_batch_ns; /* longer where nobody else is on the card: what ran when matters less */
static inline bool egpu_lone(void) {
    return atomic_load_explicit(&egpu_batch_ns, memory_order_relaxed) != EGPU_BATCH_NS;
}
extern struct egpu_lock egpu_streams_lock; /* held while we record on a stream that is not the caller's */

struct egpu_launched {
    const struct egpu_real *real;
    struct egpu_context *context;
    CUcontext elsewhere; /* the same, where it is not the thread's own; else NULL */
    CUstream stream;
    bool per_thread, unknown, floor;
    struct egpu_kind_row *kind;
    uint64_t booked_ns, queued_ns;
    uint64_t ahead_ns; /* to be booked beyond that, for the launches that follow it */
    struct egpu_batch *rides; /* the batch that it has joined without asking; NULL: none */
    struct egpu_open *on;     /* where that is open */
    CUevent before;           /* on its stream; NULL: none */
    int64_t now_ns;
};
/* Joins the batch that is open on its stream, on what was booked ahead for it: nothing to ask and to book. Follow with
 * egpu_flight_rode(). False: to the gate, which is told how much to book ahead for others. */
bool egpu_flight_ride(struct egpu_launched *launch);
void egpu_flight_rode(const struct egpu_launched *launch, bool made);
/* Before a launch of a kind that others overtake: an event, which tells when the card came to it. */
void egpu_flight_mark(struct egpu_launched *launch);
/* A launch was made: puts it into its stream's batch and closes that where it is time. */
void egpu_flight_add(const struct egpu_launched *launch);
/* Closes the batches that wait for more and had no launch since `before_ns`. Never on a stream of a capture. */
void egpu_flight_flush(const struct egpu_real *real, int card, int64_t before_ns);
/* A capture is about to begin. Until it has ended nobody may record on streams of others, which may become part of it:
 * so all batches are closed before, and each launch closes its own. What waits for open ones could wait for good. */
void egpu_flight_capture(const struct egpu_real *real);
void egpu_flight_stream_gone(const struct egpu_real *real, CUstream stream);
void egpu_flight_forget(void); /* in a forked child: the work is its parent's, and so are the threads that held locks */

void egpu_batch_free(struct egpu_batch *batch);
void egpu_flight_context_gone(const struct egpu_context *context); /* before it is */

/* The share's rate alone does not keep the next second: it is looked at as well. */
static inline void egpu_burst(struct egpu_activity_card *page, int64_t now_ns) {
    page->burst_until_ns = now_ns + 1100 * 1000 * 1000;
}

/* --- captures.c --- */
extern _Atomic uint32_t egpu_captures; /* streams that are being captured, at least */
/* True: it is being captured, or nobody can tell. */
bool egpu_capturing(const struct egpu_real *real, CUstream stream);
void egpu_captures_context_gone(CUcontext context);
/* Once a second: drops those that have ended unseen. By the watcher only. */
void egpu_captures_check(const struct egpu_real *real, int64_t now_ns);
void egpu_captures_forget(void); /* in a forked child */

/* --- resolve.c --- */
/* Takes out what ended. True: something did. */
bool egpu_resolve(const struct egpu_real *real, int card, int64_t now_ns);
/* How many processes of neighbours have work in flight on the card that began before that. */
uint32_t egpu_crowd(int card, int64_t before_ns, int64_t now_ns, uint64_t lease_ns);
/* The same of one of them; 0 where its card is another. */
uint32_t egpu_crowd_of(const struct egpu_near *near, int card, int64_t before_ns, int64_t now_ns, uint64_t lease_ns);
/* When a unit is overdue that could begin at `begin_ns`. Under the card's lock. */
static inline int64_t egpu_due(const struct egpu_card *card, const struct egpu_batch *batch, int64_t begin_ns) {
    return egpu_overdue_at(begin_ns, batch->booked_ns, !batch->unknown) + card->patience_ns;
}
void egpu_resolve_drop(int card, const struct egpu_context *context); /* its events go with it */

/* --- account.c --- */
enum { EGPU_SLOT_SHIFT = 56 }; /* of this process's number, in the length of what it says that ran */
static inline uint64_t egpu_slot_tag(void) {
    return (uint64_t)(egpu_slot_own(0, 0) - egpu_activity_own()->slots + 1) << EGPU_SLOT_SHIFT;
}
/* Of what this process has in flight, so much and so many launches are no more. */
void egpu_flight_undo(int card, uint64_t queued_ns, uint32_t count, bool unknown);
/* What was booked as so much is now known to be that much. */
void egpu_correct(int card, uint64_t booked_ns, uint64_t length_ns);
/* Notes how many others have work on the card now. By the watcher only, as is the next. */
void egpu_crowd_note(int card, int64_t now_ns, uint64_t lease_ns);
/* Books what ended EGPU_SETTLE_NS ago. */
void egpu_settle_card(int card, int64_t now_ns);
void egpu_rates(const struct egpu_control *control, int64_t now_ns);

/* --- watch.c --- */
enum egpu_watch_state { EGPU_WATCH_NONE = 0, EGPU_WATCH_STARTS, EGPU_WATCH_OVER, EGPU_WATCH_RUNS };
extern _Atomic uint32_t egpu_watch_state;
/* The program ends: the driver may be gone, and nothing here asks it any more. */
static inline bool egpu_over(void) { return atomic_load(&egpu_watch_state) == EGPU_WATCH_OVER; }
bool egpu_watch_begin(void);
/* Its thread; limits and neighbours are known then. False: the program ends. */
static inline bool egpu_watch_start(void) {
    return __builtin_expect(atomic_load_explicit(&egpu_watch_state, memory_order_acquire) == EGPU_WATCH_RUNS, 1) ||
           egpu_watch_begin();
}
void egpu_watch_launch(int card, int64_t now_ns); /* before each launch: the card is announced */

/* --- hold.c --- */
/* Booked work will not be done after all. */
void egpu_unbook(int card, uint64_t booked_ns);
void egpu_refund(const struct egpu_launched *launch); /* the driver refused it */
/* Waits until the launch may be made, and books it. */
void egpu_hold(struct egpu_launched *launch);
