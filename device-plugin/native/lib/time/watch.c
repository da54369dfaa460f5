/* The thread that sees work end: started at a process's first launch, asleep most of the time after its last. */
#define _GNU_SOURCE
#include "flight.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AGAIN_NS = 1000 * 1000 * 1000, STALE_NS = 200 * 1000, REFRESH_NS = 50 * 1000 * 1000, QUIET_NS = 200 * 1000 * 1000 };
enum { PROMPT_LEAST_NS = 40 * 1000, PROMPT_MOST_NS = 200 * 1000, TICK_NS = 1000 * 1000, LONG_TICK_NS = 4 * TICK_NS, IDLE_NS = 100 * 1000 * 1000,
       LEAVE_NS = 1000 * 1000 * 1000, /* a driver that hangs does not keep the program from its end */
       WANTED_NS = 30 * 1000 * 1000, WAITED_NS = 1000 * 1000 * 1000 };

EGPU_LINE _Atomic uint32_t egpu_watch_state;
static _Atomic bool watching; /* the thread may be in the driver */
EGPU_LINE static _Atomic uint32_t bell; /* futex; 1: look now */
EGPU_LINE static _Atomic uint32_t asleep; /* for longer than a tick */
EGPU_LINE static _Atomic int64_t last_launch_ns;
EGPU_LINE static int64_t copied_ns; /* of the neighbours' pages; the watcher's own */

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);

static uint64_t most_pause_ns(const struct egpu_control *control) {
    return control->hysteresis_us != 0 ? control->hysteresis_us * 1000ull : 500000;
}

static void ring(void) {
    if (atomic_exchange(&bell, 1) == 0)
        syscall(SYS_futex, &bell, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static void rest(int64_t wait_ns, bool deep) {
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (deep)
        atomic_store(&asleep, 1);
    for (int i = 0; deep && wait_ns > TICK_NS && i < EGPU_ACTIVITY_CARDS; i++)
        if (egpu_announced[i]) /* by one who did not see that we go to sleep */
            time = (struct timespec){.tv_nsec = TICK_NS};
    syscall(SYS_futex, &bell, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &time, NULL, 0);
    atomic_store(&bell, 0);
    atomic_store(&asleep, 0);
}

/* Says that the process is idle on the card once it is. Returns when to look again. */
static int64_t follow_pulse(int index, const struct egpu_control *control, bool wake, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    if (!egpu_announced[index])
        return INT64_MAX;
    egpu_spin_lock(&card->lock);
    if (card->flying == 0 && card->pulse.busy)
        egpu_pulse_ended(&card->pulse, card->last_end_ns != 0 ? card->last_end_ns : now_ns);
    else if (card->flying != 0 && !card->pulse.busy)
        egpu_pulse_launch(&card->pulse, now_ns, most_pause_ns(control));
    if (card->capped != 0 && card->flying == 0)
        egpu_pulse_capped(&card->pulse);
    int64_t until = egpu_pulse_until(&card->pulse, now_ns, most_pause_ns(control));
    egpu_spin_unlock(&card->lock);
    if (until != 0)
        return until;
    atomic_store(&egpu_announced[index], 0);
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    if (atomic_load(&card->flying) != 0) { /* launched just now, by one who saw it announced */
        atomic_store(&egpu_announced[index], 1);
        return INT64_MAX;
    }
    egpu_say_idle(index, now_ns, egpu_lease_ns(control), wake);
    struct egpu_others others = egpu_others_in_flight(index, now_ns, egpu_lease_ns(control));
    if (others.queued_ns == 0 && !others.alone)
        page->started_ns = 0;
    return INT64_MAX;
}

/* No neighbour on a card of ours has work or lately wanted to have it: nobody's time is to be told from ours. */
static bool all_to_itself(const struct egpu_near_all *all, uint64_t lease_ns, uint64_t now_ns) {
    for (uint32_t i = 0; i < all->count; i++) {
        const struct egpu_activity_card *other = all->near[i].card;
        bool lives = egpu_sub(now_ns, other->beat_ns) < lease_ns;
        if (lives && (other->word & EGPU_WORD_ACTIVE || other->started_ns != 0))
            return false;
        if (egpu_sub(now_ns, other->wanted_ns) < (uint64_t)WANTED_NS)
            return false;
    }
    return true;
}

/* A neighbour of lower class works, or lately did: it may be waiting for us. */
static bool waited_for(const struct egpu_near_all *all, uint64_t now_ns) {
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].below && egpu_sub(now_ns, all->near[i].card->wanted_ns) < (uint64_t)WAITED_NS)
            return true;
    return false;
}

/* Low, on some card where a high share sits. */
static bool bounded(const struct egpu_control *control) {
    bool any = false;
    for (uint32_t i = 0; i < control->card_count; i++)
        any |= control->cards[i].flags & EGPU_CARD_HIGH_HERE;
    return any && control->own_class == EGPU_CLASS_LOW;
}

