/* Virtual memory management: memory made by handle stays as long as a handle, a mapping or, in another process, an
 * import of it does. It belongs to the card that its properties name, whatever context is current. */
#include "memory.h"

#include <sys/stat.h>

static _Atomic uint64_t next_backing = 1;

CUdevice egpu_device_at(const CUmemLocation *place)
{
    enum { NEWEST = CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, DEVICE_MASK = 0xff };
    const struct egpu_real *real = egpu_driver();
    CUdevice device = -1;
    if (place->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return place->id;
    if (place->type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN)
        return place->id & DEVICE_MASK;
    /* A kind from after our time is taken to be on the card in use. */
    if ((int)place->type > NEWEST && (!real || !real->cuCtxGetDevice || real->cuCtxGetDevice(&device) != CUDA_SUCCESS))
        return -1;
    return device;
}

static uint64_t mix(uint64_t hash, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

uint64_t egpu_blob_key(const void *blob, size_t size)
{
    return mix(0xcbf29ce484222325ull, blob, size) | 1;
}

/* By what two processes know a handle that one has passed to the other; 0: nothing tells. A file's inode does where
 * each handle has its own, not where all are one device's. */
static uint64_t key_of(const void *shareable, CUmemAllocationHandleType type, int file)
{
    struct stat about;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return egpu_blob_key(shareable, 64);
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(file, &about) != 0 || S_ISCHR(about.st_mode))
        return 0;
    const uint64_t names[2] = {about.st_dev, about.st_ino};
    return egpu_blob_key(names, sizeof names);
}

static bool one_more(struct egpu_track *track, void *data)
{
    if (data)
        *(struct egpu_track *)data = *track;
    track->references++;
    return false;
}

/* Removes the last reference; `data` is what it was before. */
static bool one_less(struct egpu_track *track, void *data)
{
    *(struct egpu_track *)data = *track;
    return --track->references == 0;
}

static void drop(uint64_t backing)
{
    struct egpu_track track;
    if (!egpu_change(EGPU_BACKING, backing, one_less, &track) || track.references != 1)
        return;
    egpu_end_track(&track);
    if (track.other == EGPU_MULTICAST)
        egpu_multicast_gone(track.key);
}

void egpu_drop_backing(uint64_t backing)
{
    drop(backing);
}

/* A handle to `backing`, which has one reference for it. */
static void keep_handle(CUmemGenericAllocationHandle handle, uint64_t backing)
{
    const struct egpu_track track = {.key = handle, .kind = EGPU_HANDLE, .other = backing, .shared = -1,
                                     .references = 1};
    if (egpu_join(&track) == EGPU_JOINED)
        drop(backing); /* the driver knew the handle: it counts references itself, and so do we */
}

uint64_t egpu_new_backing(const struct egpu_track *like, CUmemGenericAllocationHandle handle)
{
    struct egpu_track backing = *like;
    backing.key = atomic_fetch_add(&next_backing, 1);
    backing.kind = EGPU_BACKING;
    backing.references = 1;
    if (!egpu_put(&backing))
        return 0;
    keep_handle(handle, backing.key);
    return backing.key;
}

EGPU_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                                 const CUmemAllocationProp *properties, unsigned long long flags)
{
    EGPU_DRIVER(real, cuMemCreate);
    const CUdevice device = handle && properties ? egpu_device_at(&properties->location) : -1;
    if (device < 0)
        return real->cuMemCreate(handle, bytes, properties, flags);
    const int card = egpu_charged_device(device);
    const uint64_t charge = egpu_round(bytes);
    CUresult result = egpu_charge(card, charge, 0);
    if (result != CUDA_SUCCESS) {
        if (card >= 0 && egpu_control_now()->cards[card].flags & EGPU_CARD_SPILL)
            egpu_say_once("spill", "memory made by cuMemCreate does not spill to the host: the card's share is used up");
        return result;
    }
    result = real->cuMemCreate(handle, bytes, properties, flags);
    if (result != CUDA_SUCCESS || card < 0) {
        egpu_discharge(card, charge, 0);
        return result;
    }
    if (egpu_new_backing(&(struct egpu_track){.card = card, .bytes = charge, .shared = -1}, *handle))
        return CUDA_SUCCESS;
    real->cuMemRelease(*handle);
    egpu_discharge(card, charge, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EGPU_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    EGPU_DRIVER(real, cuMemRelease);
    struct egpu_track track;
    /* Before the driver does it: the value may be the next handle's. */
    const bool known = egpu_change(EGPU_HANDLE, handle, one_less, &track);
    CUresult result = real->cuMemRelease(handle);
    if (!known)
        return result;
    if (result != CUDA_SUCCESS && !egpu_change(EGPU_HANDLE, handle, one_more, NULL))
        egpu_put(&track);
    else if (result == CUDA_SUCCESS && track.references == 1)
        drop(track.other);
    return result;
}

/* A backing's charge is changed in place: other threads make and end references to it meanwhile. Where `charge` keeps
 * its kind, another thread was faster, and it is the caller's. */
static bool take_over(struct egpu_track *backing, struct egpu_track *charge)
{
    backing->bytes = charge->bytes;
    backing->shared = charge->shared;
    charge->kind = 0;
    return false;
}

static bool if_unknown(struct egpu_track *backing, void *charge)
{
    return !backing->bytes && backing->shared < 0 && take_over(backing, charge);
}

static bool if_unshared(struct egpu_track *backing, void *charge)
{
    return backing->shared < 0 && take_over(backing, charge);
}

/* Memory that another process made is charged to its maker, or, where we cannot tell who that was, to us. */
static CUresult know_size(uint64_t backing, uint64_t bytes)
{
    struct egpu_track track;
    if (!egpu_get(EGPU_BACKING, backing, &track) || track.bytes || track.shared >= 0 ||
        track.other)
        return CUDA_SUCCESS;
    track.bytes = egpu_round(bytes);
    track.shared = egpu_share_hold_like(0, track.card, track.bytes);
    if (track.shared < 0 && egpu_charge(track.card, track.bytes, 0) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    egpu_change(EGPU_BACKING, backing, if_unknown, &track);
    if (track.kind)
        egpu_end_track(&track);
    return CUDA_SUCCESS;
}

EGPU_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                              unsigned long long flags)
{
    EGPU_DRIVER(real, cuMemMap);
    struct egpu_track track;
    if (!egpu_get(EGPU_HANDLE, handle, &track))
        return real->cuMemMap(address, bytes, offset, handle, flags);
    CUresult result = know_size(track.other, egpu_add(offset, bytes));
    if (result != CUDA_SUCCESS)
        return result;
    egpu_change(EGPU_BACKING, track.other, one_more, NULL);
    result = real->cuMemMap(address, bytes, offset, handle, flags);
    if (result == CUDA_SUCCESS &&
        egpu_put(&(struct egpu_track){.key = address, .kind = EGPU_MAPPING, .bytes = bytes, .other = track.other,
                                      .shared = -1, .references = 1}))
        return result;
    drop(track.other);
    return result;
}

struct range {
    CUdeviceptr start, end;
};

static bool within(const struct egpu_track *track, void *data)
{
    const struct range *range = data;
    return track->kind == EGPU_MAPPING && track->key >= range->start && track->key < range->end;
}

EGPU_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes)
{
    EGPU_DRIVER(real, cuMemUnmap);
    struct egpu_track track;
    CUresult result = real->cuMemUnmap(address, bytes);
    if (result != CUDA_SUCCESS)
        return result;
    struct range range = {address, address + bytes};
    if (egpu_take(EGPU_MAPPING, address, &track)) {
        drop(track.other);
        if (track.bytes >= bytes)
            return result;
    }
    while (egpu_take_any(within, &range, &track))
        drop(track.other);
    return result;
}

