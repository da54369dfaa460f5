/* The fake libcuda.so.1 within one process: handles, and what the files of this folder share. */
#pragma once

#include "egpu_cuda.h"
#include "shared.h"

#include <pthread.h>

#define API __attribute__((visibility("default")))

/* Defines an entry point and its twin for programs whose default stream is per thread. In `call` the argument
 * `stream` is never 0. EXPORT_TDS: the same for entry points without a stream argument. */
#define EXPORT_TSZ(name, parameters, call)                \
    API CUresult name parameters {                        \
        if (!stream) stream = CU_STREAM_LEGACY;           \
        return call;                                      \
    }                                                     \
    API CUresult name##_ptsz parameters {                 \
        if (!stream) stream = CU_STREAM_PER_THREAD;       \
        return call;                                      \
    }
#define EXPORT_TDS(name, parameters, call)                \
    API CUresult name parameters {                        \
        CUstream stream = CU_STREAM_LEGACY;               \
        return call;                                      \
    }                                                     \
    API CUresult name##_ptds parameters {                 \
        CUstream stream = CU_STREAM_PER_THREAD;           \
        return call;                                      \
    }

/* Leaves the function with the error of `expression`, if it is one. */
#define TRY(expression)                                   \
    do {                                                  \
        CUresult result_ = (expression);                  \
        if (result_ != CUDA_SUCCESS) return result_;      \
    } while (0)

/* First in every entry point: injected faults, initialised at all, not being checkpointed. */
#define ENTER() TRY(enter(__func__))
#define ENTER_CONTEXT(context) \
    CUcontext context;         \
    TRY(enter(__func__));      \
    TRY(current(&context))

enum { MAGIC_CONTEXT = 0x43545831, MAGIC_STREAM, MAGIC_EVENT, MAGIC_MODULE, MAGIC_FUNCTION, MAGIC_GRAPH, MAGIC_NODE,
       MAGIC_EXEC, MAGIC_POOL, MAGIC_ARRAY, MAGIC_OBJECT, MAGIC_DEAD };

struct capture;

struct CUstream_st {
    uint32_t magic, index; /* index: in shared memory */
    CUcontext context;
    unsigned flags;
    int priority;
    unsigned long long id;
    struct capture *capture; /* not NULL: this stream is being captured */
    CUgraphNode *tails;      /* of the capture: what the next node depends on */
    size_t tail_count;
    CUstream next;           /* of the same context */
};

struct CUctx_st {
    uint32_t magic, index, card; /* index, card: in shared memory */
    CUdevice device;
    bool primary, warm;          /* warm: has launched something */
    unsigned flags, api;
    unsigned long long id;
    uint64_t charged;
    struct CUstream_st null;
    CUstream streams;
    struct chunk *chunks;
    CUcontext next;
    CUcontext of; /* of a green context: the primary one, which has the memory; else NULL */
    size_t limits[8], stacks;
};

struct CUevent_st {
    uint32_t magic, index; /* index: in shared memory */
    CUcontext context;
    unsigned flags;
    bool recorded, foreign; /* foreign: of another process */
    uint64_t serial;         /* of the last record */
    struct capture *capture; /* of the last record, where that was captured */
    CUgraphNode *nodes;      /* what a wait for that record depends on */
    size_t node_count;
};

enum { MAX_PARAMETERS = 16, MAX_VARIABLES = 16 };

struct CUfunc_st {
    uint32_t magic;
    CUmodule module;
    char *name;
    enum { KERNEL_OTHER, KERNEL_SPIN, KERNEL_MEET, KERNEL_ADD } what;
    size_t parameter_count, sizes[MAX_PARAMETERS], offsets[MAX_PARAMETERS];
    int attributes[20];
};

struct variable { char name[64]; size_t at, bytes; };

struct CUmod_st {
    uint32_t magic;
    CUcontext context;  /* NULL: of a library, for all contexts */
    CUcontext home;     /* where its variables lie */
    CUdeviceptr space;
    uint64_t charged, variable_bytes;
    struct variable variables[MAX_VARIABLES];
    size_t variable_count;
    CUfunction *functions; /* never freed: work that is queued may need them */
    size_t count;
    bool any; /* the image is no text: there is a kernel of every name */
};

struct visible_card {
    char uuid[96], name[96], pci[32];
    uint32_t index; /* in shared memory */
    unsigned cc_major, cc_minor, cores, mhz;
    uint64_t total, elsewhere; /* elsewhere: used by what the NVML file says */
};

struct driver {
    bool ready, forked, faults, checkpointable, rude;
    _Atomic bool over; /* its exit handler has begun, and takes time: FAKE_CUDA_EXIT_US */
    int version;
    struct fc_shared *s;
    uint32_t slot;
    int count;
    struct visible_card cards[FC_CARDS];
    pthread_mutex_t lock; /* recursive: the process's own tables */
    CUcontext contexts, primaries[FC_CARDS];
    unsigned primary_users[FC_CARDS], primary_flags[FC_CARDS];
    unsigned long long ids;
    bool handles_again, dead_kills;
    unsigned end_us, exit_us;
    uint64_t context_bytes, lazy_bytes, kernel_ns;
    unsigned noise_percent;
    _Atomic unsigned dmabufs; /* open ones */
};
extern struct driver driver;

/* --- init.c ------------------------------------------------------------------------------------- */
CUresult enter(const char *name);
CUresult fault(const char *name);
CUresult card_of(CUdevice device, struct visible_card **card);
/* The device that a place of memory is of; -1: none. */
CUdevice device_at(const CUmemLocation *place);
unsigned long long setting(const char *name, unsigned long long otherwise);

