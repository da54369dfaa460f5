/* Launches gathered into batches with an event behind each. */
#define _GNU_SOURCE
#include "flight.h"

enum { STREAMS = 1024, OFTEN = 256, CREDITED = 8, BEGUN_NS = 2000, PAUSE_NS = 5000, LONE_PAUSE_NS = BEGUN_NS + 500 };

struct egpu_card egpu_cards[EGPU_ACTIVITY_CARDS];
_Atomic uint64_t egpu_batch_ns = EGPU_BATCH_NS;
EGPU_LINE struct egpu_lock egpu_streams_lock;

/* What one stream has that no event is behind yet. */
static struct egpu_open {
    EGPU_LINE _Atomic(struct egpu_context *) context;
    CUstream stream;
    bool per_thread;
    uint32_t samples;
    uint32_t riding; /* launches that have joined the batch and are being made */
    int64_t predicted_ns;
    struct egpu_batch *batch;
    const struct egpu_control *control; /* as of when the batch was opened, and so the rate */
    uint64_t rate_ppm;
} streams[STREAMS];
static __thread __attribute__((tls_model("initial-exec"))) struct egpu_open *recent; /* of this thread's last launch */
EGPU_LINE static struct egpu_spin streams_spin;
static _Atomic uint32_t streams_open; /* that have a batch */

static struct egpu_batch batches[EGPU_BATCHES];
EGPU_LINE static struct egpu_spin batches_spin;
static _Atomic(struct egpu_batch *) batches_free; /* written under the lock */
static uint32_t batches_used;

static struct egpu_batch *batch_take(void) {
    egpu_spin_lock(&batches_spin);
    struct egpu_batch *batch = atomic_load_explicit(&batches_free, memory_order_relaxed);
    if (batch != NULL)
        atomic_store_explicit(&batches_free, batch->next, memory_order_relaxed);
    else if (batches_used < EGPU_BATCHES)
        batch = &batches[batches_used++];
    egpu_spin_unlock(&batches_spin);
    return batch;
}

void egpu_batch_free(struct egpu_batch *batch) {
    egpu_spin_lock(&batches_spin);
    batch->next = atomic_load_explicit(&batches_free, memory_order_relaxed);
    atomic_store_explicit(&batches_free, batch, memory_order_relaxed);
    egpu_spin_unlock(&batches_spin);
}

/* What the batch was booked for and nobody launched. */
static void return_ahead(struct egpu_batch *batch) {
    if (batch->ahead_ns == 0)
        return;
    egpu_flight_undo(batch->context->card, batch->ahead_ns, 0, false);
    egpu_unbook(batch->context->card, batch->ahead_ns);
    batch->queued_ns -= batch->ahead_ns;
    batch->ahead_ns = 0;
}

/* It will not be seen to end. */
static void batch_drop(struct egpu_batch *batch) {
    return_ahead(batch);
    if (batch->before != NULL)
        egpu_event_give(batch->context, batch->before);
    egpu_flight_undo(batch->context->card, batch->queued_ns, batch->flew, batch->unknown);
    egpu_batch_free(batch);
}

