/* A launch at the gate. */
#define _GNU_SOURCE
#include "flight.h"

#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* How large exactly is by trial: with these the matrix of virtual time holds (tests/unit/native/test_time_*.py). */
enum {
    REFRESH_NS = 50 * 1000 * 1000,  /* as the watcher does: a change of limits reaches who waits as soon as who runs */
    UNKNOWN_FLOOR_NS = 1000 * 1000, /* of low's floor for a launch of unknown length: longer than most are, so that the
                                       floor is rather too little than in high's way */
    NAP_LEAST_NS = 15 * 1000,       /* to sleep and wake up takes some us by itself */
    NAP_MOST_NS = 300 * 1000,       /* an end is seen before the 500 us are over that low may have in flight */
    SPARE_UNITS = 3,                /* one runs and one waits behind it: the card is busy, a third is only queue */
    TURN_NS = 25 * 1000 * 1000,     /* what others' turn on the card takes: units of 20 ms, and the look at their end */
    SAME_STREAM_TURNS = 2,          /* see `due_among` */
    PAUSE_NS = 4 * 1000 * 1000,     /* the longest pause inside one sequence of units */
    TURN_STEP_NS = 1000 * 1000,     /* how often a waiter says that it waits for others' work */
    ROW_NS = 2 * 1000 * 1000,       /* the longest pause inside one group of launches */
};

struct visit {
    int index;
    const struct egpu_control *control;
    const struct egpu_near *holder;
    uint32_t word; /* the holder's, as seen */
    bool busy;     /* the program was, when the launch came */
    struct egpu_turn_seen others;
    int64_t bounded_ns; /* from when on it has waited for what is in flight, and nothing else */
    struct egpu_gate_in in;
};

static void look_at_holder(struct visit *visit, struct egpu_card *card) {
    visit->holder = egpu_holder(egpu_near_now(), visit->control, visit->in.now_ns);
    int64_t since = atomic_load_explicit(&card->held_since_ns, memory_order_relaxed);
    if (visit->holder != NULL) {
        visit->word = visit->holder->card->word;
        if (since == 0 && atomic_compare_exchange_strong(&card->held_since_ns, &since, visit->in.now_ns))
            since = visit->in.now_ns;
    } else if (since != 0 && atomic_compare_exchange_strong(&card->held_since_ns, &since, 0)) {
        atomic_fetch_add(&egpu_activity_own()->cards[visit->index].held_ns,
                         egpu_sub((uint64_t)visit->in.now_ns, (uint64_t)since));
    }
    visit->in.held = visit->holder != NULL && (visit->word & EGPU_WORD_ACTIVE);
    visit->in.held_since_ns = since;
}

/* What may be in flight for the sake of high containers: in all processes of the container together. */
static uint64_t bound_of_low(const struct egpu_control *control, int index) {
    if (control->own_class != EGPU_CLASS_LOW || !(control->cards[index].flags & EGPU_CARD_HIGH_HERE))
        return 0;
    return (control->in_flight_us ? control->in_flight_us : 500) * 1000ull;
}

/* What other low containers have in flight there as well, and whose turn it is. */
static void look_at_turns(struct visit *visit, struct egpu_card *card) {
    struct egpu_gate_in *in = &visit->in;
    const bool turns = bound_of_low(visit->control, visit->index) != 0;
    if (card->turns != turns)
        card->turns = turns;
    const bool long_since = visit->bounded_ns != 0 && in->now_ns - visit->bounded_ns > EGPU_TURN_MOST_NS;
    visit->others = turns && !long_since ? egpu_turns_look(visit->index, in->now_ns, egpu_lease_ns(visit->control))
                                         : (struct egpu_turn_seen){0};
    in->beside_ns = visit->others.queued_ns;
    in->others_turn = visit->others.theirs;
}

/* True: no other low container is about to launch at the same time, or it does not matter. */
static bool has_turn(const struct visit *visit, enum egpu_reason reason) {
    return !visit->others.about || reason == EGPU_PASS_OVERDUE || visit->in.unit_ns <= EGPU_BATCH_NS ||
           egpu_turns_claim(visit->index, &visit->others, visit->in.now_ns, egpu_lease_ns(visit->control));
}

/* For the share's sake: of each process, since one that stands at the gate does not see at once what others' ended. */
static uint64_t bound_of_share(const struct egpu_control *control, int index, uint64_t rate_ppm, uint32_t others) {
    bool limits = rate_ppm != EGPU_RATE_FREE || control->cards[index].core_policy == EGPU_CORES_SOFT;
    return limits ? EGPU_HARD_QUEUE_NS / (others + 1) : 0; /* soft: what is queued while alone is in others' way later */
}