static bool around(const struct egpu_track *track, void *data)
{
    struct egpu_track *wanted = data;
    if (track->kind != EGPU_MAPPING || wanted->key < track->key || wanted->key - track->key >= track->bytes)
        return false;
    *wanted = *track;
    return true;
}

uint64_t egpu_backing_at(CUdeviceptr address)
{
    struct egpu_track mapping = {.key = address};
    return egpu_each(around, &mapping) ? mapping.other : 0;
}

EGPU_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    EGPU_DRIVER(real, cuMemRetainAllocationHandle);
    CUresult result = real->cuMemRetainAllocationHandle(handle, address);
    struct egpu_track mapping = {.key = (uint64_t)(uintptr_t)address};
    if (result == CUDA_SUCCESS && egpu_each(around, &mapping)) {
        egpu_change(EGPU_BACKING, mapping.other, one_more, NULL);
        keep_handle(*handle, mapping.other);
    }
    return result;
}

/* As programs lay out CUarrayMapInfo. */
struct array_mapping {
    uint32_t resource_type;
    uint64_t resource;
    uint32_t part_type;
    uint64_t part[4];
    uint32_t operation, handle_type; /* operation 1: map */
    uint64_t handle, offset;
    uint32_t devices, flags, reserved[2];
};
static_assert(sizeof(struct array_mapping) == 96 && offsetof(struct array_mapping, handle) == 64, "CUarrayMapInfo");

