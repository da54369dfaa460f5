/* One table of all entry points of the driver, and one of those that this library wraps. */
#include "internal.h"

#include <string.h>

#define ROW(symbol, base, since, per_thread) \
    { #symbol, #base, since, per_thread, offsetof(struct egpu_real, symbol) },
#define EGPU_API(name, suffix, since, arguments) ROW(name##suffix, name, since, 0)
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    ROW(name##suffix, name, since, 0) ROW(name##suffix##_ptsz, name, since, 1)
#define EGPU_API_TDS(name, suffix, since, arguments) \
    ROW(name##suffix, name, since, 0) ROW(name##suffix##_ptds, name, since, 1)
const struct egpu_symbol egpu_symbols[] = {
#include "../../include/egpu_cuda_api.def"
#include "../../include/egpu_cuda_memory.def"
};
const size_t egpu_symbol_count = sizeof egpu_symbols / sizeof *egpu_symbols;

/* NVML's functions have no common prototype here; only their addresses matter. */
#define EGPU_WRAP(name)
#define EGPU_WRAP_NVML(name) extern int name(void);
#include "symbols_memory.def"
#include "symbols_time.def"
#undef EGPU_WRAP
#undef EGPU_WRAP_NVML

#define EGPU_WRAP(name) { #name, (void (*)(void))name },
#define EGPU_WRAP_NVML(name) { #name, (void (*)(void))name },
static const struct { const char *name; void (*wrapper)(void); } wraps[] = {
#include "symbols_memory.def"
#include "symbols_time.def"
};
enum { WRAPS = sizeof wraps / sizeof *wraps };

void *egpu_wrapper(const char *name)
{
    for (size_t i = 0; i < WRAPS; i++)
        if (strcmp(wraps[i].name, name) == 0)
            return (void *)wraps[i].wrapper;
    return NULL;
}

void *egpu_wrapper_of(const struct egpu_symbol *symbol)
{
    return egpu_wrapper(symbol->name);
}
