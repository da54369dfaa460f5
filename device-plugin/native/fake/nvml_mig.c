/* MIG in the fake NVML: instances that the state file names, each with one compute instance, and the profiles
 * with the placements that real cards have. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct { unsigned start, size; } nvmlGpuInstancePlacement_t;
typedef struct {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;
typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

enum { MAX_STARTS = 7 };
/* By NVML's number of the profile. Starts and sizes are in memory slices. */
struct profile { unsigned number, compute, size, count, starts[MAX_STARTS]; };
static const struct profile EIGHTHS[] = {
    {0, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}}, {9, 1, 2, 4, {0, 2, 4, 6}}, {1, 2, 2, 3, {0, 2, 4}},
    {2, 3, 4, 2, {0, 4}}, {3, 4, 4, 1, {0}}, {4, 7, 8, 1, {0}},
};
static const struct profile QUARTERS[] = {
    {0, 1, 1, 4, {0, 1, 2, 3}}, {1, 2, 2, 2, {0, 2}}, {3, 4, 4, 1, {0}},
};

static bool in_quarters(const struct card *card) {
    return card->mig_slices == 4;
}

static const struct profile *profile_of(const struct card *card, unsigned number) {
    const struct profile *table = in_quarters(card) ? QUARTERS : EIGHTHS;
    size_t count = in_quarters(card) ? sizeof QUARTERS / sizeof *QUARTERS : sizeof EIGHTHS / sizeof *EIGHTHS;
    for (size_t i = 0; i < count; i++) {
        if (table[i].number == number) return &table[i];
    }
    return NULL;
}

static struct device handles[MAX_CARDS * MAX_INSTANCES];
static size_t handle_count;

/* The handle of an instance lives as long as the library, too. */
static nvmlDevice_t handle_of(const char *uuid, unsigned gi) {
    for (size_t i = 0; i < handle_count; i++) {
        if (handles[i].gi == gi + 1 && strcmp(handles[i].uuid, uuid) == 0) return &handles[i];
    }
    if (handle_count == sizeof handles / sizeof *handles) return NULL;
    struct device *handle = &handles[handle_count++];
    snprintf(handle->uuid, sizeof handle->uuid, "%s", uuid);
    handle->gi = gi + 1;
    return handle;
}

static const struct instance *instance_of(const struct card *card, unsigned gi) {
    for (size_t i = 0; i < card->instance_count; i++) {
        if (card->instances[i].gi == gi) return &card->instances[i];
    }
    return NULL;
}

const struct instance *nvml_instance(const struct card *card, nvmlDevice_t device) {
    return device->gi ? instance_of(card, device->gi - 1) : NULL;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    WITH_CARD(device, *count = card->mig ? (in_quarters(card) ? 4 : 7) : 0;);
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *instance) {
    WITH_CARD(device,
        if (!card->mig || index >= card->instance_count) result = NOT_FOUND;
        else *instance = handle_of(card->uuid, card->instances[index].gi););
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    WITH_CARD(device,
        if (!device->gi) result = INVALID_ARGUMENT;
        else *id = device->gi - 1;);
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        if (!one) result = NOT_FOUND;
        else *id = one->ci;);
}

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? profile_of(card, one->profile) : NULL;
        if (!profile) {
            result = NOT_FOUND;
        } else {
            memset(attributes, 0, sizeof *attributes);
            attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = profile->compute;
            attributes->memorySizeMB = one->memory_mib;
        });
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    WITH_CARD(device,
        if (!instance_of(card, id)) result = NOT_FOUND;
        else *instance = (nvmlGpuInstance_t)handle_of(card->uuid, id););
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? profile_of(card, one->profile) : NULL;
        if (!profile) {
            result = NOT_FOUND;
        } else {
            info->device = NULL;
            info->id = one->gi;
            info->profileId = profile->number;
            info->placement.start = one->start;
            info->placement.size = profile->size;
        });
}

/* The number of a profile stands for its own id here. */
API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned profile_id,
                                                               nvmlGpuInstancePlacement_t *places, unsigned *count) {
    WITH_CARD(device,
        const struct profile *profile = profile_of(card, profile_id);
        if (!card->mig_slices || !profile) {
            result = NOT_SUPPORTED;
        } else {
            for (unsigned i = 0; places && i < profile->count; i++) {
                places[i].start = profile->starts[i];
                places[i].size = profile->size;
            }
            *count = profile->count;
        });
}
