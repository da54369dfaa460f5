#include "settle.h"

#include <stddef.h>

/* How large exactly is by trial: with these the matrix of virtual time holds (tests/unit/native/test_time_*.py). */
enum {
    EDGE_NS = 20 * 1000, /* so far apart two processes may tell one moment: who waits for an end looks every 15 us */
    CLEAN_ENOUGH = 8,    /* one of these moves their mean by an eighth of how far it is off: less than `one_length` allows */
    WINDOW = 32,         /* means follow within so many what a program changes, and one odd unit moves them by 3 % */
    SEEN_ENOUGH = 4,     /* the means of 8 hold 41 % by then: only ways that are far off each time look so already */
    FAR_OFF = 8 * 400,   /* 8 times 1/1000: 40 % off all the time, or 97 % in the first four */
    OFTEN = 2500,        /* three within 32 or 64: the first of them comes to 1000, with the second to 1969, then to 2907 */
    DIFFERS = 400,       /* 1/1000, over about 16: two of five, or eight in a row */
    FAR_LONGER = 8,      /* of a kind whose mean over all is so many times that alone, only the short ones ran alone */
    CONFIRMED = 16,      /* a unit that finds the card at another's turn waits for up to 2 ms: one of so many does not */
    GUESSES = 12,        /* the means of 8 hold 80 % by then */
    APART_NS = 20 * 1000, /* so far a batch's first launch may be from its last, and another's between them */
};
static const int64_t FRESH_NS = 5000000000;   /* for so long at most a program is held to what its kernel took before */
static const int64_t SLICED_NS = 10000000000; /* and a card to switch after it was last seen to: twice that */

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static uint64_t at_least_0(int64_t value) { return value > 0 ? (uint64_t)value : 0; }

/* A run that began and ended in the midst of the unit: the card left the unit for it. */
static bool nested(const struct egpu_unit *unit, const struct egpu_run *run) {
    return run->begin_ns > unit->begin_ns + EDGE_NS && run->end_ns < unit->end_ns - EDGE_NS &&
           run->begin_ns <= run->end_ns;
}

/* As far as was seen of it alone: of a kind that differs the mean tells nothing of the next. */
static bool one_length(const struct egpu_kind *kind) {
    return kind != NULL && kind->clean > 1 && kind->clean_spread_ns <= kind->clean_ns / 5;
}

static bool steady(const struct egpu_kind *kind) {
    return one_length(kind) && kind->clean >= CLEAN_ENOUGH;
}

/* Whether it is as long as its kind is alone. Where the card goes round, one shorter than a turn may seem as long as that:
 * it waited for its own. But none ends sooner than it can, so that one that did tells for those about it. Where only the
 * short ones of a kind ever run alone, one has to see that from the others; how long those took is told badly while the
 * card switches. */
static bool trusted(const struct egpu_unit *unit, uint64_t length_ns) {
    struct egpu_kind *kind = unit->kind;
    if (kind == NULL || kind->clean == 0)
        return false;
    const uint64_t known = kind->clean_ns * unit->count, far = unit->sliced ? 2 * known : known / 3;
    const bool differs = length_ns > known + far || length_ns < known - known / 3;
    kind->differs = kind->differs - kind->differs / 16 + (differs ? 1000 / 16 : 0);
    const int64_t begin = later(unit->begin_ns, unit->own_end_ns);
    if (unit->end_ns - begin <= (int64_t)(known + known / 3))
        kind->confirmed = CONFIRMED;
    else
        kind->confirmed -= kind->confirmed != 0;
    if (!steady(kind) || unit->end_ns - kind->clean_at_ns >= FRESH_NS || kind->longer > OFTEN)
        return false;
    if (unit->sliced && unit->lasting && length_ns < EGPU_TURN_NS && kind->confirmed != 0)
        return true;
    return kind->differs < DIFFERS && kind->mean_ns / FAR_LONGER <= kind->clean_ns;
}

/* The same of several kinds in one batch, each of which is known: a short one that came first waited for its program's
 * turn, and nothing that ends within it tells of that. */
static bool trusted_together(const struct egpu_unit *unit, uint64_t length_ns) {
    return unit->kind == NULL && unit->known_ns != 0 && unit->sliced && length_ns < EGPU_TURN_NS;
}

