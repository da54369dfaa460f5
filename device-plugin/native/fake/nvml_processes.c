/* The older and the emptier process lists of the fake NVML: none is of MPS. */
#include <stddef.h>

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;
struct process_v1 { unsigned pid; unsigned long long used; };
struct process_v2 { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, INSUFFICIENT_SIZE = 7, MOST = 256 };

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_v2 *list);

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process_v2 *list);

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count, struct process_v2 *list) {
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, list);
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count, struct process_v2 *list) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, list);
}

static nvmlReturn_t narrowed(nvmlReturn_t (*list_all)(nvmlDevice_t, unsigned *, struct process_v2 *), nvmlDevice_t device,
                             unsigned *count, struct process_v1 *list) {
    struct process_v2 all[MOST];
    unsigned room = *count, found = MOST;
    nvmlReturn_t result = list_all(device, &found, all);
    if (result != SUCCESS) return result;
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) list[i] = (struct process_v1){all[i].pid, all[i].used};
    return SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count, struct process_v1 *list) {
    return narrowed(nvmlDeviceGetComputeRunningProcesses_v3, device, count, list);
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned *count, struct process_v1 *list) {
    return narrowed(nvmlDeviceGetGraphicsRunningProcesses_v3, device, count, list);
}

#define NONE(name)                                                               \
    API nvmlReturn_t name(nvmlDevice_t device, unsigned *count, void *list) {    \
        (void)list;                                                              \
        if (!device || !count) return INVALID_ARGUMENT;                          \
        *count = 0;                                                              \
        return SUCCESS;                                                          \
    }
NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)
