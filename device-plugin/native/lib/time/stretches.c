#include "stretches.h"

enum { APART_NS = 20 * 1000 }; /* so far a batch's first launch may be from its last, and another's between them */

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static uint64_t at_least_0(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

static struct egpu_stretch *nth(struct egpu_stretches *all, uint32_t index) {
    return &all->ring[(all->first + index) % EGPU_STRETCHES];
}

static void push(struct egpu_stretches *all, struct egpu_stretch stretch) {
    if (all->count == EGPU_STRETCHES) { /* what lies between these two is taken to be counted: rather too little */
        nth(all, 1)->from_ns = nth(all, 0)->from_ns;
        all->first = (all->first + 1) % EGPU_STRETCHES;
        all->count--;
    }
    *nth(all, all->count++) = stretch;
}

uint64_t egpu_stretches_add(struct egpu_stretches *all, int64_t launched_ns, int64_t began_ns, int64_t end_ns, bool *overtaken) {
    const struct egpu_stretch *last = all->count != 0 ? nth(all, all->count - 1) : &(struct egpu_stretch){0};
    const int64_t own_end = last->end_ns;
    *overtaken = own_end > launched_ns && last->launched_ns > launched_ns + APART_NS;
    if (began_ns == 0) {
        if (end_ns > later(own_end, launched_ns))
            push(all, (struct egpu_stretch){launched_ns, later(own_end, launched_ns), end_ns});
        return 0;
    }
    struct egpu_stretch whole = {launched_ns, began_ns, later(end_ns, own_end)};
    uint64_t uncounted = 0;
    int64_t upto = end_ns; /* what lies behind it is settled */
    for (; all->count != 0 && nth(all, all->count - 1)->end_ns > began_ns; all->count--) {
        const struct egpu_stretch *one = nth(all, all->count - 1);
        uncounted += at_least_0(upto - one->end_ns);
        upto = upto < one->from_ns ? upto : one->from_ns;
        whole.from_ns = whole.from_ns < one->from_ns ? whole.from_ns : one->from_ns;
    }
    uncounted += at_least_0(upto - began_ns);
    if (whole.end_ns > whole.from_ns)
        push(all, whole);
    const uint64_t since_own_end = at_least_0(end_ns - later(own_end, began_ns));
    return uncounted > since_own_end ? uncounted - since_own_end : 0;
}
