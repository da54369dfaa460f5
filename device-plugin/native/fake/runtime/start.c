#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 13000, CARDS = 16 };

static __thread CUresult last;
static __thread int device;
static void *driver;
static CUcontext primaries[CARDS];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

CUresult told(CUresult result) {
    if (result != CUDA_SUCCESS) last = result;
    return result;
}

static void open_driver(void) {
    driver = dlopen("libcuda.so.1", RTLD_NOW);
}

/* Stands where the driver has no such function. */
static CUresult missing(void) {
    return CUDA_ERROR_NOT_SUPPORTED;
}

void *driver_asked(const char *name, int version) {
    pthread_once(&once, open_driver);
    CUresult (*ask)(const char *, void **, int, uint64_t, CUdriverProcAddressQueryResult *) = NULL;
    void *found = NULL;
    if (driver) *(void **)&ask = dlsym(driver, "cuGetProcAddress_v2");
    if (!ask || ask(name, &found, version, 0, NULL) != CUDA_SUCCESS || !found) return (void *)missing;
    return found;
}

int device_now(void) {
    return device;
}

static CUresult start(void) {
    CUresult result = CU(cuInit, "cuInit", 2000)(0);
    return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_NO_DEVICE : result;
}

static CUresult use(int card) {
    if (card < 0 || card >= CARDS) return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = start();
    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS && !primaries[card]) {
        result = CU(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000)(&primaries[card], card);
    }
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS) return result;
    device = card;
    return CU(cuCtxSetCurrent, "cuCtxSetCurrent", 4000)(primaries[card]);
}

CUresult ready(void) {
    CUcontext context = NULL;
    CUresult result = CU(cuCtxGetCurrent, "cuCtxGetCurrent", 4000)(&context);
    return result == CUDA_SUCCESS && context ? result : use(device);
}

#define PLAIN(name, parameters) RUNTIME CUresult name parameters; RUNTIME CUresult name parameters

PLAIN(cudaSetDevice, (int card)) { return told(use(card)); }
PLAIN(cudaGetDevice, (int *card)) { return *card = device, CUDA_SUCCESS; }
PLAIN(cudaGetDeviceCount, (int *count)) {
    CUresult result = start();
    return told(result ? result : CU(cuDeviceGetCount, "cuDeviceGetCount", 2000)(count));
}
PLAIN(cudaDriverGetVersion, (int *version)) { return told(CU(cuDriverGetVersion, "cuDriverGetVersion", 2020)(version)); }
PLAIN(cudaRuntimeGetVersion, (int *version)) { return *version = VERSION, CUDA_SUCCESS; }
PLAIN(cudaPeekAtLastError, (void)) { return last; }
PLAIN(cudaGetLastError, (void)) {
    CUresult now = last;
    last = CUDA_SUCCESS;
    return now;
}

RUNTIME const char *cudaGetErrorString(CUresult code);
RUNTIME const char *cudaGetErrorString(CUresult code) {
    static __thread char number[32];
    const char *text = NULL;
    if (code == CUDA_SUCCESS) return "no error";
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return "out of memory";
    if (CU(cuGetErrorString, "cuGetErrorString", 6000)(code, &text) == CUDA_SUCCESS && text) return text;
    snprintf(number, sizeof number, "error %d", (int)code);
    return number;
}

RUNTIME const char *cudaGetErrorName(CUresult code);
RUNTIME const char *cudaGetErrorName(CUresult code) {
    return code == CUDA_ERROR_OUT_OF_MEMORY ? "cudaErrorMemoryAllocation" : cudaGetErrorString(code);
}

PLAIN(cudaGetDriverEntryPointByVersion, (const char *symbol, void **to, unsigned version, unsigned long long flags,
                                         CUdriverProcAddressQueryResult *found)) {
    CUresult result = start();
    if (result != CUDA_SUCCESS) return told(result);
    return told(CU(cuGetProcAddress_v2, "cuGetProcAddress", 12000)(symbol, to, (int)version, flags, found));
}

PLAIN(cudaDeviceGetAttribute, (int *value, CUdevice_attribute which, int card)) {
    CUresult result = start();
    return told(result ? result : CU(cuDeviceGetAttribute, "cuDeviceGetAttribute", 2000)(value, which, card));
}

