/* Modules and libraries: the arrays that a program declares in its device code lie on the card from the moment its
 * image is loaded. Code and small variables are part of what a context takes, which the agent learns. What an image puts
 * into global memory is charged here: by what it says itself, or, where it is compressed, by what the driver says of each
 * variable that the program asks for. */
#define _GNU_SOURCE
#include "memory.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FATBIN = 0xba55ed50u, FATBIN_WRAPPER = 0x466243b1u, MEMBER_IS_ELF = 2, COMPRESSED = 0x2000 | 0x8000 };
#define NOT_TOLD UINT64_MAX
#define NO_END SIZE_MAX /* how long an image in memory is only it can tell */

struct fatbin { uint32_t magic; uint16_t version, head; uint64_t size; };
struct fatbin_member { uint16_t kind, version; uint32_t head; uint64_t size; uint32_t packed, reserved[5]; uint64_t flags; };
struct fatbin_wrapper { uint32_t magic, version; const void *image; };

static uint64_t times(uint64_t left, uint64_t right)
{
    uint64_t product;
    return __builtin_mul_overflow(left, right, &product) ? UINT64_MAX / 2 : product;
}

/* One declaration of PTX behind its ".global": type, name, dimensions. */
static uint64_t declared(const char *at, const char *end)
{
    uint64_t bytes = 0;
    const char *stop = at;
    while (stop < end && !strchr(";={,", *stop))
        stop++;
    if (stop == end)
        return 0; /* cut off */
    for (; at < stop && *at != '['; at++) {
        if (*at != '.' || at + 2 >= stop)
            continue;
        if (at[1] == 'v' && isdigit((unsigned char)at[2])) {
            bytes = times(bytes ? bytes : 1, (uint64_t)(at[2] - '0'));
        } else if (strchr("busf", at[1])) { /* .b8, .u16, .s32, .f64, .bf16, .b128; .f16x2 is two */
            const uint64_t bits = strtoul(at + 2 + (at[2] == 'f'), NULL, 10);
            bytes = times(bytes ? bytes : 1, bits / 8 * (strncmp(at + 1, "f16x2", 5) == 0 ? 2 : 1));
        }
    }
    for (; at < stop; at++)
        if (*at == '[')
            bytes = times(bytes, strtoull(at + 1, NULL, 10));
    return bytes;
}

static bool holds(const char *at, const char *end, const char *word)
{
    return memmem(at, (size_t)(end - at), word, strlen(word)) != NULL;
}

static uint64_t of_text(const char *image, size_t size)
{
    enum { WORD = sizeof ".global" - 1, LINE = 200 };
    const char *const end = image + (size == NO_END ? strlen(image) : strnlen(image, size));
    uint64_t sum = 0;
    for (const char *at = image; (at = memmem(at, (size_t)(end - at), ".global", WORD)); at += WORD) {
        /* Not the part of an instruction that says where it works. */
        if (end - at <= WORD || !isspace((unsigned char)at[WORD]) ||
            (at > image && !isspace((unsigned char)at[-1]) && !strchr(";}", at[-1])))
            continue;
        const char *line = at;
        while (line > image && line[-1] != '\n' && at - line < LINE)
            line--;
        if (!holds(line, at, "//") && !holds(line, at, ".extern"))
            sum = egpu_add(sum, declared(at + WORD, end));
    }
    return sum;
}

static bool inside(size_t size, uint64_t at, uint64_t bytes)
{
    return size == NO_END ? at < 1ull << 40 && bytes < 1ull << 40 : at <= size && bytes <= size - at;
}

static uint64_t of_elf(const unsigned char *image, size_t size)
{
    Elf64_Ehdr head;
    uint64_t sum = 0;
    if (!inside(size, 0, sizeof head))
        return NOT_TOLD;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr) ||
        head.e_shstrndx >= head.e_shnum || !inside(size, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)))
        return NOT_TOLD;
    Elf64_Shdr names, section;
    memcpy(&names, image + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    if (!inside(size, names.sh_offset, names.sh_size))
        return NOT_TOLD;
    for (size_t i = 0; i < head.e_shnum; i++) {
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_name + sizeof ".nv.global" <= names.sh_size &&
            strncmp((const char *)image + names.sh_offset + section.sh_name, ".nv.global", 10) == 0)
            sum = egpu_add(sum, section.sh_size);
    }
    return sum;
}

