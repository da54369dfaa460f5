/* NVML shows the container's own slice of a card and its own processes, with the pids that they have inside. */
#include "view.h"

#include <stdlib.h>

enum { FIRST_WIDE = 535000, FIRST_NARROW = 535098 }; /* drivers */

struct memory_v1 { unsigned long long total, left, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, left, used; };
struct process_v1 { unsigned pid; unsigned long long bytes; };
struct process_v2 { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; };
struct process_wide { struct process_v2 now; unsigned long long guarded; };
struct process_detail { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; unsigned long long guarded; };
struct process_details { unsigned version, mode, count; struct process_detail *processes; };

int egpu_nvml_card(nvmlDevice_t device)
{
    char uuid[96] = "";
    nvmlReturn_t (*read)(nvmlDevice_t, char *, unsigned) =
        (nvmlReturn_t (*)(nvmlDevice_t, char *, unsigned))(uintptr_t)egpu_nvml("nvmlDeviceGetUUID");
    if (!egpu_control_refresh() || !read || read(device, uuid, sizeof uuid) != NVML_SUCCESS)
        return EGPU_NO_LIMITS;
    int card = egpu_card_of_uuid(uuid, NULL);
    return card >= 0 ? card : EGPU_NO_LIMITS; /* somebody else's card: as NVML shows it */
}

unsigned egpu_nvml_driver(void)
{
    char version[96] = "", *end;
    nvmlReturn_t (*read)(char *, unsigned) =
        (nvmlReturn_t (*)(char *, unsigned))(uintptr_t)egpu_nvml("nvmlSystemGetDriverVersion");
    if (!read || read(version, sizeof version) != NVML_SUCCESS)
        return 0;
    const unsigned long major = strtoul(version, &end, 10), minor = *end == '.' ? strtoul(end + 1, NULL, 10) : 0;
    return major < 4000 && minor < 1000 ? (unsigned)(major * 1000 + minor) : 0;
}

/* Of `room`: what a program may allocate that still has to make its context. `actual`: free on the card by NVML. */
static uint64_t left_of(int card, const struct egpu_room *room, uint64_t actual)
{
    const struct egpu_control_card *limits = &egpu_control_now()->cards[card];
    uint64_t left = room->largest_free;
    if (!(limits->flags & EGPU_CARD_SPILL) && actual < left)
        left = actual & ~(EGPU_GRANULE - 1);
    return egpu_has_context(card) ? left : egpu_sub(left, egpu_round(limits->context_bytes));
}

static void show_share(nvmlDevice_t device, struct memory_v1 *memory)
{
    const int card = egpu_nvml_card(device);
    if (card < 0)
        return;
    const struct egpu_room room = egpu_room_on(card);
    memory->left = left_of(card, &room, memory->left);
    memory->total = room.total;
    memory->used = room.total - memory->left;
}

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory_v1 *memory)
{
    REAL(real, nvmlDeviceGetMemoryInfo);
    nvmlReturn_t result = real(device, memory);
    if (result == NVML_SUCCESS)
        show_share(device, memory);
    return result;
}

/* Of a card for confidential computing, whose memory is that; others have none of it. */
EGPU_EXPORT nvmlReturn_t nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, struct memory_v1 *memory)
{
    REAL(real, nvmlDeviceGetConfComputeProtectedMemoryUsage);
    nvmlReturn_t result = real(device, memory);
    if (result == NVML_SUCCESS && memory->total)
        show_share(device, memory);
    return result;
}

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    REAL(real, nvmlDeviceGetMemoryInfo_v2);
    nvmlReturn_t result = real(device, memory);
    const int card = result == NVML_SUCCESS ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card < 0)
        return result;
    const struct egpu_room room = egpu_room_on(card);
    const uint64_t used = egpu_add(room.device, room.managed);
    memory->left = left_of(card, &room, memory->left);
    memory->total = room.total;
    memory->used = used < room.total ? used : room.total;
    memory->reserved = egpu_sub(room.total, egpu_add(memory->left, memory->used));
    return result;
}

