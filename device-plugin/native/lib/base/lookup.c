/* dlsym, dlvsym and cuGetProcAddress: the real answer first; where that is a function we wrap, our wrapper instead.
 *
 * dlsym looks at its return address: RTLD_NEXT and RTLD_DEFAULT depend on which object asks. So the two entry points
 * are a few instructions of assembly that ask egpu_plan_dlsym() what to do and, for all names that are not ours, jump
 * to the real function with the caller's return address in place. */
#define _GNU_SOURCE
#include "internal.h"

#include <dlfcn.h>
#include <limits.h>
#include <string.h>

typedef void *dlsym_function(void *, const char *);
typedef void *dlvsym_function(void *, const char *, const char *);

/* Where to jump to; NULL: return `result`. Returned in two registers. */
struct plan {
    void *jump, *result;
};
struct plan egpu_plan_dlsym(void *handle, const char *name, const void *caller);
struct plan egpu_plan_dlvsym(void *handle, const char *name, const char *version, const void *caller);

#ifndef EGPU_NO_LOOKUP
EGPU_EXPORT dlsym_function dlsym;
EGPU_EXPORT dlvsym_function dlvsym;
#endif

#if defined(EGPU_NO_LOOKUP)
/* A sanitizer's run-time library looks its own functions up before anything instrumented may run. */
#elif defined(__x86_64__)
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,@function\n.p2align 4\n"
        "dlsym:\n"
        "  endbr64\n  pushq %rdi\n  pushq %rsi\n  subq $8, %rsp\n"
        "  movq 24(%rsp), %rdx\n"
        "  call egpu_plan_dlsym\n"
        "  addq $8, %rsp\n  popq %rsi\n  popq %rdi\n"
        "  testq %rax, %rax\n  je 1f\n  jmp *%rax\n"
        "1: movq %rdx, %rax\n  ret\n"
        ".size dlsym,.-dlsym\n"
        ".globl dlvsym\n.type dlvsym,@function\n.p2align 4\n"
        "dlvsym:\n"
        "  endbr64\n  pushq %rdi\n  pushq %rsi\n  pushq %rdx\n"
        "  movq 24(%rsp), %rcx\n"
        "  call egpu_plan_dlvsym\n"
        "  movq %rdx, %rcx\n  popq %rdx\n  popq %rsi\n  popq %rdi\n"
        "  testq %rax, %rax\n  je 1f\n  jmp *%rax\n"
        "1: movq %rcx, %rax\n  ret\n"
        ".size dlvsym,.-dlvsym\n");
#elif defined(__aarch64__)
__asm__(".text\n"
        ".globl dlsym\n.type dlsym,%function\n.p2align 4\n"
        "dlsym:\n"
        "  hint #34\n  stp x29, x30, [sp, #-48]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n"
        "  mov x2, x30\n"
        "  bl egpu_plan_dlsym\n"
        "  b egpu_lookup_tail\n"
        ".size dlsym,.-dlsym\n"
        ".globl dlvsym\n.type dlvsym,%function\n.p2align 4\n"
        "dlvsym:\n"
        "  hint #34\n  stp x29, x30, [sp, #-48]!\n  mov x29, sp\n  stp x0, x1, [sp, #16]\n  str x2, [sp, #32]\n"
        "  mov x3, x30\n"
        "  bl egpu_plan_dlvsym\n"
        "  b egpu_lookup_tail\n"
        ".size dlvsym,.-dlvsym\n"
        ".type egpu_lookup_tail,%function\n"
        "egpu_lookup_tail:\n"
        "  mov x16, x0\n  mov x9, x1\n"
        "  ldp x0, x1, [sp, #16]\n  ldr x2, [sp, #32]\n  ldp x29, x30, [sp], #48\n"
        "  cbz x16, 1f\n  br x16\n"
        "1: mov x0, x9\n  ret\n"
        ".size egpu_lookup_tail,.-egpu_lookup_tail\n");
#else
#error "neither x86-64 nor arm64"
#endif

/* --- what this library wraps --- */

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

