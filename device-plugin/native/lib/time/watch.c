/* The thread that sees work end: started at a process's first launch, asleep most of the time after its last. */
#define _GNU_SOURCE
#include "launch.h"

#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    AGAIN_NS = 1000 * 1000 * 1000,
    REFRESH_NS = 50 * 1000 * 1000,   /* a change of limits and neighbours is seen so soon */
    TICK_NS = 1000 * 1000,           /* while something is in flight that somebody has to know of */
    PROMPT_NS = 60 * 1000,           /* the same, while a lower class waits */
    QUIET_NS = 200 * 1000 * 1000,
    LEAVE_NS = 1000 * 1000 * 1000,   /* a driver that hangs does not keep the program from its end */
    WAITED_NS = 1000 * 1000 * 1000,
};

EGPU_LINE _Atomic uint32_t egpu_watch_state;
static _Atomic bool watching; /* the thread may be in the driver */
EGPU_LINE static _Atomic uint32_t bell; /* futex; 1: look now */
EGPU_LINE static _Atomic uint32_t asleep; /* for longer than a tick */
EGPU_LINE static _Atomic int64_t last_launch_ns;

extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *);

static uint64_t most_pause_ns(const struct egpu_control *control) {
    return control->hysteresis_us != 0 ? control->hysteresis_us * 1000ull : 500000;
}

static void ring(void) {
    if (atomic_exchange(&bell, 1) == 0)
        syscall(SYS_futex, &bell, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

static void rest(int64_t wait_ns) {
    const bool deep = wait_ns > TICK_NS;
    if (deep)
        atomic_store(&asleep, 1);
    for (int i = 0; deep && i < EGPU_ACTIVITY_CARDS; i++)
        if (egpu_announced[i]) /* by one who did not see that we go to sleep */
            wait_ns = TICK_NS;
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    syscall(SYS_futex, &bell, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, 0, &time, NULL, 0);
    atomic_store(&bell, 0);
    atomic_store(&asleep, 0);
}

/* Under a cap alone no event tells of most launches: then the last one does, more or less. */
static bool in_flight(int index, int64_t now_ns) {
    const struct egpu_card *card = &egpu_cards[index];
    const bool told = egpu_needs[index] & (EGPU_NEED_TELL | EGPU_NEED_BOUND);
    return card->open != 0 || card->vague_until_ns > now_ns || (!told && now_ns - last_launch_ns < 2 * TICK_NS);
}

/* Says that the process is idle on the card once it is. */
static void follow_pulse(int index, const struct egpu_control *control, bool wake, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    if (!egpu_announced[index])
        return;
    const bool busy = in_flight(index, now_ns);
    egpu_spin_lock(&card->lock);
    if (!busy && card->pulse.busy)
        egpu_pulse_ended(&card->pulse, card->last_end_ns != 0 ? card->last_end_ns : now_ns);
    else if (busy && !card->pulse.busy)
        egpu_pulse_launch(&card->pulse, now_ns, most_pause_ns(control));
    if (card->waiting != 0 && !busy)
        egpu_pulse_capped(&card->pulse);
    const int64_t until = egpu_pulse_until(&card->pulse, now_ns, most_pause_ns(control));
    egpu_spin_unlock(&card->lock);
    if (until != 0)
        return;
    atomic_store(&egpu_announced[index], 0);
    if (in_flight(index, now_ns)) /* launched just now, by one who saw it announced */
        atomic_store(&egpu_announced[index], 1);
    else
        egpu_say_idle(index, now_ns, egpu_lease_ns(control), wake);
}

/* A neighbour of lower class works, or lately did: it may be waiting for us. */
static bool waited_for(const struct egpu_near_all *all, uint64_t now_ns) {
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].below && egpu_sub(now_ns, all->near[i].card->wanted_ns) < (uint64_t)WAITED_NS)
            return true;
    return false;
}