/* As CUDA 13 has it; what programs seldom ask for stays 0. */
struct properties {
    char name[256], uuid[16], luid[8];
    unsigned luid_nodes;
    size_t memory, shared_of_block;
    int registers_of_block, warp;
    size_t pitch;
    int threads_of_block, block[3], grid[3];
    size_t constants;
    int major, minor;
    size_t texture_alignment, texture_pitch_alignment;
    int processors, integrated, maps_host, images[39];
    size_t surface_alignment;
    int concurrent, ecc, bus, slot, domain, tcc, copies, unified, width, l2, l2_kept, threads, priorities, l1[2];
    size_t shared;
    int registers, managed, board[2], atomics, pageable, concurrent_managed, preemption, registered, cooperative;
    size_t shared_opt_in;
    int tables, direct, blocks, window;
    size_t shared_reserved;
    int rest[76];
};
_Static_assert(offsetof(struct properties, rest) == 704 && sizeof(struct properties) == 1008, "layout of CUDA 13");

PLAIN(cudaGetDeviceProperties, (struct properties *to, int card)) {
    CUresult result = start();
    memset(to, 0, offsetof(struct properties, rest));
    if (result == CUDA_SUCCESS) result = CU(cuDeviceGetName, "cuDeviceGetName", 2000)(to->name, sizeof to->name, card);
    if (result != CUDA_SUCCESS) return told(result);
    CU(cuDeviceGetUuid_v2, "cuDeviceGetUuid", 11040)((CUuuid *)to->uuid, card);
    CU(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020)(&to->memory, card);
    const struct { int which; int *to; } numbers[] = {
        {1, &to->threads_of_block}, {2, &to->block[0]}, {3, &to->block[1]}, {4, &to->block[2]}, {5, &to->grid[0]},
        {6, &to->grid[1]}, {7, &to->grid[2]}, {10, &to->warp}, {12, &to->registers_of_block}, {16, &to->processors},
        {31, &to->concurrent}, {33, &to->bus}, {34, &to->slot}, {50, &to->domain}, {37, &to->width}, {38, &to->l2},
        {39, &to->threads}, {40, &to->copies}, {41, &to->unified}, {75, &to->major}, {76, &to->minor},
        {78, &to->priorities}, {82, &to->registers}, {83, &to->managed}, {89, &to->concurrent_managed},
        {90, &to->preemption}, {95, &to->cooperative}, {106, &to->blocks},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cudaDeviceGetAttribute(numbers[i].to, (CUdevice_attribute)numbers[i].which, card);
    }
    const struct { int which; size_t *to; } sizes[] = {
        {8, &to->shared_of_block}, {9, &to->constants}, {11, &to->pitch}, {14, &to->texture_alignment},
        {81, &to->shared}, {97, &to->shared_opt_in}, {111, &to->shared_reserved},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int value = 0;
        cudaDeviceGetAttribute(&value, (CUdevice_attribute)sizes[i].which, card);
        *sizes[i].to = (size_t)value;
    }
    return CUDA_SUCCESS;
}

PLAIN(cudaDeviceGetPCIBusId, (char *text, int length, int card)) {
    return told(CU(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", 4010)(text, length, card));
}
PLAIN(cudaDeviceCanAccessPeer, (int *can, int card, int peer)) {
    CUresult result = start();
    return told(result ? result : CU(cuDeviceCanAccessPeer, "cuDeviceCanAccessPeer", 4000)(can, card, peer));
}
PLAIN(cudaDeviceEnablePeerAccess, (int peer, unsigned flags)) {
    int mine = device;
    CUresult result = use(peer);
    if (result == CUDA_SUCCESS) result = use(mine);
    return told(result ? result : CU(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000)(primaries[peer], flags));
}
PLAIN(cudaMemcpyPeerAsync, (void *to, int to_card, const void *from, int from_card, size_t bytes, CUstream stream)) {
    CUresult result = ready();
    if (result != CUDA_SUCCESS) return told(result);
    return told(CU(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000)(IN(to), primaries[to_card], IN(from), primaries[from_card],
                                                                 bytes, stream));
}