void egpu_nvml_processes(int card, struct processes *all)
{
    all->count = egpu_processes_on(card, all->pids, all->bytes, MOST_PROCESSES);
}

/* NVML's protocol for lists: what fits, or how much room is needed. */
static nvmlReturn_t sized(unsigned *count, const struct processes *all)
{
    const unsigned room = *count;
    *count = (unsigned)all->count;
    return all->count > room ? NVML_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list_v1(int card, unsigned *count, struct process_v1 *processes)
{
    struct processes all;
    egpu_nvml_processes(card, &all);
    nvmlReturn_t result = sized(count, &all);
    if (all.count && result == NVML_SUCCESS && !processes)
        return NVML_INVALID_ARGUMENT;
    for (size_t i = 0; result == NVML_SUCCESS && i < all.count; i++)
        processes[i] = (struct process_v1){all.pids[i], all.bytes[i]};
    return result;
}

static nvmlReturn_t list_v2(int card, unsigned *count, struct process_v2 *processes)
{
    struct processes all;
    egpu_nvml_processes(card, &all);
    nvmlReturn_t result = sized(count, &all);
    if (all.count && result == NVML_SUCCESS && !processes)
        return NVML_INVALID_ARGUMENT;
    for (size_t i = 0; result == NVML_SUCCESS && i < all.count; i++)
        processes[i] = (struct process_v2){all.pids[i], all.bytes[i], (unsigned)NO_INSTANCE, (unsigned)NO_INSTANCE};
    return result;
}

/* The first drivers of 535 have a field more in each record of the newest list, and so have programs for them. */
static nvmlReturn_t list_v3(int card, unsigned *count, struct process_v2 *processes)
{
    const unsigned driver = egpu_nvml_driver();
    nvmlReturn_t result = list_v2(card, count, processes);
    if (driver < FIRST_WIDE || driver >= FIRST_NARROW || result != NVML_SUCCESS)
        return result;
    struct process_wide *to = (struct process_wide *)processes;
    for (unsigned i = *count; i-- > 0;) { /* from behind: they grow in place */
        const struct process_v2 one = processes[i];
        to[i] = (struct process_wide){one, 0};
    }
    return result;
}

/* Programs that compute are listed as such; none draws, none is behind an MPS server. */
#define COMPUTE_LIST(name, type, list)                                                            \
    EGPU_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, struct type *processes)   \
    {                                                                                             \
        REAL(real, name);                                                                         \
        const int card = count ? egpu_nvml_card(device) : EGPU_NO_LIMITS;                                \
        return card < 0 ? real(device, count, processes) : list(card, count, processes);          \
    }
#define EMPTY_LIST(name, type)                                                                    \
    EGPU_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *count, struct type *processes)   \
    {                                                                                             \
        REAL(real, name);                                                                         \
        if (!count || egpu_nvml_card(device) < 0)                                                        \
            return real(device, count, processes);                                                \
        *count = 0;                                                                               \
        return NVML_SUCCESS;                                                                      \
    }

COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses, process_v1, list_v1)
COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses_v2, process_v2, list_v2)
COMPUTE_LIST(nvmlDeviceGetComputeRunningProcesses_v3, process_v2, list_v3)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses, process_v1)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, process_v2)
EMPTY_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, process_v2)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses, process_v1)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, process_v2)
EMPTY_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, process_v2)

EGPU_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, struct process_details *details)
{
    REAL(real, nvmlDeviceGetRunningProcessDetailList);
    const int card = details ? egpu_nvml_card(device) : EGPU_NO_LIMITS;
    if (card < 0)
        return real(device, details);
    struct processes all = {0};
    if (!details->mode) /* 0: compute */
        egpu_nvml_processes(card, &all);
    nvmlReturn_t result = sized(&details->count, &all);
    if (all.count && result == NVML_SUCCESS && !details->processes)
        return NVML_INVALID_ARGUMENT;
    for (size_t i = 0; result == NVML_SUCCESS && i < all.count; i++)
        details->processes[i] = (struct process_detail){all.pids[i], all.bytes[i], (unsigned)NO_INSTANCE,
                                                        (unsigned)NO_INSTANCE, 0};
    return result;
}