/* One card that launches are looked at on. True: something is in flight there. */
static bool look_at(const struct egpu_real *real, const struct egpu_control *control, int index, int64_t now_ns) {
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    const bool below = egpu_near_now()->any_below;
    egpu_streams_resolve(real, index, now_ns);
    egpu_true_up(index, now_ns);
    follow_pulse(index, control, below, now_ns);
    if (egpu_cards[index].open != 0 || egpu_cards[index].waiting != 0)
        page->wanted_ns = (uint64_t)now_ns;
    if (egpu_announced[index])
        page->beat_ns = (uint64_t)now_ns;
    if (egpu_announced[index] && (page->word & EGPU_WORD_ACTIVE) == 0) /* it was taken for dead: it had not run for long */
        egpu_say_active(index, now_ns, egpu_lease_ns(control), below);
    return egpu_announced[index] || egpu_cards[index].open != 0 || egpu_cards[index].waiting != 0;
}

/* Launches that nobody has to know of: of the container's one card, or of none. */
static void tell_launches(const struct egpu_control *control) {
    static uint64_t told;
    const uint64_t now = egpu_launches();
    if (now != told && control->card_count == 1)
        atomic_fetch_add(&egpu_activity_own()->cards[0].units, now - told);
    told = now;
}

/* One look at everything. Returns how long to rest. */
static int64_t look(const struct egpu_real *real, const struct egpu_control *control, int64_t now_ns) {
    const uint64_t lease = egpu_lease_ns(control);
    bool busy = false;
    if (egpu_any_need == 0)
        return REFRESH_NS;
    egpu_slot_own(now_ns, lease)->beat_ns = (uint64_t)now_ns;
    if (now_ns - egpu_near_copied_ns() >= TICK_NS)
        egpu_near_copy(egpu_near_now(), now_ns);
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++)
        if (egpu_cards[i].used)
            busy |= look_at(real, control, i, now_ns);
    if (!busy && now_ns - last_launch_ns > QUIET_NS)
        return (int64_t)(lease / 3) < REFRESH_NS ? (int64_t)(lease / 3) : REFRESH_NS;
    return busy && egpu_near_now()->any_below && waited_for(egpu_near_now(), (uint64_t)now_ns) ? PROMPT_NS : TICK_NS;
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
            egpu_near_copy(egpu_near_now(), now);
            egpu_activity_again(now, egpu_lease_ns(control));
            tell_launches(control);
            refreshed = now;
        }
        egpu_needs_look(control, now);
        const int64_t wait = look(real, control, now);
        if (wait != TICK_NS || !egpu_near_listen(egpu_near_now(), control, now, wait))
            rest(wait);
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
    bool any = atomic_load(&watching);
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
    egpu_slot_forget();
    egpu_streams_forget();
    for (int i = 0; i < EGPU_ACTIVITY_CARDS; i++) {
        struct egpu_card *card = &egpu_cards[i];
        card->open = card->waiting = egpu_announced[i] = card->polling = card->lock.held = 0;
        card->due_ns = card->vague_until_ns = 0;
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
        egpu_needs_look(control, egpu_now_ns());
        made = start_thread();
        atomic_store(&again_ns, made ? 0 : egpu_now_ns() + AGAIN_NS);
    }
    before = EGPU_WATCH_STARTS;
    atomic_compare_exchange_strong(&egpu_watch_state, &before, made ? EGPU_WATCH_RUNS : EGPU_WATCH_NONE);
    return !egpu_over();
}

void egpu_watch_launch(int index, uint32_t needs, int64_t now_ns) {
    struct egpu_card *card = &egpu_cards[index];
    const struct egpu_control *control = egpu_control_now();
    struct egpu_activity_card *page = &egpu_activity_own()->cards[index];
    if (now_ns - atomic_load_explicit(&last_launch_ns, memory_order_relaxed) > TICK_NS) {
        atomic_store_explicit(&last_launch_ns, now_ns, memory_order_relaxed);
        page->wanted_ns = (uint64_t)now_ns;
        card->used = 1;
        if (atomic_load(&asleep))
            ring();
    }
    if (__builtin_expect(atomic_load(&egpu_announced[index]), 1) || needs == EGPU_NEED_WANT)
        return;
    card->used = 1;
    egpu_spin_lock(&card->lock);
    egpu_pulse_launch(&card->pulse, now_ns, most_pause_ns(control));
    egpu_spin_unlock(&card->lock);
    egpu_say_active(index, now_ns, egpu_lease_ns(control), egpu_near_now()->any_below);
    atomic_store(&egpu_announced[index], 1);
    if (atomic_load(&asleep))
        ring();
}
