/* A fake libnvidia-ml.so.1: the part of NVML that the node agent calls, answered from a text file (see
 * state.h). Signatures and structs follow NVIDIA's published ABI; nothing here talks to a driver. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIELD_MEMORY_TEMP = 82, FIELD_RECOVERY_ACTION = 230, VALUE_UNSIGNED_INT = 1 };

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned gpu, memory; } nvmlUtilization_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned pid;
    unsigned long long timeStamp;
    unsigned smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;
typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    int valueType;
    nvmlReturn_t nvmlReturn;
    union { double d; unsigned u; unsigned long long ull; } value;
} nvmlFieldValue_t;

pthread_mutex_t nvml_lock = PTHREAD_MUTEX_INITIALIZER;
unsigned nvml_users;
static struct device devices[MAX_CARDS * 4];
static size_t device_count;
static nvmlDevice_t enumerated[MAX_CARDS];
static size_t enumerated_count;

static nvmlDevice_t device_of(const struct card *card) {
    for (size_t i = 0; i < device_count; i++) {
        if (strcmp(devices[i].uuid, card->uuid) == 0) return &devices[i];
    }
    if (device_count == sizeof devices / sizeof *devices) return NULL;
    struct device *device = &devices[device_count++];
    snprintf(device->uuid, sizeof device->uuid, "%s", card->uuid);
    return device;
}

static nvmlReturn_t initialise(void) {
    const struct state *state = state_now();
    if (state->error) return (nvmlReturn_t)state->error;
    if (nvml_users++ == 0) {
        enumerated_count = 0;
        for (size_t i = 0; i < state->card_count; i++) {
            nvmlDevice_t device = device_of(&state->cards[i]);
            if (device) enumerated[enumerated_count++] = device;
        }
    }
    return SUCCESS;
}

API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&nvml_lock);
    nvmlReturn_t result = initialise();
    pthread_mutex_unlock(&nvml_lock);
    return result;
}

API nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&nvml_lock);
    nvmlReturn_t result = nvml_users ? SUCCESS : UNINITIALIZED;
    if (nvml_users) nvml_users--;
    pthread_mutex_unlock(&nvml_lock);
    return result;
}

API const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
        case SUCCESS: return "Success";
        case UNINITIALIZED: return "Uninitialized";
        case NOT_SUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case TIMEOUT: return "Timeout";
        case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
        case GPU_IS_LOST: return "GPU is lost";
        default: return "Unknown Error";
    }
}

static nvmlReturn_t put_text(char *to, unsigned room, const char *text) {
    if (strlen(text) + 1 > room) return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    WITH_STATE(result = put_text(version, length, state->driver););
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    WITH_STATE(*version = (int)state->cuda;);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    WITH_STATE(*count = (unsigned)enumerated_count;);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    WITH_STATE(
        if (index >= enumerated_count) result = INVALID_ARGUMENT;
        else *device = enumerated[index];);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    WITH_STATE(
        result = NOT_FOUND;
        for (size_t i = 0; i < enumerated_count; i++) {
            if (strcmp(enumerated[i]->uuid, uuid) == 0) {
                *device = enumerated[i];
                result = SUCCESS;
            }
        });
}

/* Programs write the domain with four digits or with eight, and letters as they like. */
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    unsigned wanted[3] = {0}, has[3];
    if (!bus_id || !device || sscanf(bus_id, "%x:%x:%x", &wanted[0], &wanted[1], &wanted[2]) != 3) return INVALID_ARGUMENT;
    WITH_STATE(
        result = NOT_FOUND;
        for (size_t i = 0; i < enumerated_count; i++) {
            const struct card *card = state_card(state, enumerated[i]->uuid);
            if (!card || sscanf(card->pci, "%x:%x:%x", &has[0], &has[1], &has[2]) != 3) continue;
            if (memcmp(has, wanted, sizeof has) != 0) continue;
            *device = enumerated[i];
            result = SUCCESS;
        });
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    WITH_STATE(
        result = NOT_FOUND;
        for (size_t i = 0; i < enumerated_count; i++) {
            if (enumerated[i] == device) {
                *index = (unsigned)i;
                result = SUCCESS;
            }
        });
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    WITH_CARD(device,
        const struct instance *one = nvml_instance(card, device);
        if (device->gi && !one) result = NOT_FOUND;
        else result = put_text(uuid, length, one ? one->uuid : card->uuid););
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    WITH_CARD(device, result = put_text(name, length, card->name););
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    WITH_CARD(device, *minor = card->minor;);
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    WITH_CARD(device,
        memory->total = card->memory_bytes;
        memory->used = (card->used_mib + card->reserved_mib) << 20;
        memory->free = memory->total - memory->used;);
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    WITH_CARD(device,
        SINCE(510) {
            memory->total = card->memory_bytes;
            memory->reserved = card->reserved_mib << 20;
            memory->used = card->used_mib << 20;
            memory->free = memory->total - memory->used - memory->reserved;
        });
}

/* As where the whole card is protected. */
API nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory) {
    return nvmlDeviceGetMemoryInfo(device, memory);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    WITH_CARD(device, rates->gpu = card->util; rates->memory = card->mem_util;);
}

API nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    WITH_CARD(device, *percent = card->enc_util; *period_us = 167000;);
}

API nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    WITH_CARD(device, *percent = card->dec_util; *period_us = 167000;);
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    WITH_CARD(device, *milliwatts = card->power_mw;);
}

API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *millijoules) {
    WITH_CARD(device, *millijoules = card->energy_mj;);
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius) {
    (void)sensor;
    WITH_CARD(device, *celsius = card->temp_c;);
}

/* Clock types: 0 graphics, 1 SM, 2 memory. */
API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    WITH_CARD(device, *mhz = type == 2 ? card->mem_mhz : card->sm_mhz;);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    WITH_CARD(device, *mhz = type == 2 ? card->max_mem_mhz : card->max_sm_mhz;);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    WITH_CARD(device, *major = (int)card->cc_major; *minor = (int)card->cc_minor;);
}

API nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores) {
    WITH_CARD(device, SINCE(510) *cores = card->cores;);
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *pending) {
    WITH_CARD(device, *now = *pending = card->mig;);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *count) {
    (void)counter;
    WITH_CARD(device, *count = type == 1 ? card->ecc : 0;);
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                           unsigned *pending, unsigned *failure) {
    WITH_CARD(device,
        *corrected = 0;
        *uncorrected = card->retired;
        *pending = card->remap_pending;
        *failure = card->remap_failure;);
}

API nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned *count) {
    WITH_CARD(device, *count = 0;);
}

API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    WITH_CARD(device,
        for (int i = 0; i < count; i++) {
            values[i].nvmlReturn = SUCCESS;
            values[i].valueType = VALUE_UNSIGNED_INT;
            if (values[i].fieldId == FIELD_MEMORY_TEMP) values[i].value.u = card->mem_temp_c;
            else if (values[i].fieldId == FIELD_RECOVERY_ACTION) values[i].value.u = card->recovery_action;
            else values[i].nvmlReturn = NOT_SUPPORTED;
        });
}

static void fill_pci(nvmlPciInfo_t *pci, const char *bus_id) {
    memset(pci, 0, sizeof *pci);
    snprintf(pci->busId, sizeof pci->busId, "%s", bus_id);
    sscanf(bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
             pci->device & 0xff);
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    WITH_CARD(device, fill_pci(pci, card->pci););
}

API nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    WITH_CARD(device,
        if (link >= MAX_LINKS) result = INVALID_ARGUMENT;
        else if (link < card->link_count && card->links[link][0] == '-') result = NOT_SUPPORTED; /* not wired */
        else *active = link < card->link_count;);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    WITH_CARD(device,
        if (link >= card->link_count) result = INVALID_ARGUMENT;
        else fill_pci(pci, card->links[link]););
}

API nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version) {
    WITH_CARD(device,
        if (link >= card->link_count) result = INVALID_ARGUMENT;
        else if (!card->link_version) result = NOT_SUPPORTED;
        else *version = card->link_version;);
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int *type) {
    WITH_CARD(device,
        if (link >= card->link_count) result = INVALID_ARGUMENT;
        else *type = strcmp(card->links[link], "switch") == 0 ? 2 : 0;);
}

/* nvmlGpuFabricInfo_t; the versioned ones have a number of theirs before it, and the health behind. */
struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
struct fabric_versioned { unsigned version; struct fabric told; };

static void fill_fabric(struct fabric *to, const struct card *card) {
    memset(to->cluster, 1, sizeof to->cluster);
    to->status = (int)card->fabric_status;
    to->clique = 0;
    to->state = (unsigned char)card->fabric_state;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct fabric *info) {
    WITH_CARD(device, SINCE(525)
        if (!info) result = INVALID_ARGUMENT;
        else if (!card->has_fabric) result = NOT_SUPPORTED;
        else fill_fabric(info, card););
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_versioned *info) {
    enum { SECOND = 0x02000024, THIRD = 0x03000028 };
    WITH_CARD(device, SINCE(535)
        if (!info) result = INVALID_ARGUMENT;
        else if (info->version != SECOND && (info->version != THIRD || atoi(state->driver) < 570)) result = VERSION_MISMATCH;
        else if (!card->has_fabric) result = NOT_SUPPORTED;
        else fill_fabric(&info->told, card););
}

API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                 unsigned *count, unsigned long long since_us) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long now_us = (unsigned long long)now.tv_sec * 1000000ULL + (unsigned long long)now.tv_nsec / 1000;
    (void)since_us;
    WITH_CARD(device,
        if (card->process_count == 0) {
            result = NOT_FOUND;
        } else if (!samples || *count < card->process_count) {
            result = INSUFFICIENT_SIZE;
        } else {
            for (size_t i = 0; i < card->process_count; i++) {
                memset(&samples[i], 0, sizeof samples[i]);
                samples[i].pid = card->processes[i].pid;
                samples[i].timeStamp = now_us;
                samples[i].smUtil = card->processes[i].sm_percent;
            }
        }
        *count = (unsigned)card->process_count;);
}