/* Of those whose stay is their length: whether some of a kind are far longer than the rest. These must not pass for the
 * others where nobody can tell what they took. */
static void follow_lengths(const struct egpu_unit *unit, uint64_t stay_ns) {
    struct egpu_kind *kind = unit->kind;
    if (kind == NULL || !steady(kind))
        return;
    const uint64_t known = kind->clean_ns * unit->count;
    kind->longer += (stay_ns > 2 * known ? 1000 : 0) - kind->longer / 64;
    if (unit->began_alone && stay_ns <= known + known / 3)
        kind->confirmed = CONFIRMED;
}

bool egpu_ran_alone(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd) {
    for (uint32_t i = 0; i < count; i++)
        if (others[i].end_ns > unit->begin_ns && others[i].begin_ns < unit->end_ns)
            return false;
    return !crowd;
}

bool egpu_followed(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count) {
    if (!unit->sliced || unit->idle_ns != 0 || unit->begin_ns + EDGE_NS > unit->own_end_ns)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (others[i].end_ns > unit->own_end_ns && others[i].end_ns < unit->end_ns)
            return false;
    return true;
}

bool egpu_began_alone(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd) {
    if (!unit->sliced || unit->idle_ns != 0 || unit->own_end_ns > unit->begin_ns || crowd)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (others[i].end_ns > unit->begin_ns && others[i].begin_ns <= unit->begin_ns)
            return false;
    return true;
}

/* From when on the later sample counts: work is seen at once, its end when its owner looks, about one sample late. */
static int64_t turn(const struct egpu_sample *a, const struct egpu_sample *b) {
    return b->others < a->others ? a->at_ns : a->at_ns + (b->at_ns - a->at_ns) / 2;
}

uint64_t egpu_even_part(const struct egpu_sample *samples, uint32_t count, int64_t begin_ns, int64_t end_ns) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        int64_t from = i == 0 ? begin_ns : later(begin_ns, turn(&samples[i - 1], &samples[i]));
        int64_t to = i == count - 1 ? end_ns : turn(&samples[i], &samples[i + 1]);
        sum += at_least_0((to < end_ns ? to : end_ns) - from) / (samples[i].others + 1ull);
    }
    return count != 0 ? sum : at_least_0(end_ns - begin_ns);
}

