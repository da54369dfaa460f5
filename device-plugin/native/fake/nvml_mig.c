/* MIG in the fake NVML: instances that the state file names, each with one compute instance or none, and the profiles
 * with the placements that real cards have. */
#include "nvml_mig.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;

static const struct profile EIGHTHS[] = {
    {0, 19, 1, 1, 7, {0, 1, 2, 3, 4, 5, 6}}, {9, 15, 1, 2, 4, {0, 2, 4, 6}}, {1, 14, 2, 2, 3, {0, 2, 4}},
    {2, 9, 3, 4, 2, {0, 4}}, {3, 5, 4, 4, 1, {0}}, {4, 0, 7, 8, 1, {0}},
};
static const struct profile QUARTERS[] = {
    {0, 14, 1, 1, 4, {0, 1, 2, 3}}, {1, 5, 2, 2, 2, {0, 2}}, {3, 0, 4, 4, 1, {0}},
};

static bool in_quarters(const struct card *card) {
    return card->mig_slices == 4;
}

const struct profile *mig_profile(const struct card *card, unsigned number) {
    const struct profile *table = in_quarters(card) ? QUARTERS : EIGHTHS;
    size_t count = in_quarters(card) ? sizeof QUARTERS / sizeof *QUARTERS : sizeof EIGHTHS / sizeof *EIGHTHS;
    for (size_t i = 0; i < count; i++) {
        if (table[i].number == number) return &table[i];
    }
    return NULL;
}

const struct profile *mig_profile_by_id(const struct card *card, unsigned id) {
    for (unsigned number = 0; number < PROFILES; number++) {
        const struct profile *one = mig_profile(card, number);
        if (one && one->id == id) return one;
    }
    return NULL;
}

static struct device handles[MAX_CARDS * MAX_INSTANCES];
static size_t handle_count;

/* The handle of an instance lives as long as the library, too. */
nvmlDevice_t mig_handle(const char *uuid, unsigned gi) {
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
        result = NOT_FOUND;
        for (size_t i = 0; card->mig && i < card->instance_count; i++) {
            if (card->instances[i].ci == NO_CI || index-- > 0) continue;
            *instance = mig_handle(card->uuid, card->instances[i].gi);
            result = SUCCESS;
            break;
        });
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
        const struct profile *profile = one ? mig_profile(card, one->profile) : NULL;
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
        else *instance = (nvmlGpuInstance_t)mig_handle(card->uuid, id););
}

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? mig_profile(card, one->profile) : NULL;
        if (!profile) {
            result = NOT_FOUND;
        } else {
            info->device = NULL;
            info->id = one->gi;
            info->profileId = profile->id;
            info->placement.start = one->start;
            info->placement.size = profile->size;
        });
}

API nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned profile_id,
                                                               nvmlGpuInstancePlacement_t *places, unsigned *count) {
    WITH_CARD(device,
        const struct profile *profile = mig_profile_by_id(card, profile_id);
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
