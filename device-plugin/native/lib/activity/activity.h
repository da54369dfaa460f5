/* This container's activity page and those of its neighbours, mapped. */
#pragma once

#include "../../abi/activity.h"
#include "../base/internal.h"

enum { EGPU_WORDS_QUIET_NS = 100 * 1000 * 1000 }; /* words that are listened to have not changed for so long */

/* One card of a neighbour that matters here. Only the kernel touches the mapping: its owner can cut the file short,
 * and whoever read it then would die. We read copies. */
struct egpu_near {
    struct egpu_activity_card *card;
    const struct egpu_activity_card *there;
    int own_card; /* index of the card in this container's control page, -1: a card of another container of the pod */
    bool above;   /* of a higher class than this container: holds it while active */
    bool below;   /* of a lower class: waits for this container */
};

struct egpu_near_all {
    uint64_t sequence; /* of the control page that it was made from */
    bool missing;      /* some page was not there yet: try again */
    bool any_below;
    uint32_t count, above; /* near[0..above) hold this container */
    struct egpu_near near[EGPU_MAX_PEERS * 2];
};

/* This container's page, or memory of this process alone where there is none. Never NULL. */
struct egpu_activity *egpu_activity_own(void);
/* Where it is such memory, or this process has no place in it: looks whether it can be had by now. By the watcher only. */
void egpu_activity_again(int64_t now_ns, uint64_t lease_ns);
/* The neighbours by the present control page. Never NULL; valid for the life of the process. */
const struct egpu_near_all *egpu_near_now(void);
/* Looks again whether the control page names others. */
void egpu_near_refresh(const struct egpu_control *control);
void egpu_near_forget(void); /* in a forked child: whoever was at it is its parent's */

/* Copies what may not be there any more: without a fault. Cut short it says nothing. */
void egpu_near_copy_card(const struct egpu_near *near, size_t bytes);
/* Brings the copies up to now: those of the higher classes' words only, or all of all. */
void egpu_near_words(const struct egpu_near_all *all, int64_t now_ns);
void egpu_near_copy(const struct egpu_near_all *all, int64_t now_ns);

int64_t egpu_near_copied_ns(void); /* when that was last; 0: never */

/* Waits so long, or until one of the higher classes' words changes, which launches then need not look for. False, and
 * no waiting: one is active or lately was, or it cannot be waited for; then launches look. By the watcher only. */
bool egpu_near_listen(const struct egpu_near_all *all, const struct egpu_control *control, int64_t now_ns, int64_t wait_ns);

/* What a neighbour's page says, believed only so far: its beat within the lease, progress within the hang time. */
struct egpu_claim {
    uint32_t word;
    uint64_t beat_ns, progress_ns;
};
static inline bool egpu_claim_holds(const struct egpu_claim *claim, int64_t now_ns, uint64_t lease_ns, uint64_t hang_ns) {
    if ((claim->word & EGPU_WORD_ACTIVE) == 0)
        return false;
    uint64_t now = (uint64_t)now_ns;
    if (claim->beat_ns > now + lease_ns || claim->progress_ns > now + lease_ns)
        return false; /* stamps of the future: not a page that anybody keeps */
    if (claim->beat_ns < now && now - claim->beat_ns > lease_ns)
        return false;
    return claim->progress_ns >= now || now - claim->progress_ns <= hang_ns;
}

/* The card that holds launches of this container now, or NULL. */
const struct egpu_near *egpu_holder(const struct egpu_near_all *all, const struct egpu_control *control,
                                             int64_t now_ns);

/* Waits until the word is another than `seen`, or the time is up. True: a signal came. */
bool egpu_word_wait(const struct egpu_near *near, uint32_t seen, int64_t wait_ns);

/* This process's place among those of the container that have work in flight; taken at need. */
struct egpu_activity_slot *egpu_slot_own(int64_t now_ns, uint64_t lease_ns);
void egpu_slot_leave(void);
void egpu_slot_forget(void); /* in a forked child: it was the parent's */

/* By card: this process has said that it is active. Launches look at it, so it has a cache line of its own. */
extern _Atomic uint32_t egpu_announced[EGPU_ACTIVITY_CARDS];
/* Says that this process is active on the card, or no longer. The word falls when no process of it is. `tell`: lower
 * classes are near, and where the container did nothing for long they may be listening. */
void egpu_say_active(int card, int64_t now_ns, uint64_t lease_ns, bool tell);
void egpu_say_idle(int card, int64_t now_ns, uint64_t lease_ns, bool wake);

/* What the other processes of this container have in flight on the card. */
struct egpu_others { uint64_t queued_ns, due_ns; uint32_t count; /* processes that have any */ };
struct egpu_others egpu_others_in_flight(int card, int64_t now_ns, uint64_t lease_ns);

static inline uint64_t egpu_own_slot_bit(const struct egpu_activity *page, const struct egpu_activity_slot *slot) {
    return 1ull << (slot - page->slots);
}
