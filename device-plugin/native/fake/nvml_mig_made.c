/* MIG instances that programs make and destroy on the fake NVML. They stand in the state file, as those do that
 * tests write there. A GPU instance has one compute instance or none. */
#define _GNU_SOURCE
#include "nvml_mig.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;
enum { NAME = 96 };
typedef struct {
    unsigned version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[NAME];
} nvmlGpuInstanceProfileInfo_v2_t;
typedef struct {
    unsigned version, id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
    char name[NAME];
} nvmlComputeInstanceProfileInfo_v2_t;

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned id, profileId;
    nvmlGpuInstancePlacement_t placement; /* of the same shape */
} nvmlComputeInstanceInfo_t;

static const unsigned COMPUTE_SLICES[] = {1, 2, 3, 4, 7}; /* by NVML's number of a compute instance's profile */
enum { COMPUTE_PROFILES = sizeof COMPUTE_SLICES / sizeof *COMPUTE_SLICES };

static unsigned long long memory_of(const struct card *card, const struct profile *profile) {
    return card->made_mib ? card->made_mib : (card->memory_bytes >> 20) / card->mig_slices * profile->size;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned number,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info) {
    WITH_CARD(device,
        const struct profile *profile = card->mig_slices ? mig_profile(card, number) : NULL;
        if (!profile) {
            result = number < PROFILES ? NOT_SUPPORTED : INVALID_ARGUMENT;
        } else {
            info->id = profile->id;
            info->sliceCount = profile->compute;
            info->instanceCount = profile->count;
            info->memorySizeMB = memory_of(card, profile);
            snprintf(info->name, sizeof info->name, "MIG %ug", profile->compute);
        });
}

API nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned profile_id, nvmlGpuInstance_t *instances,
                                           unsigned *count) {
    WITH_CARD(device,
        const struct profile *profile = mig_profile_by_id(card, profile_id);
        if (!card->mig || !profile) {
            result = NOT_SUPPORTED;
        } else {
            *count = 0;
            for (size_t i = 0; i < card->instance_count; i++) {
                if (card->instances[i].profile == profile->number)
                    instances[(*count)++] = (nvmlGpuInstance_t)mig_handle(card->uuid, card->instances[i].gi);
            }
        });
}

static bool has_start(const struct profile *profile, unsigned start) {
    for (unsigned i = 0; i < profile->count; i++) {
        if (profile->starts[i] == start) return true;
    }
    return false;
}

/* Whether it overlaps another one, or the card has too few compute slices left. */
static bool no_room(const struct card *card, const struct profile *wanted, unsigned start) {
    unsigned compute = wanted->compute;
    for (size_t i = 0; i < card->instance_count; i++) {
        const struct instance *one = &card->instances[i];
        const struct profile *profile = mig_profile(card, one->profile);
        if (start < one->start + profile->size && one->start < start + wanted->size) return true;
        compute += profile->compute;
    }
    return compute > (card->mig_slices == 4 ? 4u : 7u) || card->instance_count == MAX_INSTANCES;
}

static unsigned free_id(const struct card *card) {
    unsigned id = 1;
    for (size_t i = 0; i < card->instance_count; i++) {
        if (card->instances[i].gi == id) {
            id++;
            i = (size_t)-1;
        }
    }
    return id;
}

static struct instance begun(const struct card *card, const struct profile *profile, unsigned start) {
    struct instance one = {.gi = free_id(card), .ci = NO_CI, .profile = profile->number, .start = start};
    one.memory_mib = memory_of(card, profile);
    snprintf(one.uuid, sizeof one.uuid, "MIG-%.70s-%u", card->uuid, one.gi);
    return one;
}

API nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned profile_id,
                                                          const nvmlGpuInstancePlacement_t *place,
                                                          nvmlGpuInstance_t *made) {
    WITH_CARD(device,
        const struct profile *profile = mig_profile_by_id(card, profile_id);
        if (card->make_hang_s) sleep(card->make_hang_s);
        if (!card->mig) result = NOT_SUPPORTED;
        else if (card->make_error) result = (nvmlReturn_t)card->make_error;
        else if (!profile || !place || place->size != profile->size || !has_start(profile, place->start))
            result = INVALID_ARGUMENT;
        else if (no_room(card, profile, place->start)) result = INSUFFICIENT_RESOURCES;
        else {
            const struct instance one = begun(card, profile, place->start);
            if (!state_put_instance(card->uuid, one.gi, &one)) result = UNKNOWN_ERROR;
            else *made = (nvmlGpuInstance_t)mig_handle(card->uuid, one.gi);
        });
}

static bool in_use(const struct card *card, unsigned gi) {
    for (size_t i = 0; i < card->process_count; i++) {
        if (card->processes[i].gi == gi + 1) return true;
    }
    return false;
}

API nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        if (!one) result = NOT_FOUND;
        else if (card->destroy_error) result = (nvmlReturn_t)card->destroy_error;
        else if (one->ci != NO_CI || in_use(card, one->gi)) result = IN_USE;
        else if (!state_put_instance(card->uuid, one->gi, NULL)) result = UNKNOWN_ERROR;);
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned number,
                                                               unsigned engines,
                                                               nvmlComputeInstanceProfileInfo_v2_t *info) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? mig_profile(card, one->profile) : NULL;
        if (!profile || engines != 0) {
            result = INVALID_ARGUMENT;
        } else if (number >= COMPUTE_PROFILES || COMPUTE_SLICES[number] > profile->compute) {
            result = NOT_SUPPORTED;
        } else {
            info->id = number;
            info->sliceCount = COMPUTE_SLICES[number];
            info->instanceCount = profile->compute / COMPUTE_SLICES[number];
        });
}

API nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned profile_id,
                                                      nvmlComputeInstance_t *made) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? mig_profile(card, one->profile) : NULL;
        if (!profile) result = NOT_FOUND;
        else if (card->make_ci_error) result = (nvmlReturn_t)card->make_ci_error;
        else if (profile_id >= COMPUTE_PROFILES || COMPUTE_SLICES[profile_id] != profile->compute)
            result = INVALID_ARGUMENT;
        else if (one->ci != NO_CI) result = INSUFFICIENT_RESOURCES;
        else {
            struct instance whole = *one;
            whole.ci = 0;
            if (!state_put_instance(card->uuid, whole.gi, &whole)) result = UNKNOWN_ERROR;
            else *made = (nvmlComputeInstance_t)device;
        });
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned profile_id,
                                                    nvmlComputeInstance_t *instances, unsigned *count) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        const struct profile *profile = one ? mig_profile(card, one->profile) : NULL;
        if (!profile) {
            result = NOT_FOUND;
        } else {
            *count = one->ci != NO_CI && profile_id < COMPUTE_PROFILES && COMPUTE_SLICES[profile_id] == profile->compute;
            if (*count) *instances = (nvmlComputeInstance_t)device;
        });
}

API nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t instance) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        if (!one || one->ci == NO_CI) {
            result = NOT_FOUND;
        } else if (in_use(card, one->gi)) {
            result = IN_USE;
        } else {
            struct instance half = *one;
            half.ci = NO_CI;
            if (!state_put_instance(card->uuid, half.gi, &half)) result = UNKNOWN_ERROR;
        });
}

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info) {
    nvmlDevice_t device = (nvmlDevice_t)instance;
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        if (!one || one->ci == NO_CI) {
            result = NOT_FOUND;
        } else {
            memset(info, 0, sizeof *info);
            info->device = device;
            info->gpuInstance = (nvmlGpuInstance_t)device;
            info->id = one->ci;
        });
}
