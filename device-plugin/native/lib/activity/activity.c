/* The pages by which containers of one node tell each other when they have work on a card. */
#define _GNU_SOURCE
#include "activity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t TOLD_NS = EGPU_WORDS_QUIET_NS / 2;

EGPU_LINE _Atomic uint32_t egpu_announced[EGPU_ACTIVITY_CARDS];

static _Atomic(struct egpu_activity *) own;
static _Atomic(struct egpu_activity_slot *) own_slot;
static _Atomic uint64_t own_owner; /* what stands in it, as long as it is ours */
static struct egpu_lock opening;
static _Atomic bool own_alone; /* the page is memory of this process alone */
static _Atomic bool ends; /* the program does: whoever still runs here says and takes nothing more */
static struct egpu_activity_slot nowhere; /* where all are taken: not seen by the other processes */

/* --- this container's page ------------------------------------------------------------------------ */

/* NULL: it cannot be had. */
static struct egpu_activity *map_shared(void) {
    char buffer[512];
    const char *path = egpu_path(EGPU_ACTIVITY_PATH, buffer, sizeof buffer);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat is;
    void *page = MAP_FAILED;
    if (file >= 0 && fstat(file, &is) == 0 &&
        (is.st_size >= EGPU_ACTIVITY_BYTES || ftruncate(file, EGPU_ACTIVITY_BYTES) == 0))
        page = mmap(NULL, EGPU_ACTIVITY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (page != MAP_FAILED)
        return page;
    egpu_say_once("activity", "%s cannot be used: the share of time is kept for each process by itself", path);
    return NULL;
}

static struct egpu_activity *memory_instead(void) {
    static struct egpu_activity last_resort;
    void *page = mmap(NULL, EGPU_ACTIVITY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return page != MAP_FAILED ? page : &last_resort;
}

static void use_own(struct egpu_activity *page, bool alone) {
    page->magic = EGPU_ACTIVITY_MAGIC;
    page->abi_major = EGPU_ABI_MAJOR;
    page->bytes = sizeof *page;
    atomic_store(&own_alone, alone);
    atomic_store_explicit(&own, page, memory_order_release);
}

struct egpu_activity *egpu_activity_own(void) {
    struct egpu_activity *page = atomic_load_explicit(&own, memory_order_acquire);
    if (page != NULL)
        return page;
    const int kept_errno = errno;
    egpu_lock(&opening);
    page = atomic_load_explicit(&own, memory_order_acquire);
    if (page == NULL) {
        page = map_shared();
        const bool alone = page == NULL;
        use_own(page = alone ? memory_instead() : page, alone);
    }
    egpu_unlock(&opening);
    errno = kept_errno;
    return page;
}

/* Neighbours, and the other processes here, go by the page: what was not to be had, as without a descriptor, may be now.
 * The memory that stood for it stays: others may just be writing into it. */
static void own_again(void) {
    const int kept_errno = errno;
    egpu_lock(&opening);
    struct egpu_activity *page = map_shared();
    if (page != NULL) {
        use_own(page, false);
        atomic_store(&own_slot, NULL);
    }
    egpu_unlock(&opening);
    errno = kept_errno;
}

/* --- this container's processes ------------------------------------------------------------------- */

static bool lives(const struct egpu_activity_slot *slot, int64_t now_ns, uint64_t lease_ns) {
    uint64_t beat = slot->beat_ns, now = (uint64_t)now_ns;
    return slot->owner != 0 && (beat >= now || now - beat <= lease_ns);
}

static uint64_t own_number(void) { /* pids may be the same in two namespaces that share a page */
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return ((uint64_t)getpid() << 40 ^ (uint64_t)time.tv_sec << 30 ^ (uint64_t)time.tv_nsec) | 1;
}

static bool take_slot(struct egpu_activity_slot *one, uint64_t number, int64_t now_ns, uint64_t lease_ns) {
    uint64_t owner = one->owner;
    if (lives(one, now_ns, lease_ns) || !atomic_compare_exchange_strong(&one->owner, &owner, number))
        return false;
    one->beat_ns = (uint64_t)now_ns;
    one->active = 0;
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++) {
        one->queued_ns[card] = one->due_ns[card] = 0;
        if (egpu_announced[card])
            atomic_fetch_or(&one->active, 1u << card);
    }
    return true;
}

/* Ours: whoever was stopped for longer than the lease, or had no processor for so long, may find another process in it. */
static bool is_own(const struct egpu_activity_slot *slot) {
    return slot != NULL && atomic_load_explicit(&slot->owner, memory_order_relaxed) ==
                               atomic_load_explicit(&own_owner, memory_order_relaxed);
}

/* Under the lock. */
static struct egpu_activity_slot *find_slot(uint64_t number, int64_t now_ns, uint64_t lease_ns) {
    struct egpu_activity *page = atomic_load(&own);
    for (int i = 0; i < EGPU_ACTIVITY_SLOTS && !atomic_load(&ends); i++)
        if (take_slot(&page->slots[i], number, now_ns, lease_ns)) {
            atomic_fetch_or(&page->slots_used, 1ull << i);
            return &page->slots[i];
        }
    nowhere.owner = number;
    return &nowhere;
}

struct egpu_activity_slot *egpu_slot_own(int64_t now_ns, uint64_t lease_ns) {
    struct egpu_activity_slot *slot = atomic_load_explicit(&own_slot, memory_order_acquire);
    if (__builtin_expect(is_own(slot), 1))
        return slot;
    if (now_ns == 0) {
        now_ns = egpu_now_ns();
        lease_ns = egpu_lease_ns(egpu_control_now());
    }
    egpu_activity_own();
    egpu_lock(&opening);
    slot = atomic_load_explicit(&own_slot, memory_order_acquire);
    if (!is_own(slot)) {
        const uint64_t number = own_number();
        slot = find_slot(number, now_ns, lease_ns);
        atomic_store_explicit(&own_owner, number, memory_order_relaxed);
        atomic_store_explicit(&own_slot, slot, memory_order_release);
    }
    egpu_unlock(&opening);
    return slot;
}

/* A place among the processes of the container, once another has ended: with what is in flight, which each of them ends. */
static void slot_again(int64_t now_ns, uint64_t lease_ns) {
    egpu_lock(&opening);
    const uint64_t number = own_number();
    struct egpu_activity_slot *slot = find_slot(number, now_ns, lease_ns);
    if (slot != &nowhere) {
        for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++) {
            slot->queued_ns[card] = nowhere.queued_ns[card];
            slot->due_ns[card] = nowhere.due_ns[card];
        }
    }
    atomic_store_explicit(&own_owner, number, memory_order_relaxed);
    atomic_store_explicit(&own_slot, slot, memory_order_release);
    egpu_unlock(&opening);
}