/* The wrapper of that exported name ("cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"), or NULL. */
static void *wrapper_of(const char *name)
{
    for (size_t i = 0; i < WRAPS; i++)
        if (strcmp(wraps[i].name, name) == 0)
            return (void *)wraps[i].wrapper;
    return NULL;
}

/* --- dlsym and dlvsym --- */

static void *real_function(_Atomic(void *) *slot, const char *name)
{
    void *function = atomic_load_explicit(slot, memory_order_acquire);
    if (!function) {
        function = egpu_libc(name);
        atomic_store_explicit(slot, function, memory_order_release);
    }
    return function;
}

static _Atomic(void *) real_dlsym_slot, real_dlvsym_slot, real_dlopen_slot, real_dlclose_slot;

static dlsym_function *real_dlsym(void)
{
    return (dlsym_function *)(uintptr_t)real_function(&real_dlsym_slot, "dlsym");
}

/* Names that could be ours, told from others by their first letters. */
static void *our_function(const char *name)
{
    if (!name)
        return NULL;
    if (name[0] == 'c' && name[1] == 'u')
        return wrapper_of(name);
    if (name[0] == 'n' && strncmp(name, "nvml", 4) == 0)
        return wrapper_of(name);
    if (name[0] != 'd' || name[1] != 'l')
        return NULL;
    return strcmp(name, "dlsym") == 0 ? (void *)dlsym : strcmp(name, "dlvsym") == 0 ? (void *)dlvsym : NULL;
}

struct next_search {
    const char *name;
    uintptr_t caller_base;
    bool passed;
    void *found;
};

static bool next_after(const struct egpu_object *object, void *data)
{
    struct next_search *search = data;
    if (search->passed)
        search->found = egpu_object_symbol(object, search->name);
    search->passed = search->passed || object->base == search->caller_base;
    return search->found != NULL;
}

/* dlsym(RTLD_NEXT) as from `caller`. */
static void *next_of(const char *name, const void *caller)
{
    struct egpu_object object;
    if (!egpu_object_of(caller, &object))
        return NULL;
    struct next_search search = {.name = name, .caller_base = object.base};
    egpu_objects(next_after, &search);
    return search.found;
}

/* dlsym(RTLD_DEFAULT) as from `caller`: the program's global scope, then the caller's own dependencies. */
static void *default_of(const char *name, const void *caller)
{
    void *found = real_dlsym()(RTLD_DEFAULT, name);
    if (found && egpu_is_ours(found))
        found = real_dlsym()(RTLD_NEXT, name);
    struct egpu_object object;
    void *(*open)(const char *, int) = (void *(*)(const char *, int))(uintptr_t)real_function(&real_dlopen_slot, "dlopen");
    int (*close)(void *) = (int (*)(void *))(uintptr_t)real_function(&real_dlclose_slot, "dlclose");
    if (found || !open || !close || !egpu_object_of(caller, &object) || !object.path || !*object.path)
        return found;
    void *handle = open(object.path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle) {
        found = real_dlsym()(handle, name);
        close(handle);
    }
    return found;
}

/* What the program gets where the real answer to its question about a name of ours is `found`. */
static void *instead(const char *name, void *ours, void *found)
{
    if (!found)
        return NULL;
    if (name[0] == 'd') /* dlsym or dlvsym of the C library; another preload's stays its own */
        return found == egpu_libc(name) ? ours : found;
    if (!egpu_is_ours(found))
        return egpu_adopt(found) ? ours : found;
    /* Our own export. It exists for the program only if the library behind it does. */
    bool exists = name[0] == 'c' ? egpu_driver() != NULL : egpu_nvml(name) != NULL;
    if (exists)
        return ours;
    return real_dlsym()(RTLD_NEXT, name); /* NULL, and dlerror() says so */
}

struct plan egpu_plan_dlsym(void *handle, const char *name, const void *caller)
{
    dlsym_function *real = real_dlsym();
    void *ours = our_function(name);
    if (!real)
        return (struct plan){NULL, NULL};
    if (!ours)
        return (struct plan){(void *)real, NULL};
    void *found = handle == RTLD_NEXT    ? next_of(name, caller)
                : handle == RTLD_DEFAULT ? default_of(name, caller)
                                         : real(handle, name);
    if (!found && handle == RTLD_NEXT)
        return (struct plan){(void *)real, NULL}; /* for its error message */
    return (struct plan){NULL, instead(name, ours, found)};
}