/* What speaks about the last second, and whether more than the bound may be in flight. */
static void fill_second(struct visit *visit, const struct egpu_activity_card *page, bool for_high, uint64_t others_ns) {
    struct egpu_gate_in *in = &visit->in;
    const struct egpu_control_card *limits = &visit->control->cards[visit->index];
    in->second_ns = in->used_ns = 0;
    in->spare = false;
    if (limits->core_policy != EGPU_CORES_HARD || in->rate_ppm == EGPU_RATE_FREE || in->paid_ns > in->now_ns + in->ahead_ns)
        return;
    const uint64_t longest = page->longest_ns, in_flight = in->in_flight;
    const uint64_t most = in_flight == 0 ? 0 : longest < EGPU_CREDIT_NS ? longest * in_flight : UINT64_MAX / 2;
    if (!for_high && !egpu_cards[visit->index].sliced && in_flight != 0 && in_flight < SPARE_UNITS && most < EGPU_CREDIT_NS) {
        uint64_t more = egpu_sub(most, in->queued_ns);
        in->spare = egpu_limiter_charge_with(in->paid_ns, in->rate_ppm, in->now_ns, more, EGPU_CREDIT_NS) <= in->now_ns;
    }
    if (in->now_ns - in->paid_ns > EGPU_BURST_NS || in->now_ns < page->burst_until_ns || in->spare ||
        egpu_cards[visit->index].sliced) {
        in->second_ns = limits->cores_percent * (uint64_t)(10 * 1000 * 1000);
        const uint64_t queued = egpu_add(in->spare && most > in->queued_ns ? most : in->queued_ns, for_high ? 0 : others_ns);
        in->used_ns = egpu_second_besides(&egpu_activity_own()->seconds[visit->index], in->now_ns, queued, in->unit_ns);
    }
}

/* What of the work in flight has still to run: the oldest has for a while. */
static uint64_t still_queued(struct egpu_card *card, uint64_t queued_ns, int64_t now_ns) {
    int64_t begin = atomic_load_explicit(&card->begin_ns, memory_order_relaxed);
    uint64_t ran = begin != 0 && now_ns > begin ? (uint64_t)(now_ns - begin) : 0;
    uint64_t oldest = atomic_load_explicit(&card->oldest_ns, memory_order_relaxed);
    return egpu_sub(queued_ns, ran < oldest ? ran : oldest);
}

/* What is overdue by itself may be waiting for others' turn on the card. And what is before the launch on its own
 * stream hardly waits for it: that is more likely longer than expected. */
static int64_t due_among(const struct visit *visit, int64_t due_ns, bool mine, CUstream stream) {
    const struct egpu_card *card = &egpu_cards[visit->index];
    int64_t now = visit->in.now_ns, begin = card->begin_ns;
    if (due_ns == 0 || now < due_ns)
        return due_ns;
    int64_t turns = egpu_crowd(visit->index, now, now, egpu_lease_ns(visit->control));
    if (mine && card->pending_on != NULL && card->pending_on == stream)
        turns += SAME_STREAM_TURNS;
    int64_t given = mine && begin < due_ns ? due_ns - begin - card->patience_ns : EGPU_UNKNOWN_DUE_NS; /* another process's begin is not known */
    return due_ns + turns * ((given > 0 ? given : 0) + TURN_NS);
}

/* Who waits for others runs on until they come: to hold one of them back costs the share more than to let it go first and
 * be paid for later. No more than a burst: the next of them that finds nobody waits for all of it. */
static int64_t ahead_of(const struct egpu_card *card, const struct egpu_launched *launch) {
    return launch->kind->waits != 0 && card->flying != 0 && card->pending_on != launch->stream ? EGPU_BURST_NS : 0;
}

