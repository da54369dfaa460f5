#include "driver.h"

#include <stdio.h>
#include <string.h>

#define ENTER_CARD(device, card)   \
    struct visible_card *card;     \
    ENTER();                       \
    TRY(card_of(device, &card))

API CUresult cuDeviceGetCount(int *count) {
    ENTER();
    if (!count) return CUDA_ERROR_INVALID_VALUE;
    *count = driver.count;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    if (!device) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= driver.count) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    ENTER_CARD(device, card);
    if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)length, "%s", card->name);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    ENTER_CARD(device, card);
    memset(uuid, 0, sizeof *uuid);
    const char *text = card->uuid;
    if (strncmp(text, "GPU-", 4) == 0) text += 4;
    for (int i = 0; i < 32 && *text; text++) {
        unsigned digit;
        if (*text == '-' || sscanf((char[2]){*text, 0}, "%x", &digit) != 1) continue;
        uuid->bytes[i / 2] = (char)(i % 2 ? (unsigned char)uuid->bytes[i / 2] | digit : digit << 4);
        i++;
    }
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER_CARD(device, card);
    if (!bytes) return CUDA_ERROR_INVALID_VALUE;
    *bytes = card->total;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    ENTER_CARD(device, card);
    *bytes = card->total > UINT32_MAX ? UINT32_MAX : (unsigned)card->total;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    ENTER_CARD(device, card);
    unsigned domain = 0, bus = 0, slot = 0;
    sscanf(card->pci, "%x:%x:%x", &domain, &bus, &slot);
    snprintf(text, (size_t)length, "%04X:%02X:%02X.0", domain, bus, slot);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    ENTER();
    if (!device || !text) return CUDA_ERROR_INVALID_VALUE;
    unsigned wanted[3] = {0}, has[3];
    if (sscanf(text, "%x:%x:%x", &wanted[0], &wanted[1], &wanted[2]) != 3) return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < driver.count; i++) {
        memset(has, 0, sizeof has);
        sscanf(driver.cards[i].pci, "%x:%x:%x", &has[0], &has[1], &has[2]);
        if (memcmp(has, wanted, sizeof has) != 0) continue;
        *device = i;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

/* What a card of the Hopper kind says; only what programs ask for is told apart, the rest is 0. */
static int attribute(const struct visible_card *card, CUdevice_attribute which) {
    unsigned pci[3] = {0};
    sscanf(card->pci, "%x:%x:%x", &pci[0], &pci[1], &pci[2]);
    switch (which) {
        case 1: case 2: case 3: return 1024;
        case 4: return 64;
        case 5: return 2147483647;
        case 6: case 7: return 65535;
        case 8: return 49152;
        case 9: return 65536;
        case CU_DEVICE_ATTRIBUTE_WARP_SIZE: return 32;
        case 11: return 2147483647;
        case 12: case 82: return 65536;
        case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: return (int)card->mhz * 1000;
        case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return (int)(card->cores / 128 ? card->cores / 128 : 1);
        case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: return (int)pci[1];
        case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: return (int)pci[2];
        case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: return (int)pci[0];
        case 36: return 2619000;
        case 37: return 5120;
        case 38: return 50 << 20;
        case 39: return 2048;
        case 40: return 3;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return (int)card->cc_major;
        case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return (int)card->cc_minor;
        case 81: return 233472;
        case 97: return 232448;
        case 106: return 32;
        case 111: return 1024;
        case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: return 1;
        /* overlap, mapped host memory, concurrent kernels, unified addresses, stream priorities, managed memory,
         * concurrent managed access, compute preemption, stream memory operations, cooperative launch, host
         * registration, virtual memory, pools, IPC events */
        case 15: case 19: case 31: case 41: case 78: case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
        case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: case 90: case 91: case 92: case 93: case 94:
        case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: case 99:
        case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        case 122: case 123: case 125: return 1;
        case 119: return CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        default: return 0;
    }
}

API CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
    ENTER_CARD(device, card);
    if (!value || which < 1 || which > 200) return CUDA_ERROR_INVALID_VALUE;
    *value = attribute(card, which);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    ENTER_CARD(device, card);
    *major = (int)card->cc_major;
    *minor = (int)card->cc_minor;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetProperties(CUdevprop *to, CUdevice device) {
    ENTER_CARD(device, card);
    *to = (CUdevprop){.maxThreadsPerBlock = 1024, .maxThreadsDim = {1024, 1024, 64},
                      .maxGridSize = {2147483647, 65535, 65535}, .sharedMemPerBlock = 49152,
                      .totalConstantMemory = 65536, .SIMDWidth = 32, .memPitch = 2147483647, .regsPerBlock = 65536,
                      .clockRate = (int)card->mhz * 1000, .textureAlign = 512};
    return CUDA_SUCCESS;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER_CARD(device, card);
    TRY(card_of(peer, &card));
    *can = device != peer;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute which, CUdevice from, CUdevice to) {
    ENTER_CARD(from, card);
    TRY(card_of(to, &card));
    if (from == to) return CUDA_ERROR_INVALID_DEVICE;
    *value = which == 2 || which == 3 || which == 4;
    return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    ENTER_CONTEXT(context);
    TRY(context_alive(peer));
    if (flags) return CUDA_ERROR_INVALID_VALUE;
    return peer->device == context->device ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : CUDA_SUCCESS;
}

API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    ENTER_CONTEXT(context);
    (void)context;
    return context_alive(peer);
}

static const struct { CUresult code; const char *name; } ERRORS[] = {
#define E(code) {CUDA_##code, "CUDA_" #code}
    E(SUCCESS), E(ERROR_INVALID_VALUE), E(ERROR_OUT_OF_MEMORY), E(ERROR_NOT_INITIALIZED), E(ERROR_DEINITIALIZED),
    E(ERROR_NO_DEVICE), E(ERROR_INVALID_DEVICE), E(ERROR_INVALID_IMAGE), E(ERROR_INVALID_CONTEXT),
    E(ERROR_ECC_UNCORRECTABLE), E(ERROR_UNSUPPORTED_LIMIT), E(ERROR_INVALID_PTX), E(ERROR_OPERATING_SYSTEM),
    E(ERROR_INVALID_HANDLE), E(ERROR_ILLEGAL_STATE), E(ERROR_NOT_FOUND), E(ERROR_NOT_READY), E(ERROR_ILLEGAL_ADDRESS),
    E(ERROR_CONTEXT_IS_DESTROYED), E(ERROR_LAUNCH_FAILED), E(ERROR_NOT_PERMITTED), E(ERROR_NOT_SUPPORTED),
    E(ERROR_STREAM_CAPTURE_UNSUPPORTED), E(ERROR_STREAM_CAPTURE_INVALIDATED), E(ERROR_STREAM_CAPTURE_UNMATCHED),
    E(ERROR_STREAM_CAPTURE_UNJOINED), E(ERROR_STREAM_CAPTURE_ISOLATION), E(ERROR_STREAM_CAPTURE_IMPLICIT),
    E(ERROR_CAPTURED_EVENT), E(ERROR_STREAM_CAPTURE_WRONG_THREAD), E(ERROR_TIMEOUT), E(ERROR_UNKNOWN),
#undef E
};

static CUresult text_of(CUresult code, const char **to) {
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    *to = NULL;
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++) {
        if (ERRORS[i].code == code) *to = ERRORS[i].name;
    }
    return *to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult code, const char **to) {
    return text_of(code, to);
}

API CUresult cuGetErrorString(CUresult code, const char **to) {
    return text_of(code, to);
}
