/* How much device time work took that has ended, what that changes in the share's books, and the share's rate. */
#define _GNU_SOURCE
#include "flight.h"
#include "card_history.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOONER_NS = 200 * 1000, STRANGE_NS = 2000, SAMPLES = 256, LATELY = 16 /* samples, of a millisecond */, EVEN_LEAST_NS = 1500 * 1000 };
static const int64_t WANTED_NS = 30000000, SAMPLE_NS = 100000000;

void egpu_flight_undo(int card, uint64_t queued_ns, uint32_t count, bool unknown) {
    struct egpu_activity_slot *slot = egpu_slot_own(0, 0);
    uint64_t queued = slot->queued_ns[card];
    while (!atomic_compare_exchange_weak(&slot->queued_ns[card], &queued, egpu_sub(queued, queued_ns))) {
    }
    if (unknown) {
        atomic_store(&egpu_cards[card].unknown, 0);
        atomic_fetch_and(&slot->alone, ~(1u << card));
    }
    atomic_fetch_sub(&egpu_cards[card].flying, count);
    if (egpu_cards[card].turns)
        egpu_turns_say(card, egpu_now_ns(), egpu_lease_ns(egpu_control_now()));
}

void egpu_correct(int index, uint64_t booked_ns, uint64_t length_ns) {
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

/* The watcher's looks at who has work, in a ring; and at who of them runs units that are longer than a turn. */
static struct crowds {
    uint32_t next, lasting[SAMPLES];
    struct egpu_sample ring[SAMPLES];
} crowds[EGPU_ACTIVITY_CARDS];

void egpu_crowd_note(int card, int64_t now_ns, uint64_t lease_ns) {
    struct crowds *seen = &crowds[card];
    const struct egpu_near_all *all = egpu_near_now();
    struct egpu_activity_card *page = &egpu_activity_own()->cards[card];
    uint32_t ours = egpu_others_in_flight(card, now_ns, lease_ns).count;
    uint32_t others = ours, lasting = egpu_runs_brief(page) ? 0 : ours;
    for (uint32_t i = 0; i < all->count; i++) {
        const uint32_t theirs = egpu_crowd_of(&all->near[i], card, now_ns, now_ns, lease_ns);
        others += theirs;
        lasting += theirs != 0 && !egpu_runs_brief(all->near[i].card) ? theirs : 0;
    }
    uint64_t processes = ours + (egpu_cards[card].flying != 0), none = 0;
    if (page->processes != processes)
        page->processes = processes;
    if (egpu_cards[card].flying != 0) /* a sibling may have taken the word back when this process had just launched */
        atomic_compare_exchange_strong(&page->started_ns, &none, (uint64_t)now_ns);
    seen->lasting[seen->next % SAMPLES] = lasting;
    seen->ring[seen->next++ % SAMPLES] = (struct egpu_sample){now_ns, others};
}

static uint64_t even_part(int card, int64_t begin_ns, int64_t end_ns, bool lasting) {
    const struct crowds *seen = &crowds[card];
    struct egpu_sample some[SAMPLES];
    uint32_t count = 0, oldest = seen->next > SAMPLES ? seen->next - SAMPLES : 0;
    for (uint32_t i = oldest; i != seen->next; i++) {
        const struct egpu_sample *one = &seen->ring[i % SAMPLES];
        bool last = i + 1 == seen->next || one->at_ns > end_ns;
        if (last || seen->ring[(i + 1) % SAMPLES].at_ns > begin_ns)
            some[count++] = (struct egpu_sample){one->at_ns, lasting ? seen->lasting[i % SAMPLES] : one->others};
        if (last)
            break;
    }
    return egpu_even_part(some, count, begin_ns, end_ns);
}

/* Of a unit longer than a turn: an even part of what those leave of its stay who run short ones, which seldom have work
 * all the time. It is no less than if they had, whatever they say. */
static uint64_t part_of_rest(int card, int64_t begin_ns, int64_t end_ns, uint64_t taken_ns) {
    const uint64_t least = even_part(card, begin_ns, end_ns, false), stay = (uint64_t)(end_ns - begin_ns);
    const double left = taken_ns < stay ? (double)(stay - taken_ns) / (double)stay : 0;
    const uint64_t part = (uint64_t)((double)even_part(card, begin_ns, end_ns, true) * left);
    return part > least ? part : least;
}

/* Somebody else had a unit of more than a turn in flight. */
static bool lasting_lately(int card) {
    const struct crowds *seen = &crowds[card];
    for (uint32_t i = 1; i <= LATELY && i <= seen->next; i++)
        if (seen->lasting[(seen->next - i) % SAMPLES] != 0)
            return true;
    return false;
}

/* A unit by itself, longer than a turn. */
static bool is_long(const struct egpu_batch *batch) { return batch->count == 1 && batch->booked_ns >= EGPU_TURN_NS; }

/* Its launches followed each other sooner than units end. Else the card may have waited for the program in between, for
 * too short to be seen, and what it took in all tells nothing of one. Beside others launches wait for those as well. */
static bool dense(const struct egpu_batch *batch) {
    return batch->apart_ns < (int64_t)(batch->booked_ns / batch->count * 7 / 8);
}

/* Of those on the card whoever has many units sees soon how it runs them, and says so to the others; each also to the
 * processes of its container that come later. */
static void hear_of_turns(int index, struct egpu_slices *seen, int64_t now_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    egpu_slices_hear(seen, egpu_activity_own()->cards[index].turns_ns, now_ns);
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == index)
            egpu_slices_hear(seen, all->near[i].card->turns_ns, now_ns);
}

