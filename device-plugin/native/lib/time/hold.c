/* A launch at the gate. */
#define _GNU_SOURCE
#include "work.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    REFRESH_NS = 50 * 1000 * 1000,  /* as the watcher does: a change of limits reaches launches that wait as soon */
    UNKNOWN_FLOOR_NS = 1000 * 1000, /* of low's floor for a launch of unknown length: longer than most are */
    NAP_LEAST_NS = 15 * 1000,       /* to sleep and wake up takes some us by itself */
    NAP_MOST_NS = 1000 * 1000,      /* to look at more than the oldest from time to time */
};

struct visit {
    int index;
    const struct egpu_control *control;
    const struct egpu_near *holder;
    uint32_t word;    /* the holder's, as seen */
    bool interrupted; /* a signal came while it waited */
    struct egpu_gate_in in;
};

static _Atomic int64_t signal_pass_ns; /* when a launch last passed for a signal's sake */

static void look_at_holder(struct visit *visit, struct egpu_card *card) {
    visit->holder = visit->control->unheld != 0 ? NULL : egpu_holder(egpu_near_now(), visit->control, visit->in.now_ns);
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

/* A unit in flight may wait for this launch: on another stream, or in another process. */
static void fill_due(struct visit *visit, const struct egpu_launch *launch) {
    const struct egpu_card *card = &egpu_cards[visit->index];
    const struct egpu_others others = egpu_others_in_flight(visit->index, visit->in.now_ns, egpu_lease_ns(visit->control));
    const bool own = launch->unknown || card->due_on != launch->stream;
    visit->in.due_ns = own ? card->due_ns : 0;
    if (others.due_ns != 0 && (visit->in.due_ns == 0 || (int64_t)others.due_ns < visit->in.due_ns))
        visit->in.due_ns = (int64_t)others.due_ns;
    visit->in.last_pass_ns = card->last_pass_ns;
    visit->in.passes = card->passes;
}

static void fill_bound(struct visit *visit, const struct egpu_card *card) {
    struct egpu_gate_in *in = &visit->in;
    const struct egpu_control *control = visit->control;
    const struct egpu_others others = egpu_others_in_flight(visit->index, in->now_ns, egpu_lease_ns(control));
    const int64_t vague = card->vague_until_ns - in->now_ns;
    if (control->cards[visit->index].flags & EGPU_CARD_HIGH_HERE)
        in->bound_ns = (control->in_flight_us ? control->in_flight_us : 500) * 1000ull;
    in->in_flight = card->open + others.count + (vague > 0);
    in->queued_ns = egpu_add(egpu_add(others.queued_ns, egpu_slot_own(0, 0)->queued_ns[visit->index]), vague > 0 ? (uint64_t)vague : 0);
    in->floor_ppm = control->low_floor_percent <= 100 ? control->low_floor_percent * 10000 : 0;
    in->floor_after_ns = control->low_floor_after_ms * 1000000ll;
    in->floor_paid_ns = egpu_activity_own()->cards[visit->index].floor_paid_ns;
}

static void fill(struct visit *visit, const struct egpu_launch *launch) {
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    struct egpu_gate_in *in = &visit->in;
    const uint64_t rate = page->rate_ppm;
    *in = (struct egpu_gate_in){.now_ns = in->now_ns, .suspended = egpu_suspended(visit->control),
                                .unit_ns = launch->expected_ns, .unit_known = !launch->unknown};
    in->paid_ns = rate != EGPU_RATE_FREE && rate < EGPU_RATE_WHOLE ? page->paid_ns : 0;
    in->signalled = visit->interrupted && in->now_ns - signal_pass_ns >= EGPU_SIGNAL_STEP_NS;
    if (launch->unknown && launch->kind->open != 0)
        in->unknown = launch->kind->since + launch->kind->open;
    if (launch->needs & EGPU_NEED_BOUND) {
        look_at_holder(visit, card);
        fill_bound(visit, card);
    }
    if (in->paid_ns > in->now_ns || in->unknown != 0 || launch->needs & EGPU_NEED_BOUND)
        fill_due(visit, launch);
}

/* Sleeps that long, or until the books (the lower half is the futex) are other than `seen` and somebody says so. */
static void nap(struct visit *visit, const _Atomic int64_t *books, int64_t seen, int64_t wait_ns) {
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    const int slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    const long result = books != NULL ? syscall(SYS_futex, books, FUTEX_WAIT, (uint32_t)seen, &time, NULL, 0) : nanosleep(&time, NULL);
    visit->interrupted |= result != 0 && errno == EINTR;
    if (slack > 0)
        prctl(PR_SET_TIMERSLACK, slack, 0, 0, 0);
}

static void wait_bound(struct visit *visit, const struct egpu_launch *launch, int64_t wait_ns) {
    const int64_t now_ns = egpu_now_ns();
    if (egpu_streams_resolve(launch->real, visit->index, now_ns))
        return;
    const int64_t left_ns = egpu_cards[visit->index].end_ns - now_ns; /* < 0: it takes longer than expected */
    int64_t nap_ns = left_ns > 0 ? left_ns - left_ns / 8 : -left_ns / 4;
    nap_ns = nap_ns < NAP_LEAST_NS ? NAP_LEAST_NS : nap_ns > NAP_MOST_NS ? NAP_MOST_NS : nap_ns;
    nap(visit, NULL, 0, nap_ns < wait_ns ? nap_ns : wait_ns);
    egpu_streams_resolve(launch->real, visit->index, egpu_now_ns());
}

static void wait_at(struct visit *visit, const struct egpu_launch *launch, const struct egpu_gate_out *out) {
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    const int64_t now = visit->in.now_ns, wait_ns = out->wake_ns - now;
    page->wanted_ns = (uint64_t)now;
    switch (out->reason) {
    case EGPU_WAIT_HELD:
        if (card->open == 0)
            visit->interrupted |= egpu_word_wait(visit->holder, visit->word, wait_ns);
        else
            wait_bound(visit, launch, wait_ns);
        break;
    case EGPU_WAIT_BOUND:
        wait_bound(visit, launch, wait_ns);
        break;
    case EGPU_WAIT_SHARE:
        atomic_fetch_add(&card->waiting, 1);
        nap(visit, &page->paid_ns, visit->in.paid_ns, wait_ns);
        atomic_fetch_sub(&card->waiting, 1);
        atomic_fetch_add(&page->capped_ns, egpu_sub((uint64_t)egpu_now_ns(), (uint64_t)now));
        break;
    default:
        nap(visit, NULL, 0, wait_ns);
    }
}

static void pass(const struct visit *visit, const struct egpu_launch *launch, enum egpu_reason reason) {
    struct egpu_card *card = &egpu_cards[visit->index];
    struct egpu_activity_card *page = &egpu_activity_own()->cards[visit->index];
    const struct egpu_gate_in *in = &visit->in;
    if (launch->needs & EGPU_NEED_CAP)
        egpu_charge_time(visit->index, (int64_t)launch->booked_ns, false);
    if (reason == EGPU_PASS_OVERDUE) {
        card->last_pass_ns = in->now_ns;
        page->last_pass_ns = (uint64_t)in->now_ns;
        atomic_fetch_add(&card->passes, 1);
    }
    if (reason == EGPU_PASS_SIGNAL)
        signal_pass_ns = in->now_ns;
    if (reason == EGPU_PASS_FLOOR)
        page->floor_paid_ns = egpu_bucket_book(in->floor_paid_ns, in->floor_ppm, in->now_ns,
                                               launch->unknown ? UNKNOWN_FLOOR_NS : (int64_t)launch->expected_ns, 0);
    if (launch->needs & EGPU_NEED_BOUND) {
        struct egpu_activity_slot *slot = egpu_slot_own(in->now_ns, egpu_lease_ns(visit->control));
        atomic_fetch_add_explicit(&slot->queued_ns[visit->index], launch->expected_ns, memory_order_relaxed);
    }
}

void egpu_queued_less(int card, uint64_t queued_ns) {
    struct egpu_activity_slot *slot = egpu_slot_own(0, 0);
    uint64_t queued = slot->queued_ns[card];
    while (!atomic_compare_exchange_weak(&slot->queued_ns[card], &queued, egpu_sub(queued, queued_ns))) {
    }
}

void egpu_hold(struct egpu_launch *launch) {
    struct visit visit = {.index = launch->context->card, .control = egpu_control_now()};
    int64_t refreshed = launch->now_ns;
    visit.in.now_ns = launch->now_ns;
    for (;;) {
        fill(&visit, launch);
        struct egpu_gate_out out = egpu_gate(&visit.in);
        if (egpu_over())
            out.reason = EGPU_PASS; /* no launch may wait for what is not asked about any more */
        if (egpu_passes(out.reason)) {
            pass(&visit, launch, out.reason);
            break;
        }
        wait_at(&visit, launch, &out);
        visit.in.now_ns = egpu_now_ns();
        if (visit.in.now_ns - refreshed >= REFRESH_NS) {
            refreshed = visit.in.now_ns;
            visit.control = egpu_control_refresh();
            egpu_near_refresh(visit.control);
            egpu_needs_look(visit.control, refreshed);
            launch->needs |= egpu_needs[visit.index] & EGPU_NEED_CAP;
        } else {
            visit.control = egpu_control_now();
        }
    }
    launch->now_ns = visit.in.now_ns;
}
