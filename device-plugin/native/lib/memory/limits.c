/* What a context is told to set aside on the card. */
#include "memory.h"

static bool grow(struct egpu_track *context, void *bytes)
{
    context->bytes = egpu_add(context->bytes, *(uint64_t *)bytes);
    return false;
}

/* What all threads that a card can hold at once have of local memory, at `bytes` each. */
static uint64_t local_memory(const struct egpu_real *real, uint64_t bytes)
{
    enum { CARD_PROCESSORS = 16, PROCESSOR_THREADS = 39 };
    CUdevice device;
    int processors = 0, threads = 0;
    uint64_t all;
    if (!real->cuDeviceGetAttribute || !real->cuCtxGetDevice || real->cuCtxGetDevice(&device) != CUDA_SUCCESS ||
        real->cuDeviceGetAttribute(&processors, CARD_PROCESSORS, device) != CUDA_SUCCESS ||
        real->cuDeviceGetAttribute(&threads, PROCESSOR_THREADS, device) != CUDA_SUCCESS || processors < 0 || threads < 0)
        return 0;
    return __builtin_mul_overflow((uint64_t)processors * (uint64_t)threads, bytes, &all) ? UINT64_MAX : egpu_round(all);
}

static bool start_stack(struct egpu_track *context, void *bytes)
{
    context->other = *(uint64_t *)bytes;
    return false;
}

static bool grow_stack(struct egpu_track *context, void *bytes)
{
    context->bytes = egpu_add(context->bytes, egpu_sub(*(uint64_t *)bytes, context->other));
    context->other = *(uint64_t *)bytes;
    return false;
}

/* Stacks of kernels: the first of the default size are part of the context. The driver keeps the most that was asked
 * for. What it adds for kernels that need more than was set is part of what the agent sees of the process. */
static CUresult set_stack(const struct egpu_real *real, CUlimit limit, size_t value, size_t before)
{
    struct egpu_track context = {0};
    uint64_t had = local_memory(real, before), wanted = local_memory(real, value);
    if (!egpu_get(EGPU_CONTEXT, egpu_current_context(), &context))
        return real->cuCtxSetLimit(limit, value);
    had = had > context.other ? had : context.other;
    const int card = egpu_charged_current();
    CUresult result = egpu_charge(card, egpu_sub(wanted, had), 0);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context.other) /* what comes with the context is not charged twice */
        egpu_change(EGPU_CONTEXT, egpu_current_context(), start_stack, &had);
    result = real->cuCtxSetLimit(limit, value);
    if (wanted > had && (result != CUDA_SUCCESS ||
                         !egpu_change(EGPU_CONTEXT, egpu_current_context(), grow_stack, &wanted)))
        egpu_discharge(card, wanted - had, 0);
    return result;
}

/* The heap of malloc() in kernels, the buffer of printf() and stacks lie on the card. */
EGPU_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    enum { STACKS = 0, PRINTF_BUFFER = 1, MALLOC_HEAP = 2 };
    EGPU_DRIVER(real, cuCtxSetLimit);
    size_t before = 0;
    if (limit == STACKS && real->cuCtxGetLimit && real->cuCtxGetLimit(&before, limit) == CUDA_SUCCESS && value > before)
        return set_stack(real, limit, value, before);
    if ((limit != PRINTF_BUFFER && limit != MALLOC_HEAP) || !real->cuCtxGetLimit ||
        real->cuCtxGetLimit(&before, limit) != CUDA_SUCCESS || value <= before)
        return real->cuCtxSetLimit(limit, value);
    const int card = egpu_charged_current();
    uint64_t more = egpu_round(value - before);
    CUresult result = egpu_charge(card, more, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuCtxSetLimit(limit, value);
    if (result != CUDA_SUCCESS || !egpu_change(EGPU_CONTEXT, egpu_current_context(), grow, &more))
        egpu_discharge(card, more, 0);
    return result;
}