/* Puts an event behind the batch, on that stream, and the batch among those that are pending. In the batch's context. */
static void batch_close(const struct egpu_real *real, struct egpu_batch *batch, CUstream on) {
    if (egpu_over()) {
        batch_drop(batch);
        return;
    }
    int index = batch->context->card;
    struct egpu_card *card = &egpu_cards[index];
    batch->anchor = batch->context->anchor_now;
    batch->closed_ns = egpu_now_ns();
    batch->event = egpu_event_take(real, batch->context);
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (batch->event != NULL)
        result = real->cuEventRecord(batch->event, on);
    if (result != CUDA_SUCCESS) { /* what was booked stays booked */
        if (batch->event != NULL)
            egpu_event_give(batch->context, batch->event);
        batch_drop(batch);
        return;
    }
    return_ahead(batch);
    batch->next = NULL;
    egpu_spin_lock(&card->lock);
    if (card->pending == NULL) {
        int64_t begin = batch->closed_ns > card->last_end_ns ? batch->closed_ns : card->last_end_ns;
        card->pending_end = &card->pending;
        card->begin_ns = begin;
        card->oldest_ns = batch->booked_ns;
        card->due_ns = egpu_due(card, batch, begin);
        card->pending_on = egpu_named_stream(batch->stream);
        egpu_slot_own(0, 0)->due_ns[index] = (uint64_t)card->due_ns;
    }
    if (card->pending_on != batch->stream)
        card->pending_on = NULL;
    *card->pending_end = batch;
    card->pending_end = &batch->next;
    egpu_spin_unlock(&card->lock);
    if (card->turns)
        egpu_turns_say(index, batch->closed_ns, egpu_lease_ns(egpu_control_now()));
}

static struct egpu_open *stream_of(struct egpu_context *context, CUstream stream, bool per_thread) {
    uint64_t hash = ((uint64_t)(uintptr_t)stream ^ (uint64_t)(uintptr_t)context) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < 16; i++) {
        struct egpu_open *one = &streams[((hash >> 40) + i) % STREAMS];
        if (one->context == context && one->stream == stream && one->per_thread == per_thread)
            return one;
        if (one->context == NULL) {
            one->stream = stream;
            one->per_thread = per_thread;
            one->predicted_ns = 0;
            one->context = context;
            return one;
        }
    }
    return NULL;
}

/* When a launch that was made then began to run, if nothing was before it: towards the end of the call. One that took
 * long was interrupted, before that or after. */
static int64_t begun(int64_t made_ns) {
    int64_t most = (egpu_now_ns() - made_ns) * 3 / 4;
    return made_ns + (most < BEGUN_NS ? most : BEGUN_NS);
}

/* How much a batch holds: more than usual of short units that one knows well, and only where the watcher says so. */
static uint64_t most_ns(const struct egpu_launched *launch) {
    bool more = launch->booked_ns <= EGPU_BATCH_NS / 8 &&
                atomic_load_explicit(&launch->kind->steady, memory_order_relaxed) >= EGPU_STEADY;
    return more ? atomic_load_explicit(&egpu_batch_ns, memory_order_relaxed) : EGPU_BATCH_NS;
}

static uint32_t most_launches(const struct egpu_launched *launch) {
    return (uint32_t)(EGPU_BATCH_LAUNCHES * most_ns(launch) / EGPU_BATCH_NS);
}

/* One more launch in the batch, made at `now` or a little later. A gap is no work but the program's. Where nobody else is
 * on the card it is told from one as soon as it is longer than a launch takes to begin: programs that launch one short
 * unit after another have one before each. */
static void join(struct egpu_batch *batch, const struct egpu_launched *launch, int64_t now) {
    if (batch->count != 0 && now > batch->predicted_ns + (egpu_lone() ? LONE_PAUSE_NS : PAUSE_NS)) {
        batch->idle_ns += (uint64_t)(now - batch->predicted_ns);
        batch->predicted_ns = now;
    }
    if (batch->count != 0 && now - batch->last_ns > batch->apart_ns)
        batch->apart_ns = now - batch->last_ns;
    batch->count++;
    batch->last_ns = now;
    batch->predicted_ns += (int64_t)launch->booked_ns;
    batch->booked_ns += launch->booked_ns;
    batch->unknown |= launch->unknown;
    batch->floor |= launch->floor;
    const uint64_t alone = atomic_load_explicit(&launch->kind->alone_ns, memory_order_relaxed);
    batch->known_ns += alone;
    batch->untold |= alone == 0;
    if (batch->kind != launch->kind)
        batch->kind = NULL;
}

