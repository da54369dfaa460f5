/* How long units of each kind take. A mean of few: it falls as well as it rises. */
#include "kinds.h"

enum {
    KINDS = 4096,
    PROBES = 8,
    COST_NS = 6000,          /* of one measurement: two events with times, and the questions about them */
    COST_PERCENT = 1,        /* of the card's time that measuring may take */
    STRIDE_MOST = 128,
    SEEN_MOST = 8,
    STRANGE = 8,             /* a unit that took so many times as long had others' turns in it, where there are others */
    STRANGE_NS = 100 * 1000,
};

static struct egpu_kind kinds[KINDS];

static struct egpu_kind *kind_at(uint64_t key, uint32_t nth) {
    return &kinds[((key * 0x9e3779b97f4a7c15u >> 40) + nth) % KINDS];
}

struct egpu_kind *egpu_kind_of(uint64_t key) {
    key |= 1;
    for (uint32_t i = 0; i < PROBES; i++) {
        struct egpu_kind *row = kind_at(key, i);
        uint64_t there = atomic_load_explicit(&row->key, memory_order_acquire);
        if (there == key || (there == 0 && (atomic_compare_exchange_strong(&row->key, &there, key) || there == key)))
            return row;
    }
    return kind_at(key, 0);
}

void egpu_kind_forget(uint64_t key) {
    for (uint32_t i = 0; i < PROBES; i++) {
        struct egpu_kind *row = kind_at(key | 1, i);
        if (atomic_load(&row->key) == (key | 1))
            atomic_store(&row->mean_ns, 0), atomic_store(&row->seen, 0), atomic_store(&row->left, 0);
    }
}

/* Launches from one measured to the next, at random: no rhythm of the program's is met by it. */
static int32_t stride(const struct egpu_kind *kind) {
    static _Atomic uint32_t dice = 1;
    const uint64_t mean = kind->mean_ns + 1, apart = COST_NS * 100 / COST_PERCENT / mean;
    const uint32_t most = apart < 1 ? 1 : apart > STRIDE_MOST ? STRIDE_MOST : (uint32_t)apart;
    const uint32_t thrown = atomic_fetch_add(&dice, 0x9e3779b9u);
    return kind->seen < SEEN_MOST ? 0 : (int32_t)((thrown >> 8) % (2 * most - 1));
}

bool egpu_kind_launched(struct egpu_kind *kind, uint64_t booked_ns, struct egpu_standing *standing) {
    atomic_fetch_add(&kind->since, 1);
    atomic_fetch_add(&kind->booked_ns, booked_ns);
    if (atomic_fetch_sub(&kind->left, 1) > 0)
        return false;
    kind->left = stride(kind);
    *standing = (struct egpu_standing){atomic_exchange(&kind->since, 0), atomic_exchange(&kind->booked_ns, 0)};
    atomic_fetch_add(&kind->open, 1);
    return true;
}

void egpu_kind_missed(struct egpu_kind *kind, const struct egpu_standing *standing) {
    atomic_fetch_add(&kind->since, standing->launches);
    atomic_fetch_add(&kind->booked_ns, standing->booked_ns);
    atomic_fetch_sub(&kind->open, 1);
    kind->left = 0;
}

void egpu_kind_failed(struct egpu_kind *kind, uint64_t booked_ns) {
    uint32_t since = kind->since;
    uint64_t booked = kind->booked_ns;
    while (since != 0 && !atomic_compare_exchange_weak(&kind->since, &since, since - 1)) {
    }
    while (since != 0 && !atomic_compare_exchange_weak(&kind->booked_ns, &booked, egpu_sub(booked, booked_ns))) {
    }
}

uint64_t egpu_kind_measured(struct egpu_kind *kind, uint64_t length_ns, bool crowded) {
    const uint64_t mean = kind->mean_ns, most = egpu_add(mean * STRANGE, STRANGE_NS);
    const uint32_t seen = kind->seen;
    atomic_fetch_sub(&kind->open, 1);
    if (crowded && seen == SEEN_MOST && length_ns > most)
        length_ns = most;
    if (seen < SEEN_MOST)
        kind->seen = seen + 1;
    const uint64_t weight = seen < SEEN_MOST ? seen + 1 : SEEN_MOST;
    kind->mean_ns = (mean * (weight - 1) + length_ns) / weight + 1;
    return length_ns;
}
