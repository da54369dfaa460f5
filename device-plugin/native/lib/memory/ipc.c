/* Memory that comes from elsewhere. What another process of the container opens stays charged once, as long as any
 * process holds it; what another interface took on the card is charged to whoever imports it. */
#include "memory.h"

static bool set_shared(struct egpu_track *track, void *data)
{
    const struct egpu_track *wanted = data;
    track->shared = wanted->shared;
    track->bytes = wanted->bytes;
    track->other = 0;
    return false;
}

EGPU_EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    EGPU_DRIVER(real, cuIpcGetMemHandle);
    CUresult result = real->cuIpcGetMemHandle(handle, pointer);
    struct egpu_track track;
    CUdeviceptr start = pointer;
    size_t bytes;
    if (result != CUDA_SUCCESS)
        return result;
    if (!egpu_get(EGPU_LINEAR, pointer, &track) &&
        (!real->cuMemGetAddressRange_v2 || real->cuMemGetAddressRange_v2(&start, &bytes, pointer) != CUDA_SUCCESS ||
         !egpu_get(EGPU_LINEAR, start, &track)))
        return result;
    if (track.shared >= 0 || track.managed)
        return result;
    /* A small one takes a piece of its own with it: whoever holds it may be the last to hold that piece. */
    struct egpu_track alone = track;
    if (track.other) {
        egpu_charge_anyway(track.card, EGPU_GRANULE, 0);
        alone.bytes = EGPU_GRANULE;
    }
    alone.shared = egpu_share(egpu_blob_key(handle, sizeof *handle), track.card, alone.bytes);
    if (alone.shared >= 0 && egpu_change(EGPU_LINEAR, start, set_shared, &alone)) {
        if (track.other)
            egpu_end_linear(&track); /* its place in the piece it came from */
        return result;
    }
    if (alone.shared >= 0)
        egpu_share_drop(alone.shared);
    else if (track.other)
        egpu_discharge(track.card, EGPU_GRANULE, 0);
    return result;
}

static bool one_less(struct egpu_track *track, void *data)
{
    *(struct egpu_track *)data = *track;
    return --track->references == 0;
}

static bool one_more(struct egpu_track *track, void *data)
{
    (void)data;
    track->references++;
    return false;
}

static CUresult opened(CUresult result, const CUdeviceptr *pointer, const CUipcMemHandle *handle)
{
    if (result != CUDA_SUCCESS)
        return result;
    struct egpu_track track = {.key = *pointer, .kind = EGPU_OPENED, .card = -1, .references = 1,
                               .context = egpu_current_context()};
    /* Without a shared entry: another container's memory, or its maker's still. */
    track.shared = egpu_share_hold(egpu_blob_key(handle, sizeof *handle));
    if (egpu_join(&track) != EGPU_FIRST)
        egpu_share_drop(track.shared);
    return result;
}

EGPU_EXPORT CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    EGPU_DRIVER(real, cuIpcOpenMemHandle_v2);
    return opened(real->cuIpcOpenMemHandle_v2(pointer, handle, flags), pointer, &handle);
}

EGPU_EXPORT CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned flags)
{
    EGPU_DRIVER(real, cuIpcOpenMemHandle);
    return opened(real->cuIpcOpenMemHandle(pointer, handle, flags), pointer, &handle);
}

EGPU_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    EGPU_DRIVER(real, cuIpcCloseMemHandle);
    struct egpu_track track;
    /* Before the driver does it: afterwards another thread may have opened something at that address. */
    const bool known = egpu_change(EGPU_OPENED, pointer, one_less, &track);
    CUresult result = real->cuIpcCloseMemHandle(pointer);
    if (known && result != CUDA_SUCCESS && !egpu_change(EGPU_OPENED, pointer, one_more, NULL))
        egpu_put(&track);
    else if (known && result == CUDA_SUCCESS && track.references == 1)
        egpu_share_drop(track.shared);
    return result;
}

/* --- allocations from pools --- */

static bool set_passed(struct egpu_track *pooled, void *data)
{
    const struct egpu_track *wanted = data;
    pooled->shared = wanted->shared;
    pooled->bytes = wanted->bytes;
    return false;
}

EGPU_EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer)
{
    EGPU_DRIVER(real, cuMemPoolExportPointer);
    CUresult result = real->cuMemPoolExportPointer(data, pointer);
    struct egpu_track track;
    CUdeviceptr start;
    size_t bytes = 0;
    if (result != CUDA_SUCCESS || !egpu_get(EGPU_POOLED, pointer, &track) || track.shared >= 0 ||
        !real->cuMemGetAddressRange_v2 || real->cuMemGetAddressRange_v2(&start, &bytes, pointer) != CUDA_SUCCESS)
        return result;
    track.bytes = egpu_add(bytes, 4095) & ~4095ull;
    track.shared = egpu_pool_pass(track.other, egpu_blob_key(data, sizeof *data), track.bytes);
    if (track.shared >= 0 && !egpu_change(EGPU_POOLED, pointer, set_passed, &track))
        egpu_pooled_freed(&track); /* another thread was faster */
    return result;
}

EGPU_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    EGPU_DRIVER(real, cuMemPoolImportPointer);
    CUresult result = real->cuMemPoolImportPointer(pointer, pool, data);
    if (result != CUDA_SUCCESS)
        return result;
    const struct egpu_track track = {.key = *pointer, .kind = EGPU_OPENED, .card = -1, .references = 1,
                                     .shared = egpu_share_hold(egpu_blob_key(data, sizeof *data))};
    if (egpu_join(&track) != EGPU_FIRST)
        egpu_share_drop(track.shared);
    return result;
}

/* --- memory of other interfaces --- */

/* Memory of Vulkan, OpenGL or another container's device: no call of ours saw it being taken, and the program uses it as
 * its own. So it is charged to the process that imports it, by the size that it names, for as long as it keeps it: once per import,
 * as nothing tells two imports of one piece from imports of two. */
EGPU_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)
{
    EGPU_DRIVER(real, cuImportExternalMemory);
    const int card = memory && what ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return real->cuImportExternalMemory(memory, what);
    const uint64_t bytes = egpu_round(what->size);
    CUresult result = egpu_charge(card, bytes, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuImportExternalMemory(memory, what);
    if (result != CUDA_SUCCESS) {
        egpu_discharge(card, bytes, 0);
        return result;
    }
    const struct egpu_track track = {.key = (uint64_t)(uintptr_t)*memory, .kind = EGPU_EXTERNAL, .card = card,
                                     .bytes = bytes, .context = egpu_current_context(), .shared = -1, .references = 1};
    if (egpu_put(&track))
        return result;
    if (real->cuDestroyExternalMemory)
        real->cuDestroyExternalMemory(*memory);
    egpu_discharge(card, bytes, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EGPU_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    EGPU_DRIVER(real, cuDestroyExternalMemory);
    struct egpu_track track;
    bool known = egpu_take(EGPU_EXTERNAL, (uint64_t)(uintptr_t)memory, &track);
    CUresult result = real->cuDestroyExternalMemory(memory);
    if (known && result == CUDA_SUCCESS)
        egpu_end_track(&track);
    else if (known)
        egpu_put(&track);
    return result;
}
