/* What ran on a card, as each container's page says, for longer than the page holds it. */
#include "card_history.h"

#include "flight.h"

enum { HISTORIES = 48, BINS = 256, BIN_BITS = 20 /* about a millisecond */, WEIGHED_NS = 256 * 1000 * 1000, LONG_PART = 8 };
static const int64_t KNOWN_NS = 1000000000;

/* What a row of a page says. False: it is being written. */
static bool read_run(const struct egpu_activity_run *row, struct egpu_run *run) {
    uint64_t end = row->end_ns;
    *run = (struct egpu_run){(int64_t)row->begin_ns, (int64_t)end, row->length_ns};
    return end != 0 && end == row->end_ns;
}

static bool usable(const struct egpu_run *run, int64_t from_ns) {
    return run->end_ns > from_ns && (uint64_t)run->begin_ns <= (uint64_t)run->end_ns;
}

/* The watcher's own. `bins`: what ended in which
 * millisecond; `all_ns`, `long_ns`: of late, and in units longer than a turn. */
static struct history {
    const struct egpu_activity_card *page; /* NULL: free */
    uint32_t seen, next, watched;
    struct egpu_run ring[EGPU_RUNS_REMEMBERED];
    struct bin { int64_t number; uint64_t ran_ns; } bins[BINS];
    uint64_t all_ns, long_ns;
} histories[HISTORIES];

static struct history *history_of(const struct egpu_activity_card *page) {
    for (int i = 0; i < HISTORIES; i++) {
        if (histories[i].page == NULL)
            histories[i].page = page;
        if (histories[i].page == page)
            return &histories[i];
    }
    return NULL;
}

/* Of a short one its stay counts: what it says that it took is little, and the first are taken for long. */
static void weigh(struct history *all, const struct egpu_run *run) {
    const int64_t number = run->end_ns >> BIN_BITS;
    struct bin *bin = &all->bins[(uint64_t)number % BINS];
    const uint64_t length = run->length_ns < WEIGHED_NS ? run->length_ns : WEIGHED_NS;
    const uint64_t stay = (uint64_t)run->end_ns - (uint64_t)run->begin_ns;
    *bin = (struct bin){number, length + (bin->number == number ? bin->ran_ns : 0)};
    all->all_ns += length >= EGPU_TURN_NS || stay < length ? length : stay < EGPU_TURN_NS ? stay : EGPU_TURN_NS;
    all->long_ns += length >= EGPU_TURN_NS ? length : 0;
    if (all->all_ns > WEIGHED_NS)
        all->all_ns /= 2, all->long_ns /= 2;
}

/* It runs units that are over within a turn, all but a few: these say what it took of a longer unit's stay. */
static bool brief(const struct history *all) {
    return all != NULL && all->all_ns != 0 && all->long_ns < all->all_ns / LONG_PART;
}

/* What ended within that time; of the milliseconds at its edges in proportion. `exactly`: where all of it is remembered,
 * one by one. */
static uint64_t ended_within(const struct history *all, int64_t begin_ns, int64_t end_ns, bool exactly) {
    if (exactly && (all->next < EGPU_RUNS_REMEMBERED || all->ring[all->next % EGPU_RUNS_REMEMBERED].end_ns <= begin_ns)) {
        uint64_t one_by_one = 0;
        for (uint32_t i = 0; i < EGPU_RUNS_REMEMBERED; i++)
            one_by_one += all->ring[i].end_ns > begin_ns && all->ring[i].end_ns <= end_ns ? all->ring[i].length_ns : 0;
        return one_by_one;
    }
    const int64_t from = begin_ns > end_ns - ((BINS - 1) << BIN_BITS) ? begin_ns : end_ns - ((BINS - 1) << BIN_BITS);
    uint64_t sum = 0;
    for (int64_t number = from >> BIN_BITS; number <= end_ns >> BIN_BITS; number++) {
        const struct bin *bin = &all->bins[(uint64_t)number % BINS];
        const int64_t first = number << BIN_BITS, last = first + (1 << BIN_BITS);
        const int64_t within = (last < end_ns ? last : end_ns) - (first > from ? first : from);
        if (bin->number == number && within > 0)
            sum += bin->ran_ns * (uint64_t)within >> BIN_BITS;
    }
    return sum;
}

