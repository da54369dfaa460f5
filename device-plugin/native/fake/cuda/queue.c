/* Streams as lists of units, and their ends: cancelled work, contexts that go. */
#include "shared.h"

#include <string.h>

static void activate(struct fc_shared *s, uint32_t index) {
    struct fc_stream *stream = &s->streams[index];
    struct fc_card *card = &s->cards[stream->card];
    stream->active = 1;
    stream->previous_active = FC_NONE;
    stream->next_active = card->active;
    if (card->active != FC_NONE) s->streams[card->active].previous_active = index;
    card->active = index;
}

static void deactivate(struct fc_shared *s, uint32_t index) {
    struct fc_stream *stream = &s->streams[index];
    struct fc_card *card = &s->cards[stream->card];
    if (!stream->active) return;
    stream->active = 0;
    if (stream->next_active != FC_NONE) s->streams[stream->next_active].previous_active = stream->previous_active;
    if (stream->previous_active != FC_NONE) s->streams[stream->previous_active].next_active = stream->next_active;
    else card->active = stream->next_active;
}

static void unpin_event(struct fc_shared *s, uint32_t event) {
    struct fc_event *e = &s->events[event];
    if (e->pending) e->pending--;
    if (!e->pending && e->dying) *e = (struct fc_event){0};
}

void fc_pop(struct fc_shared *s, uint32_t index) {
    struct fc_stream *stream = &s->streams[index];
    uint32_t at = stream->head;
    struct fc_unit *unit = &s->units[at];
    if (s->cards[stream->card].heavy == at) s->cards[stream->card].heavy = FC_NONE;
    if (unit->kind == FC_MARK || unit->kind == FC_WAIT) unpin_event(s, unit->event);
    if (unit->flags & FC_ARRIVED) {
        struct fc_meeting *meeting = &s->meetings[unit->meeting];
        if (++meeting->gone >= meeting->parties) meeting->used = 0;
    }
    stream->head = unit->next;
    if (--stream->count == 0) {
        stream->head = stream->tail = FC_NONE;
        deactivate(s, index);
    }
    stream->done_seq = unit->seq;
    unit->next = s->free_unit;
    s->free_unit = at;
}

uint32_t fc_append(struct fc_shared *s, uint32_t index, enum fc_kind kind, uint64_t length, uint64_t now) {
    struct fc_stream *stream = &s->streams[index];
    uint32_t at = s->free_unit;
    if (at == FC_NONE || stream->count >= FC_STREAM_DEPTH) return FC_NONE;
    s->free_unit = s->units[at].next;
    s->units[at] = (struct fc_unit){
        .seq = s->next_seq++, .enqueued = now, .left = length, .next = FC_NONE, .stream = index, .kind = (uint16_t)kind,
    };
    if (stream->count++ == 0) {
        stream->head = at;
        activate(s, index);
    } else {
        s->units[stream->tail].next = at;
    }
    stream->tail = at;
    return at;
}

uint32_t fc_stream_new(struct fc_shared *s, uint32_t owner, uint32_t context) {
    for (uint32_t tries = 0; tries < FC_STREAMS; tries++) {
        uint32_t index = s->stream_hint++ % FC_STREAMS;
        if (s->streams[index].owner) continue;
        s->streams[index] = (struct fc_stream){
            .owner = owner, .context = context, .card = s->contexts[context].card, .head = FC_NONE, .tail = FC_NONE,
            .next_active = FC_NONE, .previous_active = FC_NONE,
        };
        return index;
    }
    return FC_NONE;
}

void fc_stream_cancel(struct fc_shared *s, uint32_t index, uint64_t now) {
    struct fc_stream *stream = &s->streams[index];
    fc_advance(s, now);
    fc_flush(s, now);
    /* Whoever waits for an event that will never come goes on, as with the real driver. */
    while (stream->count) {
        struct fc_unit *unit = &s->units[stream->head];
        if (unit->kind == FC_MARK && unit->serial > s->events[unit->event].done_serial) {
            s->events[unit->event].time = s->clock;
            s->events[unit->event].done_serial = unit->serial;
        }
        fc_pop(s, index);
    }
    stream->owner = 0;
    fc_advance(s, now);
}

void fc_context_cancel(struct fc_shared *s, uint32_t context, uint64_t now) {
    for (uint32_t i = 0; i < FC_STREAMS; i++) {
        if (s->streams[i].owner && s->streams[i].context == context && i != s->contexts[context].null_stream) {
            fc_stream_cancel(s, i, now);
        }
    }
    if (s->contexts[context].null_stream != FC_NONE) fc_stream_cancel(s, s->contexts[context].null_stream, now);
    for (uint32_t c = 0; c < s->card_count; c++) {
        if (s->cards[c].current == context) s->cards[c].current = FC_NONE;
    }
    s->contexts[context] = (struct fc_context){.null_stream = FC_NONE};
}

void fc_event_release(struct fc_shared *s, uint32_t index) {
    struct fc_event *event = &s->events[index];
    event->dying = 1;
    event->owner = event->pending ? event->owner : 0;
    if (!event->pending) *event = (struct fc_event){0};
}

/* Follows a stream's list as far as it is sound; marks what is in it. */
static void mend_stream(struct fc_shared *s, uint32_t index, bool *used) {
    struct fc_stream *stream = &s->streams[index];
    uint32_t count = 0, last = FC_NONE, at = stream->owner ? stream->head : FC_NONE;
    uint64_t seq = 0;
    while (at < FC_UNITS && !used[at] && s->units[at].stream == index && s->units[at].kind && s->units[at].seq > seq) {
        used[at] = true;
        seq = s->units[at].seq;
        if (seq >= s->next_seq) s->next_seq = seq + 1;
        last = at;
        at = s->units[at].next;
        count++;
    }
    if (last != FC_NONE) s->units[last].next = FC_NONE;
    if (!count) stream->head = FC_NONE;
    stream->tail = last;
    stream->count = count;
    stream->active = 0;
    if (count) activate(s, index);
}

void fc_repair(struct fc_shared *s) {
    bool used[FC_UNITS] = {false};
    for (uint32_t c = 0; c < FC_CARDS; c++) s->cards[c].active = s->cards[c].heavy = FC_NONE;
    for (uint32_t i = 0; i < FC_EVENTS; i++) s->events[i].pending = 0;
    for (uint32_t i = 0; i < FC_STREAMS; i++) mend_stream(s, i, used);
    s->free_unit = FC_NONE;
    for (uint32_t i = FC_UNITS; i-- > 0;) {
        struct fc_unit *unit = &s->units[i];
        if (!used[i]) {
            *unit = (struct fc_unit){.next = s->free_unit};
            s->free_unit = i;
            continue;
        }
        if (unit->event < FC_EVENTS && (unit->kind == FC_MARK || unit->kind == FC_WAIT)) s->events[unit->event].pending++;
        const struct fc_stream *stream = &s->streams[unit->stream];
        bool heavy = unit->kind < FC_COPY_HOST && unit->flags & FC_RUNNING && stream->head == i;
        if (heavy) s->cards[stream->card].heavy = i;
    }
    /* What no unit speaks of any more must not hold anybody. */
    for (uint32_t i = 0; i < FC_EVENTS; i++) {
        struct fc_event *event = &s->events[i];
        if (!event->pending && event->dying) *event = (struct fc_event){0};
        else if (!event->pending && event->done_serial < event->serial) event->done_serial = event->serial;
    }
}
