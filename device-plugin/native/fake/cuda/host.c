/* Host functions and waits for values in memory: a thread of the process ends them when their turn has come. */
#include "driver.h"
#include "graph.h"

#include <stdlib.h>
#include <time.h>

struct task {
    uint64_t seq;
    uint32_t stream;
    CUhostFn function;
    CUstreamCallback callback;
    CUstream handle;
    void *data;
    CUdeviceptr address; /* a wait: for its value to compare so with `value` */
    uint64_t value;
    unsigned compare, width; /* width 0: no wait; compare 100: write the value */
    struct task *next;
};

static struct task *tasks;
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static bool running;
enum { WRITE_VALUE = 100 };

/* True: the unit is the first of its stream and everything before it is over. */
static bool reached(const struct task *task, uint64_t *at) {
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    fc_advance(s, fc_now());
    const struct fc_stream *stream = &s->streams[task->stream];
    bool first = stream->count && s->units[stream->head].seq == task->seq;
    bool turn = first && s->units[stream->head].flags & FC_REACHED;
    bool gone = !stream->count || s->units[stream->head].seq > task->seq;
    uint64_t next = fc_next(s);
    if (next < *at) *at = next;
    fc_unlock(s);
    return turn || gone;
}

static void over(const struct task *task) {
    struct fc_shared *s = driver.s;
    fc_lock(s, driver.slot);
    const struct fc_stream *stream = &s->streams[task->stream];
    if (stream->count && s->units[stream->head].seq == task->seq) s->units[stream->head].flags |= FC_OVER;
    fc_advance(s, fc_now());
    fc_unlock(s);
}

static bool holds(const struct task *task) {
    uint64_t seen = task->width == 4 ? *(_Atomic uint32_t *)task->address : *(_Atomic uint64_t *)task->address;
    switch (task->compare & 3) {
        case CU_STREAM_WAIT_VALUE_GEQ:
            return task->width == 4 ? (int32_t)((uint32_t)seen - (uint32_t)task->value) >= 0
                                    : (int64_t)(seen - task->value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ: return seen == task->value;
        case CU_STREAM_WAIT_VALUE_AND: return seen & task->value;
        default: return ~(seen | task->value);
    }
}

static bool perform(const struct task *task) {
    if (task->width && task->compare == WRITE_VALUE) {
        content_copy(task->address, (CUdeviceptr)&task->value, task->width);
    } else if (task->width) {
        if (!holds(task)) return false;
    } else if (task->callback) {
        task->callback(task->handle, CUDA_SUCCESS, task->data);
    } else {
        task->function(task->data);
    }
    return true;
}

static void *work(void *unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&queue);
        while (!tasks) pthread_cond_wait(&more, &queue);
        struct task *all = tasks;
        pthread_mutex_unlock(&queue);
        uint64_t at = fc_now() + 200000;
        for (struct task *task = all, *next; task; task = next) {
            pthread_mutex_lock(&queue);
            next = task->next;
            pthread_mutex_unlock(&queue);
            if (!reached(task, &at) || !perform(task)) continue;
            over(task);
            pthread_mutex_lock(&queue);
            for (struct task **place = &tasks; *place; place = &(*place)->next) {
                if (*place != task) continue;
                *place = task->next;
                break;
            }
            pthread_mutex_unlock(&queue);
            free(task);
            at = 0;
        }
        if (at) sleep_until_change(at < fc_now() + 20000 ? fc_now() + 20000 : at);
    }
    return NULL;
}

static void remember(struct fc_unit *unit, void *with) {
    struct task *task = with;
    task->seq = unit->seq;
}

static CUresult enqueue(CUstream stream, struct task content) {
    struct task *task = malloc(sizeof *task);
    if (!task) return CUDA_ERROR_OUT_OF_MEMORY;
    *task = content;
    task->stream = stream->index;
    CUresult result = submit(stream, FC_HOST, 0, remember, task);
    if (result != CUDA_SUCCESS) {
        free(task);
        return result;
    }
    pthread_mutex_lock(&queue);
    struct task **last = &tasks;
    while (*last) last = &(*last)->next;
    task->next = NULL;
    *last = task;
    pthread_t thread;
    if (!running) running = pthread_create(&thread, NULL, work, NULL) == 0 && pthread_detach(thread) == 0;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&queue);
    return CUDA_SUCCESS;
}

