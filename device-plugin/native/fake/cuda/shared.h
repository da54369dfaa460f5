/* The machine's fake cards: one file in shared memory, used by every process that loads the fake libcuda.so.1 and
 * read by the fake NVML and by tests (tests/fakes/cuda_log.py knows the same layout).
 *
 * The file is FAKE_CUDA_STATE, or FAKE_NVML_STATE with ".cuda" behind it, or /run/fake-gpu/cuda.state. Beside it lies
 * a file with ".locks" behind its name: a process keeps a POSIX lock on the byte of its slot. The kernel drops it
 * with the process, however that ends, and tells its pid in the namespace of whoever asks.
 *
 * Work lies in streams: queues of units. A card runs the first units of its streams in simulated time, which is
 * CLOCK_MONOTONIC: whoever looks moves the simulation on to now, under the one lock. Every stretch of time in which
 * a unit ran is one record of the log. */
#pragma once

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FC_MAGIC 0x4143554445534143ull
#define FC_VERSION 1u
#define FC_NONE UINT32_MAX
#define FC_NEVER UINT64_MAX
#define FC_SLICE_NS 2000000ull
#define FC_BUCKET_NS 100000000ull
#define FC_GRANULE (2ull << 20)

enum {
    FC_CARDS = 16, FC_PROCESSES = 256, FC_CONTEXTS = 2048, FC_STREAMS = 4096, FC_UNITS = 65536, FC_EVENTS = 65536,
    FC_BIRTHS = 4096, FC_HANDLES = 2048, FC_MEETINGS = 256, FC_BUCKETS = 16, FC_HOLDERS = 8, FC_STREAM_DEPTH = 1024,
    FC_LOG = 1 << 20,
};

enum fc_mode { FC_SLICES = 0, FC_FIFO = 1, FC_OVERLAP = 2 };

/* What a unit does. Those from FC_MARK on take no time on the card. */
enum fc_kind {
    FC_KERNEL = 1, FC_GRAPH = 2, FC_MEMSET = 3, FC_COPY_DEVICE = 4, /* one at a time, unless streams overlap */
    FC_COPY_HOST = 5, FC_MEET = 6,                                  /* beside others of their context */
    FC_MARK = 16,  /* an event's record */
    FC_WAIT = 17,  /* for an event */
    FC_HOST = 18,  /* a host function, or a value in memory: its process says when it is over */
};

enum fc_unit_flags { FC_RUNNING = 1, FC_STARTED = 2, FC_REACHED = 4, FC_OVER = 8, FC_ARRIVED = 16 };

struct fc_unit {
    uint64_t seq;       /* order of arrival, over all cards */
    uint64_t enqueued;  /* ns, as all times */
    uint64_t left;      /* to run */
    uint64_t run_start; /* of the present stretch */
    uint64_t serial;    /* FC_MARK, FC_WAIT: the record of the event; FC_MEET: see meeting */
    uint32_t next, stream, event, meeting;
    uint16_t kind, flags;
    uint32_t reserved;
};

struct fc_stream {
    uint32_t owner; /* slot + 1; 0: free */
    uint32_t context, card;
    uint32_t head, tail, count;
    uint32_t next_active, previous_active;
    uint32_t active, blocking, is_null;
    int32_t priority;
    uint64_t done_seq; /* of the last unit that ended */
};

struct fc_context {
    uint32_t owner; /* slot + 1; 0: free */
    uint32_t card, serial, null_stream;
};

struct fc_event {
    uint32_t owner, pending, dying, shared;
    uint64_t serial;               /* of the last record */
    _Atomic uint64_t done_serial;  /* of the last record that was reached */
    uint64_t time;                 /* when */
    uint32_t context, reserved;
};

struct fc_bucket { uint64_t epoch, busy; };

