/* Images that programs register when they are loaded, and their kernels: looked up in the driver when first wanted. */
#include "runtime.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct image { const void *wrapper; CUlibrary library; };
struct entry { const void *host; struct image *image; const char *name; CUkernel kernel; };

/* Open addressing by the host's address, half full at most. */
static struct entry *table;
static size_t room, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct { struct dim3 grid, block; size_t shared; void *stream; } pushed;

static struct entry *slot(struct entry *entries, size_t count, const void *host) {
    size_t at = (uintptr_t)host * 0x9E3779B97F4A7C15ull >> 20;
    while (entries[at % count].host && entries[at % count].host != host) at++;
    return &entries[at % count];
}

static void add(const void *host, struct image *image, const char *name) {
    pthread_mutex_lock(&lock);
    if (2 * used >= room) {
        size_t more = room ? 2 * room : 1 << 16;
        struct entry *grown = calloc(more, sizeof *grown);
        for (size_t i = 0; grown && i < room; i++) {
            if (table[i].host) *slot(grown, more, table[i].host) = table[i];
        }
        if (grown) {
            free(table);
            table = grown;
            room = more;
        }
    }
    if (2 * used < room) {
        struct entry *entry = slot(table, room, host);
        used += !entry->host;
        *entry = (struct entry){.host = host, .image = image, .name = name};
    }
    pthread_mutex_unlock(&lock);
}

static CUresult library_of(struct image *image) {
    if (image->library) return CUDA_SUCCESS;
    return CU(cuLibraryLoadData, "cuLibraryLoadData", 12000)(&image->library, image->wrapper, NULL, NULL, 0, NULL, NULL, 0);
}

static CUresult kernel_of(const void *host, CUkernel *to) {
    CUresult result = ready();
    pthread_mutex_lock(&lock);
    struct entry *entry = room ? slot(table, room, host) : NULL;
    if (!entry || !entry->host) {
        *to = (CUkernel)(uintptr_t)host; /* a kernel of a library: its handle stands for it */
    } else if (result == CUDA_SUCCESS) {
        result = entry->kernel ? CUDA_SUCCESS : library_of(entry->image);
        if (result == CUDA_SUCCESS && !entry->kernel) {
            result = CU(cuLibraryGetKernel, "cuLibraryGetKernel", 12000)(&entry->kernel, entry->image->library, entry->name);
        }
        *to = entry->kernel;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

#define EXPORT(type, name, parameters) RUNTIME type name parameters; RUNTIME type name parameters

EXPORT(void **, __cudaRegisterFatBinary, (void *wrapper)) {
    struct image *image = calloc(1, sizeof *image);
    if (image) image->wrapper = wrapper;
    return (void **)image;
}
EXPORT(void, __cudaRegisterFatBinaryEnd, (void **image)) { (void)image; }
EXPORT(void, __cudaUnregisterFatBinary, (void **image)) { (void)image; } /* the program ends */
EXPORT(void, __cudaRegisterFunction, (void **image, const char *host, char *device, const char *name, int limit, void *t,
                                      void *b, void *bd, void *gd, int *width)) {
    (void)device, (void)limit, (void)t, (void)b, (void)bd, (void)gd, (void)width;
    add(host, (struct image *)image, name);
}
EXPORT(void, __cudaRegisterVar, (void **image, char *host, char *device, const char *name, int outside, size_t bytes,
                                 int constant, int global)) {
    (void)device, (void)outside, (void)bytes, (void)constant, (void)global;
    add(host, (struct image *)image, name);
}
EXPORT(unsigned, __cudaPushCallConfiguration, (struct dim3 grid, struct dim3 block, size_t shared, void *stream)) {
    pushed.grid = grid, pushed.block = block, pushed.shared = shared, pushed.stream = stream;
    return 0;
}
EXPORT(CUresult, __cudaPopCallConfiguration, (struct dim3 *grid, struct dim3 *block, size_t *shared, void *stream)) {
    *grid = pushed.grid, *block = pushed.block, *shared = pushed.shared;
    memcpy(stream, &pushed.stream, sizeof pushed.stream);
    return CUDA_SUCCESS;
}
EXPORT(CUresult, __cudaGetKernel, (CUkernel *to, const void *host)) { return told(kernel_of(host, to)); }

static CUresult launch(CUkernel kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, CUstream stream) {
    return CU(cuLaunchKernel, "cuLaunchKernel", 4000)((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                      (unsigned)shared, stream, arguments, NULL);
}

EXPORT(CUresult, __cudaLaunchKernel, (CUkernel kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                                      CUstream stream)) {
    CUresult result = ready();
    return told(result ? result : launch(kernel, grid, block, arguments, shared, stream));
}
EXPORT(CUresult, cudaLaunchKernel, (const void *host, struct dim3 grid, struct dim3 block, void **arguments, size_t shared,
                                    CUstream stream)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    return told(result ? result : launch(kernel, grid, block, arguments, shared, stream));
}
EXPORT(CUresult, cudaLaunchCooperativeKernel, (const void *host, struct dim3 grid, struct dim3 block, void **arguments,
                                               size_t shared, CUstream stream)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    if (result != CUDA_SUCCESS) return told(result);
    return told(CU(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000)(
        (CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream, arguments));
}

struct configuration { struct dim3 grid, block; size_t shared; CUstream stream; CUlaunchAttribute *attributes; unsigned count; };

EXPORT(CUresult, cudaLaunchKernelExC, (const struct configuration *how, const void *host, void **arguments)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    CUlaunchConfig config = {.gridDimX = how->grid.x, .gridDimY = how->grid.y, .gridDimZ = how->grid.z,
                             .blockDimX = how->block.x, .blockDimY = how->block.y, .blockDimZ = how->block.z,
                             .sharedMemBytes = (unsigned)how->shared, .hStream = how->stream,
                             .attrs = how->attributes, .numAttrs = how->count};
    if (result != CUDA_SUCCESS) return told(result);
    return told(CU(cuLaunchKernelEx, "cuLaunchKernelEx", 11060)(&config, (CUfunction)kernel, arguments, NULL));
}

struct attributes { size_t shared, constants, local; int threads, registers, ptx, binary, cache, dynamic, carveout, rest[24]; };

EXPORT(CUresult, cudaFuncGetAttributes, (struct attributes *to, const void *host)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    memset(to, 0, offsetof(struct attributes, rest));
    if (result != CUDA_SUCCESS) return told(result);
    int *values[] = {&to->threads, NULL, NULL, NULL, &to->registers, &to->ptx, &to->binary, &to->cache, &to->dynamic};
    for (int i = 0; i < 9; i++) {
        if (values[i]) CU(cuKernelGetAttribute, "cuKernelGetAttribute", 12000)(values[i], (CUfunction_attribute)i, kernel,
                                                                               device_now());
    }
    return CUDA_SUCCESS;
}
EXPORT(CUresult, cudaKernelSetAttributeForDevice, (CUkernel kernel, CUfunction_attribute which, int value, int card)) {
    return told(CU(cuKernelSetAttribute, "cuKernelSetAttribute", 12000)(which, value, kernel, card));
}
EXPORT(CUresult, cudaFuncSetAttribute, (const void *host, CUfunction_attribute which, int value)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    return result ? told(result) : cudaKernelSetAttributeForDevice(kernel, which, value, device_now());
}
EXPORT(CUresult, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, (int *blocks, const void *host, int threads,
                                                                          size_t shared, unsigned flags)) {
    CUkernel kernel;
    CUresult result = kernel_of(host, &kernel);
    if (result != CUDA_SUCCESS) return told(result);
    return told(CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                   "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", 7000)(blocks, (CUfunction)kernel, threads, shared,
                                                                                 flags));
}
EXPORT(CUresult, cudaOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, const void *host, int threads, size_t shared)) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, host, threads, shared, 0);
}