CUresult submit_host(CUstream stream, CUhostFn function, void *data) {
    return enqueue(stream, (struct task){.function = function, .data = data});
}

static CUresult launch_host(CUstream handle, CUhostFn function, void *data) {
    CUstream stream;
    TRY(enter("cuLaunchHostFunc"));
    if (!function) return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &stream));
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {function, data}};
        return capture_add(stream, &content);
    }
    return submit_host(stream, function, data);
}
EXPORT_TSZ(cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data), launch_host(stream, function, data))
EXPORT_TSZ(cuLaunchHostFunc_v2, (CUstream stream, CUhostFn function, void *data, unsigned mode),
           ((void)mode, launch_host(stream, function, data)))

static CUresult callback(CUstream handle, CUstreamCallback function, void *data, unsigned flags) {
    CUstream stream;
    TRY(enter("cuStreamAddCallback"));
    if (!function || flags) return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &stream));
    if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return enqueue(stream, (struct task){.callback = function, .handle = handle, .data = data});
}
EXPORT_TSZ(cuStreamAddCallback, (CUstream stream, CUstreamCallback function, void *data, unsigned flags),
           callback(stream, function, data, flags))

static CUresult value(CUstream handle, CUdeviceptr address, uint64_t wanted, unsigned width, unsigned compare) {
    CUstream stream;
    TRY(enter("cuStreamWaitValue"));
    TRY(stream_of(handle, &stream));
    if (!address || address % width) return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
    return enqueue(stream, (struct task){.address = address, .value = wanted, .width = width, .compare = compare});
}
#define VALUES(suffix)                                                                                                \
    EXPORT_TSZ(cuStreamWaitValue32##suffix, (CUstream stream, CUdeviceptr at, uint32_t wanted, unsigned flags),       \
               value(stream, at, wanted, 4, flags & 3))                                                               \
    EXPORT_TSZ(cuStreamWaitValue64##suffix, (CUstream stream, CUdeviceptr at, uint64_t wanted, unsigned flags),       \
               value(stream, at, wanted, 8, flags & 3))                                                               \
    EXPORT_TSZ(cuStreamWriteValue32##suffix, (CUstream stream, CUdeviceptr at, uint32_t wanted, unsigned flags),      \
               ((void)flags, value(stream, at, wanted, 4, WRITE_VALUE)))                                              \
    EXPORT_TSZ(cuStreamWriteValue64##suffix, (CUstream stream, CUdeviceptr at, uint64_t wanted, unsigned flags),      \
               ((void)flags, value(stream, at, wanted, 8, WRITE_VALUE)))
VALUES()
VALUES(_v2)

static CUresult batch(CUstream handle, unsigned count, CUstreamBatchMemOpParams *list, unsigned flags) {
    TRY(enter("cuStreamBatchMemOp"));
    if (!list || flags) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams *one = &list[i];
        CUdeviceptr at = one->waitValue.address;
        switch (one->operation) {
            case CU_STREAM_MEM_OP_WAIT_VALUE_32: TRY(value(handle, at, one->waitValue.value, 4, one->waitValue.flags & 3)); break;
            case CU_STREAM_MEM_OP_WAIT_VALUE_64: TRY(value(handle, at, one->waitValue.value64, 8, one->waitValue.flags & 3)); break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_32: TRY(value(handle, at, one->writeValue.value, 4, WRITE_VALUE)); break;
            case CU_STREAM_MEM_OP_WRITE_VALUE_64: TRY(value(handle, at, one->writeValue.value64, 8, WRITE_VALUE)); break;
            case CU_STREAM_MEM_OP_BARRIER: break;
            default: return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamBatchMemOp, (CUstream stream, unsigned count, CUstreamBatchMemOpParams *list, unsigned flags),
           batch(stream, count, list, flags))
EXPORT_TSZ(cuStreamBatchMemOp_v2, (CUstream stream, unsigned count, CUstreamBatchMemOpParams *list, unsigned flags),
           batch(stream, count, list, flags))
