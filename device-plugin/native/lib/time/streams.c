/* What is in flight, by stream. Events are recorded by the thread that launches, at the call, and never in a stream whose
 * order they would change: so nothing of the program's waits for them. */
#define _GNU_SOURCE
#include "work.h"

#include <sched.h>

enum {
    ROWS = 4096,
    PROBES = 16,
    MARKS = 16,               /* of one stream; with more in flight the last one moves on */
    HOST_NS = 100 * 1000,     /* a launch that took so long on the host loaded code, or was interrupted */
    MEET_NS = 2 * 1000 * 1000, /* a unit that ends so soon after a launch was let through may have waited for that */
    MET_NS = 100 * 1000,      /* and is taken to need no more by itself, where nothing is known of it */
    VAGUE_NS = 200 * 1000,    /* what work takes at least that no event tells of */
};

struct egpu_card egpu_cards[EGPU_ACTIVITY_CARDS];

/* An event behind launches of one stream: when it is reached they have ended. */
struct mark {
    CUevent end, start;       /* start: before the one launch that is measured; NULL: none is */
    struct egpu_kind *kind;
    struct egpu_standing standing;
    uint64_t queued_ns, expected_ns;
    int64_t launched_ns;
    int64_t host_ns;          /* of the time between the two: before the launch was made on an idle stream */
};

/* A stream. Launches add marks at `tail` under the lock; one resolver at a time takes them out at `head`. */
struct egpu_row {
    EGPU_LINE _Atomic(struct egpu_context *) context; /* NULL: free */
    CUstream stream;
    const void *thread;       /* whose own default stream it is; NULL: of any */
    _Atomic uint32_t nth;     /* launches so far */
    _Atomic uint32_t head, tail;
    _Atomic uint32_t making;  /* launches that are being made */
    struct egpu_spin lock;
    uint64_t unmarked_ns;     /* of low beside high: launches that no event is behind yet */
    struct mark marks[MARKS];
};
static struct egpu_row rows[ROWS];
static _Atomic uint32_t rows_used; /* none beyond was ever taken */
static struct egpu_spin rows_lock;

static const void *this_thread(void) {
    static __thread __attribute__((tls_model("initial-exec"))) char here;
    return &here;
}

static bool is_row(const struct egpu_row *row, const struct egpu_context *context, CUstream stream, const void *thread) {
    return atomic_load_explicit(&row->context, memory_order_acquire) == context && row->stream == stream && row->thread == thread;
}

static bool is_idle(const struct egpu_row *row) {
    return row->head == row->tail && row->making == 0;
}

/* Rows lie by hash in groups; one that is idle may become another stream's. NULL: none is. */
static struct egpu_row *row_of(struct egpu_context *context, CUstream stream) {
    const void *thread = stream == EGPU_PER_THREAD ? this_thread() : NULL;
    const uint64_t hash = ((uint64_t)(uintptr_t)stream ^ (uint64_t)(uintptr_t)context ^ (uint64_t)(uintptr_t)thread) * 0x9e3779b97f4a7c15u;
    const uint32_t first = (uint32_t)(hash >> 40) % (ROWS / PROBES) * PROBES;
    struct egpu_row *found = NULL, *idle = NULL;
    for (uint32_t i = 0; i < PROBES && found == NULL; i++)
        if (is_row(&rows[first + i], context, stream, thread))
            found = &rows[first + i];
    if (found != NULL) {
        atomic_fetch_add(&found->making, 1);
        if (is_row(found, context, stream, thread))
            return found;
        atomic_fetch_sub(&found->making, 1);
        found = NULL;
    }
    egpu_spin_lock(&rows_lock);
    for (uint32_t i = 0; i < PROBES && found == NULL; i++) {
        struct egpu_row *row = &rows[first + i];
        if (is_row(row, context, stream, thread))
            found = row;
        else if (idle == NULL ? is_idle(row) : row->context == NULL && idle->context != NULL)
            idle = row;
    }
    if (found == NULL && idle != NULL) {
        found = idle;
        if (found->context != NULL)
            egpu_queued_less(((struct egpu_context *)found->context)->card, found->unmarked_ns);
        found->unmarked_ns = 0;
        atomic_store(&found->context, NULL);
        found->stream = stream;
        found->thread = thread;
        atomic_store_explicit(&found->context, context, memory_order_release);
        if (first + PROBES > rows_used)
            rows_used = first + PROBES;
    }
    if (found != NULL)
        atomic_fetch_add(&found->making, 1);
    egpu_spin_unlock(&rows_lock);
    return found;
}

