/* Which work has ended, how much device time it took, and what that changes in the share's books. */
#define _GNU_SOURCE
#include "flight.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOONER_NS = 200 * 1000, LATE_NS = 60 * 1000, STRANGE_NS = 2000, MEETS = 200, HINTS = 3 };
enum { SAMPLES = 256, EVEN_LEAST_NS = 1500 * 1000 };
enum { OTHERS = 512, BUSY_STREAMS = 16, SLOT_SHIFT = 56 };
static const int64_t WANTED_NS = 30000000, SAMPLE_NS = 100000000;

static uint64_t slot_tag(void) {
    return (uint64_t)(egpu_slot_own(0, 0) - egpu_activity_own()->slots + 1) << SLOT_SHIFT;
}

/* --- what ended ----------------------------------------------------------------------------------- */

/* When the batch ended; 0: not yet. */
static int64_t ended(const struct egpu_real *real, const struct egpu_batch *batch, int64_t now_ns) {
    CUresult result = real->cuEventQuery(batch->event);
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    float ms = 0;
    int64_t anchor_ns = batch->context->anchor_ns[batch->anchor];
    if (result != CUDA_SUCCESS || anchor_ns == 0 || now_ns - batch->begin_ns > 3000000000 ||
        real->cuEventElapsedTime(&ms, batch->context->anchor[batch->anchor], batch->event) != CUDA_SUCCESS)
        return now_ns;
    int64_t end = anchor_ns + (int64_t)((double)ms * 1e6);
    return end > now_ns ? now_ns : end < batch->begin_ns ? batch->begin_ns : end;
}

uint32_t egpu_crowd(int card, int64_t before_ns, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct egpu_activity_card *other = all->near[i].card;
        uint64_t beat = other->beat_ns, started = other->started_ns;
        count += all->near[i].own_card == card && started != 0 && started < (uint64_t)before_ns &&
                 beat + lease_ns >= (uint64_t)now_ns;
    }
    return count;
}

/* Says in our page what ran: neighbours and our other processes take it from their times. */
static void publish(struct egpu_activity_card *page, const struct egpu_batch *batch, uint64_t length_ns, uint64_t tag) {
    uint32_t row = atomic_fetch_add(&page->run_next, 1) % EGPU_ACTIVITY_RUNS;
    struct egpu_activity_run *run = &page->runs[row];
    run->end_ns = 0;
    run->begin_ns = (uint64_t)batch->begin_ns;
    run->length_ns = length_ns | tag;
    run->end_ns = (uint64_t)batch->end_ns;
}