static void fill(struct visit *visit, const struct egpu_launched *launch) {
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    const struct egpu_control *control = visit->control;
    struct egpu_gate_in *in = &visit->in;
    struct egpu_activity_slot *slot = egpu_slot_own(in->now_ns, egpu_lease_ns(control));
    in->suspended = egpu_suspended(control);
    in->rate_ppm = atomic_load_explicit(&card->rate_ppm, memory_order_relaxed);
    in->paid_ns = atomic_load_explicit(&page->paid_ns, memory_order_relaxed);
    in->ahead_ns = in->rate_ppm != EGPU_RATE_FREE ? ahead_of(card, launch) : 0;
    bool for_high = bound_of_low(control, visit->index) != 0 || in->held;
    look_at_turns(visit, card);
    in->bound_ns = for_high ? bound_of_low(control, visit->index) : bound_of_share(control, visit->index, in->rate_ppm, 0);
    in->unit_ns = launch->queued_ns;
    in->unit_known = !launch->unknown;
    if (in->bound_ns != 0 || in->held || in->rate_ppm != EGPU_RATE_FREE) {
        struct egpu_others others = egpu_others_in_flight(visit->index, in->now_ns, egpu_lease_ns(control));
        uint32_t theirs = for_high && others.queued_ns != 0;
        if (!for_high)
            in->bound_ns = bound_of_share(control, visit->index, in->rate_ppm, others.count);
        in->in_flight = atomic_load(&card->flying) + (theirs || others.alone);
        uint32_t window = atomic_load_explicit(&card->window, memory_order_relaxed);
        in->window = window > EGPU_WINDOW_LEAST ? window : EGPU_WINDOW_LEAST;
        in->alone = others.alone || card->unknown;
        in->queued_ns = egpu_add(for_high ? others.queued_ns : 0, still_queued(card, slot->queued_ns[visit->index], in->now_ns));
        in->due_ns = card->due_ns;
        bool theirs_first = others.due_ns != 0 && (in->due_ns == 0 || (int64_t)others.due_ns < in->due_ns);
        if (theirs_first)
            in->due_ns = (int64_t)others.due_ns;
        in->given_ns = theirs_first ? EGPU_UNKNOWN_DUE_NS : in->due_ns - card->begin_ns;
        in->due_ns = due_among(visit, in->due_ns, !theirs_first, launch->stream);
        in->last_pass_ns = card->last_pass_ns;
        in->passes = card->passes;
        in->passes_paid_ns = page->passes_paid_ns;
        fill_second(visit, page, for_high, others.queued_ns);
    }
    if (in->held) {
        in->floor_ppm = control->low_floor_percent <= 100 ? control->low_floor_percent * 10000 : 0;
        in->floor_after_ns = control->low_floor_after_ms * 1000000ll;
        in->floor_paid_ns = page->floor_paid_ns;
    }
}

