/* Finds the CUDA driver and the NVML that the program itself loaded; loads neither. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* All entry points of the driver. */
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

_Atomic(const struct egpu_real *) egpu_real_table;
_Atomic(void (*)(void)) egpu_while_away;

static struct egpu_lock loading;
static struct egpu_object driver_object, nvml_object;
static _Atomic int driver_state, nvml_state; /* of the two above: 0 unknown, 1 a stand-in, 2 the library itself */
/* A table for a stand-in (a stub that will load the driver later), and one for the driver. */
static struct egpu_real tables[2];

static bool named(const struct egpu_object *object, const char *prefix)
{
    return object->soname && strncmp(object->soname, prefix, strlen(prefix)) == 0;
}

/* What a library is to us: 2 the library of that name, 1 something else that defines `mark`, 0 neither. */
static int rank(const struct egpu_object *object, const char *soname, const char *mark)
{
    if (!egpu_object_symbol(object, mark))
        return 0;
    return named(object, soname) ? 2 : 1;
}

/* Keeps the library mapped: our table would outlive a dlclose. */
static void pin(const struct egpu_object *object)
{
    void *(*open)(const char *, int) = (void *(*)(const char *, int))(uintptr_t)egpu_libc("dlopen");
    if (open && object->path && *object->path)
        open(object->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

static void use_driver(const struct egpu_object *object, int state)
{
    struct egpu_real *table = &tables[state - 1];
    for (size_t i = 0; i < egpu_symbol_count; i++) {
        void *function = egpu_object_symbol(object, egpu_symbols[i].name);
        memcpy((char *)table + egpu_symbols[i].offset, &function, sizeof function);
    }
    driver_object = *object;
    atomic_store(&driver_state, state);
    atomic_store_explicit(&egpu_real_table, table, memory_order_release);
}

static bool consider(const struct egpu_object *object)
{
    int as_driver = rank(object, "libcuda.so", "cuInit");
    int as_nvml = rank(object, "libnvidia-ml.so", "nvmlInit_v2");
    if (as_driver <= atomic_load(&driver_state) && as_nvml <= atomic_load(&nvml_state))
        return false;
    pin(object); /* may run the dynamic linker: before our lock */
    egpu_lock(&loading);
    if (as_driver > atomic_load(&driver_state))
        use_driver(object, as_driver);
    if (as_nvml > atomic_load(&nvml_state)) {
        nvml_object = *object;
        atomic_store(&nvml_state, as_nvml);
    }
    egpu_unlock(&loading);
    return true;
}

struct best {
    const char *soname, *mark;
    uintptr_t own_base;
    int rank;
    struct egpu_object object;
};

static bool better(const struct egpu_object *object, void *data)
{
    struct best *best = data;
    int now = object->base == best->own_base ? 0 : rank(object, best->soname, best->mark);
    if (now > best->rank) {
        best->rank = now;
        best->object = *object;
    }
    return best->rank == 2;
}

static void look_everywhere(const char *soname, const char *mark)
{
    struct egpu_object self;
    struct best best = {.soname = soname, .mark = mark};
    if (egpu_object_of((const void *)look_everywhere, &self))
        best.own_base = self.base;
    egpu_objects(better, &best);
    if (best.rank)
        consider(&best.object);
}

const struct egpu_real *egpu_find_driver(void)
{
    look_everywhere("libcuda.so", "cuInit");
    return atomic_load_explicit(&egpu_real_table, memory_order_acquire);
}

void *egpu_nvml(const char *name)
{
    if (!atomic_load(&nvml_state))
        look_everywhere("libnvidia-ml.so", "nvmlInit_v2");
    if (!atomic_load(&nvml_state))
        return NULL;
    egpu_lock(&loading);
    struct egpu_object object = nvml_object;
    egpu_unlock(&loading);
    return egpu_object_symbol(&object, name);
}

bool egpu_adopt(const void *address)
{
    struct egpu_object object;
    if (!egpu_object_of(address, &object))
        return false;
    consider(&object);
    egpu_lock(&loading);
    bool used = (atomic_load(&driver_state) && object.base == driver_object.base) ||
                (atomic_load(&nvml_state) && object.base == nvml_object.base);
    egpu_unlock(&loading);
    /* A second copy of the driver in one process: ours stays the first, and both are limited. */
    return used || named(&object, "libcuda.so") || named(&object, "libnvidia-ml.so");
}
