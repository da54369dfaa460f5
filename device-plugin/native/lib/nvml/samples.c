/* What NVML measures of single programs: a container is told of its own.
 *
 * A driver that knows of namespaces gives a container the pids that its own processes have inside, and leaves those of
 * others as the host has them; one that does not gives all as the host has them: then none is known to be ours. */
#include "view.h"

enum { UTILIZATION_V1 = 0x01000018 };

struct sample { unsigned pid; unsigned long long at_us; unsigned sm, memory, encoder, decoder; };
struct sample_v1 { unsigned long long at_us; unsigned pid, sm, memory, encoder, decoder, jpeg, flow; };
struct samples { unsigned version, count; unsigned long long since_us; struct sample_v1 *samples; };
struct accounted;
struct accounted_v2 { unsigned pid; };

static bool is_own(const struct processes *all, unsigned pid)
{
    for (size_t i = 0; i < all->count && i < MOST_PROCESSES; i++)
        if (all->pids[i] == pid)
            return true;
    return false;
}

static bool own_on(int card, unsigned pid)
{
    struct processes all;
    egpu_nvml_processes(card, &all);
    return is_own(&all, pid);
}

/* Keeps those of `list` whose pid is one of ours, in their order; `number`: how many there are, and then were kept. */
#define KEEP_OWN(card, list, number, pid_of)                       \
    do {                                                           \
        struct processes all;                                      \
        egpu_nvml_processes(card, &all);                           \
        unsigned kept = 0;                                         \
        for (unsigned i = 0; i < (number); i++)                    \
            if (is_own(&all, (list)[i] pid_of))                    \
                (list)[kept++] = (list)[i];                        \
        (number) = kept;                                           \
    } while (0)

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct sample *samples, unsigned *count,
                                                         unsigned long long since_us)
{
    REAL(real, nvmlDeviceGetProcessUtilization);
    const nvmlReturn_t result = real(device, samples, count, since_us);
    const int card = result == NVML_SUCCESS && samples && count ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card < 0)
        return result;
    KEEP_OWN(card, samples, *count, .pid);
    return *count ? NVML_SUCCESS : NVML_NOT_FOUND;
}

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, struct samples *all_samples)
{
    REAL(real, nvmlDeviceGetProcessesUtilizationInfo);
    const nvmlReturn_t result = real(device, all_samples);
    const bool readable = result == NVML_SUCCESS && all_samples && all_samples->version == UTILIZATION_V1 && all_samples->samples;
    const int card = readable ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card < 0)
        return result;
    KEEP_OWN(card, all_samples->samples, all_samples->count, .pid);
    return all_samples->count ? NVML_SUCCESS : NVML_NOT_FOUND;
}

/* Of programs that have ended too: those are nobody's any more. */
EGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned *count, unsigned *pids)
{
    REAL(real, nvmlDeviceGetAccountingPids);
    const nvmlReturn_t result = real(device, count, pids);
    const int card = result == NVML_SUCCESS && count && pids ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card >= 0)
        KEEP_OWN(card, pids, *count, );
    return result;
}

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned pid, struct accounted *stats)
{
    REAL(real, nvmlDeviceGetAccountingStats);
    const int card = egpu_nvml_card(device);
    return card >= 0 && !own_on(card, pid) ? NVML_NOT_FOUND : real(device, pid, stats);
}

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, struct accounted_v2 *stats)
{
    REAL(real, nvmlDeviceGetAccountingStats_v2);
    const int card = stats ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    return card >= 0 && !own_on(card, stats->pid) ? NVML_NOT_FOUND : real(device, stats);
}
