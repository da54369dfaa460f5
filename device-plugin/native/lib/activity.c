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

#include "flight.h"

enum { NAMES = 256, LISTS = 32, COPIES = 512 };
static const int64_t TOLD_NS = EGPU_WORDS_QUIET_NS / 2;

static _Atomic(struct egpu_activity *) own;
static _Atomic(struct egpu_activity_slot *) own_slot;
static _Atomic uint64_t own_owner; /* what stands in it, as long as it is ours */
static struct egpu_lock opening;
static _Atomic bool own_alone; /* the page is memory of this process alone */
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

/* --- neighbours ----------------------------------------------------------------------------------- */

/* A neighbour's page stays mapped, since someone may be waiting on it, and has its copies, until no list that is still
 * there names it: a program that runs for weeks has more neighbours than there are places, one after the other. */
static struct { char name[EGPU_NAME_BYTES]; const struct egpu_activity *page; ino_t inode; uint32_t named; } mapped[NAMES];
static struct egpu_activity_card copies[COPIES];
static struct { const struct egpu_activity_card *there; uint32_t named; } copies_of[COPIES];
static struct egpu_near_all lists[LISTS];
static uint32_t lists_made;
static _Atomic(const struct egpu_near_all *) near_list = &lists[0];
static struct egpu_lock listing;

static bool nobody_names(uint32_t named) { return lists_made - named >= LISTS; }

/* The page of that file: mapped already, or in a free place. */
static const struct egpu_activity *map_file(const char *name, int file, ino_t inode) {
    uint32_t place = NAMES;
    for (uint32_t i = 0; i < NAMES; i++) {
        if (mapped[i].page != NULL && mapped[i].inode == inode && strcmp(mapped[i].name, name) == 0) {
            mapped[i].named = lists_made;
            return mapped[i].page;
        }
        if (place == NAMES && (mapped[i].page == NULL || nobody_names(mapped[i].named)))
            place = i;
    }
    if (place == NAMES)
        return NULL;
    void *at = (void *)(uintptr_t)mapped[place].page; /* there is a page at any time: some may read it as it lies there */
    void *there = mmap(at, EGPU_ACTIVITY_BYTES, PROT_READ, MAP_SHARED | (at != NULL ? MAP_FIXED : 0), file, 0);
    if (there == MAP_FAILED)
        return NULL;
    snprintf(mapped[place].name, EGPU_NAME_BYTES, "%s", name);
    mapped[place].inode = inode;
    mapped[place].named = lists_made;
    return mapped[place].page = there;
}

static const struct egpu_activity *map_peer(const char *name) {
    char folder[512], path[640];
    struct stat is;
    if (strchr(name, '/') != NULL || name[0] == '.' || name[0] == 0)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", egpu_path(EGPU_PEERS_FOLDER, folder, sizeof folder), name);
    /* O_NONBLOCK: a neighbour's root may hold a lease on its page, and nobody waits for that. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0)
        return NULL;
    const struct egpu_activity *page = NULL;
    if (fstat(file, &is) == 0 && S_ISREG(is.st_mode) && is.st_size >= EGPU_ACTIVITY_BYTES)
        page = map_file(name, file, is.st_ino);
    close(file);
    return page;
}

static struct egpu_activity_card *copy_of(const struct egpu_activity_card *there) {
    int place = COPIES;
    for (int i = 0; i < COPIES && (place == COPIES || copies_of[place].there != there); i++)
        if (copies_of[i].there == there ||
            (place == COPIES && (copies_of[i].there == NULL || nobody_names(copies_of[i].named))))
            place = i;
    if (place == COPIES)
        return NULL;
    copies_of[place].there = there;
    copies_of[place].named = lists_made;
    return &copies[place];
}

static void add_near(struct egpu_near_all *list, const struct egpu_activity *page, uint32_t card, int own_card,
                     const struct egpu_near *how) {
    if (list->count == sizeof list->near / sizeof *list->near || card >= EGPU_ACTIVITY_CARDS)
        return;
    struct egpu_activity_card *copy = copy_of(&page->cards[card]);
    if (copy == NULL) {
        list->missing = true;
        return;
    }
    struct egpu_near *near = &list->near[list->count];
    *near = *how;
    near->card = copy;
    near->there = &page->cards[card];
    near->own_card = own_card;
    egpu_near_copy_card(&list->near[list->count++], sizeof *copy);
    list->above += how->above;
    list->any_below |= how->below;
}

static void add_peer(struct egpu_near_all *list, const struct egpu_control *control,
                     const struct egpu_control_peer *peer, bool only_above) {
    const bool low = control->own_class == EGPU_CLASS_LOW, high = control->own_class == EGPU_CLASS_HIGH;
    const struct egpu_near how = {.above = low && peer->peer_class == EGPU_CLASS_HIGH,
                                  .below = high && peer->peer_class == EGPU_CLASS_LOW,
                                  .even = low && peer->peer_class == EGPU_CLASS_LOW};
    if (how.above != only_above)
        return;
    const struct egpu_activity *page = map_peer(peer->name);
    if (page == NULL) {
        list->missing = true;
        return;
    }
    uint32_t done = 0; /* cards of the peer that are in the list already */
    for (uint32_t i = 0; i < control->card_count; i++)
        if (peer->cards >> i & 1 && peer->peer_card_of[i] < EGPU_ACTIVITY_CARDS) {
            add_near(list, page, peer->peer_card_of[i], (int)i, &how);
            done |= 1u << peer->peer_card_of[i];
        }
    for (uint32_t j = 0; how.above && j < EGPU_ACTIVITY_CARDS; j++)
        if (peer->pod_cards >> j & 1 && !(done >> j & 1))
            add_near(list, page, j, -1, &how);
}

