/* Turns of low containers on a card where a high share sits.
 *
 * What low may have in flight there is bounded for the sake of high, which waits for all of it, whoever launched it. So
 * the bound is one for all low containers of the card. Each says in its page what it has in flight, what it has had of
 * the card, and whether a launch of it stands at the gate. A launch waits while what others have in flight and its own
 * are more than the bound, and for those at the gate that have had less. No page is a lock: whoever dies, stops or says
 * what is not so is believed for BELIEVED_NS (turns.c) after its last beat, and a launch waits for others for
 * EGPU_TURN_MOST_NS. */
#pragma once

#include "../activity/activity.h"

enum { EGPU_TURN_MOST_NS = 500 * 1000 * 1000 };

struct egpu_turn_seen {
    uint64_t queued_ns;           /* in flight of other low containers on the card, as they estimate it */
    bool about;                   /* there are some that lately had work */
    bool theirs;                  /* one of them stands at the gate and has had less */
    const struct egpu_near *near; /* in whose page a change is to be waited for; NULL: nobody is in the way */
    uint32_t word;                /* what stood there */
};
/* Looks at other low containers. Calls the system only for those that lately had work, or after a long sleep. */
struct egpu_turn_seen egpu_turns_look(int card, int64_t now_ns, uint64_t lease_ns);
/* Says whether a launch of this container stands at the gate for its turn. */
void egpu_turns_ask(int card, bool asks);
/* Of several that find the card free at once, one goes: says that this one is about to, and looks whether another was.
 * False: look again, and not at once. Where it is true, egpu_turns_took() follows when the launch is booked. */
bool egpu_turns_claim(int card, const struct egpu_turn_seen *seen, int64_t now_ns, uint64_t lease_ns);
void egpu_turns_took(int card, int64_t now_ns, uint64_t lease_ns);
/* Says what this container has in flight. No system call. */
void egpu_turns_say(int card, int64_t now_ns, uint64_t lease_ns);
/* The container had so much of the card. */
void egpu_turns_had(int card, uint64_t length_ns);
/* Less is in flight than was: tells those that wait for that, if any are known. */
void egpu_turns_tell(int card, int64_t now_ns);
/* Waits until what that page says may have changed, or so long. */
void egpu_turns_wait(const struct egpu_turn_seen *seen, int64_t wait_ns);
/* Another low container waits at the gate, as far as the copies of the pages tell. */
bool egpu_turns_asked(int card, int64_t now_ns);
