/* What the files of NVML's view share. Structs follow NVIDIA's published ABI. */
#pragma once

#include "../memory/memory.h"

typedef struct nvmlDevice_st *nvmlDevice_t;
typedef int nvmlReturn_t;
enum {
    NVML_SUCCESS = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_FOUND = 6, NVML_INSUFFICIENT_SIZE = 7,
    NVML_FUNCTION_NOT_FOUND = 13,
};
enum { NO_INSTANCE = -1, MOST_PROCESSES = EGPU_USAGE_SLOTS };

/* The real function of that type; the caller returns where there is none. */
#define REAL(real, name)                                                             \
    __typeof__(name) *const real = (__typeof__(name) *)(uintptr_t)egpu_nvml(#name);  \
    if (!real)                                                                       \
    return NVML_FUNCTION_NOT_FOUND

struct processes {
    size_t count;
    uint32_t pids[MOST_PROCESSES];
    uint64_t bytes[MOST_PROCESSES];
};

/* Which of the control page's cards that is, or EGPU_NO_LIMITS. Refreshes the limits. */
int egpu_nvml_card(nvmlDevice_t device);
/* The driver's version as major * 1000 + minor (535098 of 535.98.01); 0: not known. */
unsigned egpu_nvml_driver(void);
/* The container's own processes there. */
void egpu_nvml_processes(int card, struct processes *all);