static uint64_t apart(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

static void follow_way(struct egpu_way *way, uint64_t length_ns, uint64_t booked_ns, bool first) {
    uint64_t part = length_ns / (booked_ns / 1000 + 1);
    part = part < 100000 ? part : 100000;
    if (first)
        *way = (struct egpu_way){8 * part, 0};
    way->off += apart(part, way->mean / 8) - way->off / 8;
    way->mean += part - way->mean / 8;
}

/* Nothing is known of the kind for sure: a way that says the same again and again, where the other does not, is right.
 * But by chance it does so, too, where lengths differ much: without any unit that was left for another it says nothing. */
static void guess(struct egpu_slices *seen, const struct egpu_unit *unit, uint64_t whole_ns) {
    follow_way(&seen->whole, whole_ns, unit->booked_ns, seen->guesses == 0);
    follow_way(&seen->even, unit->even_ns, unit->booked_ns, seen->guesses == 0);
    if (++seen->guesses < GUESSES)
        return;
    seen->guesses = GUESSES;
    if (seen->nested != 0 && seen->whole.off > seen->whole.mean * 2 / 5 && seen->even.off < seen->even.mean / 4)
        seen->at_ns = unit->end_ns;
}

uint64_t egpu_sure_length(const struct egpu_kind *kind, uint32_t count, uint64_t length_ns) {
    const uint64_t known = kind->clean_ns * count;
    if (kind->clean < CLEAN_ENOUGH)
        return 0;
    return steady(kind) && kind->longer <= OFTEN && known + known / 3 < length_ns ? known : length_ns;
}

bool egpu_slices_told(const struct egpu_slices *seen, const struct egpu_unit *unit) {
    const bool known = unit->kind != NULL ? unit->kind->clean >= CLEAN_ENOUGH : unit->known_ns != 0;
    return unit->sliced || seen->guesses >= GUESSES || known;
}

void egpu_slices_hear(struct egpu_slices *seen, uint64_t sure_ns, int64_t now_ns) {
    if (sure_ns > (uint64_t)now_ns)
        return;
    seen->sure_ns = later(seen->sure_ns, (int64_t)sure_ns);
    seen->at_ns = later(seen->at_ns, seen->sure_ns);
}

uint64_t egpu_charged(const struct egpu_slices *seen, const struct egpu_unit *unit, uint64_t length_ns) {
    return egpu_slices_told(seen, unit) || unit->even_ns < length_ns ? length_ns : unit->even_ns;
}

/* The last end of others before the unit's; 0: none since `begin_ns`. */
static int64_t follow_order(struct egpu_slices *seen, const struct egpu_unit *unit, int64_t begin_ns,
                            const struct egpu_run *others, uint32_t count) {
    int64_t last = begin_ns;
    bool inside = false;
    for (uint32_t i = 0; i < count; i++) {
        /* What was launched between two launches of a batch stood in their order. */
        inside |= nested(unit, &others[i]) && others[i].begin_ns > unit->launched_ns + EDGE_NS;
        if (others[i].end_ns < unit->end_ns)
            last = later(last, others[i].end_ns);
    }
    if (last <= begin_ns)
        return 0;
    seen->nested += (inside ? 1000 : 0) - seen->nested / 32; /* one by itself is a launch that was interrupted */
    if (seen->nested > OFTEN) {
        seen->sure_ns = later(seen->sure_ns, unit->end_ns);
        seen->at_ns = later(seen->at_ns, seen->sure_ns);
    }
    return last;
}

void egpu_slices_watch(struct egpu_slices *seen, const struct egpu_run *run, const struct egpu_run *others, uint32_t count) {
    const struct egpu_unit unit = {.begin_ns = run->begin_ns, .end_ns = run->end_ns};
    follow_order(seen, &unit, run->begin_ns, others, count);
}

bool egpu_sliced(struct egpu_slices *seen, const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count) {
    const int64_t begin = later(unit->begin_ns, unit->own_end_ns), last = follow_order(seen, unit, begin, others, count);
    if (one_length(unit->kind) && unit->even_ns != 0 && last != 0) {
        const uint64_t known = unit->kind->clean_ns * unit->count + 1;
        seen->whole_off += apart(at_least_0(unit->end_ns - last), known) * 1000 / known - seen->whole_off / 8;
        seen->even_off += apart(unit->even_ns, known) * 1000 / known - seen->even_off / 8;
        if (++seen->units >= SEEN_ENOUGH && seen->whole_off > FAR_OFF && seen->even_off < seen->whole_off / 3)
            seen->at_ns = seen->sure_ns = unit->end_ns;
    }
    if (unit->kind != NULL && unit->kind->clean < CLEAN_ENOUGH && unit->even_ns != 0 && unit->booked_ns != 0 && last != 0)
        guess(seen, unit, at_least_0(unit->end_ns - last));
    return seen->at_ns != 0 && unit->end_ns - seen->at_ns < SLICED_NS;
}

/* An even part of its stay; but a short unit's is mostly the wait for its turn. What others leave of it says more then:
 * all, of one far shorter than a turn. And so it does where others ran far shorter ones, that are over within the stay:
 * `longest_ns` of those, 0: none was. */
static uint64_t even_of(const struct egpu_unit *unit, uint64_t rest_ns, uint64_t longest_ns) {
    const uint64_t each = unit->booked_ns / (unit->count + (unit->count == 0));
    if (each >= EGPU_TURN_NS)
        return unit->even_ns;
    if (rest_ns >= unit->even_ns)
        return unit->lasting || longest_ns == 0 || longest_ns >= EGPU_TURN_NS / 4 ? unit->even_ns : rest_ns;
    if (each < EGPU_TURN_NS / 4)
        return rest_ns > unit->booked_ns / 2 ? rest_ns : unit->booked_ns / 2;
    return rest_ns > unit->even_ns / 2 ? (rest_ns + unit->even_ns) / 2 : unit->even_ns;
}

uint64_t egpu_settle(const struct egpu_unit *unit, const struct egpu_run *others, uint32_t count, bool crowd) {
    int64_t begin = later(unit->begin_ns, unit->own_end_ns < unit->end_ns ? unit->own_end_ns : unit->end_ns);
    uint64_t stay = at_least_0(unit->end_ns - begin);
    int64_t before = begin;
    uint64_t inside = 0, longest = 0;
    bool sliced = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct egpu_run *run = &others[i];
        if (run->end_ns <= begin || run->end_ns >= unit->end_ns)
            continue;
        sliced |= nested(unit, run);
        before = later(before, run->end_ns);
        uint64_t overlap = at_least_0(run->end_ns - later(begin, run->begin_ns));
        inside += run->length_ns < overlap ? run->length_ns : overlap;
        longest = run->length_ns > longest ? run->length_ns : longest;
    }
    uint64_t length = unit->sliced && unit->even_ns != 0 ? even_of(unit, stay > inside ? stay - inside : 0, longest)
                    : sliced ? (stay > inside ? stay - inside : 0) : at_least_0(unit->end_ns - before);
    if (unit->idle_ns != 0) { /* what ran before a pause may lie before other ends: it is worth what was expected */
        uint64_t whole = at_least_0(unit->end_ns - unit->begin_ns);
        uint64_t least = whole < unit->booked_ns ? whole : unit->booked_ns;
        length = length > unit->idle_ns ? length - unit->idle_ns : 0;
        length = length > least ? length : least;
    }
    const bool exact = (unit->followed || unit->began_alone) && stay < EGPU_TURN_NS;
    if (exact || unit->began_alone)
        follow_lengths(unit, stay);
    if (exact)
        length = stay; /* whatever others of the kind take */
    const bool known = !egpu_ran_alone(unit, others, count, crowd) &&
                       (trusted(unit, length) || trusted_together(unit, length)); /* it learns from each */
    if (known && !exact) {
        uint64_t expected = unit->kind != NULL ? unit->kind->clean_ns * unit->count : unit->known_ns;
        uint64_t more = unit->sliced ? expected / 3 : expected * 2 / 3;
        if (length >= expected - expected / 3 && length <= expected + more)
            return length; /* those that ran alone are rather the short ones: their mean alone would fall short */
        return stay < expected - expected / 4 ? stay : expected; /* a mean of these two would fall short */
    }
    return length;
}