bool egpu_flight_ride(struct egpu_launched *launch) {
    const struct egpu_card *card = &egpu_cards[launch->context->card];
    const struct egpu_control *control = egpu_control_now();
    struct egpu_open *open = recent;
    launch->rides = NULL;
    launch->ahead_ns = 0;
    if (launch->unknown || launch->queued_ns != launch->booked_ns || launch->per_thread ||
        !egpu_announced[launch->context->card] || launch->booked_ns > EGPU_RIDES_NS ||
        atomic_load_explicit(&launch->kind->seen, memory_order_relaxed) < EGPU_RIDES)
        return false;
    const struct egpu_near_all *near = egpu_near_now();
    if (near->above != 0 && egpu_holder(near, control, launch->now_ns) != NULL)
        return false;
    if (atomic_load_explicit(&streams_open, memory_order_relaxed) < CREDITED)
        launch->ahead_ns = most_ns(launch) - launch->booked_ns; /* unless there is a batch that it will join */
    if (open == NULL || open->context != launch->context || open->stream != launch->stream || open->per_thread)
        return false;
    egpu_spin_lock(&streams_spin);
    struct egpu_batch *batch = open->batch;
    const bool same = open->control == control && open->rate_ppm == atomic_load_explicit(&card->rate_ppm, memory_order_relaxed);
    if (batch != NULL && batch->ahead_ns >= launch->booked_ns && same) {
        launch->rides = batch;
        launch->on = open;
        batch->ahead_ns -= launch->booked_ns;
        open->riding++;
        join(batch, launch, launch->now_ns);
        open->predicted_ns = batch->predicted_ns;
    } else if (batch != NULL) { /* the first launch after a pause books nothing ahead: this one does, for the rest of it */
        launch->ahead_ns = same ? egpu_sub(launch->ahead_ns, batch->booked_ns + batch->ahead_ns) : 0;
    }
    egpu_spin_unlock(&streams_spin);
    if (launch->rides != NULL)
        egpu_watch_launch(launch->context->card, launch->now_ns);
    return launch->rides != NULL;
}

/* The next launch goes to the gate. What it looks at there the watcher or other programs have had since the last one did:
 * it is fetched while the program prepares that launch. */
static void fetch_for_gate(int index) {
    const struct egpu_activity *all = egpu_activity_own();
    const struct egpu_activity_card *page = &all->cards[index];
    const struct egpu_card *card = &egpu_cards[index];
    const _Atomic uint32_t *spans = all->seconds[index].spans;
    const char *batch = (const char *)atomic_load_explicit(&batches_free, memory_order_relaxed);
    __builtin_prefetch(&page->longest_ns);
    __builtin_prefetch(&page->burst_until_ns);
    __builtin_prefetch(&spans[0]);
    __builtin_prefetch(&spans[EGPU_ACTIVITY_SPANS / 2]);
    __builtin_prefetch(&spans[EGPU_ACTIVITY_SPANS - 1]);
    __builtin_prefetch(&card->flying);
    __builtin_prefetch(&card->used);
    __builtin_prefetch(&card->ended_ns);
    __builtin_prefetch(&card->window);
    __builtin_prefetch(egpu_slot_own(0, 0));
    for (size_t at = 0; batch != NULL && at < sizeof *batches_free; at += 64)
        __builtin_prefetch(batch + at);
}

void egpu_flight_rode(const struct egpu_launched *launch, bool made) {
    struct egpu_open *open = launch->on;
    struct egpu_batch *batch = launch->rides, *done = NULL;
    egpu_spin_lock(&streams_spin);
    open->riding--;
    if (!made) { /* its place in the batch stays empty */
        batch->ahead_ns += launch->booked_ns;
        batch->booked_ns -= launch->booked_ns;
        batch->untold = true;
        batch->count--;
    }
    if (open->batch == batch && open->riding == 0 &&
        (batch->ahead_ns < launch->booked_ns || batch->count >= most_launches(launch) || atomic_load(&egpu_captures) != 0)) {
        done = batch;
        open->batch = NULL;
        atomic_fetch_sub(&streams_open, 1);
    }
    egpu_spin_unlock(&streams_spin);
    if (done != NULL) {
        batch_close(launch->real, done, done->stream);
        fetch_for_gate(launch->context->card);
    }
}

