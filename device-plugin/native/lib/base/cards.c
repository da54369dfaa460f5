/* Which of the control page's cards a CUDA device is. By UUID or bus id, never by ordinal: CUDA_VISIBLE_DEVICES
 * reorders those. */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DEVICES = 64, NO_ANSWER = -2 };

/* The answer for each device under one control page. */
static struct {
    _Atomic(const struct egpu_control *) page;
    _Atomic int card;
} known[DEVICES];

int egpu_card_of_uuid(const char *uuid, const char *pci_bus_id)
{
    const struct egpu_control *control = egpu_control_now();
    for (uint32_t i = 0; control && i < control->card_count; i++)
        if (uuid && *uuid && strcasecmp(control->cards[i].uuid, uuid) == 0)
            return (int)i;
    for (uint32_t i = 0; control && i < control->card_count; i++)
        if (pci_bus_id && *pci_bus_id && strcasecmp(control->cards[i].pci_bus_id, pci_bus_id) == 0)
            return (int)i;
    return -1;
}

/* NO_ANSWER: not initialised, or no such device. */
static int look_up(const struct egpu_real *real, CUdevice device)
{
    CUuuid raw;
    char uuid[48] = "", bus[32] = "";
    if (real->cuDeviceGetUuid && real->cuDeviceGetUuid(&raw, device) == CUDA_SUCCESS) {
        const unsigned char *b = (const unsigned char *)raw.bytes;
        snprintf(uuid, sizeof uuid, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
                 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    }
    if (real->cuDeviceGetPCIBusId && real->cuDeviceGetPCIBusId(bus, sizeof bus, device) != CUDA_SUCCESS)
        *bus = 0;
    if (!*uuid && !*bus)
        return NO_ANSWER;
    int card = egpu_card_of_uuid(uuid, NULL);
    if (card >= 0 || !*bus)
        return card;
    /* CUDA writes "0000:1a:00.0" where NVML writes "00000000:1A:00.0". */
    char padded[40];
    snprintf(padded, sizeof padded, "0000%s", bus);
    card = egpu_card_of_uuid(NULL, bus);
    return card >= 0 ? card : egpu_card_of_uuid(NULL, padded);
}

int egpu_card_of_device(CUdevice device)
{
    const struct egpu_real *real = egpu_driver();
    const struct egpu_control *page = egpu_control_now();
    if (!real)
        return -1;
    if (!page || device < 0 || device >= DEVICES)
        return look_up(real, device);
    if (atomic_load_explicit(&known[device].page, memory_order_acquire) == page)
        return atomic_load_explicit(&known[device].card, memory_order_relaxed);
    int card = look_up(real, device);
    if (card == NO_ANSWER)
        return card;
    atomic_store_explicit(&known[device].card, card, memory_order_relaxed);
    atomic_store_explicit(&known[device].page, page, memory_order_release);
    return card;
}

int egpu_card_of_context(CUcontext context)
{
    const struct egpu_real *real = egpu_driver();
    CUdevice device;
    CUcontext current = NULL;
    if (!real || !real->cuCtxGetDevice)
        return -1;
    if (context && real->cuCtxGetCurrent && real->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == context)
        context = NULL;
    if (!context)
        return real->cuCtxGetDevice(&device) == CUDA_SUCCESS ? egpu_card_of_device(device) : -1;
    if (real->cuCtxGetDevice_v2)
        return real->cuCtxGetDevice_v2(&device, context) == CUDA_SUCCESS ? egpu_card_of_device(device) : -1;
    if (!real->cuCtxPushCurrent_v2 || !real->cuCtxPopCurrent_v2 || real->cuCtxPushCurrent_v2(context) != CUDA_SUCCESS)
        return -1;
    CUresult result = real->cuCtxGetDevice(&device);
    real->cuCtxPopCurrent_v2(&current);
    return result == CUDA_SUCCESS ? egpu_card_of_device(device) : -1;
}
