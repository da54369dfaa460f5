/* Launches gathered into batches with an event behind each. */
#define _GNU_SOURCE
#include "flight.h"

#include <stdlib.h>
#include <string.h>

enum { CONTEXTS = 128, STREAMS = 1024, TRIES = 12, OFTEN = 256 };

struct egpu_card egpu_cards[EGPU_ACTIVITY_CARDS];
_Atomic uint32_t egpu_captures;
struct egpu_lock egpu_streams_lock;

static struct egpu_context contexts[CONTEXTS];
static _Atomic uint32_t contexts_gone;
static struct egpu_lock contexts_lock;

/* What one stream has that no event is behind yet. */
static struct open_batch {
    _Atomic(struct egpu_context *) context;
    CUstream stream;
    bool per_thread;
    uint32_t samples;
    int64_t predicted_ns;
    struct egpu_batch *batch;
} streams[STREAMS];
static struct egpu_spin streams_spin;
static _Atomic uint32_t streams_open; /* that have a batch */

static struct egpu_batch batches[EGPU_BATCHES], *batches_free;
static uint32_t batches_used;
static struct egpu_spin batches_spin;

/* --- contexts and their events -------------------------------------------------------------------- */

static CUresult relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode) {
    return real->cuThreadExchangeStreamCaptureMode ? real->cuThreadExchangeStreamCaptureMode(mode) : CUDA_SUCCESS;
}

static CUevent event_take(const struct egpu_real *real, struct egpu_context *context) {
    CUevent event = NULL;
    egpu_spin_lock(&context->lock);
    if (context->events_free != 0)
        event = context->events[--context->events_free];
    egpu_spin_unlock(&context->lock);
    if (event == NULL) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        relaxed(real, &mode);
        if (real->cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            event = NULL;
        relaxed(real, &mode);
    }
    return event;
}

void egpu_event_give(struct egpu_context *context, CUevent event) {
    egpu_spin_lock(&context->lock);
    if (context->events != NULL && context->events_free < EGPU_EVENTS)
        context->events[context->events_free++] = event;
    egpu_spin_unlock(&context->lock);
}

