/* The process lists of the fake NVML, in the records of each generation: none is of MPS. */
#include "nvml.h"

#include <string.h>

struct process_v1 { unsigned pid; unsigned long long used; };
struct process_v2 { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
enum { OLD = sizeof(struct process_v1), NOW = sizeof(struct process_v2), WIDE = NOW + 8, NO_INSTANCE = -1 };

/* The first drivers of 535 had a field more at the end of each record of the newest list. */
static size_t record_of(const struct state *state, int since) {
    const bool wide = strncmp(state->driver, "535.", 4) == 0 && atoi(state->driver + 4) < 98;
    return since < 450 ? OLD : since >= 510 && wide ? WIDE : NOW;
}

static void put(char *info, size_t record, const struct process *one) {
    const struct process_v2 told = {one->pid, one->used_mib << 20, (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
    memset(info, 0, record);
    memcpy(info, &told, record < NOW ? record : NOW);
}

static nvmlReturn_t list(nvmlDevice_t device, unsigned *count, char *infos, bool drawing, int since) {
    WITH_CARD(device,
        SINCE(since) {
            const size_t record = record_of(state, since);
            unsigned found = 0;
            for (size_t i = 0; i < card->process_count; i++) {
                const struct process *one = &card->processes[i];
                if (drawing ? !one->draws : one->only_draws) continue;
                if (found < *count) put(infos + found * record, record, one);
                found++;
            }
            if (found > *count) result = INSUFFICIENT_SIZE;
            *count = found;
        });
}

#define LISTS(version, since)                                                                                         \
    API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses##version(nvmlDevice_t device, unsigned *count, void *infos) {  \
        return list(device, count, infos, false, since);                                                                \
    }                                                                                                                   \
    API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses##version(nvmlDevice_t device, unsigned *count, void *infos) { \
        return list(device, count, infos, true, since);                                                                 \
    }                                                                                                                   \
    API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses##version(nvmlDevice_t device, unsigned *count,              \
                                                                      void *infos) {                                    \
        (void)infos;                                                                                                    \
        if (!device || !count) return INVALID_ARGUMENT;                                                                 \
        *count = 0;                                                                                                     \
        return SUCCESS;                                                                                                 \
    }
LISTS(, 0)
LISTS(_v2, 450)
LISTS(_v3, 510)
