/* cuGetProcAddress: the newest entry point of a name that programs of a CUDA version may be given. */
#define _GNU_SOURCE
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is no more than a stub. */
#define EGPU_API(name, suffix, since, arguments) CUresult name##suffix arguments;
#define EGPU_API_TSZ(name, suffix, since, arguments) CUresult name##suffix arguments; CUresult name##suffix##_ptsz arguments;
#define EGPU_API_TDS(name, suffix, since, arguments) CUresult name##suffix arguments; CUresult name##suffix##_ptds arguments;
#include "egpu_cuda_rest.def"
#undef EGPU_API
#undef EGPU_API_TSZ
#undef EGPU_API_TDS

static const struct { const char *name; int since; void *plain, *per_thread; } ENTRIES[] = {
#define EGPU_API(name, suffix, since, arguments) {#name, since, (void *)name##suffix, NULL},
#define EGPU_API_TSZ(name, suffix, since, arguments) {#name, since, (void *)name##suffix, (void *)name##suffix##_ptsz},
#define EGPU_API_TDS(name, suffix, since, arguments) {#name, since, (void *)name##suffix, (void *)name##suffix##_ptds},
#include "egpu_cuda_api.def"
#include "egpu_cuda_memory.def"
#include "egpu_cuda_rest.def"
};

static CUdriverProcAddressQueryResult find(const char *name, void **to, int version, bool per_thread) {
    int best = -1, known = 0;
    *to = NULL;
    /* From 12.0 on this name means the call with flags. */
    if (version >= 12000 && strcmp(name, "cuGraphInstantiate") == 0) name = "cuGraphInstantiateWithFlags";
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        if (strcmp(ENTRIES[i].name, name) != 0) continue;
        known = 1;
        if (ENTRIES[i].since > version || ENTRIES[i].since <= best) continue;
        best = ENTRIES[i].since;
        *to = per_thread && version >= 7000 && ENTRIES[i].per_thread ? ENTRIES[i].per_thread : ENTRIES[i].plain;
    }
    if (*to) return CU_GET_PROC_ADDRESS_SUCCESS;
    return known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
}

/* FAKE_CUDA_ASKED names a file: a line for each question, with the object that asked. */
static void told(const char *symbol, int version, uint64_t flags, int found, const void *caller) {
    const char *path = getenv("FAKE_CUDA_ASKED");
    FILE *file = path ? fopen(path, "ae") : NULL;
    Dl_info who;
    if (!file) return;
    fprintf(file, "%s %d %d %d %s\n", *symbol ? symbol : "-", version, (int)flags, found,
            dladdr(caller, &who) && who.dli_fname ? who.dli_fname : "-");
    fclose(file);
}

static CUresult look(const char *symbol, void **to, int version, uint64_t flags, CUdriverProcAddressQueryResult *found,
                     const void *caller) {
    int mine;
    if (!symbol || !to || flags > 2) return CUDA_ERROR_INVALID_VALUE;
    TRY(cuDriverGetVersion(&mine));
    if (version > mine) return CUDA_ERROR_INVALID_VALUE;
    *found = find(symbol, to, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    told(symbol, version, flags, *found, caller);
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **to, int version, uint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult found;
    TRY(look(symbol, to, version, flags, &found, __builtin_return_address(0)));
    if (status) *status = found;
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress(const char *symbol, void **to, int version, uint64_t flags) {
    CUdriverProcAddressQueryResult found;
    TRY(look(symbol, to, version, flags, &found, __builtin_return_address(0)));
    return found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* Whoever was compiled for default streams of threads means those where it does not say which. */
static uint64_t of_threads(uint64_t flags) {
    return flags == CU_GET_PROC_ADDRESS_DEFAULT ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : flags;
}

API CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **to, int version, uint64_t flags,
                                      CUdriverProcAddressQueryResult *status) {
    return cuGetProcAddress_v2(symbol, to, version, of_threads(flags), status);
}

API CUresult cuGetProcAddress_ptsz(const char *symbol, void **to, int version, uint64_t flags) {
    return cuGetProcAddress(symbol, to, version, of_threads(flags));
}

/* Private tables that NVIDIA's own libraries ask for: there are none. The runtime (libcudart) then asks for every entry
 * point that it knows, and answers its callers with an error: it wants to be sure of NVIDIA's own driver, which this
 * is not. */
API CUresult cuGetExportTable(const void **to, const CUuuid *id) {
    if (!to || !id) return CUDA_ERROR_INVALID_VALUE;
    *to = NULL;
    return CUDA_ERROR_NOT_FOUND;
}
