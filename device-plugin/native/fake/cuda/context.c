#define _GNU_SOURCE
#include "code.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 64 };
static _Thread_local CUcontext stack[DEPTH];
static _Thread_local int depth;

CUresult context_alive(CUcontext context) {
    if (context && context->magic == MAGIC_DEAD && driver.dead_kills) abort();
    if (!context || context->magic == MAGIC_DEAD) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return context->magic == MAGIC_CONTEXT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult current(CUcontext *context) {
    if (depth == 0 || !stack[depth - 1]) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
    return context_alive(*context);
}

/* The first launch in a context brings in what the driver loads lazily. */
CUresult context_warm(CUcontext context) {
    if (context->warm) return CUDA_SUCCESS;
    TRY(charge(context->card, driver.lazy_bytes));
    context->charged += driver.lazy_bytes;
    context->warm = true;
    return CUDA_SUCCESS;
}

static CUresult shared_part(CUcontext context) {
    struct fc_shared *s = driver.s;
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    fc_lock(s, driver.slot);
    for (uint32_t i = 0; i < FC_CONTEXTS && result; i++) {
        if (s->contexts[i].owner) continue;
        s->contexts[i] = (struct fc_context){
            .owner = driver.slot + 1, .card = context->card, .serial = s->context_serials++, .null_stream = FC_NONE};
        uint32_t stream = fc_stream_new(s, driver.slot + 1, i);
        if (stream == FC_NONE) break;
        s->streams[stream].blocking = s->streams[stream].is_null = 1;
        s->contexts[i].null_stream = stream;
        context->index = i;
        context->null = (struct CUstream_st){.magic = MAGIC_STREAM, .index = stream, .context = context, .id = 1};
        result = CUDA_SUCCESS;
    }
    fc_unlock(s);
    return result;
}

/* That of a context that ended, where handles come again. NULL: out of memory. */
static CUcontext ended;
static CUcontext new_handle(void) {
    pthread_mutex_lock(&driver.lock);
    CUcontext context = ended;
    if (context) ended = context->next;
    pthread_mutex_unlock(&driver.lock);
    return context ? context : calloc(1, sizeof *context);
}

static void begin(CUcontext context) {
    pthread_mutex_lock(&driver.lock);
    context->id = ++driver.ids;
    context->next = driver.contexts;
    driver.contexts = context;
    pthread_mutex_unlock(&driver.lock);
}

static CUresult create(CUdevice device, unsigned flags, unsigned api, CUcontext *to) {
    struct visible_card *card;
    TRY(card_of(device, &card));
    CUcontext context = new_handle();
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct CUctx_st){.magic = MAGIC_CONTEXT, .card = card->index, .device = device, .flags = flags,
                                 .api = api, .charged = driver.context_bytes};
    static const size_t LIMITS[8] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0, 0};
    memcpy(context->limits, LIMITS, sizeof LIMITS);
    CUresult result = charge(card->index, context->charged);
    if (result == CUDA_SUCCESS) {
        result = shared_part(context);
        if (result != CUDA_SUCCESS) discharge(card->index, context->charged);
    }
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    begin(context);
    *to = context;
    return CUDA_SUCCESS;
}

void take_time(void) {
    if (driver.end_us) nanosleep(&(struct timespec){.tv_nsec = driver.end_us * 1000l}, NULL);
}

/* The handle stays as a tombstone: other threads may still have it on their stacks. Real ones come again at once. */
static void destroy(CUcontext context) {
    pthread_mutex_lock(&driver.lock);
    for (CUstream stream = context->streams; stream; stream = stream->next) capture_stream_gone(stream);
    for (CUcontext *at = &driver.contexts; *at; at = &(*at)->next) {
        if (*at == context) {
            *at = context->next;
            break;
        }
    }
    blocks_of_context_gone(context);
    streams_gone(context);
    fc_lock(driver.s, driver.slot);
    fc_context_cancel(driver.s, context->index, fc_now());
    fc_unlock(driver.s);
    discharge(context->card, context->charged);
    context->magic = MAGIC_DEAD;
    take_time();
    if (driver.handles_again) {
        context->next = ended;
        ended = context;
    }
    pthread_mutex_unlock(&driver.lock);
}

/* Stands for the primary one with fewer processors (here: all of them), and has nothing of its own but streams. */
CUresult context_green(CUcontext primary, CUcontext *to) {
    CUcontext context = new_handle();
    if (!context) return CUDA_ERROR_OUT_OF_MEMORY;
    *context = (struct CUctx_st){.magic = MAGIC_CONTEXT, .card = primary->card, .device = primary->device, .of = primary,
                                 .primary = true, .warm = true, .api = primary->api};
    memcpy(context->limits, primary->limits, sizeof context->limits);
    CUresult result = shared_part(context);
    if (result != CUDA_SUCCESS) {
        free(context);
        return result;
    }
    begin(context);
    *to = context;
    return CUDA_SUCCESS;
}

void context_green_gone(CUcontext context) { destroy(context); }

static CUresult create_and_push(CUcontext *to, unsigned flags, CUdevice device, unsigned api) {
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    if (depth == DEPTH) return CUDA_ERROR_OUT_OF_MEMORY;
    TRY(create(device, flags, api, to));
    stack[depth++] = *to;
    return CUDA_SUCCESS;
}