struct plan egpu_plan_dlvsym(void *handle, const char *name, const char *version, const void *caller)
{
    (void)caller;
    dlvsym_function *real = (dlvsym_function *)(uintptr_t)real_function(&real_dlvsym_slot, "dlvsym");
    void *ours = our_function(name);
    if (!real)
        return (struct plan){NULL, NULL};
    /* A preload that asks for the dlsym behind it knows what it does. */
    if (!ours || name[0] == 'd')
        return (struct plan){(void *)real, NULL};
    void *found = real(handle, name, version);
    return (struct plan){NULL, instead(name, ours, found)};
}

/* --- cuGetProcAddress --- */

/* What the real driver answers to a program of that CUDA version, or NULL. */
static void *answer_to(const struct egpu_real *real, const char *symbol, int version, bool per_thread)
{
    const uint64_t flags = per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
    CUdriverProcAddressQueryResult status;
    void *function = NULL;
    const CUresult result = real->cuGetProcAddress_v2 ? real->cuGetProcAddress_v2(symbol, &function, version, flags, &status)
                          : real->cuGetProcAddress    ? real->cuGetProcAddress(symbol, &function, version, flags)
                                                      : CUDA_ERROR_NOT_FOUND;
    return result == CUDA_SUCCESS ? function : NULL;
}

/* The wrapper for what the real driver answered, `*function`, to a question about `symbol`. */
static void replace(const char *symbol, void **function, int asked, bool per_thread)
{
    const struct egpu_real *real = egpu_driver();
    const struct egpu_symbol *by_name = NULL;
    void *wrapper = NULL;
    const int version = asked < 0 ? INT_MAX : asked; /* drivers know no sign */
    int newest = 0;
    if (!symbol || !function || !*function || egpu_is_ours(*function))
        return;
    for (size_t i = 0; i < egpu_symbol_count; i++) {
        const struct egpu_symbol *row = &egpu_symbols[i];
        void *known;
        memcpy(&known, (const char *)real + row->offset, sizeof known);
        bool named = strcmp(row->base, symbol) == 0;
        newest = row->since > newest ? row->since : newest;
        /* Two names may share one function: then the name decides. */
        if (known == *function && wrapper_of(row->name) && (named || !wrapper))
            wrapper = wrapper_of(row->name);
        if (named && row->since <= version && row->per_thread <= per_thread &&
            (!by_name || row->per_thread > by_name->per_thread ||
             (row->per_thread == by_name->per_thread && row->since > by_name->since)))
            by_name = row;
    }
    /* A driver may answer with an address that it does not export. For programs of a later CUDA than we know that may
     * be a call with other arguments: ours is the right one only if earlier programs get the same. */
    if (!wrapper && by_name && wrapper_of(by_name->name)) {
        if (version <= newest || answer_to(real, symbol, newest, per_thread) == *function)
            wrapper = wrapper_of(by_name->name);
        else
            egpu_say_once(by_name->base, "this program asks for a later kind of %s than is known: it is not limited", symbol);
    }
    if (wrapper)
        *function = wrapper;
}

#define ASK(name, per_thread, arguments, values)             \
    EGPU_EXPORT CUresult name arguments                      \
    {                                                        \
        EGPU_DRIVER(real, name);                             \
        CUresult result = real->name values;                 \
        if (result == CUDA_SUCCESS)                          \
            replace(symbol, function, version, per_thread);  \
        return result;                                       \
    }
/* The twin is what programs call that were compiled for default streams of threads, which then are the rule. */
#define ASK_TSZ(name, ...)                                                            \
    ASK(name, flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, __VA_ARGS__)     \
    ASK(name##_ptsz, !(flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM), __VA_ARGS__)

ASK_TSZ(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags),
        (symbol, function, version, flags))
ASK_TSZ(cuGetProcAddress_v2,
        (const char *symbol, void **function, int version, uint64_t flags, CUdriverProcAddressQueryResult *status),
        (symbol, function, version, flags, status))