static uint64_t of_image(const void *image, size_t size);

/* One of the members is chosen, for the card at hand: the largest counts. */
static uint64_t of_fatbin(const unsigned char *image, size_t size)
{
    struct fatbin head;
    struct fatbin_member member;
    uint64_t most = 0;
    memcpy(&head, image, sizeof head);
    if (head.head < sizeof head || !inside(size, head.head, head.size))
        return NOT_TOLD;
    for (uint64_t at = head.head, end = head.head + head.size; end - at >= sizeof member;) {
        memcpy(&member, image + at, sizeof member);
        if (member.head < sizeof member || member.head > end - at || member.size > end - at - member.head)
            return NOT_TOLD;
        if (member.flags & COMPRESSED)
            return NOT_TOLD;
        uint64_t bytes = of_image(image + at + member.head, member.size);
        if (bytes == NOT_TOLD)
            return NOT_TOLD;
        most = bytes > most ? bytes : most;
        at += member.head + member.size;
    }
    return most;
}

static uint64_t of_image(const void *image, size_t size)
{
    const unsigned char *at = image;
    struct fatbin_wrapper wrapper;
    uint32_t magic;
    if (size < 16)
        return 0;
    memcpy(&magic, at, sizeof magic);
    if (memcmp(at, ELFMAG, SELFMAG) == 0)
        return of_elf(at, size);
    if (magic == FATBIN)
        return of_fatbin(at, size);
    if (magic == FATBIN_WRAPPER && size == NO_END) {
        memcpy(&wrapper, at, sizeof wrapper);
        return wrapper.image ? of_image(wrapper.image, NO_END) : NOT_TOLD;
    }
    for (size_t i = 0; i < 8; i++)
        if (!at[i] || at[i] > 126 || (at[i] < 32 && !isspace(at[i])))
            return NOT_TOLD;
    return of_text(image, size);
}

static uint64_t of_file(const char *path)
{
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    uint64_t bytes = NOT_TOLD;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        void *image = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            bytes = of_image(image, (size_t)about.st_size);
            munmap(image, (size_t)about.st_size);
        }
    }
    if (file >= 0)
        close(file);
    return bytes;
}

/* --- loading --- */

enum { SMALL = 4096 }; /* what comes to less is part of the context */

/* Charges `bytes` of that image; CUDA_ERROR_OUT_OF_MEMORY: nothing is charged. */
static CUresult keep(enum egpu_kind kind, uint64_t key, uint64_t image, int card, uint64_t bytes, uint64_t managed)
{
    const struct egpu_track track = {.key = key, .kind = kind, .card = card, .bytes = bytes, .managed = managed,
                                     .context = egpu_current_context(), .other = image, .shared = -1, .references = 1};
    CUresult result = egpu_charge(card, bytes, managed);
    if (result != CUDA_SUCCESS || egpu_put(&track))
        return result;
    egpu_discharge(card, bytes, managed);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t pages(uint64_t bytes)
{
    return bytes <= SMALL ? 0 : egpu_add(bytes, SMALL - 1) & ~(uint64_t)(SMALL - 1);
}

static CUresult loaded(CUresult result, void *handle, uint64_t bytes, CUresult (*unload)(void *))
{
    const int card = result == CUDA_SUCCESS ? egpu_charged_current() : EGPU_NO_LIMITS;
    const bool told = bytes != NOT_TOLD;
    if (card < 0 || (told && !pages(bytes)))
        return result;
    result = keep(EGPU_IMAGE, (uint64_t)(uintptr_t)handle, !told, card, told ? pages(bytes) : 0, 0);
    if (result != CUDA_SUCCESS)
        unload(handle);
    return result;
}

static CUresult unload_module(void *module)
{
    const struct egpu_real *real = egpu_driver();
    return real->cuModuleUnload ? real->cuModuleUnload(module) : CUDA_ERROR_NOT_FOUND;
}

static CUresult unload_library(void *library)
{
    const struct egpu_real *real = egpu_driver();
    return real->cuLibraryUnload ? real->cuLibraryUnload(library) : CUDA_ERROR_NOT_FOUND;
}

/* The driver looks at the image first: what it takes is one. */
#define LOAD(name, to, bytes, unload, values)                                     \
    EGPU_DRIVER(real, name);                                                      \
    CUresult result = real->name values;                                          \
    if (result == CUDA_SUCCESS && (result = loaded(result, *(to), bytes, unload)) != CUDA_SUCCESS) \
        *(to) = NULL;                                                             \
    return result

EGPU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, module, of_file(path), unload_module, (module, path));
}

