#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

/* The calling thread's own default streams, one for each context. */
enum { OWN = 16 };
static _Thread_local struct { CUcontext context; CUstream stream; } own[OWN];

CUresult stream_new(CUcontext context, unsigned flags, int priority, CUstream *to) {
    CUstream stream = calloc(1, sizeof *stream);
    if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
    fc_lock(driver.s, driver.slot);
    uint32_t index = fc_stream_new(driver.s, driver.slot + 1, context->index);
    if (index != FC_NONE) {
        driver.s->streams[index].blocking = !(flags & CU_STREAM_NON_BLOCKING);
        driver.s->streams[index].priority = priority;
    }
    fc_unlock(driver.s);
    if (index == FC_NONE) {
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&driver.lock);
    *stream = (struct CUstream_st){.magic = MAGIC_STREAM, .index = index, .context = context, .flags = flags,
                                   .priority = priority, .id = ++driver.ids + 1, .next = context->streams};
    context->streams = stream;
    pthread_mutex_unlock(&driver.lock);
    *to = stream;
    return CUDA_SUCCESS;
}

static CUresult own_stream(CUcontext context, CUstream *to) {
    for (int i = 0; i < OWN; i++) {
        if (own[i].context == context && own[i].stream->magic == MAGIC_STREAM) {
            *to = own[i].stream;
            return CUDA_SUCCESS;
        }
    }
    for (int i = 0; i < OWN; i++) {
        if (own[i].context && own[i].context->magic == MAGIC_CONTEXT) continue;
        TRY(stream_new(context, 0, 0, &own[i].stream));
        own[i].context = context;
        *to = own[i].stream;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult stream_of(CUstream handle, CUstream *to) {
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        CUcontext context;
        TRY(current(&context));
        if (handle == CU_STREAM_PER_THREAD) return own_stream(context, to);
        *to = &context->null;
        return CUDA_SUCCESS;
    }
    if (handle->magic == MAGIC_DEAD) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (handle->magic != MAGIC_STREAM) return CUDA_ERROR_INVALID_HANDLE;
    *to = handle;
    return context_alive(handle->context);
}

void streams_gone(CUcontext context) {
    for (CUstream stream = context->streams, next; stream; stream = next) {
        next = stream->next;
        stream->magic = MAGIC_DEAD; /* a tombstone, as contexts are */
    }
    context->null.magic = MAGIC_DEAD;
}

/* --- waiting ------------------------------------------------------------------------------------ */
/* Sleeps until about the time at which what the caller waits for may have come. */
void sleep_until_change(uint64_t at) {
    static _Thread_local bool precise;
    uint64_t now = fc_now();
    if (!precise) precise = prctl(PR_SET_TIMERSLACK, 1000) == 0;
    if (at > now + 5000000) at = now + 5000000; /* a death may have freed the card earlier */
    if (at < now + 15000) {
        sched_yield();
        return;
    }
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Time before which the unit `seq` of the stream cannot be over. Under the lock. */
static uint64_t earliest(const struct fc_shared *s, const struct fc_stream *stream, uint64_t seq) {
    uint64_t at = s->clock;
    for (uint32_t i = stream->head; i != FC_NONE && s->units[i].seq <= seq; i = s->units[i].next) {
        const struct fc_unit *unit = &s->units[i];
        at += unit->left;
        if (unit->flags & FC_RUNNING) at -= s->clock - unit->run_start < unit->left ? s->clock - unit->run_start : unit->left;
    }
    if (at > s->clock) return at;
    at = fc_next(s);
    return at < s->clock + 30000 ? s->clock + 30000 : at > s->clock + 500000 ? s->clock + 500000 : at;
}

static void wait_for(uint32_t index, uint64_t seq) {
    for (;;) {
        fc_lock(driver.s, driver.slot);
        fc_advance(driver.s, fc_now());
        const struct fc_stream *stream = &driver.s->streams[index];
        bool over = !stream->count || driver.s->units[stream->head].seq > seq;
        uint64_t at = over ? 0 : earliest(driver.s, stream, seq);
        fc_unlock(driver.s);
        if (over) return;
        sleep_until_change(at);
    }
}

static uint64_t last_of(uint32_t index) {
    fc_lock(driver.s, driver.slot);
    fc_advance(driver.s, fc_now());
    const struct fc_stream *stream = &driver.s->streams[index];
    uint64_t seq = stream->count ? driver.s->units[stream->tail].seq : 0;
    fc_unlock(driver.s);
    return seq;
}

/* The default stream is also over with all blocking streams, and those wait for it. */
CUresult stream_drain(CUstream stream) {
    uint64_t seq = last_of(stream->index);
    if (seq) wait_for(stream->index, seq);
    pools_synchronised();
    if (stream != &stream->context->null) return CUDA_SUCCESS;
    for (CUstream other = stream->context->streams; other; other = other->next) {
        if (other->flags & CU_STREAM_NON_BLOCKING || other->magic != MAGIC_STREAM) continue;
        seq = last_of(other->index);
        if (seq) wait_for(other->index, seq);
    }
    return CUDA_SUCCESS;
}

bool stream_idle(CUstream stream) {
    fc_lock(driver.s, driver.slot);
    fc_advance(driver.s, fc_now());
    bool idle = driver.s->streams[stream->index].count == 0;
    fc_unlock(driver.s);
    return idle;
}

CUresult submit(CUstream stream, enum fc_kind kind, uint64_t length, void (*prepare)(struct fc_unit *, void *),
                void *with) {
    TRY(capture_implies(stream));
    for (;;) {
        fc_lock(driver.s, driver.slot);
        uint64_t now = fc_now();
        fc_advance(driver.s, now);
        uint32_t unit = fc_append(driver.s, stream->index, kind, length, driver.s->clock);
        if (unit != FC_NONE) {
            if (prepare) prepare(&driver.s->units[unit], with);
            fc_advance(driver.s, now);
            fc_unlock(driver.s);
            return CUDA_SUCCESS;
        }
        uint64_t head = driver.s->units[driver.s->streams[stream->index].head].seq;
        uint64_t at = earliest(driver.s, &driver.s->streams[stream->index], head);
        fc_unlock(driver.s);
        sleep_until_change(at); /* the queue is full: the real driver blocks here too */
    }
}

/* --- entry points ------------------------------------------------------------------------------- */
API CUresult cuStreamCreateWithPriority(CUstream *to, unsigned flags, int priority) {
    ENTER_CONTEXT(context);
    if (!to || flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    return stream_new(context, flags, priority > 0 ? 0 : priority < -5 ? -5 : priority, to);
}

API CUresult cuStreamCreate(CUstream *to, unsigned flags) {
    ENTER_CONTEXT(context);
    if (!to || flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    return stream_new(context, flags, 0, to);
}

/* What is queued still runs; the handle is gone at once. */
API CUresult cuStreamDestroy_v2(CUstream handle) {
    CUstream stream;
    ENTER();
    if ((uintptr_t)handle <= 2) return CUDA_ERROR_INVALID_HANDLE;
    TRY(stream_of(handle, &stream));
    TRY(stream_drain(stream));
    capture_stream_gone(stream);
    pthread_mutex_lock(&driver.lock);
    for (CUstream *at = &stream->context->streams; *at; at = &(*at)->next) {
        if (*at == stream) {
            *at = stream->next;
            break;
        }
    }
    fc_lock(driver.s, driver.slot);
    fc_stream_cancel(driver.s, stream->index, fc_now());
    fc_unlock(driver.s);
    stream->magic = 0;
    free(stream);
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuStreamDestroy(CUstream stream) {
    return cuStreamDestroy_v2(stream);
}

static CUresult synchronize(CUstream handle) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TRY(capture_forbids());
    return stream_drain(stream);
}
EXPORT_TSZ(cuStreamSynchronize, (CUstream stream), synchronize(stream))

static CUresult query(CUstream handle) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    TRY(capture_forbids());
    return stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT_TSZ(cuStreamQuery, (CUstream stream), query(stream))

static CUresult priority_of(CUstream handle, int *priority) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    *priority = stream->priority;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamGetPriority, (CUstream stream, int *priority), priority_of(stream, priority))

static CUresult flags_of(CUstream handle, unsigned *flags) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    *flags = stream->flags;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamGetFlags, (CUstream stream, unsigned *flags), flags_of(stream, flags))

static CUresult id_of(CUstream handle, unsigned long long *id) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamGetId, (CUstream stream, unsigned long long *id), id_of(stream, id))

static CUresult context_of(CUstream handle, CUcontext *context) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    *context = stream->context;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamGetCtx, (CUstream stream, CUcontext *context), context_of(stream, context))

static CUresult device_of(CUstream handle, CUdevice *device) {
    CUstream stream;
    ENTER();
    TRY(stream_of(handle, &stream));
    *device = stream->context->device;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamGetDevice, (CUstream stream, CUdevice *device), device_of(stream, device))

static CUresult drain_context(CUcontext context) {
    TRY(capture_forbids());
    TRY(stream_drain(&context->null));
    for (CUstream stream = context->streams; stream; stream = stream->next) {
        if (stream->magic == MAGIC_STREAM) TRY(stream_drain(stream));
    }
    return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
    ENTER_CONTEXT(context);
    return drain_context(context);
}

API CUresult cuCtxSynchronize_v2(CUcontext context) {
    ENTER();
    TRY(context_alive(context));
    return drain_context(context);
}
