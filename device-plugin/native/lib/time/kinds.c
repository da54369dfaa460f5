/* What is known of each kind of unit. */
#include "flight.h"

enum { KINDS = 4096 };
static struct egpu_kind_row kinds[KINDS];

static struct egpu_kind_row *kind_at(uint64_t key, uint32_t nth) {
    return &kinds[(((key | 1) * 0x9e3779b97f4a7c15u >> 40) + nth) % KINDS];
}

struct egpu_kind_row *egpu_kind_of(uint64_t key) {
    key |= 1;
    for (uint32_t i = 0; i < 8; i++) {
        struct egpu_kind_row *row = kind_at(key, i);
        uint64_t there = atomic_load_explicit(&row->key, memory_order_acquire);
        if (there == key)
            return row;
        if (there == 0 && (atomic_compare_exchange_strong(&row->key, &there, key) || there == key))
            return row;
    }
    return kind_at(key, 0); /* full here: it shares a row, and what is known of it is a mean of both */
}

struct egpu_kind_row *egpu_kind_known(uint64_t key) {
    for (uint32_t i = 0; i < 8; i++)
        if (kind_at(key, i)->key == (key | 1))
            return kind_at(key, i);
    return NULL;
}
