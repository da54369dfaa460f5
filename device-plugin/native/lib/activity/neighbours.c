/* The pages of this container's neighbours, mapped, and which of their cards matter here. */
#define _GNU_SOURCE
#include "activity.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES = 256, LISTS = 32, COPIES = 512 };

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
                                  .below = high && peer->peer_class == EGPU_CLASS_LOW};
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

void egpu_near_forget(void) { listing.holder = 0; }