/* --- variables and libraries ---------------------------------------------------------------------- */
EXPORT(CUresult, cudaGetSymbolAddress, (void **to, const void *host)) {
    CUresult result = ready();
    size_t bytes;
    pthread_mutex_lock(&lock);
    struct entry *entry = room ? slot(table, room, host) : NULL;
    if (!entry || !entry->host) result = CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS) result = library_of(entry->image);
    if (result == CUDA_SUCCESS) {
        result = CU(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000)((CUdeviceptr *)to, &bytes, entry->image->library,
                                                                     entry->name);
    }
    pthread_mutex_unlock(&lock);
    return told(result);
}
EXPORT(CUresult, cudaMemcpyToSymbol, (const void *host, const void *from, size_t bytes, size_t offset, int kind)) {
    void *to;
    CUresult result = cudaGetSymbolAddress(&to, host);
    (void)kind;
    return told(result ? result : CU(cuMemcpy, "cuMemcpy", 4000)(IN(to) + offset, IN(from), bytes));
}
PASS(cudaLibraryLoadData, (CUlibrary *to, const void *image, CUjit_option *jit, void **jit_values, unsigned jit_count,
                           CUlibraryOption *options, void **values, unsigned count),
     CU(cuLibraryLoadData, "cuLibraryLoadData", 12000)(to, image, jit, jit_values, jit_count, options, values, count))
PASS(cudaLibraryLoadFromFile, (CUlibrary *to, const char *path, CUjit_option *jit, void **jit_values, unsigned jit_count,
                               CUlibraryOption *options, void **values, unsigned count),
     CU(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000)(to, path, jit, jit_values, jit_count, options, values, count))
PASS(cudaLibraryUnload, (CUlibrary library), CU(cuLibraryUnload, "cuLibraryUnload", 12000)(library))
PASS(cudaLibraryGetKernel, (CUkernel *to, CUlibrary library, const char *name),
     CU(cuLibraryGetKernel, "cuLibraryGetKernel", 12000)(to, library, name))
PASS(cudaLibraryGetKernelCount, (unsigned *count, CUlibrary library),
     CU(cuLibraryGetKernelCount, "cuLibraryGetKernelCount", 12040)(count, library))
PASS(cudaLibraryGetGlobal, (void **to, size_t *bytes, CUlibrary library, const char *name),
     CU(cuLibraryGetGlobal, "cuLibraryGetGlobal", 12000)((CUdeviceptr *)to, bytes, library, name))
PASS(cudaLibraryGetManaged, (void **to, size_t *bytes, CUlibrary library, const char *name),
     CU(cuLibraryGetManaged, "cuLibraryGetManaged", 12000)((CUdeviceptr *)to, bytes, library, name))
PASS(cudaLibraryGetUnifiedFunction, (void **to, CUlibrary library, const char *name),
     CU(cuLibraryGetUnifiedFunction, "cuLibraryGetUnifiedFunction", 12000)(to, library, name))
