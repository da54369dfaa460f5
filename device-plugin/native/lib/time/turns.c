/* Whose turn it is among low containers: by what each has had of the card. */
#define _GNU_SOURCE
#include "turns.h"

#include "flight.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 128 };                        /* the page's lines that tell */
enum { ASKS = 1, CLAIMS = 2, HAD_SHIFT = 2 }; /* in `turn` */
static const int64_t BELIEVED_NS = 100 * 1000 * 1000; /* a watcher that lives beats every 4 ms where work is in flight */
static const int64_t ASKED_NS = 5 * 1000 * 1000;      /* who stands at the gate says so every millisecond */
static const int64_t LATELY_NS = 30 * 1000 * 1000;    /* who is held says that it wants the card every EGPU_RECHECK_NS */
static const int64_t OLD_NS = 5 * 1000 * 1000;        /* else copies are a watcher's tick old, one of 4 ms at most */
static const uint64_t EVEN_OUT = 1023;                /* ns: so that two have seldom had exactly the same */
static const uint64_t UNKNOWN_NS = EGPU_UNKNOWN_DUE_NS; /* longer than any bound: a unit of unknown length is alone */

/* A stamp of the future is nobody's, but for what another processor's look at the clock may be ahead. */
static bool within(uint64_t at_ns, int64_t now_ns, int64_t most_ns) {
    const uint64_t now = (uint64_t)now_ns, most = (uint64_t)most_ns;
    return at_ns > now ? at_ns - now < most : now - at_ns < most;
}

static bool stands(const struct egpu_activity_card *page, uint64_t how, int64_t now_ns) {
    return (page->turn & how) != 0 && within(page->wanted_ns, now_ns, ASKED_NS);
}

static uint64_t in_flight(const struct egpu_activity_card *page, int64_t now_ns, uint64_t lease_ns) {
    const int64_t most = lease_ns < (uint64_t)BELIEVED_NS ? (int64_t)lease_ns : BELIEVED_NS;
    return within(page->beat_ns, now_ns, most) ? page->queued_ns : 0;
}

/* Of what it has in flight, how much has run; of several only one runs. A unit that is longer than expected has still
 * not ended. */
static uint64_t ran_of_oldest(const struct egpu_activity_card *page, int64_t now_ns) {
    const uint64_t started = page->started_ns, oldest = page->oldest_ns < page->queued_ns ? page->oldest_ns : page->queued_ns;
    const uint64_t ran = started != 0 ? egpu_sub((uint64_t)now_ns, started) : 0;
    return ran < oldest ? ran : egpu_sub(oldest, 1);
}

/* Whoever comes after a pause has no more to his credit than who has had least meanwhile. */
static void catch_up(struct egpu_activity_card *mine, uint64_t least) {
    uint64_t turn = mine->turn;
    least += egpu_slot_own(0, 0)->owner & EVEN_OUT;
    while (mine->queued_ns == 0 && (turn & (ASKS | CLAIMS)) == 0 && turn >> HAD_SHIFT < least &&
           !atomic_compare_exchange_weak(&mine->turn, &turn, least << HAD_SHIFT)) {
    }
}

struct egpu_turn_seen egpu_turns_look(int index, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    struct egpu_activity_card *mine = &egpu_activity_own()->cards[index];
    const bool old = !within((uint64_t)egpu_near_copied_ns(), now_ns, OLD_NS);
    struct egpu_turn_seen seen = {0};
    uint64_t least = UINT64_MAX, ran_most = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct egpu_near *near = &all->near[i];
        const struct egpu_activity_card *page = near->card;
        if (!near->even || near->own_card != index)
            continue;
        if (old || page->queued_ns != 0 || within(page->wanted_ns, now_ns, LATELY_NS))
            egpu_near_copy_card(near, HEAD);
        seen.about |= page->queued_ns != 0 || within(page->wanted_ns, now_ns, LATELY_NS);
        const uint64_t queued = in_flight(page, now_ns, lease_ns), had = page->turn >> HAD_SHIFT;
        const bool waits = stands(page, ASKS, now_ns);
        if (queued == 0 && !waits)
            continue;
        seen.queued_ns = egpu_add(seen.queued_ns, queued);
        const uint64_t ran = ran_of_oldest(page, now_ns);
        ran_most = ran > ran_most ? ran : ran_most;
        least = had < least ? had : least;
        if (waits && had < mine->turn >> HAD_SHIFT)
            seen.theirs = true;
        if (seen.near == NULL || (queued != 0 && (uint32_t)seen.near->card->queued_ns == 0)) {
            seen.near = near;
            seen.word = (uint32_t)page->queued_ns;
        }
    }
    if (mine->queued_ns == 0) /* else the one that runs may be ours */
        seen.queued_ns = egpu_sub(seen.queued_ns, ran_most);
    if (least != UINT64_MAX)
        catch_up(mine, least);
    return seen;
}

