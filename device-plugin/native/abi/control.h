/* What the node agent tells the library in one container: /etc/egpu/control, read-only inside.
 *
 * The agent makes the file before the container starts and later changes it in place. A reader copies the page
 * and tries again while `sequence` is odd or has changed (a sequence lock); a page that fails
 * egpu_control_sane() is not used, and the last good copy stays in force; a process that never saw a good one goes
 * by the seed, a second file of the same layout. Without either it gets no memory. All numbers are little-endian. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#define EGPU_CONTROL_PATH "/etc/egpu/control"     /* read-only: this page */
#define EGPU_SEED_PATH "/run/egpu/seed"           /* read-only: the same, as the container was started with it */
#define EGPU_USAGE_PATH "/run/egpu/usage"         /* read-write: abi/usage.h, shared by the container's processes */
#define EGPU_ACTIVITY_PATH "/run/egpu/activity"   /* read-write: abi/activity.h, this container's own word */
#define EGPU_PEERS_FOLDER "/run/egpu/peers"       /* read-only: the activity pages of all containers of the node */

#define EGPU_CONTROL_MAGIC 0x55504745u            /* "EGPU" */
#define EGPU_ABI_MAJOR 1u                         /* another major: not understood; a higher minor: more fields */
#define EGPU_ABI_MINOR 2u                         /* 1: `beyond`; 2: `unheld` */

enum { EGPU_MAX_CARDS = 16, EGPU_MAX_PEERS = 128, EGPU_MAX_BEYOND = 128, EGPU_NAME_BYTES = 64 };

enum egpu_class { EGPU_CLASS_UNSET = 0, EGPU_CLASS_LOW = 1, EGPU_CLASS_HIGH = 2 };
enum egpu_core_policy { EGPU_CORES_FREE = 0, EGPU_CORES_HARD = 1, EGPU_CORES_SOFT = 2 };

enum egpu_card_flags {
    EGPU_CARD_SPILL = 1u << 0,      /* linear allocations beyond physical_bytes may become managed memory */
    EGPU_CARD_HIGH_HERE = 1u << 1,  /* a share of class high sits on this card: in-flight work is bounded */
};

/* One card of this container, in the order of its entry of the cards annotation. */
struct egpu_control_card {
    char uuid[48];            /* "GPU-..." and NUL, as NVML writes it */
    char pci_bus_id[32];      /* "00000000:1A:00.0" and NUL */
    uint64_t memory_bytes;    /* what the container may allocate and sees as the card's total */
    uint64_t physical_bytes;  /* of these, what may be device memory; equal unless EGPU_CARD_SPILL */
    uint64_t context_bytes;   /* learnt overhead of one process's context; 0: not known yet */
    uint32_t cores_percent;   /* share of the card's time, 1..100 */
    uint32_t core_policy;     /* enum egpu_core_policy */
    uint32_t weight;          /* for EGPU_CORES_SOFT, 1..100 */
    uint32_t flags;           /* enum egpu_card_flags */
};

/* Another container whose activity matters here: same card, or same card as another container of this pod. */
struct egpu_control_peer {
    char name[EGPU_NAME_BYTES];  /* file in EGPU_PEERS_FOLDER, and NUL */
    uint32_t peer_class;         /* enum egpu_class */
    uint32_t cards;              /* bit i: shares cards[i] of this container */
    uint32_t pod_cards;          /* bit j: the peer's own cards[j] is a card of this pod, of this container or not */
    uint32_t peer_card_of[EGPU_MAX_CARDS]; /* where bit i is set: the card's index in the peer's own pages */
    uint32_t reserved;
};

/* Device memory that the driver shows of a process beyond what the library charged for it: code, local memory of
 * kernels, whatever no call tells. It is in use as long as a slot of the usage page has that owner. */
struct egpu_control_beyond {
    uint64_t owner;      /* as in a slot of the usage page */
    uint64_t bytes_card; /* bytes, a multiple of 4096, | index of the card */
};

struct egpu_control {
    uint32_t magic, abi_major, abi_minor, bytes; /* bytes: sizeof of this page as its writer knows it */
    uint64_t sequence;                           /* odd while the agent writes; _Atomic to its readers */
    uint64_t generation;                         /* counts changes */
    char name[EGPU_NAME_BYTES];                  /* of this container: its CDI device name */
    uint32_t own_class;                          /* enum egpu_class */
    uint32_t suspended;                          /* 1: no launch may pass, no memory is taken: its share is away */
    uint32_t card_count, peer_count;
    uint32_t hysteresis_us;                      /* upper bound of how long a class stays active after its last work */
    uint32_t lease_ms;                           /* an activity word not renewed for that long holds nobody */
    uint32_t hang_ms;                            /* no progress for that long is a hang and holds nobody */
    uint32_t in_flight_us;                       /* bound of low's queued work where EGPU_CARD_HIGH_HERE */
    uint32_t low_floor_percent;                  /* of time, for low held longer than low_floor_after_ms */
    uint32_t low_floor_after_ms;
    uint32_t host_memory_mib;                    /* this container's budget for spilled memory; 0: none */
    uint32_t unheld;                             /* 1: no higher class holds its launches; the driver's time slice decides */
    uint32_t reserved[8];
    struct egpu_control_card cards[EGPU_MAX_CARDS];
    struct egpu_control_peer peers[EGPU_MAX_PEERS];
    /* From minor 1 on. */
    uint64_t beyond_bytes[EGPU_MAX_CARDS];       /* in use by card, of processes that have no slot (or no entry here) */
    uint32_t beyond_count, reserved_beyond;
    struct egpu_control_beyond beyond[EGPU_MAX_BEYOND];
};
#define EGPU_CONTROL_LEAST_BYTES offsetof(struct egpu_control, beyond_bytes) /* of a page of minor 0 */

static_assert(sizeof(struct egpu_control_card) == 120, "layout of a card");
static_assert(sizeof(struct egpu_control_peer) == 144, "layout of a peer");
static_assert(offsetof(struct egpu_control, cards) == 176, "layout of the head");
static_assert(EGPU_CONTROL_LEAST_BYTES == 20528, "layout of minor 0");
