/* A program that allocates as it is told: one command a line on stdin, one answer a line on stdout. The tests of the
 * memory side drive several of these at once, with and without the library before them.
 *
 * The first argument says how it comes by the driver's functions: direct, dlsym, procaddress, or procaddress-stream
 * (per-thread default streams). Things it holds have a number, chosen by the test. An answer is the CUresult, then
 * what the call returned. */
#define _GNU_SOURCE
#include "../lib/base/internal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THINGS = 4096 };
static struct egpu_real cu;
static CUdeviceptr pointers[THINGS];
static size_t sizes[THINGS];
static CUmemGenericAllocationHandle handles[THINGS];
static CUarray arrays[THINGS];
static CUmipmappedArray mipmaps[THINGS];
static CUmemoryPool pools[THINGS];
static CUgraphExec execs[THINGS];
static CUcontext contexts[THINGS];
static CUstream stream;

static const struct { const char *name; void *function; } direct[] = {
#define EGPU_API(name, suffix, since, arguments) {#name #suffix, (void *)name##suffix},
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    {#name #suffix, (void *)name##suffix}, {#name #suffix "_ptsz", (void *)name##suffix##_ptsz},
#define EGPU_API_TDS(name, suffix, since, arguments) \
    {#name #suffix, (void *)name##suffix}, {#name #suffix "_ptds", (void *)name##suffix##_ptds},
#ifdef DIRECT
#include "../include/egpu_cuda_api.def"
#include "../include/egpu_cuda_memory.def"
#else
    {NULL, NULL},
#endif
};

static const struct { const char *name, *base; int since, per_thread; size_t offset; } rows[] = {
#undef EGPU_API
#undef EGPU_API_TSZ
#undef EGPU_API_TDS
#define EGPU_API(name, suffix, since, arguments) \
    {#name #suffix, #name, since, 0, offsetof(struct egpu_real, name##suffix)},
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    EGPU_API(name, suffix, since, arguments)         \
    {#name #suffix "_ptsz", #name, since, 1, offsetof(struct egpu_real, name##suffix##_ptsz)},
#define EGPU_API_TDS(name, suffix, since, arguments) \
    EGPU_API(name, suffix, since, arguments)         \
    {#name #suffix "_ptds", #name, since, 1, offsetof(struct egpu_real, name##suffix##_ptds)},
#include "../include/egpu_cuda_api.def"
#include "../include/egpu_cuda_memory.def"
};
enum { ROWS = sizeof rows / sizeof *rows };

static void find_functions(const char *way)
{
    void *library = strcmp(way, "direct") == 0 ? NULL : dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    __typeof__(cuGetProcAddress_v2) *ask = NULL;
    int version = 0;
    const bool threads = strcmp(way, "procaddress-stream") == 0;
    const uint64_t flags = threads ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_DEFAULT;
    if (library)
        *(void **)&ask = dlsym(library, "cuGetProcAddress_v2");
    if (strncmp(way, "procaddress", 11) == 0 && ask) {
        __typeof__(cuDriverGetVersion) *get;
        CUdriverProcAddressQueryResult status;
        void *found;
        ask("cuDriverGetVersion", &found, 2020, 0, &status);
        *(void **)&get = found;
        get(&version);
    }
    for (size_t i = 0; i < ROWS; i++) {
        void *found = NULL;
        CUdriverProcAddressQueryResult status;
        if (strcmp(way, "direct") == 0)
            for (size_t j = 0; j < sizeof direct / sizeof *direct && !found; j++)
                found = direct[j].name && strcmp(direct[j].name, rows[i].name) == 0 ? direct[j].function : NULL;
        else if (strcmp(way, "dlsym") == 0)
            found = dlsym(library, rows[i].name);
        else if (rows[i].since <= version) {
            ask(rows[i].base, &found, rows[i].since < 2000 ? 2000 : rows[i].since, flags, &status);
            if (!found && threads) /* what is for streams of threads came with 7.0 */
                ask(rows[i].base, &found, 7000, flags, &status);
        }
        memcpy((char *)&cu + rows[i].offset, &found, sizeof found);
    }
}

/* Prints the real name behind each function pointer: which are the library's. */
static void print_wrapped(void)
{
    for (size_t i = 0; i < ROWS; i++) {
        void *function;
        Dl_info where;
        memcpy(&function, (char *)&cu + rows[i].offset, sizeof function);
        if (function && dladdr(function, &where) && strstr(where.dli_fname, "vgpu"))
            printf("%s ", rows[i].name);
    }
    printf("\n");
}

static int graph(size_t thing, size_t bytes, bool launch)
{
    CUgraph captured = NULL;
    CUdeviceptr pointer = 0;
    int result = cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    result = result ? result : (int)cu.cuMemAllocAsync(&pointer, bytes, stream);
    result = result ? result : (int)cu.cuMemFreeAsync(pointer, stream);
    int ended = cu.cuStreamEndCapture(stream, &captured);
    result = result ? result : ended;
    result = result ? result : (int)cu.cuGraphInstantiateWithFlags(&execs[thing], captured, 0);
    if (!result && launch)
        result = cu.cuGraphLaunch(execs[thing], stream);
    if (!result && launch)
        result = cu.cuStreamSynchronize(stream);
    if (captured)
        cu.cuGraphDestroy(captured);
    return result;
}

static int import(size_t thing, int pid, int number)
{
    int process = (int)syscall(SYS_pidfd_open, pid, 0);
    int file = (int)syscall(SYS_pidfd_getfd, process, number, 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    if (file < 0)
        file = open(path, O_RDWR | O_CLOEXEC);
    int result = cu.cuMemImportFromShareableHandle(&handles[thing], (void *)(intptr_t)file,
                                                   CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(file);
    close(process);
    return result;
}

static int open_ipc(size_t thing, const char *text)
{
    CUipcMemHandle handle;
    for (size_t i = 0; i < sizeof handle; i++) {
        unsigned byte = 0;
        sscanf(text + 2 * i, "%2x", &byte);
        handle.reserved[i] = (char)byte;
    }
    return cu.cuIpcOpenMemHandle_v2(&pointers[thing], handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

#include "memory_threads.h"

/* The entry points that programs of today seldom call: `which` is their name. */
static int seldom(const char *which, size_t thing, size_t a, const char *text)
{
    const CUDA_ARRAY_DESCRIPTOR flat = {a, 1024, CU_AD_FORMAT_FLOAT, 1};
    const struct { unsigned width, height; CUarray_format format; unsigned channels; } old = {(unsigned)a, 1024, CU_AD_FORMAT_FLOAT, 1};
    const struct { unsigned width, height, depth; CUarray_format format; unsigned channels, flags; } old3 = {(unsigned)a, 1024, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    CUdeviceptr_v1 narrow = 0;
    unsigned left = 0, total = 0, pitch = 0;
    CUgraph made = NULL;
    CUDA_GRAPH_INSTANTIATE_PARAMS parameters = {0};
    int result = -2;
#define IS(name) (strcmp(which, name) == 0)
    if (IS("cuCtxCreate")) return cu.cuCtxCreate(&contexts[thing], 0, 0);
    if (IS("cuCtxCreate_v3")) return cu.cuCtxCreate_v3(&contexts[thing], NULL, 0, 0, 0);
    if (IS("cuCtxCreate_v4")) return cu.cuCtxCreate_v4(&contexts[thing], NULL, 0, 0);
    if (IS("cuCtxDestroy")) return cu.cuCtxDestroy(contexts[thing]);
    if (IS("cuCtxAttach")) return cu.cuCtxAttach(&contexts[thing], 0);
    if (IS("cuCtxDetach")) return cu.cuCtxDetach(contexts[thing]);
    if (IS("cuDevicePrimaryCtxRelease")) return cu.cuDevicePrimaryCtxRelease(0);
    if (IS("cuDevicePrimaryCtxRelease_v2")) return cu.cuDevicePrimaryCtxRelease_v2(0);
    if (IS("cuDevicePrimaryCtxReset")) return cu.cuDevicePrimaryCtxReset(0);
    if (IS("cuDevicePrimaryCtxReset_v2")) return cu.cuDevicePrimaryCtxReset_v2(0);
    if (IS("cuCtxSynchronize")) return cu.cuCtxSynchronize();
    if (IS("cuArrayCreate_v2")) return cu.cuArrayCreate_v2(&arrays[thing], &flat);
    if (IS("cuArrayCreate")) return cu.cuArrayCreate(&arrays[thing], (const void *)&old);
    if (IS("cuArray3DCreate")) return cu.cuArray3DCreate(&arrays[thing], (const void *)&old3);
    if (IS("cuMemAlloc")) return cu.cuMemAlloc(&narrow, (unsigned)a);
    if (IS("cuMemAllocPitch")) return cu.cuMemAllocPitch(&narrow, &pitch, (unsigned)a, 1024, 4);
    if (IS("cuIpcOpenMemHandle")) {
        CUipcMemHandle handle = {0};
        for (size_t i = 0; i < sizeof handle; i++)
            sscanf(text + 2 * i, "%2hhx", (unsigned char *)&handle.reserved[i]);
        return cu.cuIpcOpenMemHandle(&pointers[thing], handle, 1);
    }
    if (IS("cuMemGetInfo")) return result = cu.cuMemGetInfo(&left, &total), printf("%d %u %u\n", result, left, total), -1;
    if (IS("cuDeviceTotalMem")) return result = cu.cuDeviceTotalMem(&total, 0), printf("%d %u\n", result, total), -1;
    if (strncmp(which, "cuGraphInstantiate", 18) != 0)
        return result;
    CUdeviceptr pointer;
    cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    cu.cuMemAllocAsync(&pointer, a, stream);
    cu.cuMemFreeAsync(pointer, stream);
    cu.cuStreamEndCapture(stream, &made);
    if (IS("cuGraphInstantiate")) return cu.cuGraphInstantiate(&execs[thing], made, NULL, NULL, 0);
    if (IS("cuGraphInstantiate_v2")) return cu.cuGraphInstantiate_v2(&execs[thing], made, NULL, NULL, 0);
    return cu.cuGraphInstantiateWithParams(&execs[thing], made, &parameters);
#undef IS
}

#include "memory_images.h"

/* One command; `thing`, `a` and `b` are its numbers, `text` is `a` as it was written. Prints its own answer, or returns
 * the code to be printed. */
static int act(const char *what, size_t thing, size_t a, size_t b, const char *text)
{
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    const CUmemPoolProps plain = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = here.location};
    const CUDA_ARRAY3D_DESCRIPTOR shape = {a, b, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    size_t left = 0, total = 0, pitch = 0;
    uint64_t threshold = a;
    int result, file = -1;
#define IS(name) (strcmp(what, name) == 0)
    if (IS("init")) return cu.cuInit(0);
    if (IS("primary")) {
        result = cu.cuDevicePrimaryCtxRetain(&contexts[thing], (CUdevice)a);
        result = result ? result : (int)cu.cuCtxSetCurrent(contexts[thing]);
        return result || stream ? result : (int)cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    }
    if (IS("primary-release")) return stream = NULL, cu.cuDevicePrimaryCtxRelease_v2((CUdevice)a);
    if (IS("context")) return cu.cuCtxCreate_v2(&contexts[thing], 0, (CUdevice)a);
    if (IS("context-destroy")) return cu.cuCtxDestroy_v2(contexts[thing]);
    if (IS("limit")) return cu.cuCtxSetLimit((CUlimit)thing, a);
    if (IS("alloc")) return cu.cuMemAlloc_v2(&pointers[thing], a);
    if (IS("pitch")) {
        result = cu.cuMemAllocPitch_v2(&pointers[thing], &pitch, a, b, 16);
        return printf("%d %zu\n", result, pitch), -1;
    }
    if (IS("managed")) return cu.cuMemAllocManaged(&pointers[thing], a, CU_MEM_ATTACH_GLOBAL);
    if (IS("free")) return cu.cuMemFree_v2(pointers[thing]);
    if (IS("array")) return cu.cuArray3DCreate_v2(&arrays[thing], &shape);
    if (IS("array-free")) return cu.cuArrayDestroy(arrays[thing]);
    if (IS("mipmap")) return cu.cuMipmappedArrayCreate(&mipmaps[thing], &shape, 4);
    if (IS("mipmap-layers")) {
        const CUDA_ARRAY3D_DESCRIPTOR layers = {a, a, b, CU_AD_FORMAT_FLOAT, 1, 1 /* LAYERED */};
        return cu.cuMipmappedArrayCreate(&mipmaps[thing], &layers, 4);
    }
    if (IS("mipmap-free")) return cu.cuMipmappedArrayDestroy(mipmaps[thing]);
    if (IS("pool")) return cu.cuMemPoolCreate(&pools[thing], &plain);
    if (IS("pool-destroy")) return cu.cuMemPoolDestroy(pools[thing]);
    if (IS("pool-keep")) return cu.cuMemPoolSetAttribute(pools[thing], CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    if (IS("pool-trim")) return cu.cuMemPoolTrimTo(pools[thing], a);
    if (IS("from-pool")) return cu.cuMemAllocFromPoolAsync(&pointers[thing], a, pools[b], stream);
    if (IS("async")) return cu.cuMemAllocAsync(&pointers[thing], a, stream);
    if (IS("free-async")) return cu.cuMemFreeAsync(pointers[thing], stream);
    if (IS("sync")) return cu.cuStreamSynchronize(stream);
    if (IS("create")) return sizes[thing] = a, cu.cuMemCreate(&handles[thing], a, &here, 0);
    if (IS("release")) return cu.cuMemRelease(handles[thing]);
    if (IS("map")) {
        result = cu.cuMemAddressReserve(&pointers[thing], a, 0, 0, 0);
        return sizes[thing] = a, result ? result : (int)cu.cuMemMap(pointers[thing], a, 0, handles[thing], 0);
    }
    if (IS("unmap")) {
        result = cu.cuMemUnmap(pointers[thing], sizes[thing]);
        return result ? result : (int)cu.cuMemAddressFree(pointers[thing], sizes[thing]);
    }
    if (IS("unmap-release")) {
        result = cu.cuMemUnmap(pointers[thing], sizes[thing]);
        return result ? result : (int)cu.cuMemRelease(handles[thing]);
    }
    if (IS("retain")) return cu.cuMemRetainAllocationHandle(&handles[a], (void *)(uintptr_t)pointers[thing]);
    if (IS("export")) {
        result = cu.cuMemExportToShareableHandle(&file, handles[thing], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        return printf("%d %d\n", result, file), -1;
    }
    if (IS("dmabuf")) {
        result = cu.cuMemGetHandleForAddressRange(&file, pointers[thing], a, 1 /* DMA_BUF_FD */, 0);
        return printf("%d %d\n", result, file), -1;
    }
    if (IS("close")) return close((int)thing);
    if (IS("import")) return import(thing, (int)a, (int)b);
    if (IS("ipc")) {
        CUipcMemHandle handle;
        result = cu.cuIpcGetMemHandle(&handle, pointers[thing]);
        printf("%d ", result);
        for (size_t i = 0; i < sizeof handle; i++)
            printf("%02x", (unsigned char)handle.reserved[i]);
        return printf("\n"), -1;
    }
    if (IS("ipc-open")) return open_ipc(thing, text);
    if (IS("ipc-close")) return cu.cuIpcCloseMemHandle(pointers[thing]);
    if (IS("graph")) return graph(thing, a, b);
    if (IS("graph-destroy")) return cu.cuGraphExecDestroy(execs[thing]);
    if (IS("graph-trim")) return cu.cuDeviceGraphMemTrim((CUdevice)a);
    if (IS("info")) {
        result = cu.cuMemGetInfo_v2(&left, &total);
        return printf("%d %zu %zu\n", result, left, total), -1;
    }
    if (IS("total")) {
        result = cu.cuDeviceTotalMem_v2(&total, (CUdevice)a);
        return printf("%d %zu\n", result, total), -1;
    }
    if (IS("watch")) {
        pthread_t thread;
        return pthread_create(&thread, NULL, watch, contexts[thing]);
    }
    if (IS("peak")) return printf("0 %zu\n", atomic_exchange(&peak, 0)), -1;
    if (strncmp(what, "cu", 2) == 0) return seldom(what, thing, a, text);
    if (IS("threads")) return threads(thing, a, allocate_threaded);
    if (IS("threads-small")) return threads(thing, a, allocate_together);
    if (IS("threads-pool")) return threads(thing, a, allocate_pieces);
    if (IS("threads-pass-on")) return threads(2, a, pass_on_and_map);
    if (IS("threads-primary")) return threads(thing, a, retain_together);
    if (IS("threads-contexts")) return threads(thing, a, contexts_in_turn);
    if (IS("threads-cancelled")) return cancelled(a);
    if (IS("wrapped")) return print_wrapped(), -1;
    if (IS("fork")) { /* the child ends in the way `a` says, with and without its handlers */
        fflush(stdout);
        pid_t child = fork();
        if (!child && a == 2)
            cu.cuMemFree_v2(pointers[thing]);
        if (!child && a == 3)
            cu.cuMemGetInfo_v2(&left, &total);
        if (!child)
            a ? exit(0) : _exit(0);
        int status;
        return syscall(SYS_wait4, child, &status, 0, NULL) == child ? 0 : 1;
    }
    if (IS("exec")) return execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    return image(what, thing, a, b, text);
}

int main(int count, char **arguments)
{
    find_functions(count > 1 ? arguments[1] : "direct");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (char line[4096]; fgets(line, sizeof line, stdin);) {
        char what[40] = "", text[512] = "";
        unsigned long long thing = 0, a = 0, b = 0;
        sscanf(line, "%39s %llu %511s %llu", what, &thing, text, &b);
        a = strtoull(text, NULL, 10);
        int result = act(what, (size_t)thing % THINGS, (size_t)a, (size_t)b, text);
        if (result != -1)
            printf("%d\n", result);
    }
    return 0;
}