void egpu_activity_again(int64_t now_ns, uint64_t lease_ns) {
    if (atomic_load(&own_alone))
        own_again();
    if (atomic_load(&own_slot) == &nowhere)
        slot_again(now_ns, lease_ns);
}

void egpu_slot_leave(void) {
    struct egpu_activity *page = egpu_activity_own();
    struct egpu_activity_slot *slot = atomic_exchange(&own_slot, NULL);
    if (!is_own(slot) || slot < page->slots || slot >= page->slots + EGPU_ACTIVITY_SLOTS)
        return;
    atomic_fetch_and(&page->slots_used, ~egpu_own_slot_bit(page, slot));
    slot->active = 0;
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++)
        slot->queued_ns[card] = slot->due_ns[card] = 0;
    slot->owner = 0;
}

/* At the end of the program its neighbours need not wait until its lease runs out. */
__attribute__((destructor)) static void leave(void) {
    struct egpu_activity *page = atomic_load(&own);
    struct egpu_activity_slot *slot = atomic_load(&own_slot);
    atomic_store(&ends, true);
    if (page == NULL || !is_own(slot))
        return;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++)
        if (slot->active >> card & 1)
            egpu_say_idle(card, (int64_t)time.tv_sec * 1000000000 + time.tv_nsec, 1000000000, true);
    egpu_slot_leave();
}

void egpu_slot_forget(void) {
    atomic_store(&own_slot, NULL);
    atomic_store(&ends, false);
    opening.holder = 0;
    egpu_near_forget();
}

void egpu_say_active(int card, int64_t now_ns, uint64_t lease_ns, bool tell) {
    struct egpu_activity_card *mine = &egpu_activity_own()->cards[card];
    struct egpu_activity_slot *slot = egpu_slot_own(now_ns, lease_ns);
    slot->beat_ns = (uint64_t)now_ns;
    atomic_fetch_or(&slot->active, 1u << card);
    mine->beat_ns = (uint64_t)now_ns;
    uint32_t word = mine->word;
    /* Who listens to the word has seen no change of it for longer than that. */
    tell &= egpu_sub((uint64_t)now_ns, mine->progress_ns) > (uint64_t)TOLD_NS;
    if ((word & EGPU_WORD_ACTIVE) == 0)
        mine->progress_ns = (uint64_t)now_ns;
    /* Changes also where it is active already: whoever is about to say idle looks again. */
    while (!atomic_compare_exchange_weak(&mine->word, &word, (word + 2) | EGPU_WORD_ACTIVE)) {
    }
    if (tell)
        syscall(SYS_futex, &mine->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    if (__builtin_expect(atomic_load(&ends), 0)) /* it may have said idle before this */
        egpu_say_idle(card, now_ns, lease_ns, true);
}

void egpu_say_idle(int card, int64_t now_ns, uint64_t lease_ns, bool wake) {
    struct egpu_activity *page = egpu_activity_own();
    struct egpu_activity_card *mine = &page->cards[card];
    atomic_fetch_and(&egpu_slot_own(now_ns, lease_ns)->active, ~(1u << card));
    uint32_t word = mine->word;
    for (;;) {
        bool others = false;
        for (int i = 0; i < EGPU_ACTIVITY_SLOTS; i++)
            others |= (page->slots[i].active >> card & 1) && lives(&page->slots[i], now_ns, lease_ns);
        if (others || (word & EGPU_WORD_ACTIVE) == 0)
            return;
        if (atomic_compare_exchange_strong(&mine->word, &word, (word + 2) & ~(uint32_t)EGPU_WORD_ACTIVE))
            break;
    }
    if (wake)
        syscall(SYS_futex, &mine->word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

struct egpu_others egpu_others_in_flight(int card, int64_t now_ns, uint64_t lease_ns) {
    struct egpu_activity *page = egpu_activity_own();
    const struct egpu_activity_slot *self = atomic_load_explicit(&own_slot, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&page->slots_used, memory_order_acquire);
    struct egpu_others sum = {0};
    for (; used != 0; used &= used - 1) {
        int i = __builtin_ctzll(used);
        const struct egpu_activity_slot *slot = &page->slots[i % EGPU_ACTIVITY_SLOTS];
        if (slot == self || (slot->queued_ns[card] == 0 && slot->due_ns[card] == 0) || !lives(slot, now_ns, lease_ns))
            continue;
        sum.queued_ns = egpu_add(sum.queued_ns, slot->queued_ns[card]);
        uint64_t due = slot->due_ns[card];
        sum.count += due != 0;
        if (due != 0 && (sum.due_ns == 0 || due < sum.due_ns))
            sum.due_ns = due;
    }
    return sum;
}