struct fc_use {
    _Atomic uint64_t used;     /* bytes of device memory, context overhead included */
    uint64_t saved;            /* the same while the process is checkpointed */
    uint64_t managed;          /* bytes of managed memory */
    uint64_t managed_resident; /* of those on the card */
    uint64_t busy;             /* ns of stretches so far */
    struct fc_bucket buckets[FC_BUCKETS];
};

enum fc_checkpoint { FC_LIVE = 0, FC_LOCKED = 1, FC_CHECKPOINTED = 2, FC_FAILED = 3 };

struct fc_process {
    uint32_t taken;  /* 1: in use */
    uint32_t pid;    /* in its own namespace */
    uint32_t serial; /* index of births, modulo their number */
    _Atomic uint32_t checkpoint; /* enum fc_checkpoint; a futex */
    uint32_t cannot_checkpoint;  /* 1 managed, 2 IPC */
    uint32_t entered;            /* calls under way, for the lock of a checkpoint */
    uint64_t born, started;      /* started: as the kernel counts it */
    struct fc_use use[FC_CARDS];
};

/* Never reused while the log may speak of it. */
struct fc_birth { uint32_t serial, pid; uint64_t born; char label[48]; };

/* Memory that lives as long as one of its holders: exported VMM handles and IPC memory. */
struct fc_handle {
    uint32_t used, card;
    uint64_t id, bytes;
    uint32_t holders[FC_HOLDERS], references[FC_HOLDERS]; /* slot + 1 */
};

struct fc_meeting { uint64_t key, time; uint32_t parties, arrived, gone, used; };

struct fc_card {
    char uuid[48];
    uint32_t mode, current, active, heavy; /* current: context; active: list of streams; heavy: running now */
    uint64_t slice_start, busy, units;
    uint64_t total_bytes; /* as CUDA shows it */
    struct fc_bucket buckets[FC_BUCKETS];
};

enum fc_log_flags { FC_FIRST = 1, FC_LAST = 2, FC_CANCELLED = 4 };

struct fc_stretch {
    uint64_t seq, enqueued, start, end;
    uint32_t serial, context, stream; /* serial: of the process; context: its serial */
    uint16_t card, kind;
    uint32_t flags, pid;
    uint64_t index; /* of the record, counted from 1: the last word that is written */
};

struct fc_shared {
    uint64_t magic;
    uint32_t version, card_count;
    uint64_t bytes, log_offset, log_count, log_head_offset, birth_offset, card_offset, card_bytes;
    _Atomic uint32_t lock;         /* slot + 1, bit 31: somebody waits */
    uint32_t births, context_serials, free_unit, stream_hint, event_hint;
    uint64_t clock, next_seq, next_handle, reaped;
    _Atomic uint64_t log_head;
    struct fc_card cards[FC_CARDS];
    struct fc_process processes[FC_PROCESSES];
    struct fc_birth birth[FC_BIRTHS];
    struct fc_context contexts[FC_CONTEXTS];
    struct fc_stream streams[FC_STREAMS];
    struct fc_event events[FC_EVENTS];
    struct fc_handle handles[FC_HANDLES];
    struct fc_meeting meetings[FC_MEETINGS];
    struct fc_unit units[FC_UNITS];
    uint64_t slice_ns;    /* FAKE_CUDA_SLICE_US */
    uint32_t scatters;    /* FAKE_CUDA_SCATTER: one event in twenty seems 10 to 30 us late */
    uint32_t connections; /* FAKE_CUDA_CONNECTIONS: hardware queues of a context; 0: one for each stream */
    uint64_t groups[FC_PROCESSES]; /* the control group of each process, see fc_group_of */
    /* then, at log_offset, log_count times struct fc_stretch */
};

static_assert(sizeof(struct fc_stretch) == 64, "read by Python");
static_assert(sizeof(struct fc_birth) == 64, "read by Python");

/* --- shared.c ---------------------------------------------------------------------------------- */
/* The file, mapped; made if `create`. NULL: there is none, or no room. Called once at a time. */
struct fc_shared *fc_open(bool create);

