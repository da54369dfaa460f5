/* usage.c and share.c: the page and this process's place in it. All under `egpu_usage.lock`. */
#pragma once

#include "usage.h"

struct egpu_usage_state {
    struct egpu_lock lock;
    uint32_t pid;             /* of the process that the rest is true of; another one is its forked child */
    struct egpu_usage *page;  /* never NULL after egpu_usage_enter() */
    uint64_t device, inode;   /* of the page's file; 0: memory of our own */
    char mapping[64];
    int slot;                 /* ours, or -1 where none is free */
    uint64_t contexts;
    struct egpu_usage_bytes own[EGPU_MAX_CARDS];      /* the truth; the slot is a copy for the others */
    uint32_t held[EGPU_USAGE_SHARED];                 /* references of this process on shared entries */
    uint32_t held_used;                               /* no entry from here on is held */
    struct { uint64_t key, bytes_card; } kept[EGPU_USAGE_SHARED]; /* what held ones say: the truth as well */
};
extern struct egpu_usage_state egpu_usage;

/* Locks, and sees to it that page, slot and what stands in it are ours. */
void egpu_usage_enter(void);
void egpu_usage_leave(void);
/* The page's words, which other processes change under our hands. */
static inline uint64_t egpu_load(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}
static inline void egpu_store(uint64_t *word, uint64_t value)
{
    __atomic_store_n(word, value, __ATOMIC_SEQ_CST);
}
static inline bool egpu_swap(uint64_t *word, uint64_t from, uint64_t to)
{
    return __atomic_compare_exchange_n(word, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
static inline uint32_t egpu_hint(const uint32_t *hint, uint32_t most)
{
    uint32_t value = __atomic_load_n(hint, __ATOMIC_RELAXED);
    return value < most ? value : most;
}
static inline void egpu_raise_hint(uint32_t *hint, uint32_t least)
{
    if (__atomic_load_n(hint, __ATOMIC_RELAXED) < least)
        __atomic_store_n(hint, least, __ATOMIC_SEQ_CST);
}
/* Empties slots whose owner is dead. */
void egpu_usage_reap(void);
/* Empties those as well whose owner has become another program, once a second at most. Without the lock. */
void egpu_usage_reap_programs(void);
/* What the shared entries on that card add up to. */
uint64_t egpu_shared_on(int card);
/* Of that, what the slot's process shows: a driver counts it for one process, here for the first that holds it. */
uint64_t egpu_shared_shown(uint32_t slot, int card);
/* A slot is being emptied: its process holds nothing any more. */
void egpu_shared_forget(uint32_t slot);
/* Writes again what the shared entries that we hold ought to say, where they do not. */
void egpu_shared_publish(void);
void egpu_usage_publish(int card);