static bool settles(struct egpu_card *card) {
    egpu_spin_lock(&card->lock);
    bool any = card->settling != NULL;
    egpu_spin_unlock(&card->lock);
    return any;
}

/* One look at everything. Returns how long to rest; `prompt`: less long at the next launch. */
static int64_t look(const struct egpu_real *real, const struct egpu_control *control, int64_t now_ns, bool *prompt) {
    const bool below = egpu_near_now()->any_below;
    bool busy = false;
    uint64_t lease = egpu_lease_ns(control);
    egpu_slot_own(now_ns, lease)->beat_ns = (uint64_t)now_ns;
    if (now_ns - copied_ns >= TICK_NS / 2) {
        copied_ns = now_ns;
        egpu_near_copy(egpu_near_now(), now_ns);
    }
    *prompt = below && waited_for(egpu_near_now(), (uint64_t)now_ns);
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++)
        *prompt |= egpu_cards[i].turns && egpu_turns_asked(i, now_ns);
    const uint64_t slots = egpu_activity_own()->slots_used;
    const bool one = (slots & (slots - 1)) == 0; /* its sibling has to know soon what it ran, the ring is short */
    bool alone = one && lease > 3 * LONG_TICK_NS && all_to_itself(egpu_near_now(), lease, (uint64_t)now_ns);
    const bool short_queue = bounded(control); /* what has ended must soon be known to have */
    egpu_batch_ns = alone ? EGPU_LONG_BATCH_NS : EGPU_BATCH_NS;
    int64_t next = now_ns + (alone && !short_queue ? LONG_TICK_NS : TICK_NS);
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++) {
        struct egpu_card *card = &egpu_cards[i];
        if (!card->used)
            continue;
        struct egpu_activity_card *page = &egpu_activity_own()->cards[i];
        egpu_flight_flush(real, i, now_ns - (*prompt ? PROMPT_LEAST_NS : STALE_NS));
        egpu_crowd_note(i, now_ns, lease);
        if (card->turns)
            egpu_turns_say(i, now_ns, lease); /* also what processes had in flight that are gone */
        egpu_resolve(real, i, now_ns);
        egpu_settle_card(i, now_ns);
        int64_t until = follow_pulse(i, control, below, now_ns);
        if (egpu_announced[i])
            page->beat_ns = (uint64_t)now_ns;
        if (egpu_announced[i] && (page->word & EGPU_WORD_ACTIVE) == 0) /* it was taken for dead: it had not run for long */
            egpu_say_active(i, now_ns, lease, below);
        busy |= egpu_announced[i] || settles(card) || card->capped;
        if (*prompt && egpu_announced[i]) {
            int64_t end = card->begin_ns + (int64_t)card->oldest_ns;
            int64_t soon = until != INT64_MAX ? until : end > now_ns + PROMPT_LEAST_NS ? end : now_ns + PROMPT_LEAST_NS;
            soon = soon < now_ns + PROMPT_MOST_NS ? soon : now_ns + PROMPT_MOST_NS;
            next = soon < next ? soon : next;
        }
    }
    if (!busy && now_ns - last_launch_ns > QUIET_NS)
        return lease / 3 < IDLE_NS ? (int64_t)(lease / 3) : IDLE_NS;
    return next > now_ns ? next - now_ns : 1;
}

static void follow(void) {
    const struct egpu_real *real = egpu_driver();
    int64_t refreshed = 0;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    prctl(PR_SET_NAME, "egpu-watch", 0, 0, 0);
    if (real->cuThreadExchangeStreamCaptureMode)
        real->cuThreadExchangeStreamCaptureMode(&mode);
    while (!egpu_over()) {
        int64_t now = egpu_now_ns();
        const struct egpu_control *control = egpu_control_now();
        if (now - refreshed >= REFRESH_NS) {
            control = egpu_control_refresh();
            egpu_near_refresh(control);
            egpu_activity_again(now, egpu_lease_ns(control));
            refreshed = now;
            egpu_contexts_anchor(real, now);
            egpu_captures_check(real, now);
        }
        bool prompt;
        int64_t wait = look(real, control, now, &prompt);
        egpu_rates(control, now);
        const bool deep = wait > LONG_TICK_NS || prompt;
        if (deep || !egpu_near_listen(egpu_near_now(), control, now, wait))
            rest(wait, deep);
    }
}

static void *watch(void *unused) {
    if (!egpu_over())
        follow();
    atomic_store(&watching, false);
    return unused;
}

/* Some thread of ours is asking the driver, or is about to. */
static bool asking(void) {
    bool any = atomic_load(&watching) || atomic_load(&egpu_streams_lock.holder) != 0;
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++)
        any |= atomic_load(&egpu_cards[i].polling) != 0;
    return any;
}

