/* Multicast objects: memory that is bound to one stays on the card until it is unbound or the object is gone, whatever
 * becomes of its own handles and mappings. The object itself has none. One that other processes have too may outlive what
 * this one has of it: what is bound to it stays charged until it is unbound by name, or the process ends. */
#include "memory.h"

static bool one_more(struct egpu_track *track, void *data)
{
    (void)data;
    track->references++;
    return false;
}

static bool is_object(struct egpu_track *backing, void *kind)
{
    if (backing->other != EGPU_MULTICAST_ABROAD)
        backing->other = *(uint64_t *)kind;
    return false;
}

static bool given_away(struct egpu_track *backing, void *data)
{
    (void)data;
    if (backing->other == EGPU_MULTICAST)
        backing->other = EGPU_MULTICAST_ABROAD;
    return false;
}

void egpu_multicast_abroad(CUmemGenericAllocationHandle handle)
{
    struct egpu_track track;
    if (egpu_get(EGPU_HANDLE, handle, &track))
        egpu_change(EGPU_BACKING, track.other, given_away, NULL);
}

/* The object's backing; one that another process made is known from here on. 0: there is no room to know it. */
static uint64_t object_of(CUmemGenericAllocationHandle handle, bool made_here)
{
    struct egpu_track track, backing;
    const bool known = egpu_get(EGPU_HANDLE, handle, &track);
    uint64_t kind = made_here ? EGPU_MULTICAST : EGPU_MULTICAST_ABROAD;
    if (!known && (!egpu_new_backing(&(struct egpu_track){.card = EGPU_NO_CARD, .shared = -1}, handle) ||
                   !egpu_get(EGPU_HANDLE, handle, &track))) /* another thread may have been faster */
        return 0;
    if (known && egpu_get(EGPU_BACKING, track.other, &backing) && backing.other)
        return track.other;
    egpu_change(EGPU_BACKING, track.other, is_object, &kind);
    return track.other;
}

static void bound(CUmemGenericAllocationHandle handle, size_t at, uint64_t memory)
{
    static _Atomic uint64_t numbers = 1;
    struct egpu_track backing;
    const uint64_t object = memory ? object_of(handle, false) : 0;
    if (!object || !egpu_change(EGPU_BACKING, memory, one_more, NULL) || !egpu_get(EGPU_BACKING, memory, &backing))
        return;
    if (!egpu_put(&(struct egpu_track){.key = atomic_fetch_add(&numbers, 1), .kind = EGPU_BOUND, .card = backing.card,
                                       .bytes = at, .other = memory, .passed = object, .shared = -1, .references = 1}))
        egpu_drop_backing(memory);
}

static uint64_t backing_of(CUmemGenericAllocationHandle memory)
{
    struct egpu_track track;
    return egpu_get(EGPU_HANDLE, memory, &track) ? track.other : 0;
}

EGPU_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *properties)
{
    EGPU_DRIVER(real, cuMulticastCreate);
    CUresult result = real->cuMulticastCreate(handle, properties);
    if (result == CUDA_SUCCESS && handle)
        object_of(*handle, true);
    return result;
}

/* Whoever does this to a handle that he was given knows that it is no memory. */
EGPU_EXPORT CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device)
{
    EGPU_DRIVER(real, cuMulticastAddDevice);
    CUresult result = real->cuMulticastAddDevice(handle, device);
    if (result == CUDA_SUCCESS)
        object_of(handle, false);
    return result;
}

EGPU_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at,
                                        CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                                        unsigned long long flags)
{
    EGPU_DRIVER(real, cuMulticastBindMem);
    CUresult result = real->cuMulticastBindMem(object, at, memory, from, bytes, flags);
    if (result == CUDA_SUCCESS)
        bound(object, at, backing_of(memory));
    return result;
}

EGPU_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                           CUmemGenericAllocationHandle memory, size_t from, size_t bytes,
                                           unsigned long long flags)
{
    EGPU_DRIVER(real, cuMulticastBindMem_v2);
    CUresult result = real->cuMulticastBindMem_v2(object, device, at, memory, from, bytes, flags);
    if (result == CUDA_SUCCESS)
        bound(object, at, backing_of(memory));
    return result;
}

EGPU_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address,
                                         size_t bytes, unsigned long long flags)
{
    EGPU_DRIVER(real, cuMulticastBindAddr);
    CUresult result = real->cuMulticastBindAddr(object, at, address, bytes, flags);
    if (result == CUDA_SUCCESS)
        bound(object, at, egpu_backing_at(address));
    return result;
}

EGPU_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
                                            CUdeviceptr address, size_t bytes, unsigned long long flags)
{
    EGPU_DRIVER(real, cuMulticastBindAddr_v2);
    CUresult result = real->cuMulticastBindAddr_v2(object, device, at, address, bytes, flags);
    if (result == CUDA_SUCCESS)
        bound(object, at, egpu_backing_at(address));
    return result;
}

/* --- the end of bindings --- */

struct part {
    uint64_t object, at, bytes;
    int card; /* EGPU_NO_LIMITS: any */
};

static bool of_part(const struct egpu_track *track, void *data)
{
    const struct part *part = data;
    return track->kind == EGPU_BOUND && track->passed == part->object && track->bytes >= part->at &&
           track->bytes - part->at < part->bytes && (part->card == EGPU_NO_LIMITS || track->card == part->card);
}

static void unbind(struct part part)
{
    struct egpu_track track;
    while (egpu_take_any(of_part, &part, &track))
        egpu_drop_backing(track.other);
}

void egpu_multicast_gone(uint64_t object)
{
    unbind((struct part){object, 0, UINT64_MAX, EGPU_NO_LIMITS});
}

EGPU_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t bytes)
{
    EGPU_DRIVER(real, cuMulticastUnbind);
    CUresult result = real->cuMulticastUnbind(object, device, at, bytes);
    struct egpu_track track;
    if (result == CUDA_SUCCESS && egpu_get(EGPU_HANDLE, object, &track))
        unbind((struct part){track.other, at, bytes, egpu_card_of_device(device)});
    return result;
}