const struct egpu_near_all *egpu_near_now(void) { return atomic_load_explicit(&near_list, memory_order_acquire); }

void egpu_near_refresh(const struct egpu_control *control) {
    const struct egpu_near_all *now = egpu_near_now();
    if (control == NULL || (now->sequence == control->sequence + 1 && !now->missing))
        return;
    const int kept_errno = errno;
    egpu_lock(&listing);
    struct egpu_near_all *list = &lists[++lists_made % LISTS]; /* a reader has LISTS - 1 changes of time */
    memset(list, 0, sizeof *list);
    list->sequence = control->sequence + 1; /* 0: made from none */
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < control->peer_count && i < EGPU_MAX_PEERS; i++)
            add_peer(list, control, &control->peers[i], pass == 0);
    atomic_store_explicit(&near_list, list, memory_order_release);
    egpu_unlock(&listing);
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
    one->active = one->alone = 0;
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++) {
        one->queued_ns[card] = one->due_ns[card] = 0;
        if (egpu_cards[card].announced)
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
    for (int i = 0; i < EGPU_ACTIVITY_SLOTS; i++)
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
        slot->alone = nowhere.alone;
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
    slot->active = slot->alone = 0;
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++)
        slot->queued_ns[card] = slot->due_ns[card] = 0;
    slot->owner = 0;
}

/* At the end of the program its neighbours need not wait until its lease runs out. */
__attribute__((destructor)) static void leave(void) {
    struct egpu_activity *page = atomic_load(&own);
    struct egpu_activity_slot *slot = atomic_load(&own_slot);
    if (page == NULL || !is_own(slot))
        return;
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    for (int card = 0; card < EGPU_ACTIVITY_CARDS; card++)
        if (slot->active >> card & 1) {
            egpu_say_idle(card, (int64_t)time.tv_sec * 1000000000 + time.tv_nsec, 1000000000, true);
            page->cards[card].started_ns = 0;
        }
    egpu_slot_leave();
}

void egpu_slot_forget(void) {
    atomic_store(&own_slot, NULL);
    opening.holder = listing.holder = 0;
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
        if (slot == self || (slot->queued_ns[card] == 0 && !(slot->alone >> card & 1)) || !lives(slot, now_ns, lease_ns))
            continue;
        sum.queued_ns = egpu_add(sum.queued_ns, slot->queued_ns[card]);
        sum.count++;
        sum.alone |= slot->alone >> card & 1;
        uint64_t due = slot->due_ns[card];
        if (due != 0 && (sum.due_ns == 0 || due < sum.due_ns))
            sum.due_ns = due;
    }
    return sum;
}
