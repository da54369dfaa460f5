/* Which work has ended. What it took is reckoned a little later (account.c). */
#define _GNU_SOURCE
#include "flight.h"
#include "card_history.h"

enum { LATE_NS = 60 * 1000, MEETS = 200, HINTS = 3, OVERTAKEN = 10000, BUSY_STREAMS = 16, PROCESSES = 8 /* of a neighbour, believed */ };
enum { MEET_NS = 2 * 1000 * 1000, MEETING_NS = 10 * 1000 * 1000, PATIENCE_MORE_NS = 25 * 1000 * 1000, PATIENCE_MOST_NS = 150 * 1000 * 1000 };

/* When the card reached the event of a batch that ended; 0: one cannot tell. */
static int64_t reached(const struct egpu_real *real, const struct egpu_batch *batch, CUevent event) {
    float ms = 0;
    const int64_t anchor_ns = batch->context->anchor_ns[batch->anchor];
    if (anchor_ns == 0 || real->cuEventElapsedTime(&ms, batch->context->anchor[batch->anchor], event) != CUDA_SUCCESS)
        return 0;
    return anchor_ns + (int64_t)((double)ms * 1e6);
}

static int64_t began(const struct egpu_real *real, const struct egpu_batch *batch) {
    const int64_t at = batch->before != NULL ? reached(real, batch, batch->before) : 0;
    return at == 0 ? 0 : at < batch->begin_ns ? batch->begin_ns : at < batch->end_ns ? at : batch->end_ns;
}

/* When the batch ended; 0: not yet. */
static int64_t ended(const struct egpu_real *real, const struct egpu_batch *batch, int64_t now_ns) {
    CUresult result = real->cuEventQuery(batch->event);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    int64_t end = result != CUDA_SUCCESS || now_ns - batch->begin_ns > 3000000000 ? 0 : reached(real, batch, batch->event);
    return end == 0 || end > now_ns ? now_ns : end < batch->begin_ns ? batch->begin_ns : end;
}

uint32_t egpu_crowd_of(const struct egpu_near *near, int card, int64_t before_ns, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_activity_card *other = near->card;
    uint64_t beat = other->beat_ns, started = other->started_ns, processes = other->processes;
    if (near->own_card != card || started == 0 || started >= (uint64_t)before_ns || beat + lease_ns < (uint64_t)now_ns)
        return 0;
    return processes < 1 ? 1 : processes < PROCESSES ? (uint32_t)processes : PROCESSES;
}

uint32_t egpu_crowd(int card, int64_t before_ns, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        count += egpu_crowd_of(&all->near[i], card, before_ns, now_ns, lease_ns);
    return count;
}

/* From when on all of it could run, or as long before its end as it takes. What others launched between its first launch
 * and its last the card did not leave it for. */
static int64_t free_from(const struct egpu_batch *batch, uint64_t length_ns) {
    const int64_t whole = batch->end_ns - (int64_t)length_ns, from = batch->last_ns < whole ? batch->last_ns : whole;
    return from > batch->begin_ns ? from : batch->begin_ns;
}

/* Says in our page what ran: neighbours and our other processes take it from their times. */
static void publish(struct egpu_activity_card *page, const struct egpu_batch *batch, uint64_t length_ns, uint64_t tag) {
    uint32_t row = atomic_fetch_add(&page->run_next, 1) % EGPU_ACTIVITY_RUNS;
    struct egpu_activity_run *run = &page->runs[row];
    run->end_ns = 0;
    run->begin_ns = (uint64_t)free_from(batch, length_ns);
    run->length_ns = length_ns | tag;
    run->end_ns = (uint64_t)batch->end_ns;
}

/* What others may take from their times for it. Where the card goes round a short one mostly waits for its turn: others
 * who took that from theirs would go on and on, and nobody would ever see what it takes by itself. */