/* In the legacy stream an event is a barrier between all blocking streams. Next to a launch there, which is one itself,
 * it changes nothing, unless other threads launch elsewhere in between. */
static bool may_record(const struct egpu_launch *launch) {
    return !launch->plain && ((uintptr_t)launch->stream > 1 || !atomic_load_explicit(&launch->context->named, memory_order_relaxed));
}

void egpu_stream_begin(struct egpu_launch *launch) {
    if ((uintptr_t)launch->stream > 1 && !launch->context->named)
        launch->context->named = true;
    launch->row = may_record(launch) ? row_of(launch->context, launch->stream) : NULL;
    if (launch->row != NULL)
        launch->nth = atomic_fetch_add(&launch->row->nth, 1) + 1;
}

static bool full(const struct egpu_row *row) { return row->tail - row->head == MARKS; }

void egpu_stream_start(struct egpu_launch *launch) {
    launch->start = NULL;
    if (!launch->measured)
        return;
    launch->began_ns = egpu_now_ns();
    if (launch->row != NULL && !full(launch->row))
        launch->start = egpu_event_take(launch->real, launch->context, true);
    const bool good = launch->start == NULL || launch->real->cuEventRecord(launch->start, launch->stream) == CUDA_SUCCESS;
    const int64_t asked_ns = launch->began_ns;
    launch->began_ns = egpu_now_ns();
    if (launch->start != NULL && (!good || launch->began_ns - asked_ns >= HOST_NS)) { /* its stamp may be that old */
        egpu_event_give(launch->context, launch->start, true);
        launch->start = NULL;
    }
}

/* What lies between the two events besides the unit, where the card was idle before; < 0: nobody can tell. */
static int64_t host_between(const struct egpu_launch *launch, int64_t made_ns) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    egpu_relaxed(launch->real, &mode);
    const bool idle = launch->real->cuEventQuery(launch->start) != CUDA_ERROR_NOT_READY;
    egpu_relaxed(launch->real, &mode);
    const int64_t host_ns = made_ns - launch->began_ns;
    return !idle ? 0 : host_ns < HOST_NS ? host_ns : -1;
}

static void missed(const struct egpu_launch *launch, CUevent end) {
    egpu_kind_missed(launch->kind, &launch->standing);
    if (launch->start != NULL)
        egpu_event_give(launch->context, launch->start, true);
    if (end != NULL)
        egpu_event_give(launch->context, end, true);
}

/* Low beside high has few in flight, and an event tells of each that is not very short: half of what may be in flight at
 * most is not told of. */
static bool wants_mark(const struct egpu_launch *launch, const struct egpu_row *row) {
    const uint64_t each = 50 * 1000, queued = egpu_slot_own(0, 0)->queued_ns[launch->context->card];
    return (launch->needs & EGPU_NEED_TELL) || launch->start != NULL || launch->unknown ||
           row->unmarked_ns >= each || queued >= 4 * each;
}