static void correct(int index, uint64_t booked_ns, uint64_t length_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    uint64_t rate = egpu_cards[index].rate_ppm;
    if (rate == EGPU_RATE_FREE || booked_ns == length_ns)
        return;
    int64_t paid = page->paid_ns;
    while (!atomic_compare_exchange_weak(&page->paid_ns, &paid, egpu_limiter_correct(paid, rate, booked_ns, length_ns))) {
    }
    if (egpu_sub(booked_ns, length_ns) > SOONER_NS) /* it was less: whoever waits for the share may go sooner */
        syscall(SYS_futex, &page->paid_ns, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void take_out(int index, struct egpu_batch *batch) {
    struct egpu_card *card = &egpu_cards[index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    int64_t own_end = card->last_end_ns;
    if (batch->end_ns > own_end)
        card->last_end_ns = card->ended_ns = batch->end_ns;
    if (batch->kind != NULL) {
        int64_t pass = card->lone_pass_ns;
        uint32_t meets = batch->kind->meets;
        bool elsewhere = card->lone_pass_stream != batch->stream;
        if (card->passes != 0 && elsewhere && pass > batch->begin_ns && batch->end_ns > pass && batch->end_ns - pass < 2000000) {
            if (++batch->kind->hints >= HINTS) /* it ends when another launch is let through: it waits for that */
                batch->kind->meets = MEETS;
        } else if (meets != 0) {
            batch->kind->meets = meets - 1;
        }
    }
    card->passes = 0;
    int64_t begin = batch->begin_ns > own_end ? batch->begin_ns : own_end;
    uint64_t stay = egpu_sub((uint64_t)batch->end_ns, (uint64_t)begin);
    uint64_t length = batch->unknown ? stay : batch->booked_ns;
    /* Its event came after a pause: where it was reached at once the work had ended before, one cannot tell when. */
    if (batch->late_ns != 0)
        batch->idle_ns += batch->end_ns < batch->late_ns + LATE_NS && batch->end_ns > batch->predicted_ns
                              ? (uint64_t)(batch->end_ns - batch->predicted_ns) : 1;
    if (!batch->unknown) {
        uint64_t slots = egpu_activity_own()->slots_used; /* what our other processes ran is in the stay as well */
        bool crowd = (slots & (slots - 1)) != 0 ||
                     egpu_crowd(index, batch->end_ns, batch->end_ns, egpu_lease_ns(egpu_control_now())) != 0;
        uint64_t took = crowd ? batch->booked_ns : egpu_sub(stay, batch->idle_ns);
        card->window = egpu_window(card->window, batch->count, batch->booked_ns, took);
    }
    uint64_t before = batch->unknown ? 0 : batch->booked_ns;
    batch->charged_ns = stay < length ? stay : length; /* it cannot have taken longer than it stayed */
    correct(index, before, batch->charged_ns);
    if (batch->unknown)
        batch->booked_ns = length;
    if (batch->kind != NULL && batch->kind->expects == 0) /* a first idea, until it is settled */
        batch->kind->expects = length / batch->count + 1;
    publish(page, batch, length, slot_tag());
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

static void set_oldest(int index) {
    struct egpu_card *card = &egpu_cards[index];
    const struct egpu_batch *oldest = card->pending;
    int64_t due = 0, begin = 0;
    if (oldest != NULL) {
        begin = oldest->closed_ns > card->last_end_ns ? oldest->closed_ns : card->last_end_ns;
        due = egpu_overdue_at(begin, oldest->booked_ns, !oldest->unknown);
    }
    const void *stream = oldest ? egpu_named_stream(oldest->stream) : NULL;
    for (const struct egpu_batch *one = oldest; one != NULL && stream != NULL; one = one->next)
        stream = one->stream == stream ? stream : NULL;
    card->pending_on = stream;
    card->begin_ns = begin;
    card->oldest_ns = oldest ? oldest->booked_ns : 0;
    card->due_ns = due;
    egpu_activity_own()->cards[index].started_ns = (uint64_t)(oldest ? begin : card->flying ? card->last_end_ns : 0);
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
    bool any = collect(real, card, &list, now_ns);
    if (any) {
        egpu_spin_lock(&card->lock);
        while (list != NULL) {
            struct egpu_batch *batch = list;
            list = batch->next;
            egpu_event_give(batch->context, batch->event);
            egpu_flight_undo(index, batch->queued_ns, batch->flew, batch->unknown);
            take_out(index, batch);
        }
        set_oldest(index);
        egpu_spin_unlock(&card->lock);
    }
    atomic_store(&card->polling, 0);
    return any;
}

void egpu_resolve_drop(int index, const struct egpu_context *context) {
    struct egpu_card *card = &egpu_cards[index];
    while (atomic_exchange(&card->polling, 1)) {
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
    set_oldest(index);
    egpu_spin_unlock(&card->lock);
    atomic_store(&card->polling, 0);
}

/* --- what it took --------------------------------------------------------------------------------- */

static uint32_t gather_page(const struct egpu_activity_card *page, uint64_t not_tag, int64_t from_ns, struct egpu_run *runs,
                            uint32_t count) {
    for (int i = 0; i < EGPU_ACTIVITY_RUNS && count < OTHERS; i++) {
        uint64_t end = page->runs[i].end_ns, begin = page->runs[i].begin_ns, length = page->runs[i].length_ns;
        if (end != page->runs[i].end_ns || (int64_t)end <= from_ns || begin > end || length >> SLOT_SHIFT == not_tag >> SLOT_SHIFT)
            continue;
        runs[count++] = (struct egpu_run){(int64_t)begin, (int64_t)end, length & ((1ull << SLOT_SHIFT) - 1)};
    }
    return count;
}

/* The watcher's looks at who has work, in a ring. */
static struct crowds { uint32_t next; struct egpu_sample ring[SAMPLES]; } crowds[EGPU_ACTIVITY_CARDS];

void egpu_crowd_note(int card, int64_t now_ns, uint64_t lease_ns) {
    struct crowds *seen = &crowds[card];
    uint32_t others = egpu_crowd(card, now_ns, now_ns, lease_ns) + egpu_others_in_flight(card, now_ns, lease_ns).count;
    seen->ring[seen->next++ % SAMPLES] = (struct egpu_sample){now_ns, others};
}

static uint64_t even_part(int card, int64_t begin_ns, int64_t end_ns) {
    const struct crowds *seen = &crowds[card];
    struct egpu_sample some[SAMPLES];
    uint32_t count = 0, oldest = seen->next > SAMPLES ? seen->next - SAMPLES : 0;
    for (uint32_t i = oldest; i != seen->next; i++) {
        const struct egpu_sample *one = &seen->ring[i % SAMPLES];
        bool last = i + 1 == seen->next || one->at_ns > end_ns;
        if (last || seen->ring[(i + 1) % SAMPLES].at_ns > begin_ns)
            some[count++] = *one;
        if (last)
            break;
    }
    return egpu_even_part(some, count, begin_ns, end_ns);
}

static void settle(int index, const struct egpu_batch *batch, const struct egpu_run *runs, uint32_t count, int64_t now_ns) {
    bool crowd = egpu_crowd(index, batch->end_ns, now_ns, egpu_lease_ns(egpu_control_now())) != 0;
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    struct egpu_card *card = &egpu_cards[index];
    struct egpu_unit unit = {batch->begin_ns, batch->end_ns, batch->idle_ns, batch->booked_ns, batch->count,
                             batch->kind ? &batch->kind->stats : NULL, card->settled_end_ns, false, 0};
    int64_t begin = unit.begin_ns > unit.own_end_ns ? unit.begin_ns : unit.own_end_ns;
    if (batch->end_ns - begin > EVEN_LEAST_NS)
        unit.even_ns = even_part(index, begin, batch->end_ns);
    unit.sliced = egpu_sliced(&card->slices, &unit, runs, count);
    egpu_spin_lock(&card->lock);
    if (batch->end_ns > card->settled_end_ns)
        card->settled_end_ns = batch->end_ns;
    uint64_t length = egpu_settle(&unit, runs, count, crowd);
    if (batch->kind != NULL && (batch->count == 1 || batch->idle_ns == 0)) {
        egpu_learn(&batch->kind->stats, length / batch->count, egpu_ran_alone(&unit, runs, count, crowd),
                   batch->end_ns);
        uint64_t expects = batch->kind->stats.mean_ns + (batch->kind->stats.mean_ns == 0), known = batch->kind->expects;
        uint64_t off = known > expects ? known - expects : expects - known;
        const bool strange = length / batch->count > 2 * known + STRANGE_NS;
        const uint32_t steady = batch->kind->steady;
        if (strange ? steady != 0 : steady < EGPU_STEADY)
            batch->kind->steady = strange ? 0 : steady + 1;
        if (off > expects / 16 || expects > EGPU_BATCH_NS / 2) /* of short ones many launches read it all the time */
            batch->kind->expects = expects;
    }
    egpu_spin_unlock(&card->lock);
    if (egpu_cards[index].rate_ppm != EGPU_RATE_FREE)
        correct(index, batch->charged_ns, length);
    atomic_fetch_add(&page->busy_ns, length);
    atomic_fetch_add(&page->units, batch->count);
    uint64_t each = length / batch->count, longest = page->longest_ns;
    while (each > longest && !atomic_compare_exchange_weak(&page->longest_ns, &longest, each)) {
    }
}

void egpu_settle_card(int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    const struct egpu_near_all *all = egpu_near_now();
    struct egpu_run runs[OTHERS];
    if (card->polling || atomic_exchange(&card->polling, 1))
        return;
    egpu_spin_lock(&card->lock);
    struct egpu_batch *first = card->settling, *last = NULL;
    for (struct egpu_batch *one = first; one != NULL && one->end_ns + EGPU_SETTLE_NS <= now_ns; one = one->next)
        last = one;
    if (last != NULL)
        card->settling = last->next;
    egpu_spin_unlock(&card->lock);
    if (last != NULL) {
        int64_t from = first->begin_ns;
        for (struct egpu_batch *one = first; one != last->next; one = one->next)
            from = one->begin_ns < from ? one->begin_ns : from;
        uint32_t count = gather_page(&egpu_activity_own()->cards[index], slot_tag(), from, runs, 0);
        for (uint32_t i = 0; i < all->count; i++)
            if (all->near[i].own_card == index)
                count = gather_page(all->near[i].card, 0, from, runs, count);
        for (struct egpu_batch *one = first, *end = last->next, *next; one != end; one = next) {
            next = one->next;
            settle(index, one, runs, count, now_ns);
            egpu_batch_free(one);
        }
    }
    atomic_store(&card->polling, 0);
}

/* --- rates ---------------------------------------------------------------------------------------- */

/* What of the card's time each neighbour with a hard share lately took. */
static uint64_t taken_ppm(const struct egpu_activity_card *card, int64_t now_ns) {
    static struct { const struct egpu_activity_card *card; uint64_t busy_ns, ppm; int64_t since_ns; } seen[EGPU_MAX_PEERS * 2];
    for (uint32_t i = 0; i < EGPU_MAX_PEERS * 2; i++) {
        if (seen[i].card != card && seen[i].card != NULL)
            continue;
        uint64_t busy = card->busy_ns;
        int64_t passed = now_ns - seen[i].since_ns;
        if (seen[i].card == NULL || passed > 10 * SAMPLE_NS) {
            seen[i].card = card, seen[i].busy_ns = busy, seen[i].since_ns = now_ns;
        } else if (passed >= SAMPLE_NS) {
            uint64_t more = egpu_sub(busy, seen[i].busy_ns);
            seen[i].ppm = more < (uint64_t)passed ? more * EGPU_RATE_WHOLE / (uint64_t)passed : EGPU_RATE_WHOLE;
            seen[i].busy_ns = busy, seen[i].since_ns = now_ns;
        }
        return seen[i].ppm;
    }
    return 0;
}

static uint64_t rate_of(const struct egpu_control *control, uint32_t index, int64_t now_ns) {
    const struct egpu_control_card *card = &control->cards[index];
    const struct egpu_near_all *all = egpu_near_now();
    struct egpu_share share = {.policy = card->core_policy, .cores_percent = card->cores_percent, .weight = card->weight};
    for (uint32_t i = 0; share.policy == EGPU_CORES_SOFT && i < all->count; i++) {
        const struct egpu_activity_card *other = all->near[i].card;
        uint64_t wanted = other->wanted_ns, beat = other->beat_ns, now = (uint64_t)now_ns;
        bool wants = (wanted <= now && now - wanted < (uint64_t)WANTED_NS) ||
                     (other->started_ns != 0 && beat <= now && now - beat < egpu_lease_ns(control));
        if (all->near[i].own_card != (int)index)
            continue;
        uint64_t ppm = taken_ppm(other, now_ns);
        if (!wants)
            continue;
        uint32_t weight = other->weight;
        share.others_wanting++;
        if (weight != 0)
            share.others_soft += weight > 100 ? 100 : weight;
        else
            share.others_hard_ppm += ppm;
    }
    return egpu_limiter_rate(&share);
}

void egpu_rates(const struct egpu_control *control, int64_t now_ns) {
    static struct egpu_lock one_at_a_time;
    egpu_lock(&one_at_a_time);
    for (uint32_t i = 0; i < control->card_count && i < EGPU_ACTIVITY_CARDS; i++) {
        struct egpu_activity_card *page = &egpu_activity_own()->cards[i];
        uint32_t weight = control->cards[i].core_policy == EGPU_CORES_SOFT ? control->cards[i].weight : 0;
        uint64_t rate = rate_of(control, i, now_ns);
        if (page->weight != weight) /* looked at first: launches read these lines */
            page->weight = weight;
        if (egpu_cards[i].rate_ppm != rate)
            egpu_cards[i].rate_ppm = rate;
        if (page->rate_ppm == rate)
            continue;
        uint64_t before = atomic_exchange(&page->rate_ppm, rate);
        int64_t paid = page->paid_ns;
        while (before != rate &&
               !atomic_compare_exchange_weak(&page->paid_ns, &paid, egpu_limiter_rescale(paid, before, rate, now_ns))) {
        }
    }
    egpu_unlock(&one_at_a_time);
}
