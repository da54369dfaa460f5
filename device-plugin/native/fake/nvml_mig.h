/* What the files on MIG of the fake NVML share: handles, records, and the profiles of a card. */
#pragma once

#include "nvml.h"

typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct { unsigned start, size; } nvmlGpuInstancePlacement_t;
typedef struct {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;

enum { MAX_STARTS = 7, PROFILES = 0x12 };
/* By NVML's number of the profile; the id is the card's own. Starts and sizes are in memory slices. */
struct profile { unsigned number, id, compute, size, count, starts[MAX_STARTS]; };

/* The card's profile of that number or id, or NULL. */
const struct profile *mig_profile(const struct card *card, unsigned number);
const struct profile *mig_profile_by_id(const struct card *card, unsigned id);
/* The handle of an instance, which means its compute instance as well; NULL: there are too many. */
nvmlDevice_t mig_handle(const char *uuid, unsigned gi);