EGPU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, module, of_image(image, NO_END), unload_module, (module, image));
}

EGPU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                                        void **values)
{
    LOAD(cuModuleLoadDataEx, module, of_image(image, NO_END), unload_module, (module, image, count, options, values));
}

EGPU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadFatBinary, module, of_image(image, NO_END), unload_module, (module, image));
}

EGPU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit, void **jit_values,
                                       unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    LOAD(cuLibraryLoadData, library, of_image(image, NO_END), unload_library,
         (library, image, jit, jit_values, jit_count, options, values, count));
}

EGPU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                                           unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    LOAD(cuLibraryLoadFromFile, library, of_file(path), unload_library,
         (library, path, jit, jit_values, jit_count, options, values, count));
}

/* --- variables of an image that did not tell --- */

static CUresult found(CUresult result, void *image, CUdeviceptr at, uint64_t bytes, bool managed)
{
    struct egpu_track track;
    if (result != CUDA_SUCCESS || !pages(bytes) || egpu_get(EGPU_VARIABLE, at, &track) ||
        !egpu_get(EGPU_IMAGE, (uint64_t)(uintptr_t)image, &track) || (!track.other && !managed))
        return result;
    bytes = pages(bytes);
    return keep(EGPU_VARIABLE, at, track.key, track.card, managed ? 0 : bytes, managed ? bytes : 0);
}

static CUresult global(CUdeviceptr *to, size_t *bytes, void *image, const char *name, bool managed,
                       __typeof__(cuLibraryGetGlobal) *call)
{
    CUdeviceptr at = 0;
    size_t size = 0;
    CUresult result = call(&at, &size, image, name);
    result = found(result, image, at, size, managed);
    if (result == CUDA_SUCCESS && to)
        *to = at;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = size;
    return result;
}

static CUresult global_of_module(CUdeviceptr *to, size_t *bytes, CUlibrary module, const char *name)
{
    return egpu_driver()->cuModuleGetGlobal_v2(to, bytes, (CUmodule)module, name);
}

EGPU_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *to, size_t *bytes, CUmodule module, const char *name)
{
    EGPU_DRIVER(real, cuModuleGetGlobal_v2);
    (void)real;
    return global(to, bytes, module, name, false, global_of_module);
}

EGPU_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *to, size_t *bytes, CUlibrary library, const char *name)
{
    EGPU_DRIVER(real, cuLibraryGetGlobal);
    return global(to, bytes, library, name, false, real->cuLibraryGetGlobal);
}

EGPU_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *to, size_t *bytes, CUlibrary library, const char *name)
{
    EGPU_DRIVER(real, cuLibraryGetManaged);
    return global(to, bytes, library, name, true, real->cuLibraryGetManaged);
}

static bool variable_of(const struct egpu_track *track, void *image)
{
    return track->kind == EGPU_VARIABLE && track->other == *(uint64_t *)image;
}

/* The track goes before the driver lets go: afterwards another image may be given the same handle. */
static CUresult unload(void *handle, CUresult (*call)(void *))
{
    struct egpu_track track;
    uint64_t key = (uint64_t)(uintptr_t)handle;
    bool known = egpu_take(EGPU_IMAGE, key, &track);
    CUresult result = call(handle);
    if (known && result != CUDA_SUCCESS)
        egpu_put(&track);
    if (!known || result != CUDA_SUCCESS)
        return result;
    egpu_end_track(&track);
    while (egpu_take_any(variable_of, &key, &track))
        egpu_end_track(&track);
    return result;
}

EGPU_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    EGPU_DRIVER(real, cuModuleUnload);
    (void)real;
    return unload(module, unload_module);
}

EGPU_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    EGPU_DRIVER(real, cuLibraryUnload);
    (void)real;
    return unload(library, unload_library);
}
