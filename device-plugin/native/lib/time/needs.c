/* What the pages ask for on each card, and how much of its time the share may have. */
#define _GNU_SOURCE
#include "../memory/hooks.h"
#include "work.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SCALE_WHOLE = 1000 * 1000,
    SCALE_LEAST = SCALE_WHOLE / 16, /* beside so many others, a unit seems so many times as long */
    SCALE_MOST = SCALE_WHOLE * 8,
    TRUE_UP_MOST_NS = 400 * 1000 * 1000, /* of one correction: the driver's figures are rough */
    MEASURE_OLD = 3,                     /* seconds, after which a figure speaks of other work */
    SOONER_NS = 200 * 1000,
};
static const int64_t WANTED_NS = 30 * 1000 * 1000, SAMPLE_NS = 100 * 1000 * 1000, SECOND_NS = 1000 * 1000 * 1000;

EGPU_LINE _Atomic uint32_t egpu_any_need;
_Atomic uint32_t egpu_needs[EGPU_ACTIVITY_CARDS];

/* --- charging --- */

uint64_t egpu_scaled(int card, uint64_t length_ns) {
    const uint64_t scale = egpu_activity_own()->cards[card].scale_ppm;
    if (scale == 0 || length_ns > UINT32_MAX * (uint64_t)64)
        return length_ns;
    return length_ns * (scale < SCALE_LEAST ? SCALE_LEAST : scale > SCALE_MOST ? SCALE_MOST : scale) / SCALE_WHOLE;
}