static uint64_t surely(const struct egpu_card *card, const struct egpu_batch *batch, uint64_t length_ns) {
    if (!card->sliced || length_ns >= EGPU_TURN_NS)
        return length_ns;
    const uint64_t sure = batch->kind != NULL ? egpu_sure_length(&batch->kind->stats, batch->count, length_ns)
                                              : batch->untold ? 0 : length_ns;
    return sure != 0 ? sure : length_ns < EGPU_UNTOLD_NS ? length_ns : EGPU_UNTOLD_NS;
}

/* Whoever lets a launch through since a unit is overdue makes the queue longer in which that unit may be standing. So
 * the next is given as much longer as this one took, unless it was that launch that it waited for. */
static void learn_patience(struct egpu_card *card, const struct egpu_activity_card *page, const struct egpu_batch *batch) {
    int64_t begin = batch->closed_ns > card->last_end_ns ? batch->closed_ns : card->last_end_ns;
    int64_t over = batch->end_ns - egpu_overdue_at(begin, batch->booked_ns, !batch->unknown);
    int64_t since_pass = batch->end_ns - (int64_t)page->last_pass_ns;
    if (since_pass >= 0 && since_pass < MEETING_NS)
        return;
    int64_t more = over <= 0 ? 0 : over < PATIENCE_MOST_NS - PATIENCE_MORE_NS ? over + PATIENCE_MORE_NS : PATIENCE_MOST_NS;
    int64_t less = card->patience_ns - card->patience_ns / 16;
    card->patience_ns = more > less ? more : less;
}

/* The most that it can have taken. */
static uint64_t most_of(const struct egpu_activity_card *page, const struct egpu_batch *batch, uint64_t stay_ns) {
    uint64_t longest = page->longest_ns * batch->count;
    longest = longest > batch->booked_ns ? longest : batch->booked_ns;
    return stay_ns < longest ? stay_ns : longest;
}

/* How long it ran only because a launch that it waited for stood at the gate: it ends soon after that was let through. */
static uint64_t waited_for_launch(const struct egpu_card *card, const struct egpu_batch *batch, int64_t begin_ns) {
    const int64_t let = card->let_ns, stood = card->stood_ns;
    const int64_t from = stood > begin_ns ? stood : begin_ns;
    if (let <= from || let > batch->end_ns || batch->end_ns - let > MEET_NS || card->let_stream == batch->stream)
        return 0;
    return (uint64_t)(let - from);
}

/* How long it ran before others of this process ended that it outlasted, and that nobody has counted yet. */
static uint64_t beside(struct egpu_card *card, const struct egpu_batch *batch) {
    bool overtaken;
    uint64_t more = egpu_stretches_add(&card->stretches, batch->begin_ns, batch->began_ns, batch->end_ns, &overtaken);
    if (batch->kind != NULL && (overtaken || batch->kind->overtaken != 0))
        batch->kind->overtaken = overtaken ? OVERTAKEN : batch->kind->overtaken - 1;
    return more;
}