/* --- context.c ---------------------------------------------------------------------------------- */
CUresult current(CUcontext *context);
CUresult context_alive(CUcontext context);
void take_time(void); /* as long as an end does */
CUresult context_green(CUcontext primary, CUcontext *to);
void context_green_gone(CUcontext context);
/* The context of a library call that names a card: its primary one, made if there is none. */
CUresult context_warm(CUcontext context);

/* --- memory ------------------------------------------------------------------------------------- */
enum block_kind { BLOCK_DEVICE = 1, BLOCK_MANAGED, BLOCK_HOST, BLOCK_REGISTERED, BLOCK_POOL, BLOCK_IPC, BLOCK_MAPPED,
                  BLOCK_GRAPH };

struct block {
    CUdeviceptr base;
    size_t bytes, charged; /* charged: device memory counted for this block itself */
    enum block_kind kind;
    CUcontext context;
    CUdevice device;
    unsigned flags;
    unsigned long long id;
    CUmemoryPool pool;
    struct chunk *chunk;                  /* small allocations lie in one */
    CUmemGenericAllocationHandle handle;  /* BLOCK_MAPPED; shared handle of BLOCK_IPC or exported memory */
    size_t resident;                      /* BLOCK_MANAGED */
    size_t content;                       /* bytes whose content is kept */
};

/* Reserves device memory of a card for this process; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult charge(uint32_t card, uint64_t bytes);
void discharge(uint32_t card, uint64_t bytes);
size_t granules(size_t bytes);
/* Address space of `bytes`, filled with zeros as it is touched; 0: none left. */
CUdeviceptr space_take(size_t bytes);
void space_give(CUdeviceptr at, size_t bytes);
/* Tables of blocks; the caller holds driver.lock. Pointers are good until the next insertion or removal. */
struct block *block_at(CUdeviceptr pointer);
struct block *block_add(struct block block);
void block_remove(CUdeviceptr base);
void blocks_of_context_gone(CUcontext context);
void ipc_drop(uint32_t place);
bool ipc_pooled_gone(const struct block *block);
CUresult memory_allocate(CUcontext context, size_t bytes, CUdeviceptr *to);
/* Whether a DMA-BUF keeps the memory of a block that is freed; the caller holds driver.lock. */
bool dmabuf_keeps(const struct block *block);
/* Gives back what DMA-BUFs kept that were closed. */
void dmabufs_settle(void);
/* Content: moves or fills what of it is kept. */
void content_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
void content_fill(CUdeviceptr to, uint64_t value, unsigned width, size_t count);
/* Managed memory that a unit on the card touches becomes resident. */
void managed_touch(CUdeviceptr pointer, size_t bytes, uint32_t card);

/* --- stream.c, event.c -------------------------------------------------------------------------- */
CUresult stream_of(CUstream handle, CUstream *stream);
CUresult event_of(CUevent event);
void streams_gone(CUcontext context);
CUresult stream_new(CUcontext context, unsigned flags, int priority, CUstream *to);
/* Appends a unit and starts it where it can; waits while the stream is full. `prepare` fills in the rest of it. */
CUresult submit(CUstream stream, enum fc_kind kind, uint64_t length, void (*prepare)(struct fc_unit *, void *), void *with);
/* Waits until all that is in the stream now is done. */
CUresult stream_drain(CUstream stream);
void sleep_until_change(uint64_t not_before);
bool stream_idle(CUstream stream);
CUresult event_record(CUevent event, CUstream stream);
CUresult event_wait(CUevent event, CUstream stream);
/* After a wait: pools give back what is beyond their threshold. */
void pools_synchronised(void);

/* --- module.c, variables.c ---------------------------------------------------------------------- */
size_t type_width(const char *type);
void variables_find(CUmodule module, const char *image);
/* Takes memory for them. A library's are placed when there is a context for them. */
CUresult variables_place(CUmodule module);
void variables_drop(CUmodule module);

/* --- launch.c ----------------------------------------------------------------------------------- */
struct launch {
    CUfunction function;
    unsigned grid[3], block[3], shared_bytes;
    unsigned char arguments[256];
    uint64_t length;
    enum fc_kind kind;
    uint64_t key;
    uint32_t parties;
};
CUresult launch_prepare(CUfunction function, void **parameters, void **extra, struct launch *launch);
void launch_effect(const struct launch *launch);
uint64_t noisy(uint64_t length);
uint64_t copy_ns(size_t bytes, bool over_bus);
CUresult copy_range(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle, bool wait);
CUresult run_launch(CUstream stream, const struct launch *launch);
/* Makes the host function a unit of the stream. */
CUresult submit_host(CUstream stream, CUhostFn function, void *data);

/* --- capture.c, graph.c ------------------------------------------------------------------------- */
/* A call that must not be made while this thread (or, in global mode, any) captures. */
CUresult capture_forbids(void);
void capture_stream_gone(CUstream stream);
struct node_content;
CUresult capture_add(CUstream stream, const struct node_content *content);
CUresult capture_event_record(CUstream stream, CUevent event, bool external);
CUresult capture_event_wait(CUstream stream, CUevent event, bool external);
/* Work in the default stream while a stream that it would wait for is captured. */
CUresult capture_implies(CUstream stream);

/* --- rude.c: FAKE_CUDA_HOST_TIME, FAKE_CUDA_LOAD_US, FAKE_CUDA_CALLS ------------------------------ */
void rude_begin(void);
void rude_end(void);
void rude_call(const char *name); /* where driver.rude */
void rude_record(bool timed);
void rude_load(const void *function, const unsigned grid[3]);