/* What a unit says of the next of its kind: of one that was longer than expected, not for how long it waited for a launch
 * that stood at our gate. The more the next were taken to need, the longer they would hold each other back. */
static uint64_t without_wait(const struct egpu_batch *batch, uint64_t length_ns, uint64_t expected_ns) {
    return length_ns / 2 > expected_ns * batch->count ? egpu_sub(length_ns, batch->waited_ns) : length_ns;
}

/* What others had of that time. */
static uint64_t ran_between(const struct egpu_run *runs, uint32_t count, int64_t from_ns, int64_t to_ns) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t begin = runs[i].begin_ns > from_ns ? runs[i].begin_ns : from_ns;
        const int64_t end = runs[i].end_ns < to_ns ? runs[i].end_ns : to_ns;
        if (end > begin)
            sum += runs[i].length_ns < (uint64_t)(end - begin) ? runs[i].length_ns : (uint64_t)(end - begin);
    }
    return sum;
}

static void settle(int index, const struct egpu_batch *batch, const struct egpu_run *runs, uint32_t count, int64_t now_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    struct egpu_card *card = &egpu_cards[index];
    struct egpu_unit unit = {batch->begin_ns, batch->end_ns, batch->idle_ns, batch->booked_ns, batch->count,
                             batch->kind ? &batch->kind->stats : NULL, card->settled_end_ns, .lasting = lasting_lately(index),
                             .launched_ns = batch->last_ns, .known_ns = batch->kind || batch->untold ? 0 : batch->known_ns};
    int64_t begin = unit.begin_ns > unit.own_end_ns ? unit.begin_ns : unit.own_end_ns;
    const uint64_t taken = is_long(batch) ? egpu_runs_ended_briefly(index, begin, batch->end_ns) : 0; /* of many, `runs` are the last */
    const bool crowd = taken != 0 || egpu_crowd(index, batch->end_ns, now_ns, egpu_lease_ns(egpu_control_now())) != 0;
    if (batch->end_ns - begin > EVEN_LEAST_NS)
        unit.even_ns = is_long(batch) ? part_of_rest(index, begin, batch->end_ns, taken)
                                      : even_part(index, begin, batch->end_ns, false);
    hear_of_turns(index, &card->slices, now_ns);
    unit.sliced = egpu_sliced(&card->slices, &unit, runs, count);
    unit.followed = egpu_followed(&unit, runs, count);
    const uint64_t lease = egpu_lease_ns(egpu_control_now());
    unit.began_alone = egpu_began_alone(&unit, runs, count, egpu_crowd(index, unit.begin_ns, now_ns, lease) != 0 ||
                                        egpu_others_in_flight(index, now_ns, lease).count != 0);
    if ((uint64_t)card->slices.sure_ns > page->turns_ns)
        page->turns_ns = (uint64_t)card->slices.sure_ns;
    if (card->sliced != unit.sliced)
        card->sliced = unit.sliced;
    egpu_spin_lock(&card->lock);
    if (batch->end_ns > card->settled_end_ns)
        card->settled_end_ns = batch->end_ns;
    const uint64_t more = egpu_sub(batch->beside_ns, ran_between(runs, count, batch->began_ns, unit.own_end_ns));
    uint64_t length = egpu_settle(&unit, runs, count, crowd) + more;
    const bool lone = egpu_lone();
    if (batch->kind != NULL && (batch->count == 1 || (batch->idle_ns == 0 && (!lone || dense(batch))))) {
        const uint64_t known = batch->kind->expects, itself = without_wait(batch, length, known);
        egpu_learn(&batch->kind->stats, itself / batch->count,
                   egpu_ran_alone(&unit, runs, count, crowd) || unit.followed || (unit.began_alone && length < EGPU_TURN_NS),
                   batch->end_ns);
        uint64_t expects = batch->kind->stats.mean_ns + (batch->kind->stats.mean_ns == 0);
        uint64_t off = known > expects ? known - expects : expects - known;
        const bool strange = itself / batch->count > 2 * known + STRANGE_NS;
        const uint32_t steady = batch->kind->steady;
        if (strange ? steady != 0 : steady < EGPU_STEADY)
            batch->kind->steady = strange ? 0 : steady + 1;
        if (batch->kind->seen < EGPU_RIDES)
            batch->kind->seen++;
        /* Of short ones many launches read it all the time. */
        const uint64_t alone = egpu_alone(&batch->kind->stats), before = batch->kind->alone_ns;
        if ((alone == 0) != (before == 0) || (alone > before ? alone - before : before - alone) > alone / 16)
            batch->kind->alone_ns = alone;
        if (off > expects / (lone ? 64 : 16) || expects > EGPU_BATCH_NS / 2)
            batch->kind->expects = expects;
    }
    egpu_spin_unlock(&card->lock);
    const uint64_t most = egpu_charged(&card->slices, &unit, length - more) + more;
    if (egpu_cards[index].rate_ppm != EGPU_RATE_FREE)
        egpu_correct(index, batch->charged_ns, most);
    if (unit.end_ns - (int64_t)length - unit.begin_ns > EGPU_LATER_NS) /* it ran in another second than it was launched in */
        egpu_burst(page, unit.end_ns);
    const bool less = most < batch->second_ns;
    const uint64_t shorter = less ? most : batch->second_ns;
    egpu_second_book(&egpu_activity_own()->seconds[index], batch->end_ns - (int64_t)shorter,
                     (less ? batch->second_ns : most) - shorter, less);
    atomic_fetch_add(&page->busy_ns, length);
    atomic_fetch_add(&page->units, batch->count);
    uint64_t each = length / batch->count, longest = page->longest_ns;
    while (each > longest && !atomic_compare_exchange_weak(&page->longest_ns, &longest, each)) {
    }
}

void egpu_settle_card(int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    struct egpu_run runs[EGPU_RUNS_OTHERS], more[EGPU_RUNS_OTHERS];
    egpu_runs_remember(index);
    if (card->polling || atomic_exchange(&card->polling, 1))
        return;
    egpu_runs_watch_turns(index, now_ns);
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
        /* Batches of very short units run into each other on a card that does not go round: then the newest will do. A
         * unit that is long by itself does not, and the newest of a neighbour's short ones are those after its end. */
        const uint32_t count = egpu_runs_gather(index, card->sliced ? EGPU_RUNS_FEW : EGPU_ACTIVITY_RUNS, from, runs);
        uint32_t more_count = 0;
        for (struct egpu_batch *one = first, *end = last->next, *next; one != end; one = next) {
            next = one->next;
            if (is_long(one) && more_count == 0)
                more_count = egpu_runs_gather(index, EGPU_RUNS_REMEMBERED, from, more);
            settle(index, one, is_long(one) ? more : runs, is_long(one) ? more_count : count, now_ns);
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
    struct egpu_share share = {.policy = card->core_policy, .cores_percent = card->cores_percent, .weight = card->weight,
                               .seconds_kept = egpu_cards[index].sliced != 0};
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
