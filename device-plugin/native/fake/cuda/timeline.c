/* The simulation: units of streams on cards, in the order and at the times at which a card would run them. */
#include "shared.h"

#include <string.h>

static struct fc_unit *head_of(struct fc_shared *s, const struct fc_stream *stream) {
    return &s->units[stream->head];
}

static bool takes_time(const struct fc_unit *unit) {
    return unit->kind < FC_MARK;
}

static bool is_light(const struct fc_unit *unit) {
    return unit->kind == FC_COPY_HOST || unit->kind == FC_MEET;
}

/* --- the log ------------------------------------------------------------------------------------ */
static void add_busy(struct fc_bucket *buckets, uint64_t start, uint64_t end) {
    while (start < end) {
        uint64_t epoch = start / FC_BUCKET_NS, stop = (epoch + 1) * FC_BUCKET_NS;
        struct fc_bucket *bucket = &buckets[epoch % FC_BUCKETS];
        if (stop > end) stop = end;
        if (bucket->epoch != epoch) *bucket = (struct fc_bucket){.epoch = epoch};
        bucket->busy += stop - start;
        start = stop;
    }
}

unsigned fc_percent(const struct fc_bucket *buckets, uint64_t now) {
    uint64_t busy = 0, newest = now / FC_BUCKET_NS;
    for (int i = 0; i < FC_BUCKETS; i++) {
        if (buckets[i].epoch < newest && buckets[i].epoch + 10 >= newest) busy += buckets[i].busy;
    }
    uint64_t percent = (busy * 100 + 5 * FC_BUCKET_NS) / (10 * FC_BUCKET_NS);
    return percent > 100 ? 100 : (unsigned)percent;
}

static void log_stretch(struct fc_shared *s, struct fc_unit *unit, uint64_t end, uint32_t flags) {
    const struct fc_stream *stream = &s->streams[unit->stream];
    const struct fc_process *process = &s->processes[stream->owner - 1];
    struct fc_card *card = &s->cards[stream->card];
    uint64_t index = s->log_head + 1;
    struct fc_stretch *log = (struct fc_stretch *)((char *)s + s->log_offset);
    struct fc_stretch *to = &log[index % s->log_count];
    *to = (struct fc_stretch){
        .seq = unit->seq, .enqueued = unit->enqueued, .start = unit->run_start, .end = end,
        .serial = process->serial, .pid = process->pid, .context = s->contexts[stream->context].serial,
        .stream = unit->stream, .card = (uint16_t)stream->card, .kind = unit->kind,
        .flags = flags | (unit->flags & FC_STARTED ? 0 : FC_FIRST),
    };
    unit->flags |= FC_STARTED;
    atomic_thread_fence(memory_order_release);
    to->index = index;
    s->log_head = index;
    struct fc_use *use = &s->processes[stream->owner - 1].use[stream->card];
    use->busy += end - unit->run_start;
    add_busy(use->buckets, unit->run_start, end);
    if (unit->kind == FC_COPY_HOST) return; /* an engine of its own: the card counts as idle */
    card->busy += end - unit->run_start;
    add_busy(card->buckets, unit->run_start, end);
}

/* What an event's time is off by. */
static uint64_t scatter(const struct fc_shared *s, uint64_t seq) {
    const uint64_t dice = seq * 0x9E3779B97F4A7C15ull >> 32;
    return s->scatters && dice % 20 == 0 ? 10000 + dice / 20 % 20000 : 0;
}

static void complete(struct fc_shared *s, uint32_t index) {
    struct fc_unit *unit = head_of(s, &s->streams[index]);
    if (unit->kind == FC_MARK) {
        struct fc_event *event = &s->events[unit->event];
        if (unit->serial >= event->done_serial) {
            event->time = s->clock + scatter(s, unit->seq);
            atomic_store_explicit(&event->done_serial, unit->serial, memory_order_release);
        }
    }
    s->cards[s->streams[index].card].units++;
    fc_pop(s, index);
}

/* --- what may run ------------------------------------------------------------------------------- */
/* A stream that waits for the default stream of its context, or that for all others: by order of arrival. */
static bool in_turn(const struct fc_shared *s, const struct fc_stream *stream, const struct fc_unit *unit) {
    if (!stream->blocking) return true;
    const struct fc_context *context = &s->contexts[stream->context];
    if (!stream->is_null) {
        const struct fc_stream *null = &s->streams[context->null_stream];
        return !null->active || s->units[null->head].seq > unit->seq;
    }
    for (uint32_t i = s->cards[stream->card].active; i != FC_NONE; i = s->streams[i].next_active) {
        const struct fc_stream *other = &s->streams[i];
        if (other == stream || !other->blocking || other->context != stream->context) continue;
        if (s->units[other->head].seq < unit->seq) return false;
    }
    return true;
}

/* Streams of a context share its hardware queues: what is in front there was queued before. Host functions and copies
 * have queues of their own. */