/* Under the row's lock: puts an event behind what the stream has; the newest one where it has many. False: none. */
static bool mark(struct egpu_row *row, const struct egpu_launch *launch, CUevent end, int64_t host_ns) {
    struct mark *newest = &row->marks[(row->tail - 1) % MARKS];
    if (full(row)) {
        if (newest->start != NULL || launch->real->cuEventRecord(newest->end, launch->stream) != CUDA_SUCCESS)
            return false;
        newest->queued_ns += row->unmarked_ns;
    } else {
        row->marks[row->tail % MARKS] = (struct mark){
            .end = end, .start = launch->start, .kind = launch->kind, .standing = launch->standing, .host_ns = host_ns,
            .queued_ns = row->unmarked_ns, .expected_ns = launch->unknown ? 0 : launch->expected_ns, .launched_ns = launch->now_ns};
        struct egpu_card *card = &egpu_cards[launch->context->card];
        if (atomic_fetch_add(&card->open, 1) == 0) {
            card->due_on = launch->stream;
            card->due_ns = egpu_overdue_at(launch->now_ns, launch->expected_ns, !launch->unknown);
            egpu_slot_own(0, 0)->due_ns[launch->context->card] = (uint64_t)card->due_ns;
        }
        atomic_fetch_add_explicit(&row->tail, 1, memory_order_release);
    }
    row->unmarked_ns = 0;
    return true;
}

static void give_back(const struct egpu_launch *launch) {
    if (launch->needs & EGPU_NEED_BOUND)
        egpu_queued_less(launch->context->card, launch->expected_ns);
}

/* No event tells of it: it counts as in flight for about as long as it takes. */
static void vague(const struct egpu_launch *launch) {
    struct egpu_card *card = &egpu_cards[launch->context->card];
    const int64_t length = launch->expected_ns > VAGUE_NS ? (int64_t)launch->expected_ns : VAGUE_NS;
    int64_t until = card->vague_until_ns, from;
    do
        from = until > launch->now_ns ? until : launch->now_ns;
    while (!atomic_compare_exchange_weak(&card->vague_until_ns, &until, from + length));
    give_back(launch);
}

/* The measured one ends here: with an event behind it, unless others were launched there meanwhile. */
static CUevent end_of_measured(struct egpu_launch *launch, bool launched, int64_t *host_ns) {
    const int64_t made_ns = egpu_now_ns();
    CUevent end = launched ? egpu_event_take(launch->real, launch->context, true) : NULL;
    bool good = end != NULL && launch->real->cuEventRecord(end, launch->stream) == CUDA_SUCCESS;
    const int64_t late_ns = egpu_now_ns() - made_ns;
    *host_ns = good ? host_between(launch, made_ns) : -1;
    good = good && launch->row->nth == launch->nth && late_ns < HOST_NS && *host_ns >= 0;
    if (good)
        return end;
    missed(launch, end);
    launch->start = NULL;
    return NULL;
}

static void add_mark(struct egpu_launch *launch, CUevent end, int64_t host_ns) {
    struct egpu_row *row = launch->row;
    const bool follows = (launch->needs & (EGPU_NEED_TELL | EGPU_NEED_BOUND)) != 0;
    egpu_spin_lock(&row->lock);
    row->unmarked_ns += launch->needs & EGPU_NEED_BOUND ? launch->expected_ns : 0;
    const bool wanted = follows ? wants_mark(launch, row) : end != NULL;
    if (wanted && end == NULL && !full(row)) {
        end = egpu_event_take(launch->real, launch->context, false);
        if (end != NULL && launch->real->cuEventRecord(end, launch->stream) != CUDA_SUCCESS) {
            egpu_event_give(launch->context, end, false);
            end = NULL;
        }
    }
    const bool measured = launch->start != NULL, fits = !measured || !full(row);
    const bool marked = wanted && fits && (end != NULL || full(row)) && mark(row, launch, end, host_ns);
    egpu_spin_unlock(&row->lock);
    if (!marked && measured)
        missed(launch, end);
}

void egpu_stream_end(struct egpu_launch *launch, bool launched) {
    struct egpu_row *row = launch->row;
    CUevent end = NULL;
    int64_t host_ns = 0;
    if (launch->start != NULL)
        end = end_of_measured(launch, launched && !egpu_over(), &host_ns);
    else if (launch->measured)
        missed(launch, NULL);
    const bool follows = (launch->needs & (EGPU_NEED_TELL | EGPU_NEED_BOUND)) != 0;
    if (!launched) {
        give_back(launch);
    } else if (row != NULL && !egpu_over()) {
        if (follows || end != NULL)
            add_mark(launch, end, host_ns);
    } else if (follows) {
        vague(launch);
    }
    if (row != NULL)
        atomic_fetch_sub(&row->making, 1);
}

