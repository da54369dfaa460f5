/* Looks symbols up in the loaded objects' own tables: dlsym is what we stand in for, and dlopen and dladdr are not in
 * the C library proper before glibc 2.34. */
#define _GNU_SOURCE
#include "internal.h"

#include <elf.h>
#include <link.h>
#include <string.h>

enum { VERSION_HIDDEN = 0x8000 };

struct walk {
    bool (*visit)(const struct egpu_object *object, void *data);
    void *data;
    const void *only; /* the object that holds this address, if set */
};

/* The dynamic linker relocates these pointers in most objects, not in those whose dynamic section is read-only. */
static const void *pointer(uintptr_t base, uintptr_t value)
{
    return (const void *)(value < base ? base + value : value);
}

static bool describe(const struct dl_phdr_info *info, struct egpu_object *object)
{
    *object = (struct egpu_object){.path = info->dlpi_name, .base = info->dlpi_addr};
    const ElfW(Dyn) *entry = NULL;
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    if (!entry)
        return false;
    size_t soname = 0;
    for (; entry->d_tag != DT_NULL; entry++) {
        const void *at = pointer(object->base, entry->d_un.d_ptr);
        switch (entry->d_tag) {
        case DT_SYMTAB: object->symbols = at; break;
        case DT_STRTAB: object->strings = at; break;
        case DT_VERSYM: object->versions = at; break;
        case DT_GNU_HASH: object->gnu_hash = at; break;
        case DT_HASH: object->sysv_hash = at; break;
        case DT_SONAME: soname = entry->d_un.d_val; break;
        default: break;
        }
    }
    if (!object->symbols || !object->strings)
        return false;
    object->soname = soname ? (const char *)object->strings + soname : NULL;
    return true;
}

static bool holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && address >= start && address - start < segment->p_memsz)
            return true;
    }
    return false;
}

static int step(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    const struct walk *walk = data;
    struct egpu_object object;
    if (walk->only && !holds(info, (uintptr_t)walk->only))
        return 0;
    return describe(info, &object) && walk->visit(&object, walk->data);
}

bool egpu_objects(bool (*visit)(const struct egpu_object *, void *), void *data)
{
    return dl_iterate_phdr(step, &(struct walk){visit, data, NULL}) != 0;
}

static bool copy(const struct egpu_object *object, void *data)
{
    *(struct egpu_object *)data = *object;
    return true;
}

bool egpu_object_of(const void *address, struct egpu_object *found)
{
    return address && dl_iterate_phdr(step, &(struct walk){copy, found, address}) != 0;
}

static void *function_at(const struct egpu_object *object, size_t index, const char *name)
{
    const ElfW(Sym) *symbol = (const ElfW(Sym) *)object->symbols + index;
    const uint16_t *versions = object->versions;
    if (symbol->st_shndx == SHN_UNDEF || !symbol->st_value || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC ||
        ELF64_ST_BIND(symbol->st_info) == STB_LOCAL || (versions && versions[index] & VERSION_HIDDEN) ||
        strcmp((const char *)object->strings + symbol->st_name, name) != 0)
        return NULL;
    return (void *)(object->base + symbol->st_value);
}

static void *by_gnu_hash(const struct egpu_object *object, const char *name)
{
    const uint32_t *head = object->gnu_hash;
    uint32_t buckets = head[0], first = head[1], bloom_words = head[2], hash = 5381;
    const uint32_t *bucket = head + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
    for (const char *at = name; *at; at++)
        hash = hash * 33 + (unsigned char)*at;
    if (!buckets)
        return NULL;
    uint32_t index = bucket[hash % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        uint32_t entry = chain[index - first];
        void *found = (entry | 1) == (hash | 1) ? function_at(object, index, name) : NULL;
        if (found || entry & 1)
            return found;
    }
}

static void *by_sysv_hash(const struct egpu_object *object, const char *name)
{
    const uint32_t *head = object->sysv_hash;
    uint32_t buckets = head[0], hash = 0;
    for (const char *at = name; *at; at++) {
        hash = (hash << 4) + (unsigned char)*at;
        hash = (hash ^ (hash & 0xf0000000u) >> 24) & 0x0fffffffu;
    }
    if (!buckets)
        return NULL;
    for (uint32_t index = head[2 + hash % buckets]; index; index = head[2 + buckets + index]) {
        void *found = function_at(object, index, name);
        if (found)
            return found;
    }
    return NULL;
}

void *egpu_object_symbol(const struct egpu_object *object, const char *name)
{
    if (object->gnu_hash)
        return by_gnu_hash(object, name);
    return object->sysv_hash ? by_sysv_hash(object, name) : NULL;
}

bool egpu_is_ours(const void *address)
{
    struct egpu_object self, other;
    return egpu_object_of((const void *)egpu_is_ours, &self) && egpu_object_of(address, &other) &&
           self.base == other.base;
}

struct after_us {
    const char *name;
    uintptr_t own_base;
    bool passed;
    void *found;
};

static bool after_us(const struct egpu_object *object, void *data)
{
    struct after_us *search = data;
    if (object->base == search->own_base)
        search->passed = true;
    else if (search->passed)
        search->found = egpu_object_symbol(object, search->name);
    return search->found != NULL;
}

void *egpu_libc(const char *name)
{
    struct egpu_object self;
    struct after_us search = {.name = name};
    if (!egpu_object_of((const void *)egpu_libc, &self))
        return NULL;
    search.own_base = self.base;
    if (!egpu_objects(after_us, &search)) {
        search.passed = true; /* opened by hand rather than preloaded: what we need came before us */
        egpu_objects(after_us, &search);
    }
    return search.found;
}