/* Takes over what is new on the page, but for what this process wrote. */
static void remember(const struct egpu_activity_card *page, uint64_t own_tag) {
    struct history *all = history_of(page);
    if (all == NULL)
        return;
    uint32_t next = page->run_next;
    if (next < all->seen) /* a copy of another neighbour's page by now */
        all->seen = 0;
    if (next - all->seen > EGPU_ACTIVITY_RUNS)
        all->seen = next - EGPU_ACTIVITY_RUNS;
    for (; all->seen != next; all->seen++) {
        struct egpu_run run;
        if (!read_run(&page->runs[all->seen % EGPU_ACTIVITY_RUNS], &run)) {
            if (next - all->seen < EGPU_ACTIVITY_RUNS / 2)
                return; /* it will be there soon */
            continue;
        }
        if (own_tag != 0 && run.length_ns >> EGPU_SLOT_SHIFT == own_tag >> EGPU_SLOT_SHIFT)
            continue;
        run.length_ns &= (1ull << EGPU_SLOT_SHIFT) - 1;
        all->ring[all->next++ % EGPU_RUNS_REMEMBERED] = run;
        weigh(all, &run);
    }
}

static uint32_t gather(const struct egpu_activity_card *page, uint32_t rows, int64_t from_ns, struct egpu_run *runs,
                       uint32_t count) {
    const struct history *all = history_of(page);
    for (int i = 0; all == NULL && i < EGPU_ACTIVITY_RUNS && count < EGPU_RUNS_OTHERS; i++) { /* of too many: the page itself */
        struct egpu_run run;
        if (!read_run(&page->runs[i], &run) || !usable(&run, from_ns))
            continue;
        run.length_ns &= (1ull << EGPU_SLOT_SHIFT) - 1;
        runs[count++] = run;
    }
    for (uint32_t i = 1; all != NULL && i <= rows && count < EGPU_RUNS_OTHERS; i++)
        if (usable(&all->ring[(all->next - i) % EGPU_RUNS_REMEMBERED], from_ns))
            runs[count++] = all->ring[(all->next - i) % EGPU_RUNS_REMEMBERED];
    return count;
}

bool egpu_runs_brief(const struct egpu_activity_card *page) { return brief(history_of(page)); }

uint64_t egpu_runs_ended_briefly(int index, int64_t begin_ns, int64_t end_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    const struct history *own = history_of(&egpu_activity_own()->cards[index]);
    const bool exactly = egpu_cards[index].sliced != 0; /* there units pay by it */
    uint64_t sum = brief(own) ? ended_within(own, begin_ns, end_ns, exactly) : 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct history *one = all->near[i].own_card == index ? history_of(all->near[i].card) : NULL;
        sum += brief(one) ? ended_within(one, begin_ns, end_ns, exactly) : 0;
    }
    return sum;
}

void egpu_runs_remember(int index) {
    const struct egpu_near_all *all = egpu_near_now();
    remember(&egpu_activity_own()->cards[index], egpu_slot_tag());
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == index)
            remember(all->near[i].card, 0);
}

uint32_t egpu_runs_gather(int index, uint32_t rows, int64_t from_ns, struct egpu_run *runs) {
    const struct egpu_near_all *all = egpu_near_now();
    uint32_t count = gather(&egpu_activity_own()->cards[index], EGPU_RUNS_FEW, from_ns, runs, 0);
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == index)
            count = gather(all->near[i].card, rows, from_ns, runs, count);
    return count;
}

/* Looks at the neighbour's new runs among those of all others on the card, once these are known as well. */
static void watch_turns(int index, const struct egpu_near_all *all, const struct egpu_activity_card *page, int64_t now_ns) {
    struct history *own = history_of(page);
    if (own == NULL)
        return;
    const int64_t since_sure_ns = now_ns - egpu_cards[index].slices.sure_ns;
    if (own->next - own->watched > EGPU_RUNS_FEW || since_sure_ns < KNOWN_NS) /* there is nothing to find out */
        own->watched = own->next - (since_sure_ns < KNOWN_NS ? 0 : EGPU_RUNS_FEW);
    for (; own->watched != own->next; own->watched++) {
        const struct egpu_run *run = &own->ring[own->watched % EGPU_RUNS_REMEMBERED];
        struct egpu_run others[EGPU_RUNS_OTHERS];
        uint32_t count = 0;
        if (run->begin_ns < 0 || run->begin_ns > run->end_ns || run->end_ns > now_ns) /* nobody measured that */
            continue;
        if (run->end_ns > now_ns - EGPU_SETTLE_NS)
            return;
        const struct egpu_activity_card *mine = &egpu_activity_own()->cards[index];
        for (int i = 0; i < EGPU_ACTIVITY_RUNS; i++) /* with those of this process, which are not remembered */
            if (read_run(&mine->runs[i], &others[count]) && usable(&others[count], run->begin_ns))
                count++;
        for (uint32_t i = 0; i < all->count; i++)
            if (all->near[i].own_card == index && all->near[i].card != page)
                count = gather(all->near[i].card, EGPU_ACTIVITY_RUNS, run->begin_ns, others, count);
        egpu_slices_watch(&egpu_cards[index].slices, run, others, count);
    }
}

void egpu_runs_watch_turns(int index, int64_t now_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == index)
            watch_turns(index, all, all->near[i].card, now_ns);
}