static void follow(uint64_t *mean_ns, uint64_t *spread_ns, uint32_t *count, uint64_t length_ns) {
    uint64_t weight = *count < WINDOW ? ++*count : WINDOW;
    uint64_t off = length_ns > *mean_ns ? length_ns - *mean_ns : *mean_ns - length_ns;
    if (*count == 1)
        off = 0;
    *mean_ns = length_ns > *mean_ns ? *mean_ns + (length_ns - *mean_ns) / weight : *mean_ns - (*mean_ns - length_ns) / weight;
    *spread_ns = off > *spread_ns ? *spread_ns + (off - *spread_ns) / weight : *spread_ns - (*spread_ns - off) / weight;
}

void egpu_learn(struct egpu_kind *kind, uint64_t length_ns, bool clean, int64_t now_ns) {
    if (length_ns > INT64_MAX / 64)
        length_ns = INT64_MAX / 64;
    follow(&kind->mean_ns, &kind->spread_ns, &kind->count, length_ns);
    if (!clean)
        return;
    kind->clean_at_ns = now_ns;
    if (steady(kind)) { /* one that the program or the host was late for says little */
        uint64_t most = kind->clean_ns + kind->clean_ns / 3, least = kind->clean_ns - kind->clean_ns / 3;
        length_ns = length_ns > most ? most : length_ns < least ? least : length_ns;
    }
    follow(&kind->clean_ns, &kind->clean_spread_ns, &kind->clean, length_ns);
}

uint64_t egpu_alone(const struct egpu_kind *kind) {
    return steady(kind) && kind->longer <= OFTEN && kind->mean_ns / FAR_LONGER <= kind->clean_ns ? kind->clean_ns : 0;
}

bool egpu_varies(const struct egpu_kind *kind) { return kind->count == 0 || kind->spread_ns > kind->mean_ns / 4; }

bool egpu_expect(const struct egpu_kind *kind, uint64_t *length_ns) {
    *length_ns = kind->mean_ns;
    return kind->count != 0;
}

/* --- when this process had work on a card, over all of its streams --- */

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