static bool queue_free(const struct fc_shared *s, const struct fc_stream *stream, const struct fc_unit *unit) {
    const uint32_t index = (uint32_t)(stream - s->streams);
    for (uint32_t i = s->cards[stream->card].active; s->connections && i != FC_NONE; i = s->streams[i].next_active) {
        const struct fc_stream *other = &s->streams[i];
        const struct fc_unit *first = &s->units[other->head];
        if (other != stream && other->context == stream->context && i % s->connections == index % s->connections &&
            first->seq < unit->seq && first->kind != FC_COPY_HOST && first->kind != FC_HOST) return false;
    }
    return true;
}

static bool ready(const struct fc_shared *s, const struct fc_stream *stream) {
    const struct fc_unit *unit = &s->units[stream->head];
    if (unit->flags & FC_RUNNING) return true;
    if (!queue_free(s, stream, unit) || !in_turn(s, stream, unit)) return false;
    if (unit->kind == FC_WAIT) return s->events[unit->event].done_serial >= unit->serial;
    if (unit->kind == FC_HOST) return !(unit->flags & FC_REACHED) || unit->flags & FC_OVER;
    return true;
}

/* In FIFO mode all contexts are as one. */
static bool same_turn(const struct fc_card *card, const struct fc_stream *stream) {
    return card->mode == FC_FIFO || stream->context == card->current;
}

static bool context_ready(const struct fc_shared *s, const struct fc_card *card, uint32_t context) {
    for (uint32_t i = card->active; i != FC_NONE; i = s->streams[i].next_active) {
        if (s->streams[i].context == context && ready(s, &s->streams[i])) return true;
    }
    return false;
}

/* Next context after the present one, in a circle, that has something to run; FC_NONE: none but the present. */
static uint32_t next_context(const struct fc_shared *s, const struct fc_card *card) {
    uint32_t best = FC_NONE;
    uint64_t best_distance = FC_NEVER;
    for (uint32_t i = card->active; i != FC_NONE; i = s->streams[i].next_active) {
        uint32_t context = s->streams[i].context;
        uint64_t distance = (context - (uint64_t)card->current - 1) % FC_CONTEXTS;
        if (card->current == FC_NONE) distance = context;
        if (context != card->current && distance < best_distance && ready(s, &s->streams[i])) {
            best = context;
            best_distance = distance;
        }
    }
    return best;
}

/* --- running ------------------------------------------------------------------------------------ */
static void arrive(struct fc_shared *s, struct fc_unit *unit) {
    struct fc_meeting *found = NULL, *empty = NULL;
    for (int i = 0; i < FC_MEETINGS && !found; i++) {
        struct fc_meeting *meeting = &s->meetings[i];
        if (meeting->used && meeting->key == unit->serial && meeting->arrived < meeting->parties) found = meeting;
        else if (!meeting->used && !empty) empty = meeting;
    }
    if (!found && !empty) return;
    if (!found) *(found = empty) = (struct fc_meeting){.key = unit->serial, .parties = unit->meeting, .used = 1};
    unit->meeting = (uint32_t)(found - s->meetings);
    unit->flags |= FC_ARRIVED;
    if (++found->arrived == found->parties) found->time = s->clock;
}

/* When the running unit ends, if nothing comes between. */
static uint64_t end_of(const struct fc_shared *s, const struct fc_unit *unit) {
    if (unit->kind != FC_MEET) return unit->run_start + unit->left;
    const struct fc_meeting *meeting = &s->meetings[unit->meeting];
    if (!(unit->flags & FC_ARRIVED) || meeting->arrived < meeting->parties) return FC_NEVER;
    return (meeting->time > unit->run_start ? meeting->time : unit->run_start) + unit->left;
}

static void stretch_to(struct fc_shared *s, struct fc_unit *unit, uint64_t end, uint32_t flags) {
    if (unit->kind != FC_MEET) {
        unit->left -= end - unit->run_start;
    } else if (end_of(s, unit) != FC_NEVER) {
        uint64_t met = end_of(s, unit) - unit->left;
        if (end > met) unit->left -= end - met;
    }
    log_stretch(s, unit, end, flags);
    unit->run_start = end;
}

static void start(struct fc_shared *s, struct fc_stream *stream) {
    struct fc_unit *unit = head_of(s, stream);
    unit->flags |= FC_RUNNING;
    unit->run_start = s->clock;
    if (unit->kind == FC_MEET && !(unit->flags & FC_ARRIVED)) arrive(s, unit);
    if (!is_light(unit)) s->cards[stream->card].heavy = stream->head;
}

static void pause_all(struct fc_shared *s, struct fc_card *card) {
    for (uint32_t i = card->active; i != FC_NONE; i = s->streams[i].next_active) {
        struct fc_unit *unit = head_of(s, &s->streams[i]);
        if (!(unit->flags & FC_RUNNING)) continue;
        stretch_to(s, unit, s->clock, 0);
        unit->flags &= (uint16_t)~FC_RUNNING;
    }
    card->heavy = FC_NONE;
}