/* --- what ended --- */

/* How long the unit ran between its events, less what it ran beside the one that ended before it: that was charged. */
static uint64_t length_of(const struct egpu_real *real, struct egpu_context *context, const struct mark *mark) {
    float between = 0, since = 0;
    if (real->cuEventElapsedTime(&between, mark->start, mark->end) != CUDA_SUCCESS || between < 0)
        return 0;
    int64_t length = (int64_t)((double)between * 1e6) - mark->host_ns;
    const int64_t least = (int64_t)((double)between * 1e6) / 4;
    length = length > least ? length : least;
    if (context->last_end != NULL && real->cuEventElapsedTime(&since, context->last_end, mark->end) == CUDA_SUCCESS && since > 0) {
        const int64_t beside = length - (int64_t)((double)since * 1e6);
        length -= beside < 0 ? 0 : beside < context->last_length_ns ? beside : context->last_length_ns;
    }
    return (uint64_t)length;
}

static bool crowded(int card) {
    const struct egpu_near_all *all = egpu_near_now();
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == card)
            return true;
    return false;
}

/* It ran on for a launch that stood at the gate. The longer such units seemed, the longer they would hold each other back. */
static bool met(const struct egpu_activity_card *page, const struct mark *mark, int64_t now_ns) {
    const int64_t pass = (int64_t)page->last_pass_ns;
    return pass > mark->launched_ns && pass <= now_ns && now_ns - pass < MEET_NS;
}

static void measure(const struct egpu_real *real, int card, struct egpu_context *context, const struct mark *mark, int64_t now_ns) {
    const bool waited = met(&egpu_activity_own()->cards[card], mark, now_ns);
    if (waited && mark->kind->mean_ns != 0) {
        egpu_kind_missed(mark->kind, &mark->standing);
        egpu_event_give(context, mark->start, true);
        egpu_event_give(context, mark->end, true);
        return;
    }
    uint64_t length = length_of(real, context, mark);
    length = waited && length > MET_NS ? MET_NS : length;
    const uint64_t each = egpu_kind_measured(mark->kind, length, crowded(card));
    if (context->last_end != NULL)
        egpu_event_give(context, context->last_end, true);
    context->last_end = mark->end;
    context->last_length_ns = (int64_t)length;
    egpu_event_give(context, mark->start, true);
    struct egpu_activity_card *page = &egpu_activity_own()->cards[card];
    uint64_t longest = page->longest_ns;
    while (each > longest && !atomic_compare_exchange_weak(&page->longest_ns, &longest, each)) {
    }
    const uint64_t all = egpu_scaled(card, each) * mark->standing.launches;
    egpu_charge_time(card, (int64_t)(all - mark->standing.booked_ns), true);
}

static void take_out(const struct egpu_real *real, struct egpu_row *row, int64_t now_ns) {
    struct egpu_context *context = row->context;
    egpu_spin_lock(&row->lock); /* what is launched meanwhile may still add to the newest mark */
    const struct mark mark = row->marks[row->head % MARKS];
    egpu_spin_unlock(&row->lock);
    struct egpu_card *card = &egpu_cards[context->card];
    if (mark.start != NULL)
        measure(real, context->card, context, &mark, now_ns);
    else
        egpu_event_give(context, mark.end, false);
    atomic_fetch_add_explicit(&row->head, 1, memory_order_release);
    atomic_fetch_sub(&card->open, 1);
    egpu_queued_less(context->card, mark.queued_ns);
    card->last_end_ns = now_ns;
    card->passes = 0;
    egpu_activity_own()->cards[context->card].progress_ns = (uint64_t)now_ns;
}

