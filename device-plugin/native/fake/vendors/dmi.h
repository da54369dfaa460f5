/* The parts of Hygon's interfaces that the agent calls: libhydmi.so (dmi*) and librocm_smi64.so (rsmi_*). Fields
 * follow the public headers; `sizes.c` prints their sizes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum {
    DMI_OK = 0, DMI_ERROR = 1, DMI_NO_MKFD = 3, DMI_NOT_SUPPORTED = 6, DMI_CREATE_FAILED = 8, DMI_BAD_ARGUMENT = 10,
    DMI_NO_ROOM = 11, DMI_NO_DEVICE = 14, DMI_NO_VDEVICE = 15, DMI_INIT_FAILED = 16, DMI_BUSY = 17, DMI_PERMISSION = 19,
};

typedef struct { char name[256]; int compute_units; size_t memory, used; uint64_t container_id; int device_id; } dmiDeviceInfo;
typedef struct { uint32_t process_id, pasid; uint64_t vram_usage, sdma_usage; uint32_t cu_occupancy; } rsmi_process_info_t;