uint64_t fc_now(void);

/* Takes a slot for this process: its number, or FC_NONE where all are in use. */
uint32_t fc_attach(struct fc_shared *s, const char *label);

/* `slot` FC_NONE: somebody who only looks (NVML). */
void fc_lock(struct fc_shared *s, uint32_t slot);
void fc_unlock(struct fc_shared *s);

/* Under the lock: takes from dead processes what was theirs. Looks at most every 20 ms unless `now`. */
void fc_reap(struct fc_shared *s, uint32_t self, bool now);

/* Under the lock: takes from the slot's process what was its. */
void fc_forget(struct fc_shared *s, uint32_t slot);

/* Pid of the slot's process as this process sees it; 0: dead, or in a namespace that is not seen from here. */
uint32_t fc_pid(struct fc_shared *s, uint32_t slot, uint32_t self);

/* Index of the card of that uuid, made where `total_bytes` is not 0 and there is none; FC_NONE: none. Locked. */
uint32_t fc_card(struct fc_shared *s, const char *uuid, uint64_t total_bytes);

/* Bytes of device memory in use on the card by all. Locked. */
uint64_t fc_used(const struct fc_shared *s, uint32_t card);

/* Of that, by the slot's process, with its part of what outlives single processes. Locked. */
uint64_t fc_used_by(const struct fc_shared *s, uint32_t card, uint32_t slot);

/* The same by all processes of a control group, without managed memory: a real driver only watches that. Locked. */
uint64_t fc_used_in(const struct fc_shared *s, uint32_t card, uint64_t group);

/* Name of one of the files of the machine's cards. */
void fc_path(char *path, size_t room, const char *suffix);

/* --- groups.c: memory limits by control group, in a file beside this one (".limits") ---------------- */
/* A control group by its folder; 0: there is none. */
uint64_t fc_group_of(const char *folder);

/* That of this process: FAKE_CUDA_CGROUP names a folder that stands for it. */
uint64_t fc_group_own(void);

/* False: the file cannot be written. Without a limit `hard` is UINT64_MAX. */
bool fc_limit_put(const char *uuid, uint64_t group, uint64_t soft, uint64_t hard);

/* False: the group has no limit on that card. */
bool fc_limit_get(const char *uuid, uint64_t group, uint64_t *soft, uint64_t *hard);

/* --- timeline.c and queue.c, all under the lock ------------------------------------------------- */
void fc_advance(struct fc_shared *s, uint64_t now);

/* Ends the present stretches of all running units, which run on: what was logged is complete up to now. */
void fc_flush(struct fc_shared *s, uint64_t now);

/* Earliest time at which the state of any card changes by itself; FC_NEVER: none. */
uint64_t fc_next(const struct fc_shared *s);

/* Appends a unit: its index; FC_NONE if the stream is full. Follow with fc_advance(now) so that it starts. */
uint32_t fc_append(struct fc_shared *s, uint32_t stream, enum fc_kind kind, uint64_t length, uint64_t now);

/* Takes the first unit out of the stream, done or not. */
void fc_pop(struct fc_shared *s, uint32_t stream);

/* Makes the lists whole again after a process died while it changed them: what it was about to add or take away is
 * there or not, and nothing else is lost. */
void fc_repair(struct fc_shared *s);

uint32_t fc_stream_new(struct fc_shared *s, uint32_t owner, uint32_t context);
/* Takes the stream away with what is queued in it, which is logged as cancelled where it had started. */
void fc_stream_cancel(struct fc_shared *s, uint32_t stream, uint64_t now);
void fc_context_cancel(struct fc_shared *s, uint32_t context, uint64_t now);
void fc_event_release(struct fc_shared *s, uint32_t event);

/* Busy share of the last second in percent, from buckets of a card or of a process on a card. */
unsigned fc_percent(const struct fc_bucket *buckets, uint64_t now);
