/* What NVIDIA's own tools ask the fake NVML for beside what the agent does: nvidia-smi, the container toolkit, the
 * device plugin, GPU feature discovery and the DRA driver.
 *
 * nvidia-smi takes some of its functions from a table that no header describes: words of which the first is the
 * table's size in bytes, the others functions at places that stayed the same from the first driver to the newest
 * (seen with nvidia-smi 535.261.03, 550.163.01 and 555.58.02; NVIDIA's k8s-test-infra says the same of 580.65.06). */
#define _GNU_SOURCE
#include "nvml.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { HANDLE_BY_INDEX = 81, COMPUTE_LIST = 213, GRAPHICS_LIST, MPS_LIST, WORDS_BEFORE_LISTS = 213, WORDS = 251 };
enum { SAME_BOARD = 0, SAME_NUMA_NODE = 40, OTHER_SOCKET = 50 }; /* nvmlGpuTopologyLevel_t */
enum { NAME = 4096, POWER_LIMIT_MW = 500000, NO_INSTANCE = -1 };

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);

struct named_process {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long guarded;
    char name[NAME];
};

#define ONE(name, type, answer) \
    API nvmlReturn_t name(nvmlDevice_t device, type *out) { WITH_CARD(device, (void)card; *out = (answer);); }
ONE(nvmlDeviceGetPersistenceMode, int, 1)
ONE(nvmlDeviceGetDisplayActive, int, 0)
ONE(nvmlDeviceGetDisplayMode, int, 0)
ONE(nvmlDeviceGetPerformanceState, int, 0)
ONE(nvmlDeviceGetComputeMode, int, (int)card->compute_mode)
ONE(nvmlDeviceGetVirtualizationMode, int, 0)
ONE(nvmlDeviceGetEnforcedPowerLimit, unsigned, POWER_LIMIT_MW)
ONE(nvmlDeviceIsMigDeviceHandle, unsigned, 0)
ONE(nvmlDeviceGetBrand, int, 0)
ONE(nvmlDeviceGetAccountingMode, int, 1)

API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned *percent) {
    WITH_CARD(device, (void)card; (void)percent; result = NOT_SUPPORTED;);
}

/* A card can be in MIG mode here, but has no profile that instances could be made of. */
API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned profile, void *info) {
    WITH_CARD(device, (void)card; (void)profile; (void)info; result = NOT_SUPPORTED;);
}

API nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    WITH_CARD(device, (void)card;);
}

API nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, int *now, int *pending) {
    WITH_CARD(device, (void)card; *now = *pending = 1;);
}

/* By compute capability, as nvmlDeviceArchitecture_t; a newer one is unknown. */
API nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    enum { UNKNOWN = 0xffffffff };
    static const unsigned by_major[] = {[3] = 2, [5] = 3, [6] = 4, [7] = 5, [8] = 7, [9] = 9, [10] = 10, [12] = 10};
    WITH_CARD(device,
        const unsigned major = card->cc_major;
        const unsigned known = major < sizeof by_major / sizeof *by_major ? by_major[major] : 0;
        const bool turing = major == 7 && card->cc_minor == 5;
        const bool ada = major == 8 && card->cc_minor == 9;
        *architecture = !known ? UNKNOWN : known + (turing || ada););
}

/* Cards of a socket hang on one processor, each below a bridge of its own. */
API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, int *level) {
    WITH_CARD(one,
        if (!other || !level) result = INVALID_ARGUMENT;
        else if (!state_card(state, other->uuid)) result = GPU_IS_LOST;
        else *level = strcmp(card->uuid, other->uuid) == 0 ? SAME_BOARD
                 : card->socket == state_card(state, other->uuid)->socket ? SAME_NUMA_NODE : OTHER_SOCKET;);
}

static nvmlReturn_t name_of(unsigned pid, char *name, size_t room) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 || !room ? -1 : read(file, name, room - 1);
    if (file >= 0) close(file);
    if (room) name[got > 0 ? got : 0] = '\0';
    return got > 0 ? SUCCESS : NOT_FOUND;
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned room) {
    WITH_STATE(result = name_of(pid, name, room););
}

/* Answered before initialising too, and without a driver. */
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    pthread_mutex_lock(&nvml_lock);
    const struct state *state = state_now();
    const int needed = snprintf(version, length, "%u.%s", state->cuda / 1000, state->driver);
    pthread_mutex_unlock(&nvml_lock);
    return needed >= 0 && (unsigned)needed < length ? SUCCESS : INSUFFICIENT_SIZE;
}

static nvmlReturn_t by_index(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void put(struct named_process *to, const struct process *one) {
    memset(to, 0, sizeof *to);
    to->pid = one->pid;
    to->used = one->used_mib << 20;
    to->gpu_instance = to->compute_instance = (unsigned)NO_INSTANCE;
    name_of(one->pid, to->name, sizeof to->name);
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, struct named_process *to, bool drawing) {
    WITH_CARD(device,
        unsigned found = 0;
        for (size_t i = 0; i < card->process_count; i++) {
            const struct process *one = &card->processes[i];
            if (drawing ? !one->draws : one->only_draws) continue;
            if (found < *count) put(&to[found], one);
            found++;
        }
        if (found > *count) result = INSUFFICIENT_SIZE;
        *count = found;);
}

static nvmlReturn_t computing(nvmlDevice_t device, unsigned *count, struct named_process *to) {
    return list(device, count, to, false);
}

static nvmlReturn_t drawing(nvmlDevice_t device, unsigned *count, struct named_process *to) {
    return list(device, count, to, true);
}

static nvmlReturn_t together(nvmlDevice_t device, unsigned *count, struct named_process *to) {
    (void)device;
    (void)to;
    *count = 0;
    return SUCCESS;
}

static nvmlReturn_t not_imitated(void) {
    return NOT_SUPPORTED;
}

API nvmlReturn_t nvmlInternalGetExportTable(const void **table, const unsigned char *id) {
    static const unsigned char tools[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                            0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
    static uintptr_t words[WORDS];
    if (!table || !id || memcmp(id, tools, sizeof tools) != 0) return INVALID_ARGUMENT;
    pthread_mutex_lock(&nvml_lock);
    words[0] = (atoi(state_now()->driver) < 510 ? WORDS_BEFORE_LISTS : WORDS) * sizeof *words;
    for (size_t i = 1; i < WORDS; i++) words[i] = (uintptr_t)not_imitated;
    words[HANDLE_BY_INDEX] = (uintptr_t)by_index;
    words[COMPUTE_LIST] = (uintptr_t)computing;
    words[GRAPHICS_LIST] = (uintptr_t)drawing;
    words[MPS_LIST] = (uintptr_t)together;
    pthread_mutex_unlock(&nvml_lock);
    *table = words;
    return SUCCESS;
}