/* Sleeps that long, or until the books (the lower half is the futex) are another than `seen` and somebody says so. */
static void nap_for(const _Atomic int64_t *books, int64_t seen, int64_t wait_ns) {
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    if (books != NULL)
        syscall(SYS_futex, books, FUTEX_WAIT, (uint32_t)seen, &time, NULL, 0);
    else
        nanosleep(&time, NULL);
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

static void nap(int64_t wait_ns) { nap_for(NULL, 0, wait_ns); }

static void wait_bound(struct visit *visit, const struct egpu_launched *launch, int64_t wake_ns) {
    struct egpu_card *card = &egpu_cards[visit->index];
    egpu_flight_flush(launch->real, visit->index, INT64_MAX);
    int64_t now = egpu_now_ns();
    if (egpu_resolve(launch->real, visit->index, now))
        return;
    int64_t ran = now - card->begin_ns, nap_ns = ((int64_t)card->oldest_ns - ran) * 3 / 4;
    if (launch->kind->steady < EGPU_STEADY && nap_ns > ran / 4) /* nobody knows how long it is: little is lost by it */
        nap_ns = ran / 4;
    nap_ns = nap_ns < NAP_LEAST_NS ? NAP_LEAST_NS : nap_ns > NAP_MOST_NS ? NAP_MOST_NS : nap_ns;
    nap(nap_ns < wake_ns - now || wake_ns <= now ? nap_ns : wake_ns - now);
    egpu_resolve(launch->real, visit->index, egpu_now_ns());
}

/* What is in flight counts for the second in full until it is seen to have ended: so one looks, where nobody can tell
 * when that will be. */
static void wait_share(struct visit *visit, const struct egpu_launched *launch, int64_t wait_ns) {
    const struct egpu_card *card = &egpu_cards[visit->index];
    const _Atomic int64_t *books = &egpu_activity_own()->cards[visit->index].paid_ns;
    const bool looks = visit->in.paid_ns <= visit->in.now_ns && card->due_ns != 0 &&
                       launch->kind->steady < EGPU_STEADY;
    nap_for(books, visit->in.paid_ns, looks && wait_ns > NAP_MOST_NS ? NAP_MOST_NS : wait_ns);
    if (looks)
        egpu_resolve(launch->real, visit->index, egpu_now_ns());
}

/* For so long it need not look again whether others' work has ended: what is over the bound has still to run. */
static int64_t turn_wait(const struct egpu_gate_in *in) {
    const uint64_t over = egpu_sub(in->beside_ns, egpu_sub(in->bound_ns, in->unit_ns));
    return over < NAP_LEAST_NS ? NAP_LEAST_NS : over < TURN_STEP_NS ? (int64_t)over : TURN_STEP_NS;
}

static void wait_at(struct visit *visit, const struct egpu_launched *launch, const struct egpu_gate_out *out) {
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    int64_t now = visit->in.now_ns;
    page->wanted_ns = (uint64_t)now;
    switch (out->reason) {
    case EGPU_WAIT_HELD:
        if (visit->holder != NULL && card->due_ns == 0)
            egpu_word_wait(visit->holder, visit->word, out->wake_ns - now);
        else
            wait_bound(visit, launch, out->wake_ns);
        break;
    case EGPU_WAIT_BOUND:
        if (visit->others.near != NULL && card->flying == 0)
            egpu_turns_wait(&visit->others, turn_wait(&visit->in));
        else
            wait_bound(visit, launch, out->wake_ns);
        break;
    case EGPU_WAIT_SHARE:
        atomic_fetch_add(&card->capped, 1);
        wait_share(visit, launch, out->wake_ns - now);
        atomic_fetch_sub(&card->capped, 1);
        atomic_fetch_add(&page->capped_ns, egpu_sub((uint64_t)egpu_now_ns(), (uint64_t)now));
        break;
    default:
        nap(out->wake_ns - now);
    }
}

/* The oldest unit waits for this very launch, as far as one can tell: nobody else was in its way since it could run. */
static bool lone(const struct visit *visit) {
    const struct egpu_near_all *all = egpu_near_now();
    uint64_t since = (uint64_t)egpu_cards[visit->index].begin_ns;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].own_card == visit->index && all->near[i].card->progress_ns > since)
            return false;
    return !visit->in.held && egpu_crowd(visit->index, visit->in.now_ns, visit->in.now_ns, egpu_lease_ns(visit->control)) == 0;
}

/* How much of the share's time stays good. Of one that goes from unit to unit, more: that long it may have stood behind
 * others' on the card, or here. No second holds more than the share for it. */
static int64_t credit_of(const struct visit *visit) { return visit->busy ? EGPU_CREDIT_NS : 0; }

static bool is_busy(struct egpu_card *card, int64_t now_ns) {
    int64_t ended = atomic_load_explicit(&card->ended_ns, memory_order_relaxed);
    return atomic_load(&card->flying) != 0 || (ended != 0 && now_ns - ended < PAUSE_NS);
}

/* What of it the bound has room for, behind the launch itself. */
static uint64_t ahead_within(const struct egpu_gate_in *in, uint64_t ahead_ns) {
    const uint64_t queued_ns = egpu_add(egpu_add(in->queued_ns, in->beside_ns), in->unit_ns);
    const uint64_t room_ns = in->bound_ns != 0 ? egpu_sub(in->bound_ns, queued_ns) : ahead_ns;
    return ahead_ns < room_ns ? ahead_ns : room_ns;
}

