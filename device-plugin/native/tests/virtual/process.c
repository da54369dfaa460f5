/* What stands in the library's place between itself and the program, in each program's own copy: the driver is the
 * world's, threads are the world's tasks. Takes the place of elf.c, loader.c and lookup.c. */
#include "../../lib/base/internal.h"

#include <string.h>

#include "world.h"

_Atomic(const struct egpu_real *) egpu_real_table;
static struct egpu_real table;

const struct egpu_real *egpu_find_driver(void)
{
#define EGPU_API(name, suffix, since, arguments) *(void **)&table.name##suffix = driver_function(#name #suffix);
#define EGPU_API_TSZ(name, suffix, since, arguments) EGPU_API(name, suffix, since, arguments)
#define EGPU_API_TDS(name, suffix, since, arguments) EGPU_API(name, suffix, since, arguments)
#include "../../include/egpu_cuda_api.def"
#include "../../include/egpu_cuda_memory.def"
    atomic_store(&egpu_real_table, &table);
    return &table;
}

static int thread_new(unsigned long *thread, const void *attributes, void *(*body)(void *), void *with)
{
    (void)thread, (void)attributes;
    task_new(task_process(), (void (*)(void *))(void (*)(void))body, with, task_now() + 20000);
    return 0;
}

void *egpu_libc(const char *name)
{
    return strcmp(name, "pthread_create") == 0 ? (void *)thread_new : NULL;
}

bool egpu_object_of(const void *address, struct egpu_object *found)
{
    (void)address, (void)found;
    return false;
}
bool egpu_is_ours(const void *address)
{
    (void)address;
    return false;
}
bool egpu_adopt(const void *address)
{
    (void)address;
    return false;
}
void *egpu_nvml(const char *name)
{
    (void)name;
    return NULL;
}
