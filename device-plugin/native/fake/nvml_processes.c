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
        SINCE(since) if (card->list_error) result = (nvmlReturn_t)card->list_error; else {
            const size_t record = record_of(state, since);
            unsigned found = 0;
            for (size_t i = 0; i < card->process_count; i++) {
                const struct process *one = &card->processes[i];
                if (drawing ? !one->draws : one->only_draws) continue;
                if (device->gi && one->gi != device->gi) continue;
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

struct accounted { unsigned gpu_percent, memory_percent; unsigned long long most, time_ms, started_us; unsigned running, reserved[5]; };
struct accounted_v2 {
    unsigned pid, running, gpu_percent, memory_percent;
    unsigned long long most;
    unsigned samples;
    unsigned long long gpu_sum, memory_sum, time_ms, started_us;
};
struct used { unsigned long long at_us; unsigned pid, sm, memory, encoder, decoder, jpeg, flow; };
struct all_used { unsigned version, count; unsigned long long since_us; struct used *samples; };

API nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct all_used *all) {
    WITH_CARD(device,
        const unsigned room = all->count;
        all->count = (unsigned)card->process_count;
        if (card->process_count == 0) result = NOT_FOUND;
        else if (!all->samples || room < card->process_count) result = INSUFFICIENT_SIZE;
        for (size_t i = 0; result == SUCCESS && i < card->process_count; i++) {
            memset(&all->samples[i], 0, sizeof *all->samples);
            all->samples[i].pid = card->processes[i].pid;
            all->samples[i].sm = card->processes[i].sm_percent;
        });
}

API nvmlReturn_t nvmlDeviceGetAccountingBufferSize(nvmlDevice_t device, unsigned *processes) {
    WITH_CARD(device, (void)card; *processes = MAX_PROCESSES;);
}

API nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids) {
    WITH_CARD(device,
        const unsigned room = *count;
        *count = (unsigned)card->process_count;
        if (!pids || room < card->process_count) result = INSUFFICIENT_SIZE;
        for (size_t i = 0; result == SUCCESS && i < card->process_count; i++) pids[i] = card->processes[i].pid;);
}

API nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, struct accounted_v2 *stats) {
    WITH_CARD(device,
        result = NOT_FOUND;
        for (size_t i = 0; i < card->process_count; i++) {
            if (card->processes[i].pid != stats->pid) continue;
            stats->running = 1;
            stats->gpu_percent = card->processes[i].sm_percent;
            stats->most = card->processes[i].used_mib << 20;
            result = SUCCESS;
        });
}

API nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, struct accounted *stats) {
    struct accounted_v2 now = {.pid = pid};
    const nvmlReturn_t result = nvmlDeviceGetAccountingStats_v2(device, &now);
    memset(stats, 0, sizeof *stats);
    stats->gpu_percent = now.gpu_percent;
    stats->most = now.most;
    stats->running = now.running;
    return result;
}