/* Books the launch. False: another was faster, ask again. */
static bool book(struct visit *visit, struct egpu_launched *launch, enum egpu_reason reason) {
    launch->ahead_ns = reason == EGPU_PASS ? ahead_within(&visit->in, launch->ahead_ns) : 0;
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    const struct egpu_gate_in *in = &visit->in;
    if (in->rate_ppm != EGPU_RATE_FREE) {
        int64_t paid = in->paid_ns;
        int64_t after = egpu_limiter_charge_with(paid, in->rate_ppm, in->now_ns, launch->booked_ns + launch->ahead_ns,
                                                 credit_of(visit));
        if (!atomic_compare_exchange_strong(&page->paid_ns, &paid, after))
            return false;
        if (in->now_ns - in->paid_ns > EGPU_BURST_NS || in->paid_ns > in->now_ns)
            egpu_burst(page, in->now_ns);
    }
    if (reason == EGPU_PASS_OVERDUE) {
        card->last_pass_ns = in->now_ns;
        page->last_pass_ns = (uint64_t)in->now_ns;
        bool alone = lone(visit);
        page->passes_paid_ns = egpu_pass_paid(in->now_ns, launch->booked_ns, !launch->unknown, in->rate_ppm, alone);
        card->lone_pass_ns = alone ? in->now_ns : 0;
        card->lone_pass_stream = launch->stream;
        atomic_fetch_add(&card->passes, 1);
    }
    if (reason == EGPU_PASS_FLOOR) {
        uint64_t cost = launch->unknown ? UNKNOWN_FLOOR_NS : launch->booked_ns;
        page->floor_paid_ns = egpu_limiter_charge(in->floor_paid_ns, in->floor_ppm, in->now_ns, cost);
        launch->floor = true;
    }
    struct egpu_activity_slot *slot = egpu_slot_own(in->now_ns, egpu_lease_ns(visit->control));
    atomic_fetch_add_explicit(&slot->queued_ns[visit->index], launch->queued_ns + launch->ahead_ns,
                              memory_order_relaxed);
    if (launch->unknown) {
        atomic_fetch_or(&slot->alone, 1u << visit->index);
        atomic_store(&card->unknown, 1);
    }
    atomic_fetch_add(&card->flying, 1);
    egpu_watch_launch(visit->index, in->now_ns);
    if (card->turns)
        egpu_turns_took(visit->index, in->now_ns, egpu_lease_ns(visit->control));
    return true;
}

void egpu_unbook(int card, uint64_t booked_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[card];
    uint64_t rate = egpu_cards[card].rate_ppm;
    int64_t paid = page->paid_ns;
    while (rate != EGPU_RATE_FREE &&
           !atomic_compare_exchange_weak(&page->paid_ns, &paid, egpu_limiter_correct(paid, rate, booked_ns, 0))) {
    }
}

void egpu_refund(const struct egpu_launched *launch) {
    if (launch->before != NULL)
        egpu_event_give(launch->context, launch->before);
    egpu_flight_undo(launch->context->card, launch->queued_ns + launch->ahead_ns, 1, launch->unknown);
    egpu_unbook(launch->context->card, launch->booked_ns + launch->ahead_ns);
}

/* Units that wait for a launch wait for as long as it stands here; of several in a row, as long as all of them do. */
static void let_through(struct egpu_card *card, const struct egpu_launched *launch, int64_t now_ns) {
    const int64_t before = card->let_ns;
    if (card->ended_ns >= before || card->let_stream == launch->stream || launch->now_ns - before > ROW_NS)
        card->stood_ns = launch->now_ns;
    card->let_stream = launch->stream;
    card->let_ns = now_ns;
}

void egpu_hold(struct egpu_launched *launch) {
    bool waited = false;
    struct visit visit = {.index = launch->context->card, .control = egpu_control_now()};
    int64_t refreshed = launch->now_ns;
    visit.in.now_ns = launch->now_ns;
    visit.busy = is_busy(&egpu_cards[visit.index], launch->now_ns);
    for (;;) {
        look_at_holder(&visit, &egpu_cards[visit.index]);
        fill(&visit, launch);
        struct egpu_gate_out out = egpu_gate(&visit.in);
        if (egpu_over())
            out.reason = EGPU_PASS; /* nobody may wait for what is not asked about any more */
        if (egpu_passes(out.reason) && !egpu_over() && !has_turn(&visit, out.reason)) {
            nap(NAP_LEAST_NS);
        } else if (egpu_passes(out.reason)) {
            if (book(&visit, launch, out.reason))
                break;
        } else {
            const bool bounded = out.reason == EGPU_WAIT_BOUND;
            visit.bounded_ns = !bounded ? 0 : visit.bounded_ns != 0 ? visit.bounded_ns : visit.in.now_ns;
            if (egpu_cards[visit.index].turns)
                egpu_turns_ask(visit.index, bounded);
            wait_at(&visit, launch, &out);
            waited = true;
        }
        visit.in.now_ns = egpu_now_ns();
        if (visit.in.now_ns - refreshed >= REFRESH_NS) {
            refreshed = visit.in.now_ns;
            visit.control = egpu_control_refresh();
            egpu_near_refresh(visit.control);
            egpu_rates(visit.control, refreshed);
        } else {
            visit.control = egpu_control_now();
        }
    }
    if (waited)
        let_through(&egpu_cards[visit.index], launch, visit.in.now_ns);
    launch->now_ns = visit.in.now_ns;
}
