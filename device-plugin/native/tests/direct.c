/* The entry points as whatever is linked against libcuda.so.1 finds them, by name. */
#include "../include/egpu_cuda.h"

#include <string.h>

#define EGPU_API(name, suffix, since, arguments) CUresult name##suffix arguments;
#define EGPU_API_TSZ(name, suffix, since, arguments) CUresult name##suffix arguments; CUresult name##suffix##_ptsz arguments;
#define EGPU_API_TDS(name, suffix, since, arguments) CUresult name##suffix arguments; CUresult name##suffix##_ptds arguments;
#include "../include/egpu_cuda_rest.def"
#undef EGPU_API
#undef EGPU_API_TSZ
#undef EGPU_API_TDS

static const struct { const char *name; void *function; } rows[] = {
#define EGPU_API(name, suffix, since, arguments) {#name #suffix, (void *)name##suffix},
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    EGPU_API(name, suffix, since, arguments) {#name #suffix "_ptsz", (void *)name##suffix##_ptsz},
#define EGPU_API_TDS(name, suffix, since, arguments) \
    EGPU_API(name, suffix, since, arguments) {#name #suffix "_ptds", (void *)name##suffix##_ptds},
#include "../include/egpu_cuda_api.def"
#include "../include/egpu_cuda_memory.def"
#include "../include/egpu_cuda_rest.def"
};

__attribute__((visibility("default"))) void *direct_function(const char *name);
void *direct_function(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].function;
    return NULL;
}