static void take_out(int index, struct egpu_batch *batch) {
    struct egpu_card *card = &egpu_cards[index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    int64_t own_end = card->last_end_ns;
    learn_patience(card, page, batch);
    if (batch->end_ns > own_end)
        card->last_end_ns = card->ended_ns = batch->end_ns;
    if (batch->kind != NULL) {
        int64_t pass = card->lone_pass_ns;
        uint32_t meets = batch->kind->meets;
        bool elsewhere = card->lone_pass_stream != batch->stream;
        if (card->passes != 0 && elsewhere && pass > batch->begin_ns && batch->end_ns > pass && batch->end_ns - pass < MEET_NS) {
            if (++batch->kind->hints >= HINTS) /* it ends when another launch is let through: it waits for that */
                batch->kind->meets = MEETS;
        } else if (meets != 0) {
            batch->kind->meets = meets - 1;
        }
    }
    card->passes = 0;
    int64_t begin = batch->begin_ns > own_end ? batch->begin_ns : own_end;
    batch->beside_ns = beside(card, batch);
    uint64_t stay = egpu_add(egpu_sub((uint64_t)batch->end_ns, (uint64_t)begin), batch->beside_ns);
    uint64_t length = batch->unknown ? stay : batch->booked_ns;
    batch->waited_ns = waited_for_launch(card, batch, batch->beside_ns != 0 ? batch->began_ns : begin);
    /* Its event came after a pause: where it was reached at once the work had ended before, one cannot tell when. */
    if (batch->late_ns != 0)
        batch->idle_ns += batch->end_ns < batch->late_ns + LATE_NS && batch->end_ns > batch->predicted_ns
                              ? (uint64_t)(batch->end_ns - batch->predicted_ns) : 1;
    if (batch->kind != NULL && (batch->waited_ns > batch->booked_ns || batch->kind->waits != 0))
        batch->kind->waits = batch->waited_ns > batch->booked_ns ? MEETS : batch->kind->waits - 1;
    if (!batch->unknown) {
        uint64_t slots = egpu_activity_own()->slots_used; /* what our other processes ran is in the stay as well */
        bool crowd = (slots & (slots - 1)) != 0 ||
                     egpu_crowd(index, batch->end_ns, batch->end_ns, egpu_lease_ns(egpu_control_now())) != 0;
        uint64_t took = crowd ? batch->booked_ns : egpu_sub(stay, batch->idle_ns);
        card->window = egpu_window(card->window, batch->count, batch->booked_ns, took);
    }
    uint64_t before = batch->unknown ? 0 : batch->booked_ns;
    batch->charged_ns = stay < length ? stay : length; /* it cannot have taken longer than it stayed */
    batch->second_ns = !card->sliced && (batch->kind == NULL || egpu_varies(&batch->kind->stats)) ? most_of(page, batch, stay) : batch->charged_ns;
    egpu_second_book(&egpu_activity_own()->seconds[index], batch->end_ns, batch->second_ns, false);
    egpu_correct(index, before, batch->charged_ns);
    if (card->turns)
        egpu_turns_had(index, batch->charged_ns);
    if (batch->unknown)
        batch->booked_ns = length;
    if (batch->kind != NULL && batch->kind->expects == 0) /* a first idea, until it is settled */
        batch->kind->expects = egpu_sub(length, batch->waited_ns) / batch->count + 1;
    publish(page, batch, surely(card, batch, length), egpu_slot_tag());
    page->progress_ns = (uint64_t)batch->end_ns;
    struct egpu_batch **at = &card->settling; /* in the order of their ends, which is not that in which we learn of them */
    if (card->settling != NULL && batch->end_ns >= card->settling_last->end_ns)
        at = &card->settling_last->next;
    while (*at != NULL && (*at)->end_ns <= batch->end_ns)
        at = &(*at)->next;
    batch->next = *at;
    *at = batch;
    if (batch->next == NULL)
        card->settling_last = batch;
}

/* From when on the container has had work here without a pause, over all of its processes. None of them takes the
 * word back while another has some: neighbours would reckon their own time as if they were fewer. */
static void say_started(int index, int64_t own_ns, int64_t now_ns) {
    _Atomic uint64_t *started_ns = &egpu_activity_own()->cards[index].started_ns;
    uint64_t said = *started_ns;
    const struct egpu_others others = egpu_others_in_flight(index, now_ns, egpu_lease_ns(egpu_control_now()));
    if (others.count != 0 && said != 0 && (own_ns == 0 || said < (uint64_t)own_ns))
        return;
    atomic_compare_exchange_strong(started_ns, &said, (uint64_t)own_ns); /* where it fails another knows better */
}

static void set_oldest(int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    const struct egpu_batch *oldest = card->pending;
    int64_t due = 0, begin = 0;
    if (oldest != NULL) {
        begin = oldest->closed_ns > card->last_end_ns ? oldest->closed_ns : card->last_end_ns;
        due = egpu_due(card, oldest, begin);
    }
    const void *stream = oldest ? egpu_named_stream(oldest->stream) : NULL;
    for (const struct egpu_batch *one = oldest; one != NULL && stream != NULL; one = one->next)
        stream = one->stream == stream ? stream : NULL;
    card->pending_on = stream;
    card->begin_ns = begin;
    card->oldest_ns = oldest ? oldest->booked_ns : 0;
    card->due_ns = due;
    say_started(index, oldest ? begin : card->flying ? card->last_end_ns : 0, now_ns);
    egpu_slot_own(0, 0)->due_ns[index] = (uint64_t)due;
}

/* Moves what ended to a list in the order of its ends. True: something did. */
static bool collect(const struct egpu_real *real, struct egpu_card *card, struct egpu_batch **ended_list, int64_t now_ns) {
    const struct egpu_batch *busy[BUSY_STREAMS];
    uint32_t busy_count = 0;
    egpu_spin_lock(&card->lock);
    struct egpu_batch **at = &card->pending, *batch = *at;
    egpu_spin_unlock(&card->lock);
    while (batch != NULL) {
        bool known_busy = false;
        for (uint32_t i = 0; i < busy_count && !known_busy; i++)
            known_busy = busy[i]->stream == batch->stream && busy[i]->context == batch->context;
        batch->end_ns = known_busy ? 0 : ended(real, batch, now_ns);
        batch->began_ns = batch->end_ns != 0 ? began(real, batch) : 0;
        if (batch->end_ns == 0 && !known_busy) {
            if (busy_count == BUSY_STREAMS)
                break;
            busy[busy_count++] = batch;
        }
        egpu_spin_lock(&card->lock); /* others only ever add at the end */
        struct egpu_batch *next = batch->next;
        if (batch->end_ns != 0) {
            *at = next;
            if (next == NULL)
                card->pending_end = at;
        } else {
            at = &batch->next;
        }
        egpu_spin_unlock(&card->lock);
        if (batch->end_ns != 0) {
            struct egpu_batch **into = ended_list;
            while (*into != NULL && (*into)->end_ns <= batch->end_ns)
                into = &(*into)->next;
            batch->next = *into;
            *into = batch;
        }
        batch = next;
    }
    return *ended_list != NULL;
}

bool egpu_resolve(const struct egpu_real *real, int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    if (atomic_load_explicit(&card->due_ns, memory_order_acquire) == 0 || atomic_exchange(&card->polling, 1))
        return false;
    struct egpu_batch *list = NULL;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* a question in another one spoils others' captures */
    bool any = false;
    if (!egpu_over()) {
        egpu_relaxed(real, &mode);
        any = collect(real, card, &list, now_ns);
        egpu_relaxed(real, &mode);
    }
    if (any) {
        egpu_spin_lock(&card->lock);
        while (list != NULL) {
            struct egpu_batch *batch = list;
            list = batch->next;
            egpu_event_give(batch->context, batch->event);
            if (batch->before != NULL)
                egpu_event_give(batch->context, batch->before);
            egpu_flight_undo(index, batch->queued_ns, batch->flew, batch->unknown);
            take_out(index, batch);
        }
        set_oldest(index, now_ns);
        egpu_spin_unlock(&card->lock);
    }
    atomic_store(&card->polling, 0);
    if (any && card->turns) {
        egpu_turns_say(index, now_ns, egpu_lease_ns(egpu_control_now()));
        egpu_turns_tell(index, now_ns);
    }
    return any;
}

void egpu_resolve_drop(int index, const struct egpu_context *context) {
    struct egpu_card *card = &egpu_cards[index];
    while (atomic_exchange(&card->polling, 1)) {
        if (egpu_over())
            return;
    }
    egpu_spin_lock(&card->lock);
    struct egpu_batch **at = &card->pending;
    while (*at != NULL) {
        struct egpu_batch *batch = *at;
        if (batch->context != context) {
            at = &batch->next;
            continue;
        }
        *at = batch->next;
        egpu_flight_undo(index, batch->queued_ns, batch->flew, batch->unknown);
        egpu_batch_free(batch);
    }
    card->pending_end = at;
    set_oldest(index, egpu_now_ns());
    egpu_spin_unlock(&card->lock);
    atomic_store(&card->polling, 0);
}