/* Memory mapped into a sparse array stays charged until the process ends: which of it is unmapped is not known. */
static CUresult map_arrays(CUarrayMapInfo *list, unsigned count, CUstream stream, __typeof__(cuMemMapArrayAsync) *map)
{
    CUresult result = map(list, count, stream);
    const struct array_mapping *mappings = (const struct array_mapping *)(const void *)list;
    struct egpu_track track;
    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (mappings[i].operation == 1 && egpu_get(EGPU_HANDLE, mappings[i].handle, &track))
            egpu_change(EGPU_BACKING, track.other, one_more, NULL);
    return result;
}

EGPU_EXPORT CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    EGPU_DRIVER(real, cuMemMapArrayAsync);
    return map_arrays(list, count, stream, real->cuMemMapArrayAsync);
}

EGPU_EXPORT CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    EGPU_DRIVER(real, cuMemMapArrayAsync_ptsz);
    return map_arrays(list, count, stream, real->cuMemMapArrayAsync_ptsz);
}

/* --- between processes --- */

EGPU_EXPORT CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                                  CUmemAllocationHandleType type, unsigned long long flags)
{
    EGPU_DRIVER(real, cuMemExportToShareableHandle);
    CUresult result = real->cuMemExportToShareableHandle(shareable, handle, type, flags);
    struct egpu_track track, backing;
    if (result == CUDA_SUCCESS)
        egpu_multicast_abroad(handle);
    if (result != CUDA_SUCCESS || !egpu_get(EGPU_HANDLE, handle, &track) ||
        !egpu_get(EGPU_BACKING, track.other, &backing) || backing.shared >= 0 || !backing.bytes)
        return result;
    const bool is_file = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    uint64_t key = key_of(shareable, type, is_file ? *(const int *)shareable : -1);
    /* Without a key an importer finds it by card and size. */
    backing.shared = egpu_share(key ? key : 1, backing.card, backing.bytes);
    if (backing.shared < 0)
        return result;
    egpu_change(EGPU_BACKING, track.other, if_unshared, &backing);
    if (backing.kind) { /* it shared the same bytes, or ended their charge */
        egpu_share_drop(backing.shared);
        egpu_charge_anyway(backing.card, backing.bytes, 0);
    }
    return result;
}

EGPU_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                                    CUmemAllocationHandleType type)
{
    EGPU_DRIVER(real, cuMemImportFromShareableHandle);
    const uint64_t key = key_of(shareable, type, (int)(intptr_t)shareable);
    CUresult result = real->cuMemImportFromShareableHandle(handle, shareable, type);
    CUmemAllocationProp properties;
    struct egpu_track known;
    if (result != CUDA_SUCCESS || egpu_change(EGPU_HANDLE, *handle, one_more, &known) ||
        !real->cuMemGetAllocationPropertiesFromHandle ||
        real->cuMemGetAllocationPropertiesFromHandle(&properties, *handle) != CUDA_SUCCESS ||
        egpu_device_at(&properties.location) < 0)
        return result;
    const int card = egpu_charged_device(egpu_device_at(&properties.location));
    if (card < 0)
        return result; /* another container's card, or no limits are known */
    egpu_new_backing(&(struct egpu_track){.card = card, .shared = key ? egpu_share_hold(key) : -1}, *handle);
    return result;
}