/* Takes out what has ended there, and looks whether its oldest unit is the first to end, or to be overdue, of all. */
static void resolve_row(const struct egpu_real *real, struct egpu_row *row, int64_t now_ns, int64_t *due_ns, int64_t *end_ns,
                        bool *any) {
    while (row->head != atomic_load_explicit(&row->tail, memory_order_acquire)) {
        const struct mark *oldest = &row->marks[row->head % MARKS];
        if (real->cuEventQuery(oldest->end) == CUDA_ERROR_NOT_READY) {
            const int64_t last_end = egpu_cards[row->context->card].last_end_ns;
            const int64_t from = oldest->launched_ns > last_end ? oldest->launched_ns : last_end;
            const int64_t end = from + (int64_t)oldest->expected_ns;
            const int64_t due = egpu_overdue_at(from, oldest->expected_ns, oldest->expected_ns != 0);
            if (*due_ns == 0 || due < *due_ns)
                *due_ns = due, egpu_cards[row->context->card].due_on = row->stream;
            *end_ns = *end_ns == 0 || end < *end_ns ? end : *end_ns;
            return;
        }
        take_out(real, row, now_ns);
        *any = true;
    }
}

bool egpu_streams_resolve(const struct egpu_real *real, int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a question in another one spoils others' captures */
    int64_t due = 0, end = 0;
    bool any = false;
    if (atomic_load(&card->open) == 0 || atomic_exchange(&card->polling, 1))
        return false;
    if (!egpu_over())
        egpu_relaxed(real, &mode);
    for (uint32_t i = 0; i < rows_used && !egpu_over(); i++) {
        const struct egpu_context *context = atomic_load_explicit(&rows[i].context, memory_order_acquire);
        if (context == NULL || context->card != index)
            continue;
        resolve_row(real, &rows[i], now_ns, &due, &end, &any);
    }
    if (!egpu_over())
        egpu_relaxed(real, &mode);
    card->due_ns = due;
    card->end_ns = end;
    egpu_slot_own(0, 0)->due_ns[index] = (uint64_t)due;
    atomic_store(&card->polling, 0);
    return any;
}

/* --- streams and contexts that end --- */

static void row_gone(struct egpu_row *row) {
    struct egpu_context *context = row->context;
    struct egpu_card *card = &egpu_cards[context->card];
    for (; row->head != row->tail; row->head++) {
        const struct mark *one = &row->marks[row->head % MARKS];
        if (one->start != NULL)
            egpu_kind_missed(one->kind, &one->standing);
        egpu_queued_less(context->card, one->queued_ns);
        atomic_fetch_sub(&card->open, 1); /* its events are not used again: nobody knows whether they are reached */
    }
    egpu_queued_less(context->card, row->unmarked_ns);
    row->unmarked_ns = 0;
    atomic_store(&row->context, NULL);
}

static void rows_gone(const struct egpu_context *context, CUstream stream) {
    for (uint32_t i = 0; i < rows_used; i++) {
        struct egpu_row *row = &rows[i];
        struct egpu_context *of = row->context;
        if (of == NULL || of->card < 0 || (context != NULL ? of != context : row->stream != stream || row->thread != NULL))
            continue;
        while (atomic_exchange(&egpu_cards[of->card].polling, 1) && !egpu_over())
            sched_yield();
        egpu_spin_lock(&rows_lock);
        if (row->context == of)
            row_gone(row);
        egpu_spin_unlock(&rows_lock);
        atomic_store(&egpu_cards[of->card].polling, 0);
    }
}

void egpu_streams_gone(CUstream stream) {
    egpu_handle_gone();
    if (stream != NULL && rows_used != 0)
        rows_gone(NULL, stream);
}

void egpu_streams_context_gone(const struct egpu_context *context) {
    if (context->card >= 0)
        rows_gone(context, NULL);
    ((struct egpu_context *)(uintptr_t)context)->last_end = NULL;
}

void egpu_streams_forget(void) {
    rows_lock.held = 0;
    for (uint32_t i = 0; i < rows_used; i++) {
        struct egpu_row *row = &rows[i];
        row->context = NULL;
        row->lock.held = 0;
        row->head = row->tail = row->making = 0;
        row->unmarked_ns = 0;
    }
}
