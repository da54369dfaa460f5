#include "driver.h"

#include <stdlib.h>
#include <string.h>

CUresult event_of(CUevent event) {
    if (!event || event->magic != MAGIC_EVENT) return CUDA_ERROR_INVALID_HANDLE;
    return context_alive(event->context);
}

API CUresult cuEventCreate(CUevent *to, unsigned flags) {
    ENTER_CONTEXT(context);
    if (!to || flags & ~7u) return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
    CUevent event = calloc(1, sizeof *event);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    struct fc_shared *s = driver.s;
    uint32_t found = FC_NONE;
    fc_lock(s, driver.slot);
    for (uint32_t tries = 0; tries < FC_EVENTS && found == FC_NONE; tries++) {
        uint32_t index = s->event_hint++ % FC_EVENTS;
        if (!s->events[index].owner && !s->events[index].dying) found = index;
    }
    if (found != FC_NONE) s->events[found] = (struct fc_event){.owner = driver.slot + 1, .context = context->index};
    fc_unlock(s);
    if (found == FC_NONE) {
        free(event);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = (struct CUevent_st){.magic = MAGIC_EVENT, .index = found, .context = context, .flags = flags};
    *to = event;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    ENTER();
    if (!event || event->magic != MAGIC_EVENT) return CUDA_ERROR_INVALID_HANDLE;
    fc_lock(driver.s, driver.slot);
    if (!event->foreign) fc_event_release(driver.s, event->index);
    fc_unlock(driver.s);
    event->magic = 0;
    free(event->nodes);
    free(event);
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy(CUevent event) {
    return cuEventDestroy_v2(event);
}

static void mark(struct fc_unit *unit, void *with) {
    CUevent event = with;
    struct fc_event *shared = &driver.s->events[event->index];
    unit->event = event->index;
    unit->serial = event->serial = ++shared->serial;
    shared->pending++;
}

CUresult event_record(CUevent event, CUstream stream) {
    if (stream->context != event->context && !event->foreign) return CUDA_ERROR_INVALID_HANDLE;
    event->capture = NULL;
    event->recorded = true;
    return submit(stream, FC_MARK, 0, mark, event);
}

static CUresult record(CUevent event, CUstream handle, unsigned flags) {
    CUstream stream;
    TRY(enter("cuEventRecord"));
    if (flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    TRY(event_of(event));
    rude_record(!(event->flags & CU_EVENT_DISABLE_TIMING));
    TRY(stream_of(handle, &stream));
    if (stream->capture) return capture_event_record(stream, event, flags & CU_EVENT_RECORD_EXTERNAL);
    return event_record(event, stream);
}
EXPORT_TSZ(cuEventRecord, (CUevent event, CUstream stream), record(event, stream, 0))
EXPORT_TSZ(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags), record(event, stream, flags))

/* Of events that processes share the newest record counts, whosever it is. */
static void refresh(CUevent event) {
    if (!(event->flags & CU_EVENT_INTERPROCESS)) return;
    event->serial = driver.s->events[event->index].serial;
    event->recorded = event->serial > 0;
}

static bool reached(CUevent event) {
    _Atomic uint64_t *done = &driver.s->events[event->index].done_serial;
    refresh(event);
    if (!event->recorded || atomic_load_explicit(done, memory_order_acquire) >= event->serial) return true;
    fc_lock(driver.s, driver.slot);
    fc_advance(driver.s, fc_now());
    fc_unlock(driver.s);
    return atomic_load_explicit(done, memory_order_acquire) >= event->serial;
}

API CUresult cuEventQuery(CUevent event) {
    ENTER();
    TRY(event_of(event));
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    TRY(capture_forbids());
    return reached(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    TRY(event_of(event));
    if (event->capture) return CUDA_ERROR_CAPTURED_EVENT;
    TRY(capture_forbids());
    while (!reached(event)) {
        fc_lock(driver.s, driver.slot);
        uint64_t now = driver.s->clock, at = fc_next(driver.s);
        fc_unlock(driver.s);
        sleep_until_change(at == FC_NEVER ? now + 500000 : at < now + 30000 ? now + 30000 : at);
    }
    pools_synchronised();
    return CUDA_SUCCESS;
}

static CUresult elapsed(float *milliseconds, CUevent from, CUevent to) {
    TRY(event_of(from));
    TRY(event_of(to));
    if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
    if ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING || !from->recorded || !to->recorded) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (from->context != to->context) return CUDA_ERROR_INVALID_HANDLE;
    if (!reached(from) || !reached(to)) return CUDA_ERROR_NOT_READY;
    const struct fc_event *events = driver.s->events;
    int64_t ns = (int64_t)(events[to->index].time / 512) - (int64_t)(events[from->index].time / 512);
    *milliseconds = (float)ns * 512e-6f; /* about half a microsecond is as fine as it gets */
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent from, CUevent to) {
    ENTER();
    return elapsed(milliseconds, from, to);
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent from, CUevent to) {
    ENTER();
    return elapsed(milliseconds, from, to);
}

static void wait(struct fc_unit *unit, void *with) {
    CUevent event = with;
    unit->event = event->index;
    unit->serial = event->serial;
    driver.s->events[event->index].pending++;
}

CUresult event_wait(CUevent event, CUstream stream) {
    return reached(event) ? CUDA_SUCCESS : submit(stream, FC_WAIT, 0, wait, event);
}

static CUresult wait_event(CUstream handle, CUevent event, unsigned flags) {
    CUstream stream;
    ENTER();
    if (flags & ~1u) return CUDA_ERROR_INVALID_VALUE;
    TRY(event_of(event));
    TRY(stream_of(handle, &stream));
    if (event->capture || stream->capture) return capture_event_wait(stream, event, flags & CU_EVENT_WAIT_EXTERNAL);
    return event_wait(event, stream);
}
EXPORT_TSZ(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags), wait_event(stream, event, flags))

/* --- between processes -------------------------------------------------------------------------- */
#define EVENT_MAGIC 0x4950434556ull
struct event_name { uint64_t magic; uint32_t index, owner; };

API CUresult cuIpcGetEventHandle(CUipcEventHandle *to, CUevent event) {
    ENTER();
    TRY(event_of(event));
    if (!to || !(event->flags & CU_EVENT_INTERPROCESS)) return CUDA_ERROR_INVALID_VALUE;
    struct event_name name = {EVENT_MAGIC, event->index, driver.s->events[event->index].owner};
    *to = (CUipcEventHandle){{0}};
    memcpy(to, &name, sizeof name);
    return CUDA_SUCCESS;
}

API CUresult cuIpcOpenEventHandle(CUevent *to, CUipcEventHandle handle) {
    ENTER_CONTEXT(context);
    struct event_name name;
    memcpy(&name, &handle, sizeof name);
    if (!to || name.magic != EVENT_MAGIC || name.index >= FC_EVENTS) return CUDA_ERROR_INVALID_VALUE;
    if (driver.s->events[name.index].owner != name.owner) return CUDA_ERROR_INVALID_HANDLE;
    CUevent event = calloc(1, sizeof *event);
    if (!event) return CUDA_ERROR_OUT_OF_MEMORY;
    *event = (struct CUevent_st){.magic = MAGIC_EVENT, .index = name.index, .context = context, .foreign = true,
                                 .flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING};
    *to = event;
    return CUDA_SUCCESS;
}