API CUresult cuCtxCreate(CUcontext *to, unsigned flags, CUdevice device) {
    ENTER();
    return create_and_push(to, flags, device, 3010);
}

API CUresult cuCtxCreate_v2(CUcontext *to, unsigned flags, CUdevice device) {
    ENTER();
    return create_and_push(to, flags, device, 3020);
}

API CUresult cuCtxCreate_v3(CUcontext *to, CUexecAffinityParam *affinity, int count, unsigned flags, CUdevice device) {
    ENTER();
    if (affinity || count) return CUDA_ERROR_NOT_SUPPORTED; /* only under MPS */
    return create_and_push(to, flags, device, 3020);
}

API CUresult cuCtxCreate_v4(CUcontext *to, CUctxCreateParams *how, unsigned flags, CUdevice device) {
    ENTER();
    if (how && (how->numExecAffinityParams || how->cigParams)) return CUDA_ERROR_NOT_SUPPORTED;
    return create_and_push(to, flags, device, 3020);
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
    ENTER();
    TRY(context_alive(context));
    if (context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    destroy(context);
    if (depth && stack[depth - 1] == context) depth--;
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy(CUcontext context) {
    return cuCtxDestroy_v2(context);
}

API CUresult cuCtxPushCurrent_v2(CUcontext context) {
    ENTER();
    TRY(context_alive(context));
    if (depth == DEPTH) return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent(CUcontext context) {
    return cuCtxPushCurrent_v2(context);
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    ENTER();
    if (depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (context) *context = stack[depth];
    return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent(CUcontext *context) {
    return cuCtxPopCurrent_v2(context);
}

API CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    if (context) TRY(context_alive(context));
    if (depth == 0) depth = 1;
    stack[depth - 1] = context;
    if (!context) depth--;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    if (!context) return CUDA_ERROR_INVALID_VALUE;
    *context = depth ? stack[depth - 1] : NULL;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER_CONTEXT(context);
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    *device = context->device;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
    ENTER();
    if (!context) TRY(current(&context));
    TRY(context_alive(context));
    *device = context->device;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetFlags(unsigned *flags) {
    ENTER_CONTEXT(context);
    *flags = context->flags;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetFlags(unsigned flags) {
    ENTER_CONTEXT(context);
    context->flags = flags;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
    ENTER();
    if (!context) TRY(current(&context));
    TRY(context_alive(context));
    *id = context->id;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetApiVersion(CUcontext context, unsigned *version) {
    ENTER();
    if (!context) TRY(current(&context));
    TRY(context_alive(context));
    *version = context->api;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER_CONTEXT(context);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
    ENTER_CONTEXT(context);
    if (limit < 0 || limit >= 8) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *value = context->limits[limit];
    return CUDA_SUCCESS;
}

/* The stacks of as many threads as the card holds: the most that was asked for stays. */
CUresult context_local(CUcontext context, size_t value) {
    int processors, threads;
    TRY(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context->device));
    TRY(cuDeviceGetAttribute(&threads, 39, context->device));
    size_t most = context->stacks > context->limits[0] ? context->stacks : context->limits[0];
    if (value > most) {
        size_t more = granules((value - most) * (size_t)processors * (size_t)threads);
        TRY(charge(context->card, more));
        context->charged += more;
        context->stacks = value;
    }
    return CUDA_SUCCESS;
}

static CUresult set_stacks(CUcontext context, size_t value) {
    TRY(context_local(context, value));
    context->limits[0] = value;
    return CUDA_SUCCESS;
}

/* Heap of malloc() in kernels (2): device memory of its own, once it is asked for. */
API CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
    ENTER_CONTEXT(context);
    if (limit < 0 || limit >= 8) return CUDA_ERROR_UNSUPPORTED_LIMIT;
    if (limit == 0) return set_stacks(context, value);
    if (limit == 2 && value > context->limits[2]) {
        size_t more = granules(value - context->limits[2]);
        TRY(charge(context->card, more));
        context->charged += more;
    }
    context->limits[limit] = value;
    return CUDA_SUCCESS;
}

/* --- primary contexts --------------------------------------------------------------------------- */
API CUresult cuDevicePrimaryCtxRetain(CUcontext *to, CUdevice device) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_SUCCESS;
    if (!driver.primaries[device]) {
        result = create(device, driver.primary_flags[device], 3020, &driver.primaries[device]);
        if (result == CUDA_SUCCESS) driver.primaries[device]->primary = true;
    }
    if (result == CUDA_SUCCESS) {
        driver.primary_users[device]++;
        *to = driver.primaries[device];
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static CUresult release(CUdevice device, bool all) {
    struct visible_card *card;
    TRY(card_of(device, &card));
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_SUCCESS;
    if (!driver.primaries[device]) {
        result = all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
    } else if (all || --driver.primary_users[device] == 0) {
        destroy(driver.primaries[device]);
        driver.primaries[device] = NULL;
        driver.primary_users[device] = 0;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER();
    return release(device, false);
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    ENTER();
    return release(device, true);
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return cuDevicePrimaryCtxReset_v2(device);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    *flags = driver.primary_flags[device];
    *active = driver.primaries[device] != NULL;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    driver.primary_flags[device] = flags;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