/* One pass over a card at the present time: ends what takes no time, starts what may run. True: do it again. */
static bool settle(struct fc_shared *s, struct fc_card *card) {
    if (card->mode != FC_FIFO && (card->current == FC_NONE || !context_ready(s, card, card->current))) {
        uint32_t next = next_context(s, card);
        if (next != FC_NONE) {
            pause_all(s, card);
            card->current = next;
            card->slice_start = s->clock;
        }
    }
    uint32_t chosen = FC_NONE;
    for (uint32_t i = card->active; i != FC_NONE; i = s->streams[i].next_active) {
        struct fc_stream *stream = &s->streams[i];
        struct fc_unit *unit = head_of(s, stream);
        if (!same_turn(card, stream) || unit->flags & FC_RUNNING || !ready(s, stream)) continue;
        if (unit->kind == FC_HOST && !(unit->flags & FC_OVER)) {
            unit->flags |= FC_REACHED;
        } else if (!takes_time(unit)) {
            complete(s, i);
            return true;
        } else if (is_light(unit) || card->mode == FC_OVERLAP) {
            start(s, stream);
        } else if (chosen == FC_NONE || stream->priority < s->streams[chosen].priority ||
                   (stream->priority == s->streams[chosen].priority &&
                    unit->seq < head_of(s, &s->streams[chosen])->seq)) {
            chosen = i;
        }
    }
    if (chosen != FC_NONE && card->heavy == FC_NONE) start(s, &s->streams[chosen]);
    return false;
}

static void settle_all(struct fc_shared *s) {
    for (bool again = true; again;) {
        again = false;
        for (uint32_t c = 0; c < s->card_count; c++) {
            while (s->cards[c].active != FC_NONE && settle(s, &s->cards[c])) again = true;
        }
    }
}

static uint64_t slice_end(const struct fc_shared *s, const struct fc_card *card) {
    if (card->mode == FC_FIFO || card->current == FC_NONE || next_context(s, card) == FC_NONE) return FC_NEVER;
    /* Slices go on from the first while nobody else wants the card. */
    uint64_t since = s->clock - card->slice_start;
    return card->slice_start + (since / s->slice_ns + 1) * s->slice_ns;
}

static uint64_t card_next(const struct fc_shared *s, const struct fc_card *card) {
    uint64_t next = slice_end(s, card);
    for (uint32_t i = card->active; i != FC_NONE; i = s->streams[i].next_active) {
        const struct fc_unit *unit = &s->units[s->streams[i].head];
        if (!(unit->flags & FC_RUNNING)) continue;
        uint64_t end = end_of(s, unit);
        if (end < next) next = end;
    }
    return next;
}

uint64_t fc_next(const struct fc_shared *s) {
    uint64_t next = FC_NEVER;
    for (uint32_t c = 0; c < s->card_count; c++) {
        if (s->cards[c].active == FC_NONE) continue;
        uint64_t mine = card_next(s, &s->cards[c]);
        if (mine < next) next = mine;
    }
    return next;
}

static void end_units(struct fc_shared *s, struct fc_card *card) {
    for (uint32_t i = card->active, next; i != FC_NONE; i = next) {
        next = s->streams[i].next_active;
        struct fc_unit *unit = head_of(s, &s->streams[i]);
        if (!(unit->flags & FC_RUNNING) || end_of(s, unit) > s->clock) continue;
        stretch_to(s, unit, s->clock, FC_LAST);
        complete(s, i);
    }
}

void fc_advance(struct fc_shared *s, uint64_t now) {
    if (now < s->clock) now = s->clock; /* somebody was quicker between the look at the clock and the lock */
    for (;;) {
        settle_all(s);
        uint64_t next = fc_next(s);
        if (next > now) break;
        /* Slice ends are asked for before the clock moves on to one: afterwards it would be the next slice's. */
        bool turn[FC_CARDS] = {false};
        for (uint32_t c = 0; c < s->card_count; c++) {
            turn[c] = s->cards[c].active != FC_NONE && slice_end(s, &s->cards[c]) == next;
        }
        s->clock = next;
        for (uint32_t c = 0; c < s->card_count; c++) {
            struct fc_card *card = &s->cards[c];
            if (card->active == FC_NONE) continue;
            end_units(s, card);
            uint32_t other = turn[c] ? next_context(s, card) : FC_NONE;
            if (other == FC_NONE) continue;
            pause_all(s, card);
            card->current = other;
            card->slice_start = s->clock;
        }
    }
    s->clock = now;
}

void fc_flush(struct fc_shared *s, uint64_t now) {
    fc_advance(s, now);
    for (uint32_t c = 0; c < s->card_count; c++) {
        for (uint32_t i = s->cards[c].active; i != FC_NONE; i = s->streams[i].next_active) {
            struct fc_unit *unit = head_of(s, &s->streams[i]);
            if (unit->flags & FC_RUNNING && s->clock > unit->run_start) stretch_to(s, unit, s->clock, 0);
        }
    }
}
