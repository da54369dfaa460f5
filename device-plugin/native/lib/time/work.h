/* Work of this process on a card, as far as somebody has to know of it.
 *
 * Most containers need nothing (needs.c): then a launch is counted and goes to the driver. Under a cap some launches of
 * each kind are measured, by an event before and one behind, both recorded at the call, and stand for the others
 * (kinds.c). Beside other classes an event behind each launch tells when the stream has none left (streams.c). */
#pragma once

#include "../activity/activity.h"
#include "../base/internal.h"
#include "bucket.h"
#include "gate.h"
#include "kinds.h"

#define EGPU_PER_THREAD ((CUstream)2) /* CU_STREAM_PER_THREAD */

/* Why launches on a card are looked at. */
enum egpu_need {
    EGPU_NEED_CAP = 1u << 0,     /* the share of time is limited */
    EGPU_NEED_BOUND = 1u << 1,   /* a higher class may hold them, and little may be in flight */
    EGPU_NEED_TELL = 1u << 2,    /* a lower class waits until there are none */
    EGPU_NEED_WANT = 1u << 3,    /* a soft share goes by who wants the card */
    EGPU_NEED_SUSPEND = 1u << 4, /* none may pass */
};

/* --- needs.c: what the pages ask for, and the share's rate --- */
extern _Atomic uint32_t egpu_any_need; /* of any card; 0: launches pass without a look */
extern _Atomic uint32_t egpu_needs[EGPU_ACTIVITY_CARDS];
/* Reckons both again. By one thread at a time. */
void egpu_needs_look(const struct egpu_control *control, int64_t now_ns);
/* Scales what is charged to what the driver measured of this container, where the agent has told it. */
void egpu_true_up(int card, int64_t now_ns);
/* Books device time for the share (negative: takes it back), and counts it as used. */
void egpu_charge_time(int card, int64_t length_ns, bool corrects);
uint64_t egpu_scaled(int card, uint64_t length_ns);

/* --- contexts.c: the program's contexts, and our events in them --- */
struct egpu_context {
    EGPU_LINE _Atomic(CUcontext) handle; /* NULL: free row */
    int card;
    _Atomic bool named;       /* work was launched on a stream besides the legacy one */
    CUevent last_end;         /* of the last measured unit, and its length; one resolver at a time uses them */
    int64_t last_length_ns;
    EGPU_LINE struct egpu_spin lock; /* of the events: [1] with times */
    CUevent *events[2];
    uint32_t events_free[2];
};
/* Of work on that stream, if on a card of ours; else NULL. `elsewhere`: if not NULL, that is another than the thread's own,
 * and is current until the caller pops it. */
struct egpu_context *egpu_context_of(const struct egpu_real *real, CUstream stream, CUcontext *elsewhere);
void egpu_handle_gone(void); /* a context or a stream is about to end */
/* Exchanges the thread's capture mode, so that what we do meanwhile disturbs nobody's capture. */
void egpu_relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode);
CUevent egpu_event_take(const struct egpu_real *real, struct egpu_context *context, bool timed); /* may be NULL */
void egpu_event_give(struct egpu_context *context, CUevent event, bool timed);

/* --- streams.c: what is in flight, by stream --- */
struct egpu_card {
    EGPU_LINE _Atomic uint32_t open; /* events behind work that has not ended */
    _Atomic uint32_t waiting;   /* launches that stand at the gate for their share */
    _Atomic uint32_t used;      /* any launch here was looked at */
    _Atomic int64_t held_since_ns;
    _Atomic int64_t vague_until_ns; /* work that no event may tell of has ended by then, as far as one can tell */
    EGPU_LINE _Atomic int64_t due_ns; /* when the oldest in flight is overdue; 0: nothing is */
    _Atomic(const void *) due_on; /* the stream on which that is */
    _Atomic int64_t end_ns;     /* when the next of them ends, as far as one can tell; 0: nobody can */
    _Atomic int64_t last_end_ns, last_pass_ns;
    _Atomic uint32_t passes;
    _Atomic uint32_t polling;   /* one thread asks the driver at a time */
    struct egpu_spin lock;      /* of the pulse */
    struct egpu_pulse pulse;
};
extern struct egpu_card egpu_cards[EGPU_ACTIVITY_CARDS];

struct egpu_launch {
    const struct egpu_real *real;
    struct egpu_context *context;
    CUcontext elsewhere; /* the same, where it is not the thread's own; else NULL */
    CUstream stream;
    struct egpu_row *row;      /* NULL: no event may tell of it */
    struct egpu_kind *kind;    /* NULL: nobody has to know how long it is */
    struct egpu_standing standing; /* where it is measured */
    CUevent start;             /* the same, recorded; else NULL */
    uint32_t needs, nth;
    bool unknown, measured, plain; /* plain: no event may come between it and the next */
    uint64_t expected_ns, booked_ns;
    int64_t now_ns, began_ns;
};
/* Finds the stream's row, and counts the launch there. */
void egpu_stream_begin(struct egpu_launch *launch);
void egpu_stream_start(struct egpu_launch *launch);              /* just before the launch */
void egpu_stream_end(struct egpu_launch *launch, bool launched); /* just after it */
/* Takes out what ended. True: something did. */
bool egpu_streams_resolve(const struct egpu_real *real, int card, int64_t now_ns);
void egpu_streams_gone(CUstream stream);                         /* before it is */
void egpu_streams_context_gone(const struct egpu_context *context);
void egpu_streams_forget(void);                                  /* in a forked child */

/* --- captures.c --- */
/* True: no launch there is work of its own; it is being captured, or nobody can tell. */
bool egpu_capturing(const struct egpu_real *real, CUstream stream);

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
void egpu_watch_launch(int card, uint32_t needs, int64_t now_ns); /* before each launch that is looked at */

/* --- hold.c --- */
void egpu_hold(struct egpu_launch *launch); /* waits until it may be made, and books it */
void egpu_queued_less(int card, uint64_t queued_ns);