void egpu_flight_mark(struct egpu_launched *launch) {
    if (launch->kind->overtaken == 0 || launch->booked_ns <= EGPU_RIDES_NS ||
        egpu_cards[launch->context->card].rate_ppm == EGPU_RATE_FREE || atomic_load(&egpu_captures) != 0)
        return;
    launch->before = egpu_event_take(launch->real, launch->context);
    if (launch->before != NULL && launch->real->cuEventRecord(launch->before, launch->stream) != CUDA_SUCCESS) {
        egpu_event_give(launch->context, launch->before);
        launch->before = NULL;
    }
}

void egpu_flight_add(const struct egpu_launched *launch) {
    const struct egpu_card *card = &egpu_cards[launch->context->card];
    int64_t now = launch->now_ns;
    egpu_spin_lock(&streams_spin);
    struct egpu_open *open = recent = stream_of(launch->context, launch->stream, launch->per_thread);
    struct egpu_batch *batch = open ? open->batch : NULL;
    bool first = batch == NULL;
    if (first || now > batch->predicted_ns)
        now = begun(now);
    if (first && (batch = batch_take()) != NULL) {
        *batch = (struct egpu_batch){.context = launch->context, .stream = launch->stream, .begin_ns = now,
                                     .per_thread = launch->per_thread, .kind = launch->kind, .predicted_ns = now,
                                     .before = launch->before};
        if (open && open->predicted_ns > now)
            batch->predicted_ns = open->predicted_ns;
        uint64_t none = 0;
        atomic_compare_exchange_strong(&egpu_activity_own()->cards[launch->context->card].started_ns, &none, (uint64_t)now);
    }
    if (launch->before != NULL && (batch == NULL || batch->before != launch->before))
        egpu_event_give(launch->context, launch->before);
    if (batch == NULL) { /* more is in flight than we can follow: it is booked as estimated */
        egpu_spin_unlock(&streams_spin);
        egpu_flight_undo(launch->context->card, launch->queued_ns + launch->ahead_ns, 1, launch->unknown);
        return;
    }
    join(batch, launch, now);
    batch->flew++;
    batch->queued_ns += launch->queued_ns + launch->ahead_ns;
    batch->ahead_ns += launch->ahead_ns;
    uint32_t nth = first && open ? ++open->samples : 0;
    bool sample = nth != 0 && nth % (nth < OFTEN ? 8 : 128) == 0;
    bool asks = launch->booked_ns > EGPU_RIDES_NS && card->rate_ppm != EGPU_RATE_FREE;
    bool full = sample || asks || launch->unknown || batch->booked_ns >= most_ns(launch) ||
                batch->count >= most_launches(launch) || atomic_load(&egpu_captures) != 0;
    bool close = open == NULL || launch->per_thread || (full && open->riding == 0);
    if (open) {
        open->predicted_ns = batch->predicted_ns;
        open->control = egpu_control_now();
        open->rate_ppm = egpu_cards[launch->context->card].rate_ppm;
        if (first != close)
            atomic_fetch_add(&streams_open, (uint32_t)first - (uint32_t)close);
        open->batch = close ? NULL : batch;
    }
    egpu_spin_unlock(&streams_spin);
    if (close)
        batch_close(launch->real, batch, batch->stream);
}

static struct egpu_batch *open_take(struct egpu_open *open) {
    egpu_spin_lock(&streams_spin);
    struct egpu_batch *batch = open->batch;
    open->batch = NULL;
    atomic_fetch_sub(&streams_open, batch != NULL);
    egpu_spin_unlock(&streams_spin);
    return batch;
}

