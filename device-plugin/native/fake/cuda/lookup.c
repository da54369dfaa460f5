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

/* What entry points for default streams of threads came with. */
enum { PER_THREAD_SINCE = 7000 };

/* Whether a driver of that version has an entry point of the name for default streams of threads. */
static bool has_twin(const char *name, int mine) {
    /* Real ones (470 to 555) answer with the plain look-up, and export no other. */
    if (strcmp(name, "cuGetProcAddress") == 0) return false;
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++)
        if (ENTRIES[i].per_thread && ENTRIES[i].since <= mine && strcmp(ENTRIES[i].name, name) == 0) return true;
    return false;
}

/* `version` of the program, `mine` of the driver: it knows nothing that came later. */
static CUdriverProcAddressQueryResult find(const char *name, void **to, unsigned version, int mine, bool per_thread) {
    int best = -1;
    bool known = false;
    const bool twins = per_thread && has_twin(name, mine);
    *to = NULL;
    for (size_t i = 0; i < sizeof ENTRIES / sizeof *ENTRIES; i++) {
        const int since = ENTRIES[i].since;
        if (since > mine || strcmp(ENTRIES[i].name, name) != 0) continue;
        known = true;
        if ((unsigned)since > version || since <= best) continue;
        if (twins && (!ENTRIES[i].per_thread || version < PER_THREAD_SINCE)) continue;
        best = since;
        *to = twins ? ENTRIES[i].per_thread : ENTRIES[i].plain;
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

/* Versions have no sign and no end: programs of a later CUDA get the newest that there is. */
static CUresult look(const char *symbol, void **to, int version, uint64_t flags, CUdriverProcAddressQueryResult *found,
                     const void *caller) {
    enum { BOTH = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM };
    int mine;
    if (!symbol || !to || flags > BOTH) return CUDA_ERROR_INVALID_VALUE;
    TRY(cuDriverGetVersion(&mine));
    *found = find(symbol, to, (unsigned)version, mine, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
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
    void *function;
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    TRY(look(symbol, &function, version, flags, &found, __builtin_return_address(0)));
    if (!function) return CUDA_ERROR_NOT_FOUND;
    *to = function;
    return CUDA_SUCCESS;
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
