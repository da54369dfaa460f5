/* What the parts of libvgpu-egpu.so know of each other.
 *
 * Nothing here runs before a program looks for, or calls, an entry point of the CUDA driver or of NVML. The library
 * finds the driver that the program itself loaded (elf.c, loader.c), answers look-ups of wrapped names with its own
 * functions (lookup.c), and those call the driver through `struct egpu_real`.
 *
 * libc only, no libpthread and no libdl: with glibc 2.17 these are libraries of their own which a program may lack.
 * egpu_libc("pthread_create") finds such a function once the program has the driver, which needs them itself. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../../abi/control.h"
#include "../../include/egpu_cuda.h"

#define EGPU_EXPORT __attribute__((visibility("default")))
/* What launches read lies in other cache lines than what the watcher writes at each look. */
#define EGPU_LINE _Alignas(64)

/* --- every entry point of the driver, and its place in struct egpu_real ----------------------------- */

/* The real driver's functions. NULL: this driver does not have it. */
struct egpu_real {
#define EGPU_API(name, suffix, since, arguments) __typeof__(name##suffix) *name##suffix;
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    __typeof__(name##suffix) *name##suffix;          \
    __typeof__(name##suffix##_ptsz) *name##suffix##_ptsz;
#define EGPU_API_TDS(name, suffix, since, arguments) \
    __typeof__(name##suffix) *name##suffix;          \
    __typeof__(name##suffix##_ptds) *name##suffix##_ptds;
#include "../../include/egpu_cuda_api.def"
#include "../../include/egpu_cuda_memory.def"
#undef EGPU_API
#undef EGPU_API_TSZ
#undef EGPU_API_TDS
};

struct egpu_symbol {
    const char *name;    /* "cuMemcpyAsync_ptsz" */
    const char *base;    /* "cuMemcpyAsync", what cuGetProcAddress calls it */
    uint16_t since;      /* CUDA version from which that name means this symbol */
    uint16_t per_thread; /* 1: for programs whose default stream is per thread */
    uint32_t offset;     /* in struct egpu_real */
};
extern const struct egpu_symbol egpu_symbols[];
extern const size_t egpu_symbol_count;

/* --- elf.c: loaded objects, read without the dynamic linker's help -------------------------------- */

struct egpu_object {
    const char *path;   /* as the dynamic linker has it; "" for the program itself */
    uintptr_t base;
    const void *symbols, *strings, *versions, *gnu_hash, *sysv_hash; /* of its dynamic section */
    const char *soname; /* or NULL */
};
/* The object that holds `address`. */
bool egpu_object_of(const void *address, struct egpu_object *found);
/* A defined function of that name in `object`, in its default version, or NULL. */
void *egpu_object_symbol(const struct egpu_object *object, const char *name);
/* Calls `visit` for each object in load order until it answers true; true if it did. */
bool egpu_objects(bool (*visit)(const struct egpu_object *object, void *data), void *data);
/* A function of the C library (libc, libdl, libpthread: whatever follows us in load order), or NULL. */
void *egpu_libc(const char *name);
/* True: `address` lies in this library. */
bool egpu_is_ours(const void *address);

/* --- loader.c: the real libraries ----------------------------------------------------------------- */

extern _Atomic(const struct egpu_real *) egpu_real_table;
const struct egpu_real *egpu_find_driver(void);
/* The real driver, or NULL where the program has none. One load once it is found. */
static inline const struct egpu_real *egpu_driver(void)
{
    const struct egpu_real *real = atomic_load_explicit(&egpu_real_table, memory_order_acquire);
    return __builtin_expect(real != NULL, 1) ? real : egpu_find_driver();
}
/* NULL, but while the container is kept from its cards: then each wrapper calls it first. The driver may let none of them
 * return before the agent brings the program back, and so the agent has to know that it wants to go on. */
extern _Atomic(void (*)(void)) egpu_while_away;
static inline void egpu_say_wanted(void)
{
    void (*const say)(void) = atomic_load_explicit(&egpu_while_away, memory_order_relaxed);
    if (__builtin_expect(say != NULL, 0))
        say();
}
/* At the head of a wrapper: `real` is the driver, and it has that function. */
#define EGPU_DRIVER(real, function)                        \
    const struct egpu_real *const real = egpu_driver();    \
    egpu_say_wanted();                                     \
    if (__builtin_expect(!real || !real->function, 0))     \
    return CUDA_ERROR_NOT_FOUND

/* A look-up found `address`: if it lies in a CUDA driver or an NVML that we do not know yet, that becomes the real
 * one. True: it lies in the one in use. */
bool egpu_adopt(const void *address);
/* A function of the real NVML, or NULL. */
void *egpu_nvml(const char *name);

/* --- pages.c: what the agent says ----------------------------------------------------------------- */

/* The last good copy of the control page (or of the seed, where there never was one), as far as
 * egpu_control_refresh() has read it; NULL: neither was there, so no cap is known and no memory is given. A copy
 * stays as it is until the page has changed 15 more times. No system call. */
const struct egpu_control *egpu_control_now(void);
/* Looks whether the page has changed (a few system calls) and returns egpu_control_now(). */
const struct egpu_control *egpu_control_refresh(void);
/* True: its share of the card is somebody else's for now. */
static inline bool egpu_suspended(const struct egpu_control *control) { return control != NULL && control->suspended == 1; }
/* For so long after its last beat a process counts as alive. */
static inline uint64_t egpu_lease_ns(const struct egpu_control *control)
{
    return (control && control->lease_ms ? control->lease_ms : 1000) * 1000000ull;
}
/* True: a page as the agent writes it, of a version that we understand. */
bool egpu_control_sane(const struct egpu_control *page);
/* `path` under the root for tests, in `buffer`; the path itself in the shipped library. */
const char *egpu_path(const char *path, char *buffer, size_t size);

/* --- cards.c: which card is it -------------------------------------------------------------------- */

/* Index into the control page's cards; -1: not one of this container's; less: the driver does not say which (it is
 * not initialised, or there is no such device). */
int egpu_card_of_device(CUdevice device);
int egpu_card_of_context(CUcontext context); /* NULL: the current one */
int egpu_card_of_uuid(const char *uuid, const char *pci_bus_id);

/* --- clock.c -------------------------------------------------------------------------------------- */

int64_t egpu_now_ns(void); /* CLOCK_MONOTONIC */

/* --- util.c: a line on stderr, locks, sums -------------------------------------------------------- */

/* Says it on stderr, once per `key` (a literal) and process, with "libvgpu-egpu: " before it. */
void egpu_say_once(const char *key, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A lock for short sections without driver calls (but for primary contexts). A forked child takes over what another
 * thread of its parent held. */
struct egpu_lock { _Atomic uint32_t holder; };
void egpu_lock(struct egpu_lock *lock);
void egpu_unlock(struct egpu_lock *lock);

/* A lock for a few lines without system calls; a child of a fork resets it. */
struct egpu_spin { _Atomic uint32_t held; };
void egpu_spin_lock(struct egpu_spin *lock);
static inline void egpu_spin_unlock(struct egpu_spin *lock)
{
    atomic_store_explicit(&lock->held, 0, memory_order_release);
}

/* In between this thread is not cancelled (pthread_cancel): nobody would let go of what it holds. They nest. */
void egpu_keep_thread(void);
void egpu_let_thread(void);

static inline uint64_t egpu_add(uint64_t left, uint64_t right) /* saturates */
{
    return left > UINT64_MAX - right ? UINT64_MAX : left + right;
}
static inline uint64_t egpu_sub(uint64_t left, uint64_t right) /* saturates */
{
    return left > right ? left - right : 0;
}
