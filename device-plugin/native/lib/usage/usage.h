/* What is charged to whom: the sums of the container, its processes, and what this process holds. */
#pragma once

#include "../../abi/usage.h"
#include "../base/internal.h"

#define EGPU_GRANULE (2ull << 20) /* what the driver takes memory from the card in */

static inline uint64_t egpu_round(uint64_t bytes) /* up to granules; saturates */
{
    return egpu_add(bytes, EGPU_GRANULE - 1) & ~(EGPU_GRANULE - 1);
}

/* --- usage.c: the sums over all processes of the container ---------------------------------------- */

enum { EGPU_NO_CARD = -1 /* of this container */, EGPU_NO_LIMITS = -2 /* known: charge nothing */ };

struct egpu_room {
    uint64_t total;            /* the cap */
    uint64_t device, managed;  /* in use */
    uint64_t largest_free;     /* an allocation of that many bytes succeeds */
};

/* Charges this process. False: it does not fit by what is known now, and nothing is charged. */
bool egpu_try_charge(int card, uint64_t device, uint64_t managed);
/* Charges whatever the cap says. */
void egpu_charge_anyway(int card, uint64_t device, uint64_t managed);
void egpu_discharge(int card, uint64_t device, uint64_t managed);
/* Of that card, which is one of `control`: by what is known now. */
struct egpu_room egpu_room_under(const struct egpu_control *control, int card);
/* The context bit of this process. */
void egpu_mark_context(int card, bool has);
/* True: this process has a context there. */
bool egpu_has_context(int card);
/* For each live process that uses the card: pid and bytes. Returns how many there are; fills at most `size`. */
size_t egpu_processes_on(int card, uint32_t *pids, uint64_t *bytes, size_t size);

/* Shared memory. All: index of the entry, or -1. */
int egpu_share(uint64_t key, int card, uint64_t bytes); /* moves own device bytes into a new entry, held by us */
int egpu_share_hold(uint64_t key);                      /* one more holder of the entry of that key */
int egpu_share_hold_like(uint64_t key, int card, uint64_t bytes); /* also of that card and size, not yet held */
void egpu_share_drop(int entry);                        /* this process holds it no more */

/* --- liveness.c ----------------------------------------------------------------------------------- */

uint64_t egpu_self_id(void); /* as the owner of a slot; read anew after a fork */
uint64_t egpu_self_namespace(void);
/* Some process that can be seen is in it. */
bool egpu_namespace_lives(uint64_t pid_namespace);
/* False: surely dead, or alive but without the page mapped (it has become another program). */
bool egpu_alive(uint64_t owner, uint64_t pid_namespace, const char *mapping);
/* "dev:inode" of the mapped file as in /proc/self/maps; empty if that cannot be told. */
void egpu_mapping_name(int file, const void *at, char *name, size_t size);

/* --- tracks.c: what this process holds ------------------------------------------------------------- */

enum egpu_kind {
    EGPU_LINEAR = 1, /* device pointer */
    EGPU_CHUNK,      /* 2 MiB of which small allocations are cut; key: address / 2 MiB */
    EGPU_ARRAY, EGPU_MIPMAP,
    EGPU_POOL,       /* key: pool; bytes: what is charged for it */
    EGPU_POOLED,     /* device pointer from a pool; shared, bytes: where it was passed on */
    EGPU_HANDLE,     /* VMM handle; other: index of its backing */
    EGPU_MAPPING,    /* device address; other: index of its backing */
    EGPU_BACKING,    /* memory behind handles and mappings, which are its references; other: one of EGPU_MULTICAST..., or 0 */
    EGPU_BOUND,      /* memory bound to a multicast object; other, passed: backings of both; bytes: where it is bound */
    EGPU_OPENED,     /* device pointer that another process passed on */
    EGPU_CONTEXT,    /* bytes: context overhead charged */
    EGPU_EXEC,       /* executable graph with memory nodes, on one card: key + card; bytes: of the nodes */
    EGPU_IMAGE,      /* module or library; bytes: of its arrays; other: 1 if they are charged one by one */
    EGPU_VARIABLE,   /* device address of one of those; other: key of the image */
    EGPU_EXTERNAL,   /* memory of another interface */
    EGPU_GRAPHS,     /* key: card; bytes: charged for graphs; other: sum of EGPU_EXEC; references: the device */
    EGPU_GREEN,      /* green context; other: device; passed: the handle of a context that stands for it */
};

struct egpu_track {
    uint64_t key;
    uint32_t kind;       /* enum egpu_kind; 0: free place */
    int32_t card;
    uint64_t bytes;      /* charged as device memory, or mapped */
    uint64_t managed;    /* charged as managed memory */
    uint64_t context;    /* whose end ends it; 0: none */
    uint64_t other;      /* by kind */
    uint64_t ahead;      /* of a pool's bytes: charged for allocations that are under way */
    uint64_t asked;      /* of a pool: by those allocations, which may be in what it uses or not yet */
    uint64_t passed;     /* beside a pool's bytes: what it holds, but is charged in shared entries */
    int32_t shared;      /* entry of the usage page, or -1: then `bytes` is charged to this process */
    uint32_t references;
};

/* All lock by themselves. `put` may fail for want of host memory. `take` removes it. */
bool egpu_put(const struct egpu_track *track);
/* Puts it, or adds a reference to the one that is there: of threads that find the same thing one is the first. */
enum egpu_joined { EGPU_NOT_KEPT, EGPU_FIRST, EGPU_JOINED };
enum egpu_joined egpu_join(const struct egpu_track *track);
bool egpu_take(enum egpu_kind kind, uint64_t key, struct egpu_track *track);
bool egpu_get(enum egpu_kind kind, uint64_t key, struct egpu_track *track);
/* Changes it in place under the lock; `change` answers true to remove it. False: there is none. */
bool egpu_change(enum egpu_kind kind, uint64_t key, bool (*change)(struct egpu_track *track, void *data), void *data);
/* Removes one for which `wanted` answers true; false: none is left. */
bool egpu_take_any(bool (*wanted)(const struct egpu_track *track, void *data), void *data, struct egpu_track *track);
/* Removes all for which `wanted` answers true, to be freed by the caller; NULL: there are none, or no memory to name them. */
struct egpu_track *egpu_take_all(bool (*wanted)(const struct egpu_track *track, void *data), void *data, size_t *count);
/* Visits all until `visit` answers true, under the lock; true if it did. */
bool egpu_each(bool (*visit)(const struct egpu_track *track, void *data), void *data);
/* Forgets all: this is a forked child. */
void egpu_forget(void);
/* Discharges what the track says, or drops its share. */
void egpu_end_track(const struct egpu_track *track);
