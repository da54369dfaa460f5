/* How much memory the processes of one container hold: /run/egpu/usage, written by all of them, trusted by nobody.
 *
 * A file of zeros is an empty page; whoever comes first makes it and writes the head. Each process has a slot, which
 * ends with the process: a slot counts as long as its owner lives (same pid and start time), and whoever needs the
 * room empties the slots of the dead. Every word stands for itself, so there is no state in which a process that is
 * killed leaves the page wrong. `lock` only keeps two allocations from failing each other where there is room for
 * one; one that does not come free within a short while is done without.
 *
 * What is in use on card i = device_bytes and managed_bytes of cards[i] over all slots with an owner, and the bytes
 * of the shared entries with a holder. Readers saturate sums; a page of nonsense makes its own container's
 * allocations fail and hurts nobody else. All numbers are little-endian. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"

#define EGPU_USAGE_MAGIC 0x53554745u /* "EGUS" */

enum { EGPU_USAGE_SLOTS = 1024, EGPU_USAGE_SHARED = 1024, EGPU_USAGE_HOLDER_WORDS = EGPU_USAGE_SLOTS / 64 };

/* Bit 31 of an owner: not the owner itself, but the process that is emptying the slot. */
#define EGPU_USAGE_EMPTYING 0x80000000u

struct egpu_usage_bytes {
    uint64_t device;  /* plain, pitched, pools, VMM, arrays, graphs, context overhead */
    uint64_t managed; /* managed memory, also what spilled */
};

struct egpu_usage_slot {
    uint64_t owner;         /* pid in its namespace | low 32 bits of its start time in clock ticks << 32; 0: free */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid; 0: not known, or the agent saw its process gone */
    uint64_t contexts;      /* bit i: has a context on card i */
    uint64_t changes;       /* counts changes of what follows, from 1 on; 0: its library does not count */
    struct egpu_usage_bytes cards[EGPU_MAX_CARDS];
};

/* Memory that several processes hold, counted once. */
struct egpu_usage_shared {
    uint64_t key;        /* of the handle by which it is passed on; 0: free */
    uint64_t bytes_card; /* bytes, a multiple of 4096, | index of the card */
    uint64_t holders[EGPU_USAGE_HOLDER_WORDS]; /* bit per slot */
};

struct egpu_usage {
    uint32_t magic, abi_major, abi_minor, bytes;
    uint64_t lock;        /* owner as in a slot, or 0 */
    uint32_t slots_used;  /* a hint: no slot from here on has ever had an owner */
    uint32_t shared_used; /* likewise */
    uint64_t reserved[12];
    struct egpu_usage_slot slots[EGPU_USAGE_SLOTS];
    struct egpu_usage_shared shared[EGPU_USAGE_SHARED];
};

static_assert(offsetof(struct egpu_usage, slots) == 128, "layout of the head");
static_assert(sizeof(struct egpu_usage_slot) == 288, "layout of a slot");
static_assert(sizeof(struct egpu_usage_shared) == 144, "layout of a shared entry");