void egpu_turns_ask(int index, bool asks) {
    _Atomic uint64_t *turn = &egpu_activity_own()->cards[index].turn;
    if (((*turn & ASKS) != 0) == asks)
        return;
    if (asks)
        atomic_fetch_or(turn, ASKS);
    else
        atomic_fetch_and(turn, ~(uint64_t)ASKS);
}

bool egpu_turns_claim(int index, const struct egpu_turn_seen *seen, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    struct egpu_activity_card *mine = &egpu_activity_own()->cards[index];
    mine->wanted_ns = (uint64_t)now_ns;
    const uint64_t had = atomic_fetch_or(&mine->turn, CLAIMS) >> HAD_SHIFT;
    uint64_t queued = 0, ran_most = 0;
    bool another = false;
    for (uint32_t i = 0; i < all->count; i++) {
        const struct egpu_near *near = &all->near[i];
        if (!near->even || near->own_card != index || !within(near->card->wanted_ns, now_ns, LATELY_NS))
            continue;
        egpu_near_copy_card(near, HEAD);
        queued = egpu_add(queued, in_flight(near->card, now_ns, lease_ns));
        const uint64_t ran = ran_of_oldest(near->card, now_ns);
        ran_most = ran > ran_most ? ran : ran_most;
        if (!stands(near->card, CLAIMS, now_ns))
            continue;
        another = true;
        if (near->card->turn >> HAD_SHIFT <= had) /* it keeps its claim, and will see that ours is gone */
            atomic_fetch_and(&mine->turn, ~(uint64_t)CLAIMS);
    }
    if (!another && egpu_sub(queued, mine->queued_ns == 0 ? ran_most : 0) <= seen->queued_ns)
        return true;
    if (!another)
        atomic_fetch_and(&mine->turn, ~(uint64_t)CLAIMS);
    return false;
}

void egpu_turns_took(int index, int64_t now_ns, uint64_t lease_ns) {
    egpu_turns_say(index, now_ns, lease_ns);
    _Atomic uint64_t *turn = &egpu_activity_own()->cards[index].turn;
    if (*turn & (ASKS | CLAIMS))
        atomic_fetch_and(turn, ~(uint64_t)(ASKS | CLAIMS));
}

void egpu_turns_say(int index, int64_t now_ns, uint64_t lease_ns) {
    const struct egpu_activity_slot *slot = egpu_slot_own(now_ns, lease_ns);
    const struct egpu_others others = egpu_others_in_flight(index, now_ns, lease_ns);
    struct egpu_activity_card *mine = &egpu_activity_own()->cards[index];
    uint64_t queued = egpu_add(others.queued_ns, slot->queued_ns[index]);
    if (others.alone || egpu_cards[index].unknown)
        queued = egpu_add(queued, UNKNOWN_NS);
    if (mine->queued_ns != queued)
        mine->queued_ns = queued;
    const uint64_t oldest = others.count == 0 ? egpu_cards[index].oldest_ns : 0;
    if (mine->oldest_ns != oldest)
        mine->oldest_ns = oldest;
}

void egpu_turns_had(int index, uint64_t length_ns) {
    atomic_fetch_add(&egpu_activity_own()->cards[index].turn, length_ns << HAD_SHIFT);
}

bool egpu_turns_asked(int index, int64_t now_ns) {
    const struct egpu_near_all *all = egpu_near_now();
    for (uint32_t i = 0; i < all->count; i++)
        if (all->near[i].even && all->near[i].own_card == index && stands(all->near[i].card, ASKS, now_ns))
            return true;
    return false;
}

void egpu_turns_tell(int index, int64_t now_ns) {
    if (egpu_turns_asked(index, now_ns))
        syscall(SYS_futex, &egpu_activity_own()->cards[index].queued_ns, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

void egpu_turns_wait(const struct egpu_turn_seen *seen, int64_t wait_ns) {
    struct timespec time = {wait_ns / 1000000000, wait_ns % 1000000000};
    syscall(SYS_futex, &seen->near->there->queued_ns, FUTEX_WAIT, seen->word, &time, NULL, 0);
}