/* Later than at a launch, or from another thread. In the legacy stream an event would then be a barrier between all
 * blocking streams, which the program has not set: behind that stream it tells as much. */
static void close_here(const struct egpu_real *real, struct egpu_batch *batch) {
    CUcontext handle = batch->context->handle, before = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    egpu_relaxed(real, &mode);
    if (!egpu_over() && real->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
        const bool legacy = egpu_named_stream(batch->stream) == NULL && !batch->per_thread;
        CUstream on = legacy ? egpu_behind(real, batch->context) : batch->stream;
        if (on != NULL)
            batch_close(real, batch, on);
        else
            batch_drop(batch);
        real->cuCtxPopCurrent_v2(&before);
    } else {
        batch_drop(batch);
    }
    egpu_relaxed(real, &mode);
}

/* Closes what is open there, unless a launch is being made into it. With the streams' lock. */
static void close_open(const struct egpu_real *real, struct egpu_open *open, int64_t before_ns) {
    struct egpu_batch *batch = NULL;
    egpu_spin_lock(&streams_spin);
    if (open->batch != NULL && open->riding == 0 && open->batch->last_ns < before_ns) {
        batch = open->batch;
        batch->late_ns = egpu_now_ns();
        open->batch = NULL;
        atomic_fetch_sub(&streams_open, 1);
    }
    egpu_spin_unlock(&streams_spin);
    if (batch != NULL)
        close_here(real, batch);
}

void egpu_flight_flush(const struct egpu_real *real, int card, int64_t before_ns) {
    if (atomic_load(&egpu_captures) != 0 || atomic_load(&streams_open) == 0)
        return;
    for (int i = 0; i < STREAMS; i++) {
        struct egpu_context *context = atomic_load_explicit(&streams[i].context, memory_order_acquire);
        if (context == NULL || context->card != card)
            continue;
        egpu_lock(&egpu_streams_lock); /* no stream is destroyed, no capture begins, until we are through */
        if (atomic_load(&egpu_captures) == 0)
            close_open(real, &streams[i], before_ns);
        egpu_unlock(&egpu_streams_lock);
    }
}

void egpu_flight_capture(const struct egpu_real *real) {
    egpu_lock(&egpu_streams_lock);
    const bool first = atomic_fetch_add(&egpu_captures, 1) == 0; /* who comes later to a stream leaves nothing open */
    for (int i = 0; first && i < STREAMS; i++)
        close_open(real, &streams[i], INT64_MAX);
    egpu_unlock(&egpu_streams_lock);
}

void egpu_flight_stream_gone(const struct egpu_real *real, CUstream stream) {
    egpu_handle_gone();
    egpu_lock(&egpu_streams_lock);
    for (int i = 0; i < STREAMS && atomic_load(&streams_open) != 0; i++) {
        egpu_spin_lock(&streams_spin);
        const bool gone = streams[i].stream == stream && !streams[i].per_thread;
        egpu_spin_unlock(&streams_spin);
        struct egpu_batch *batch = gone ? open_take(&streams[i]) : NULL;
        if (batch != NULL)
            close_here(real, batch);
    }
    egpu_unlock(&egpu_streams_lock);
}

void egpu_flight_context_gone(const struct egpu_context *context) {
    egpu_lock(&egpu_streams_lock);
    for (int j = 0; j < STREAMS; j++) {
        struct egpu_batch *batch = streams[j].context == context ? open_take(&streams[j]) : NULL;
        if (batch != NULL)
            batch_drop(batch);
    }
    egpu_unlock(&egpu_streams_lock);
}

void egpu_flight_forget(void) {
    streams_spin.held = batches_spin.held = 0;
    atomic_store(&streams_open, 0);
    for (int i = 0; i < STREAMS; i++) {
        streams[i].batch = NULL;
        streams[i].riding = 0;
    }
}
