/* The program's contexts: whose card they are, our events in them, their clocks against the host's. */
#define _GNU_SOURCE
#include "../memory/hooks.h"
#include "flight.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROWS = 1024, BLOCKS = 256 /* green contexts take no room of the card's: it is the driver that has no more */, TRIES = 12,
       HOMES = 4 /* streams whose context a thread knows; TLS of this kind is scarce */ };

static struct egpu_context rows[ROWS];
static _Atomic(struct egpu_context *) blocks[BLOCKS] = {rows}; /* made at need, one after the other */
EGPU_LINE static _Atomic uint32_t handles_gone; /* of contexts and streams, which may be others' next */
EGPU_LINE static struct egpu_lock contexts_lock;

CUresult egpu_relaxed(const struct egpu_real *real, CUstreamCaptureMode *mode) {
    return real->cuThreadExchangeStreamCaptureMode ? real->cuThreadExchangeStreamCaptureMode(mode) : CUDA_SUCCESS;
}

CUevent egpu_event_take(const struct egpu_real *real, struct egpu_context *context) {
    CUevent event = NULL;
    egpu_spin_lock(&context->lock);
    if (context->events_free != 0)
        event = context->events[--context->events_free];
    egpu_spin_unlock(&context->lock);
    if (event == NULL) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        egpu_relaxed(real, &mode);
        if (real->cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
            event = NULL;
        egpu_relaxed(real, &mode);
    }
    return event;
}

void egpu_event_give(struct egpu_context *context, CUevent event) {
    egpu_spin_lock(&context->lock);
    if (context->events != NULL && context->events_free < EGPU_EVENTS)
        context->events[context->events_free++] = event;
    egpu_spin_unlock(&context->lock);
}

/* What is put into a blocking stream waits for what the legacy stream has by then, and for no other stream. */
CUstream egpu_behind(const struct egpu_real *real, struct egpu_context *context) {
    if (context->behind == NULL && real->cuStreamCreate(&context->behind, CU_STREAM_DEFAULT) != CUDA_SUCCESS)
        context->behind = NULL;
    return context->behind;
}

/* Ties the context's clock to the host's: the shortest of a few records, seen from both sides. In that context. */
void egpu_anchor(const struct egpu_real *real, struct egpu_context *context) {
    uint32_t index = (context->anchor_now + 1) % EGPU_ANCHORS;
    if (context->clock == NULL &&
        real->cuStreamCreate(&context->clock, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
        return;
    if ((context->anchor[index] == NULL && real->cuEventCreate(&context->anchor[index], CU_EVENT_DEFAULT) != CUDA_SUCCESS) ||
        (context->trial == NULL && real->cuEventCreate(&context->trial, CU_EVENT_DEFAULT) != CUDA_SUCCESS))
        return;
    int64_t best = INT64_MAX, spent = egpu_now_ns() + 4000000;
    for (int tries = 0; tries < TRIES && (best > 3000 || tries == 0); tries++) {
        int64_t not_yet = egpu_now_ns();
        if (best != INT64_MAX && not_yet > spent)
            break;
        if (real->cuEventRecord(context->trial, context->clock) != CUDA_SUCCESS)
            return;
        CUresult result;
        while ((result = real->cuEventQuery(context->trial)) == CUDA_ERROR_NOT_READY && not_yet < spent)
            not_yet = egpu_now_ns();
        int64_t reached = egpu_now_ns();
        if (result != CUDA_SUCCESS)
            return;
        if (reached - not_yet >= best)
            continue;
        best = reached - not_yet;
        context->anchor_ns[index] = not_yet + best / 2;
        CUevent swap = context->anchor[index];
        context->anchor[index] = context->trial, context->trial = swap;
    }
    context->anchored_ns = context->anchor_ns[index];
    atomic_store(&context->anchor_now, index);
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

static struct egpu_context *context_add(const struct egpu_real *real, CUcontext handle) {
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
        CUevent *events = free_row->events ? free_row->events : calloc(EGPU_EVENTS, sizeof(CUevent));
        memset(free_row, 0, sizeof *free_row);
        free_row->card = card < EGPU_ACTIVITY_CARDS ? card : -1;
        free_row->events = events;
        if (free_row->card >= 0 && events != NULL) {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            egpu_relaxed(real, &mode);
            egpu_anchor(real, free_row);
            egpu_relaxed(real, &mode);
        }
        free_row->handle = handle;
    }
    egpu_unlock(&contexts_lock);
    return free_row;
}

/* The context that work on a stream is done in, whatever is current; NULL: the current one. A thread asks once for each. */
static CUcontext home_of(const struct egpu_real *real, CUstream stream, uint32_t gone) {
    static __thread __attribute__((tls_model("initial-exec"))) struct { CUstream stream; CUcontext home; uint32_t gone; } homes[HOMES];
    const uintptr_t at = (uintptr_t)egpu_named_stream(stream);
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
            last.context = context_add(real, handle);
        last.handle = handle;
        last.gone = gone;
    }
    return last.context != NULL && last.context->card >= 0 ? last.context : NULL;
}

void egpu_contexts_anchor(const struct egpu_real *real, int64_t now_ns) {
    struct egpu_context *context;
    for (uint32_t i = 0; (context = row_at(i)) != NULL; i++) {
        if (context->handle == NULL || context->card < 0 || now_ns - context->anchored_ns < 4000000000)
            continue;
        egpu_lock(&contexts_lock);
        CUcontext handle = context->handle;
        if (handle != NULL && real->cuCtxPushCurrent_v2(handle) == CUDA_SUCCESS) {
            egpu_anchor(real, context);
            real->cuCtxPopCurrent_v2(&handle);
        }
        egpu_unlock(&contexts_lock);
    }
}

void egpu_time_context_gone(CUcontext handle) {
    struct egpu_context *context;
    if (handle != NULL)
        egpu_captures_context_gone(handle);
    for (uint32_t i = 0; (context = row_at(i)) != NULL; i++) {
        if (handle == NULL || context->handle != handle)
            continue;
        egpu_flight_context_gone(context);
        if (context->card >= 0)
            egpu_resolve_drop(context->card, context);
        egpu_lock(&contexts_lock);
        context->handle = NULL;
        egpu_unlock(&contexts_lock);
    }
    egpu_handle_gone(); /* and its streams */
}

void egpu_handle_gone(void) { atomic_fetch_add(&handles_gone, 1); }