void egpu_charge_time(int index, int64_t length_ns, bool corrects) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    const uint64_t rate = page->rate_ppm;
    uint64_t busy = page->busy_ns;
    while (!atomic_compare_exchange_weak(&page->busy_ns, &busy, length_ns >= 0 ? egpu_add(busy, (uint64_t)length_ns)
                                                                               : egpu_sub(busy, (uint64_t)-length_ns))) {
    }
    if (rate == EGPU_RATE_FREE)
        return;
    int64_t paid = page->paid_ns;
    while (!atomic_compare_exchange_weak(&page->paid_ns, &paid,
                                         egpu_bucket_book(paid, rate, egpu_now_ns(), length_ns, page->longest_ns))) {
    }
    if (corrects && length_ns < -SOONER_NS) /* it was less: a launch that waits for the share may go sooner */
        syscall(SYS_futex, &page->paid_ns, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* One process of the container does it for each figure. A figure is of any value: a container may write it as well. */
void egpu_true_up(int index, int64_t now_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    const uint64_t at = page->measured_at_ns, measured = page->measured_ns, busy = page->busy_ns;
    uint64_t before = page->trued_at_ns;
    if (at == 0 || at == before || at > (uint64_t)now_ns || !atomic_compare_exchange_strong(&page->trued_at_ns, &before, at))
        return;
    const uint64_t page_measured = page->trued_measured_ns;
    const uint64_t passed = egpu_sub(at, before), used = egpu_sub(measured, page_measured);
    const uint64_t charged = egpu_sub(busy, page->trued_busy_ns);
    page->trued_measured_ns = measured;
    page->trued_busy_ns = busy;
    if (before == 0 || measured < page_measured || passed == 0 || passed > MEASURE_OLD * (uint64_t)SECOND_NS || used > passed || page->rate_ppm == EGPU_RATE_FREE)
        return;
    const int64_t more = (int64_t)used - (int64_t)(charged < 2 * passed ? charged : 2 * passed);
    const int64_t most = TRUE_UP_MOST_NS;
    egpu_charge_time(index, more < -most ? -most : more > most ? most : more, true);
    page->trued_busy_ns = page->busy_ns;
    if (charged < passed / 100 || used < passed / 100)
        return; /* too little to tell anything of the scale */
    uint64_t ratio = used * SCALE_WHOLE / charged, scale = page->scale_ppm ? page->scale_ppm : SCALE_WHOLE;
    ratio = ratio < SCALE_WHOLE / 4 ? SCALE_WHOLE / 4 : ratio > SCALE_WHOLE * 4 ? SCALE_WHOLE * 4 : ratio;
    scale = scale * (3 * (uint64_t)SCALE_WHOLE + ratio) / (4 * (uint64_t)SCALE_WHOLE);
    page->scale_ppm = scale < SCALE_LEAST ? SCALE_LEAST : scale > SCALE_MOST ? SCALE_MOST : scale;
}

/* --- rates --- */

/* What of the card's time each neighbour with a hard share lately took. */
static uint64_t taken_ppm(const struct egpu_activity_card *card, int64_t now_ns) {
    static struct { const struct egpu_activity_card *card; uint64_t busy_ns, ppm; int64_t since_ns; } seen[EGPU_MAX_PEERS * 2];
    for (uint32_t i = 0; i < EGPU_MAX_PEERS * 2; i++) {
        if (seen[i].card != card && seen[i].card != NULL)
            continue;
        const uint64_t busy = card->busy_ns;
        const int64_t passed = now_ns - seen[i].since_ns;
        if (seen[i].card == NULL || passed > 10 * SAMPLE_NS) {
            seen[i].card = card, seen[i].busy_ns = busy, seen[i].since_ns = now_ns;
        } else if (passed >= SAMPLE_NS) {
            const uint64_t more = egpu_sub(busy, seen[i].busy_ns);
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
        if (all->near[i].own_card != (int)index)
            continue;
        const uint64_t wanted = other->wanted_ns, ppm = taken_ppm(other, now_ns);
        const uint32_t weight = other->weight;
        if (wanted > (uint64_t)now_ns || (uint64_t)now_ns - wanted >= (uint64_t)WANTED_NS)
            continue;
        share.others_wanting++;
        if (weight != 0)
            share.others_soft += weight > 100 ? 100 : weight;
        else
            share.others_hard_ppm += ppm;
    }
    return egpu_bucket_rate(&share);
}

static void set_rate(uint32_t index, uint64_t rate, int64_t now_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    const uint64_t before = page->rate_ppm == rate ? rate : atomic_exchange(&page->rate_ppm, rate);
    int64_t paid = page->paid_ns;
    while (before != rate &&
           !atomic_compare_exchange_weak(&page->paid_ns, &paid, egpu_bucket_rescale(paid, before, rate, now_ns))) {
    }
}

/* --- needs --- */

/* Before a call that may not return while the container is kept from its cards. */
void egpu_time_wanted(void) {
    const struct egpu_control *control = egpu_control_now();
    const uint64_t now_ns = (uint64_t)egpu_now_ns();
    for (uint32_t i = 0; control != NULL && i < control->card_count && i < EGPU_ACTIVITY_CARDS; i++)
        egpu_activity_own()->cards[i].wanted_ns = now_ns;
}

static uint32_t need_of(const struct egpu_control *control, uint32_t index, uint64_t rate) {
    const struct egpu_near_all *all = egpu_near_now();
    const bool low = control->own_class == EGPU_CLASS_LOW && control->unheld == 0;
    uint32_t need = (rate != EGPU_RATE_FREE ? EGPU_NEED_CAP : 0) | (egpu_suspended(control) ? EGPU_NEED_SUSPEND : 0);
    if (low && (control->cards[index].flags & EGPU_CARD_HIGH_HERE || all->above != 0))
        need |= EGPU_NEED_BOUND;
    if (control->cards[index].core_policy == EGPU_CORES_SOFT)
        need |= EGPU_NEED_WANT;
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->near[i].own_card != (int)index)
            continue;
        need |= all->near[i].below ? EGPU_NEED_TELL : 0;
        need |= all->near[i].card->weight != 0 ? EGPU_NEED_WANT : 0;
    }
    return need;
}

void egpu_needs_look(const struct egpu_control *control, int64_t now_ns) {
    static struct egpu_lock one_at_a_time;
    uint32_t any = 0;
    egpu_lock(&one_at_a_time);
    for (uint32_t i = 0; i < control->card_count && i < EGPU_ACTIVITY_CARDS; i++) {
        struct egpu_activity_card *page = &egpu_activity_own()->cards[i];
        const uint32_t weight = control->cards[i].core_policy == EGPU_CORES_SOFT ? control->cards[i].weight : 0;
        const uint64_t rate = rate_of(control, i, now_ns);
        if (page->weight != weight)
            page->weight = weight;
        set_rate(i, rate, now_ns);
        const uint32_t need = need_of(control, i, rate);
        if (egpu_needs[i] != need)
            egpu_needs[i] = need;
        any |= need;
    }
    if (egpu_any_need != any)
        egpu_any_need = any;
    void (*const say)(void) = egpu_suspended(control) ? egpu_time_wanted : NULL;
    if (atomic_load_explicit(&egpu_while_away, memory_order_relaxed) != say)
        atomic_store(&egpu_while_away, say);
    egpu_unlock(&one_at_a_time);
}