/* Ties the context's clock to the host's: the shortest of a few records, seen from both sides. In that context. */
void egpu_anchor(const struct egpu_real *real, struct egpu_context *context) {
    uint32_t index = (context->anchor_now + 1) % EGPU_ANCHORS;
    if (context->clock == NULL &&
        real->cuStreamCreate(&context->clock, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return;
    if ((context->anchor[index] == NULL && real->cuEventCreate(&context->anchor[index], CU_EVENT_DEFAULT) != CUDA_SUCCESS) ||
        (context->trial == NULL && real->cuEventCreate(&context->trial, CU_EVENT_DEFAULT) != CUDA_SUCCESS))
        return;
    int64_t best = INT64_MAX, spent = egpu_now_ns() + 4000000;
    for (int tries = 0; tries < TRIES && (best > 3000 || tries == 0); tries++) {
        int64_t not_yet = egpu_now_ns();
        if (best != INT64_MAX && not_yet > spent)
            break;
        if (real->cuEventRecord(context->trial, context->clock) != CUDA_SUCCESS)
            return;
        CUresult result;
        while ((result = real->cuEventQuery(context->trial)) == CUDA_ERROR_NOT_READY && not_yet < spent)
            not_yet = egpu_now_ns();
        int64_t reached = egpu_now_ns();
        if (result != CUDA_SUCCESS)
            return;
        if (reached - not_yet >= best)
            continue;
        best = reached - not_yet;
        context->anchor_ns[index] = not_yet + best / 2;
        CUevent swap = context->anchor[index];
        context->anchor[index] = context->trial, context->trial = swap;
    }
    context->anchored_ns = context->anchor_ns[index];
    atomic_store(&context->anchor_now, index);
}

static struct egpu_context *context_add(const struct egpu_real *real, CUcontext handle) {
    int card = egpu_card_of_context(NULL);
    struct egpu_context *free_row = NULL;
    egpu_lock(&contexts_lock);
    for (int i = 0; i < CONTEXTS; i++) {
        if (contexts[i].handle == handle) {
            egpu_unlock(&contexts_lock);
            return &contexts[i];
        }
        if (contexts[i].handle == NULL && free_row == NULL)
            free_row = &contexts[i];
    }
    if (free_row != NULL) {
        CUevent *events = free_row->events ? free_row->events : calloc(EGPU_EVENTS, sizeof(CUevent));
        memset(free_row, 0, sizeof *free_row);
        free_row->card = card < EGPU_ACTIVITY_CARDS ? card : -1;
        free_row->events = events;
        if (free_row->card >= 0 && events != NULL) {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            relaxed(real, &mode);
            egpu_anchor(real, free_row);
            relaxed(real, &mode);
        }
        free_row->handle = handle;
    }
    egpu_unlock(&contexts_lock);
    return free_row;
}

struct egpu_context *egpu_context_now(const struct egpu_real *real) {
    static __thread __attribute__((tls_model("initial-exec"))) struct { CUcontext handle; struct egpu_context *context; uint32_t gone; } last;
    CUcontext handle = NULL;
    if (real->cuCtxGetCurrent(&handle) != CUDA_SUCCESS || handle == NULL)
        return NULL;
    uint32_t gone = atomic_load_explicit(&contexts_gone, memory_order_acquire);
    if (last.handle != handle || last.gone != gone) {
        last.context = NULL;
        for (int i = 0; i < CONTEXTS && last.context == NULL; i++)
            if (atomic_load_explicit(&contexts[i].handle, memory_order_acquire) == handle)
                last.context = &contexts[i];
        if (last.context == NULL)
            last.context = context_add(real, handle);
        last.handle = handle;
        last.gone = gone;
    }
    return last.context != NULL && last.context->card >= 0 ? last.context : NULL;
}

void egpu_contexts_anchor(const struct egpu_real *real, int64_t now_ns) {
    for (int i = 0; i < CONTEXTS; i++) {
        struct egpu_context *context = &contexts[i];
        if (context->handle == NULL || context->card < 0 || now_ns - context->anchored_ns < 4000000000)
            continue;
        egpu_lock(&contexts_lock);
        CUcontext handle = context->handle;
        if (handle != NULL && real->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
            egpu_anchor(real, context);
            real->cuCtxPopCurrent_v2(&handle);
        }
        egpu_unlock(&contexts_lock);
    }
}

/* --- batches -------------------------------------------------------------------------------------- */

static struct egpu_batch *batch_take(void) {
    egpu_spin_lock(&batches_spin);
    struct egpu_batch *batch = batches_free;
    if (batch != NULL)
        batches_free = batch->next;
    else if (batches_used < EGPU_BATCHES)
        batch = &batches[batches_used++];
    egpu_spin_unlock(&batches_spin);
    return batch;
}

void egpu_batch_free(struct egpu_batch *batch) {
    egpu_spin_lock(&batches_spin);
    batch->next = batches_free;
    batches_free = batch;
    egpu_spin_unlock(&batches_spin);
}

void egpu_flight_undo(int card, uint64_t queued_ns, uint32_t count, bool unknown) {
    struct egpu_activity_slot *slot = egpu_slot_own(0, 0);
    uint64_t queued = slot->queued_ns[card];
    while (!atomic_compare_exchange_weak(&slot->queued_ns[card], &queued, egpu_sub(queued, queued_ns))) {
    }
    if (unknown)
        atomic_fetch_and(&slot->alone, ~(1u << card));
    atomic_fetch_sub(&egpu_cards[card].flying, count);
}

/* Puts an event behind the batch and the batch among those that are pending. In the batch's context. */
static void batch_close(const struct egpu_real *real, struct egpu_batch *batch) {
    int index = batch->context->card;
    struct egpu_card *card = &egpu_cards[index];
    batch->anchor = batch->context->anchor_now;
    batch->closed_ns = egpu_now_ns();
    batch->event = event_take(real, batch->context);
    CUresult result = CUDA_ERROR_NOT_FOUND;
    if (batch->event != NULL)
        result = real->cuEventRecord(batch->event, batch->stream);
    if (result != CUDA_SUCCESS) { /* what was booked stays booked */
        if (batch->event != NULL)
            egpu_event_give(batch->context, batch->event);
        egpu_flight_undo(index, batch->queued_ns, batch->count, batch->unknown);
        egpu_batch_free(batch);
        return;
    }
    batch->next = NULL;
    egpu_spin_lock(&card->lock);
    if (card->pending == NULL) {
        int64_t begin = batch->closed_ns > card->last_end_ns ? batch->closed_ns : card->last_end_ns;
        card->pending_end = &card->pending;
        card->begin_ns = begin;
        card->oldest_ns = batch->booked_ns;
        card->due_ns = egpu_overdue_at(begin, batch->booked_ns, !batch->unknown);
        card->pending_on = egpu_named_stream(batch->stream);
        egpu_slot_own(0, 0)->due_ns[index] = (uint64_t)card->due_ns;
    }
    if (card->pending_on != batch->stream)
        card->pending_on = NULL;
    *card->pending_end = batch;
    card->pending_end = &batch->next;
    egpu_spin_unlock(&card->lock);
}

static struct open_batch *stream_of(struct egpu_context *context, CUstream stream, bool per_thread) {
    uint64_t hash = ((uint64_t)(uintptr_t)stream ^ (uint64_t)(uintptr_t)context) * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < 16; i++) {
        struct open_batch *one = &streams[((hash >> 40) + i) % STREAMS];
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

/* When a launch that was made then began to run, if nothing was before it: in the midst of the call. One that took
 * long was interrupted, before that or after. */
static int64_t midst(int64_t made_ns) {
    int64_t half = (egpu_now_ns() - made_ns) / 2;
    return made_ns + (half < 2000 ? half : 2000);
}

void egpu_flight_add(const struct egpu_launched *launch) {
    struct egpu_batch *done = NULL;
    int64_t now = launch->now_ns;
    egpu_spin_lock(&streams_spin);
    struct open_batch *open = stream_of(launch->context, launch->stream, launch->per_thread);
    struct egpu_batch *batch = open ? open->batch : NULL;
    bool first = batch == NULL;
    if (first || now > batch->predicted_ns)
        now = midst(now);
    if (first && (batch = batch_take()) != NULL) {
        *batch = (struct egpu_batch){.context = launch->context, .stream = launch->stream, .begin_ns = now,
                                     .per_thread = launch->per_thread, .kind = launch->kind, .predicted_ns = now};
        if (open && open->predicted_ns > now)
            batch->predicted_ns = open->predicted_ns;
        uint64_t none = 0;
        atomic_compare_exchange_strong(&egpu_activity_own()->cards[launch->context->card].started_ns, &none, (uint64_t)now);
    }
    if (batch == NULL) { /* more is in flight than we can follow: it is booked as estimated */
        egpu_spin_unlock(&streams_spin);
        egpu_flight_undo(launch->context->card, launch->queued_ns, 1, launch->unknown);
        return;
    }
    if (!first && now > batch->predicted_ns + 5000) {
        batch->idle_ns += (uint64_t)(now - batch->predicted_ns);
        batch->predicted_ns = now;
    }
    batch->count++;
    batch->last_ns = now;
    batch->predicted_ns += (int64_t)launch->booked_ns;
    batch->booked_ns += launch->booked_ns;
    batch->queued_ns += launch->queued_ns;
    batch->unknown |= launch->unknown;
    batch->floor |= launch->floor;
    if (batch->kind != launch->kind)
        batch->kind = NULL;
    uint32_t nth = first && open ? ++open->samples : 0;
    bool sample = nth != 0 && nth % (nth < OFTEN ? 8 : 128) == 0;
    bool close = open == NULL || launch->unknown || launch->per_thread || sample || batch->booked_ns >= EGPU_BATCH_NS ||
                 batch->count >= EGPU_BATCH_LAUNCHES;
    if (open) {
        open->predicted_ns = batch->predicted_ns;
        atomic_fetch_add(&streams_open, (uint32_t)first - (uint32_t)close);
        open->batch = close ? NULL : batch;
    }
    done = close ? batch : NULL;
    egpu_spin_unlock(&streams_spin);
    if (done != NULL)
        batch_close(launch->real, done);
}

static struct egpu_batch *open_take(struct open_batch *open) {
    egpu_spin_lock(&streams_spin);
    struct egpu_batch *batch = open->batch;
    open->batch = NULL;
    atomic_fetch_sub(&streams_open, batch != NULL);
    egpu_spin_unlock(&streams_spin);
    return batch;
}

static void close_here(const struct egpu_real *real, struct egpu_batch *batch) {
    CUcontext handle = batch->context->handle, before = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    relaxed(real, &mode);
    if (real->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
        batch_close(real, batch);
        real->cuCtxPopCurrent_v2(&before);
    } else {
        egpu_flight_undo(batch->context->card, batch->queued_ns, batch->count, batch->unknown);
        egpu_batch_free(batch);
    }
    relaxed(real, &mode);
}

void egpu_flight_flush(const struct egpu_real *real, int card, int64_t before_ns) {
    if (atomic_load(&egpu_captures) != 0 || atomic_load(&streams_open) == 0)
        return;
    for (int i = 0; i < STREAMS; i++) {
        struct open_batch *open = &streams[i];
        struct egpu_context *context = atomic_load_explicit(&open->context, memory_order_acquire);
        if (context == NULL || context->card != card)
            continue;
        egpu_lock(&egpu_streams_lock); /* no stream is destroyed, no capture begins, until we are through */
        struct egpu_batch *batch = NULL;
        if (atomic_load(&egpu_captures) == 0) {
            egpu_spin_lock(&streams_spin);
            if (open->batch != NULL && open->batch->last_ns < before_ns) {
                batch = open->batch;
                batch->late_ns = egpu_now_ns();
                open->batch = NULL;
                atomic_fetch_sub(&streams_open, 1);
            }
            egpu_spin_unlock(&streams_spin);
        }
        if (batch != NULL)
            close_here(real, batch);
        egpu_unlock(&egpu_streams_lock);
    }
}

void egpu_flight_stream_gone(const struct egpu_real *real, CUstream stream) {
    egpu_lock(&egpu_streams_lock);
    for (int i = 0; i < STREAMS && atomic_load(&streams_open) != 0; i++) {
        struct egpu_batch *batch = NULL;
        egpu_spin_lock(&streams_spin);
        if (streams[i].stream == stream && !streams[i].per_thread && (batch = streams[i].batch) != NULL) {
            streams[i].batch = NULL;
            atomic_fetch_sub(&streams_open, 1);
        }
        egpu_spin_unlock(&streams_spin);
        if (batch != NULL)
            close_here(real, batch);
    }
    egpu_unlock(&egpu_streams_lock);
}

void egpu_time_context_gone(CUcontext handle) {
    for (int i = 0; i < CONTEXTS; i++) {
        struct egpu_context *context = &contexts[i];
        if (handle == NULL || context->handle != handle)
            continue;
        egpu_lock(&egpu_streams_lock);
        for (int j = 0; j < STREAMS; j++) {
            if (streams[j].context != context)
                continue;
            struct egpu_batch *batch = open_take(&streams[j]);
            if (batch != NULL) {
                egpu_flight_undo(context->card, batch->queued_ns, batch->count, batch->unknown);
                egpu_batch_free(batch);
            }
        }
        egpu_unlock(&egpu_streams_lock);
        if (context->card >= 0)
            egpu_resolve_drop(context->card, context);
        egpu_lock(&contexts_lock);
        atomic_fetch_add(&contexts_gone, 1);
        context->handle = NULL;
        egpu_unlock(&contexts_lock);
    }
}
