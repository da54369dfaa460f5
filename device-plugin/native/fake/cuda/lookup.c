/* cuGetProcAddress: the newest entry point of a name that programs of a CUDA version may be given. */
#include "driver.h"

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

static CUresult look(const char *symbol, void **to, int version, uint64_t flags, CUdriverProcAddressQueryResult *found) {
    int mine;
    if (!symbol || !to || flags > 2) return CUDA_ERROR_INVALID_VALUE;
    TRY(cuDriverGetVersion(&mine));
    if (version > mine) return CUDA_ERROR_INVALID_VALUE;
    *found = find(symbol, to, version, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **to, int version, uint64_t flags,
                                 CUdriverProcAddressQueryResult *status) {
    CUdriverProcAddressQueryResult found;
    TRY(look(symbol, to, version, flags, &found));
    if (status) *status = found;
    return CUDA_SUCCESS;
}

API CUresult cuGetProcAddress(const char *symbol, void **to, int version, uint64_t flags) {
    CUdriverProcAddressQueryResult found;
    TRY(look(symbol, to, version, flags, &found));
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

/* Private tables that NVIDIA's own libraries ask for: there is one, and nothing is in it. */
API CUresult cuGetExportTable(const void **to, const CUuuid *id) {
    static const size_t EMPTY[2] = {sizeof EMPTY, 0};
    if (!to || !id) return CUDA_ERROR_INVALID_VALUE;
    *to = EMPTY;
    return CUDA_SUCCESS;
}
