/* The program's contexts: whose card they are, and our events in them. */
#define _GNU_SOURCE
#include "../memory/hooks.h"
#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
    ROWS = 1024,
    BLOCKS = 256, /* green contexts take no room of the card's: it is the driver that has no more */
    EVENTS = 2048,
    HOMES = 4,    /* streams whose context a thread knows; TLS of this kind is scarce */
};

static struct egpu_context rows[ROWS];
static _Atomic(struct egpu_context *) blocks[BLOCKS] = {rows}; /* made at need, one after the other */
EGPU_LINE static _Atomic uint32_t handles_gone; /* of contexts and streams, which may be others' next */
EGPU_LINE static struct egpu_lock contexts_lock;

void egpu_relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode) {
    if (real->cuThreadExchangeStreamCaptureMode)
        real->cuThreadExchangeStreamCaptureMode(mode);
}

CUevent egpu_event_take(const struct egpu_real *real, struct egpu_context *context, bool timed) {
    CUevent event = NULL;
    egpu_spin_lock(&context->lock);
    if (context->events_free[timed] != 0)
        event = context->events[timed][--context->events_free[timed]];
    egpu_spin_unlock(&context->lock);
    if (event == NULL) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        egpu_relaxed(real, &mode);
        if (real->cuEventCreate(&event, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
            event = NULL;
        egpu_relaxed(real, &mode);
    }
    return event;
}

void egpu_event_give(struct egpu_context *context, CUevent event, bool timed) {
    egpu_spin_lock(&context->lock);
    if (context->events[timed] != NULL && context->events_free[timed] < EVENTS)
        context->events[timed][context->events_free[timed]++] = event;
    egpu_spin_unlock(&context->lock);
}

/* NULL: there are not so many rows. */
static struct egpu_context *row_at(uint32_t nth) {
    struct egpu_context *block = nth / ROWS < BLOCKS ? atomic_load_explicit(&blocks[nth / ROWS], memory_order_acquire) : NULL;
    return block != NULL ? &block[nth % ROWS] : NULL;
}

/* Under the lock: the first of the rows from that one on, all of which are free. NULL: no memory for more. */
static struct egpu_context *rows_more(uint32_t nth) {
    const size_t bytes = sizeof rows;
    void *block = nth / ROWS < BLOCKS ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
    if (block == MAP_FAILED)
        return NULL;
    atomic_store_explicit(&blocks[nth / ROWS], block, memory_order_release);
    return block;
}

static struct egpu_context *context_add(CUcontext handle) {
    int card = egpu_card_of_context(NULL);
    struct egpu_context *free_row = NULL, *row;
    uint32_t nth = 0;
    egpu_lock(&contexts_lock);
    for (; (row = row_at(nth)) != NULL; nth++) {
        if (row->handle == handle) {
            egpu_unlock(&contexts_lock);
            return row;
        }
        if (row->handle == NULL && free_row == NULL)
            free_row = row;
    }
    if (free_row == NULL)
        free_row = rows_more(nth);
    if (free_row != NULL) {
        CUevent *events = free_row->events[0] ? free_row->events[0] : calloc(2 * EVENTS, sizeof(CUevent));
        memset(free_row, 0, sizeof *free_row);
        free_row->card = events != NULL && card < EGPU_ACTIVITY_CARDS ? card : -1;
        free_row->events[0] = events;
        free_row->events[1] = events ? events + EVENTS : NULL;
        free_row->handle = handle;
    }
    egpu_unlock(&contexts_lock);
    return free_row;
}

/* The context that work on a stream is done in, whatever is current; NULL: the current one. A thread asks once for each. */
static CUcontext home_of(const struct egpu_real *real, CUstream stream, uint32_t gone) {
    static __thread __attribute__((tls_model("initial-exec"))) struct { CUstream stream; CUcontext home; uint32_t gone; } homes[HOMES];
    const uintptr_t at = (uintptr_t)((uintptr_t)stream > 2 ? stream : NULL);
    if (at == 0 || real->cuStreamGetCtx == NULL)
        return NULL;
    __typeof__(&homes[0]) row = &homes[(at >> 5 ^ at >> 9) % HOMES];
    if (row->stream != stream || row->gone != gone) {
        CUcontext home = NULL;
        if (real->cuStreamGetCtx(stream, &home) != CUDA_SUCCESS)
            return NULL;
        row->stream = stream, row->home = home, row->gone = gone;
    }
    return row->home;
}

struct egpu_context *egpu_context_of(const struct egpu_real *real, CUstream stream, CUcontext *elsewhere) {
    static __thread __attribute__((tls_model("initial-exec"))) struct { CUcontext handle; struct egpu_context *context; uint32_t gone; } last;
    CUcontext handle = NULL;
    *elsewhere = NULL;
    if (real->cuCtxGetCurrent(&handle) != CUDA_SUCCESS)
        handle = NULL;
    uint32_t gone = atomic_load_explicit(&handles_gone, memory_order_acquire);
    CUcontext home = home_of(real, stream, gone);
    if (__builtin_expect(home != NULL && home != handle, 0)) {
        if (real->cuCtxPushCurrent_v2(home) != CUDA_SUCCESS)
            return NULL;
        handle = *elsewhere = home;
    }
    if (handle == NULL)
        return NULL;
    if (last.handle != handle || last.gone != gone) {
        last.context = NULL;
        struct egpu_context *row;
        for (uint32_t i = 0; last.context == NULL && (row = row_at(i)) != NULL; i++)
            if (atomic_load_explicit(&row->handle, memory_order_acquire) == handle)
                last.context = row;
        if (last.context == NULL)
            last.context = context_add(handle);
        last.handle = handle;
        last.gone = gone;
    }
    return last.context != NULL && last.context->card >= 0 ? last.context : NULL;
}

void egpu_time_context_gone(CUcontext handle) {
    struct egpu_context *context;
    for (uint32_t i = 0; handle != NULL && (context = row_at(i)) != NULL; i++) {
        if (context->handle != handle)
            continue;
        egpu_streams_context_gone(context);
        egpu_lock(&contexts_lock);
        context->handle = NULL;
        egpu_unlock(&contexts_lock);
    }
    egpu_handle_gone(); /* and its streams */
}

void egpu_handle_gone(void) { atomic_fetch_add(&handles_gone, 1); }