/* Registered after the driver's own exit handler, and so called before that: whoever asks the driver later is in memory
 * that is gone. */
static void at_exit(void *unused) {
    (void)unused;
    if (atomic_exchange(&egpu_watch_state, EGPU_WATCH_OVER) == EGPU_WATCH_NONE)
        return;
    ring();
    for (int64_t until = egpu_now_ns() + LEAVE_NS; asking() && egpu_now_ns() < until;)
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
}

static void child(void) { /* its parent's work is not its own, and it has no watcher yet */
    atomic_store(&egpu_watch_state, EGPU_WATCH_NONE);
    atomic_store(&watching, false);
    atomic_store(&bell, 0);
    egpu_streams_lock.holder = 0;
    egpu_slot_forget();
    egpu_flight_forget();
    egpu_captures_forget();
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++) {
        struct egpu_card *card = &egpu_cards[i];
        card->flying = card->unknown = egpu_announced[i] = card->capped = card->polling = card->lock.held = 0;
        card->pending = card->settling = NULL;
        card->due_ns = card->begin_ns = 0;
    }
}

/* Once for the process and its children. */
static void register_ends(void) {
    static _Atomic uint32_t registered;
    extern void *__dso_handle __attribute__((weak));
    if (atomic_exchange(&registered, 1))
        return;
    int (*at_end)(void (*)(void *), void *, void *) = (__typeof__(at_end))egpu_libc("__cxa_atexit");
    __register_atfork(NULL, NULL, child, &__dso_handle);
    if (at_end)
        at_end(at_exit, NULL, &__dso_handle);
}

static bool start_thread(void) {
    int (*make)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (__typeof__(make))egpu_libc("pthread_create");
    int (*mask)(int, const sigset_t *, sigset_t *) = (__typeof__(mask))egpu_libc("pthread_sigmask");
    int (*detach)(pthread_t) = (__typeof__(detach))egpu_libc("pthread_detach");
    sigset_t all, kept;
    sigfillset(&all);
    pthread_t thread;
    if (mask)
        mask(SIG_SETMASK, &all, &kept); /* the program's signals are for its own threads */
    atomic_store(&watching, true);
    bool made = make != NULL && make(&thread, NULL, watch, NULL) == 0;
    if (mask)
        mask(SIG_SETMASK, &kept, NULL);
    if (made && detach)
        detach(thread);
    if (!made) {
        atomic_store(&watching, false);
        egpu_say_once("watcher", "no thread can be started: shares are kept less exactly");
    }
    return made;
}

bool egpu_watch_begin(void) {
    static _Atomic int64_t again_ns; /* when a thread that could not be started is asked for again */
    uint32_t before = EGPU_WATCH_NONE;
    const int64_t again = atomic_load(&again_ns);
    if (again && again > egpu_now_ns()) /* mostly there is none, and no clock to read */
        return !egpu_over();
    if (!atomic_compare_exchange_strong(&egpu_watch_state, &before, EGPU_WATCH_STARTS))
        return before != EGPU_WATCH_OVER;
    register_ends();
    bool made = false;
    const struct egpu_control *control = egpu_control_refresh();
    if (control != NULL) { /* else no limits are known, and so there is no memory, but they may be by the next launch */
        egpu_near_refresh(control);
        egpu_rates(control, egpu_now_ns());
        made = start_thread();
        atomic_store(&again_ns, made ? 0 : egpu_now_ns() + AGAIN_NS);
    }
    before = EGPU_WATCH_STARTS;
    atomic_compare_exchange_strong(&egpu_watch_state, &before, made ? EGPU_WATCH_RUNS : EGPU_WATCH_NONE);
    return !egpu_over();
}

void egpu_watch_launch(int index, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    const struct egpu_control *control = egpu_control_now();
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    if (now_ns - atomic_load_explicit(&last_launch_ns, memory_order_relaxed) > TICK_NS) {
        atomic_store_explicit(&last_launch_ns, now_ns, memory_order_relaxed);
        page->wanted_ns = (uint64_t)now_ns;
    }
    if (__builtin_expect(atomic_load(&egpu_announced[index]), 1))
        return;
    card->used = 1;
    egpu_spin_lock(&card->lock);
    egpu_pulse_launch(&card->pulse, now_ns, most_pause_ns(control));
    egpu_spin_unlock(&card->lock);
    uint64_t none = 0;
    atomic_compare_exchange_strong(&page->started_ns, &none, (uint64_t)now_ns);
    egpu_say_active(index, now_ns, egpu_lease_ns(control), egpu_near_now()->any_below);
    atomic_store(&egpu_announced[index], 1);
    if (atomic_load(&asleep))
        ring();
}
