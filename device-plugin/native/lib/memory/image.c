/* What images of device code say about the memory that they need. They come from the program, and those in memory have
 * been taken by the driver; those in files are read within their bounds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "image.h"

#include <ctype.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FATBIN = 0xba55ed50u, FATBIN_WRAPPER = 0x466243b1u, MEMBER_IS_ELF = 2, COMPRESSED = 0x2000 | 0x8000 };

struct fatbin { uint32_t magic; uint16_t version, head; uint64_t size; };
struct fatbin_member { uint16_t kind, version; uint32_t head; uint64_t size; uint32_t packed, reserved[5]; uint64_t flags; };
struct fatbin_wrapper { uint32_t magic, version; const void *image; };

static uint64_t add(uint64_t left, uint64_t right)
{
    return left > UINT64_MAX / 2 - right ? UINT64_MAX / 2 : left + right;
}

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
            bytes = times(bytes, strtoull(at + 1, NULL, 0)); /* 64, 0x40, 0100 */
    return bytes;
}

static bool holds(const char *at, const char *end, const char *word)
{
    return memmem(at, (size_t)(end - at), word, strlen(word)) != NULL;
}

static uint64_t of_text(const char *image, size_t size)
{
    enum { WORD = sizeof ".global" - 1, LINE = 200 };
    const char *const end = image + (size == EGPU_NO_END ? strlen(image) : strnlen(image, size));
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
            sum = add(sum, declared(at + WORD, end));
    }
    return sum;
}

static bool inside(size_t size, uint64_t at, uint64_t bytes)
{
    return size == EGPU_NO_END ? at < 1ull << 40 && bytes < 1ull << 40 : at <= size && bytes <= size - at;
}

static uint64_t of_elf(const unsigned char *image, size_t size)
{
    Elf64_Ehdr head;
    uint64_t sum = 0;
    if (!inside(size, 0, sizeof head))
        return EGPU_NOT_TOLD;
    memcpy(&head, image, sizeof head);
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shentsize != sizeof(Elf64_Shdr) ||
        head.e_shstrndx >= head.e_shnum || !inside(size, head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr)))
        return EGPU_NOT_TOLD;
    Elf64_Shdr names, section;
    memcpy(&names, image + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    if (!inside(size, names.sh_offset, names.sh_size))
        return EGPU_NOT_TOLD;
    for (size_t i = 0; i < head.e_shnum; i++) {
        memcpy(&section, image + head.e_shoff + i * sizeof section, sizeof section);
        if (section.sh_name + sizeof ".nv.global" <= names.sh_size &&
            strncmp((const char *)image + names.sh_offset + section.sh_name, ".nv.global", 10) == 0)
            sum = add(sum, section.sh_size);
    }
    return sum;
}

/* One of the members is chosen, for the card at hand: the largest counts. */
static uint64_t of_fatbin(const unsigned char *image, size_t size)
{
    struct fatbin head;
    struct fatbin_member member;
    uint64_t most = 0;
    memcpy(&head, image, sizeof head);
    if (head.head < sizeof head || !inside(size, head.head, head.size))
        return EGPU_NOT_TOLD;
    for (uint64_t at = head.head, end = head.head + head.size; end - at >= sizeof member;) {
        memcpy(&member, image + at, sizeof member);
        if (member.head < sizeof member || member.head > end - at || member.size > end - at - member.head)
            return EGPU_NOT_TOLD;
        if (member.flags & COMPRESSED)
            return EGPU_NOT_TOLD;
        uint64_t bytes = egpu_image(image + at + member.head, member.size);
        if (bytes == EGPU_NOT_TOLD)
            return EGPU_NOT_TOLD;
        most = bytes > most ? bytes : most;
        at += member.head + member.size;
    }
    return most;
}

uint64_t egpu_image(const void *image, size_t size)
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
    if (magic == FATBIN_WRAPPER && size == EGPU_NO_END) {
        memcpy(&wrapper, at, sizeof wrapper);
        return wrapper.image ? egpu_image(wrapper.image, EGPU_NO_END) : EGPU_NOT_TOLD;
    }
    for (size_t i = 0; i < 8; i++)
        if (!at[i] || at[i] > 126 || (at[i] < 32 && !isspace(at[i])))
            return EGPU_NOT_TOLD;
    return of_text(image, size);
}

uint64_t egpu_image_file(const char *path)
{
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat about;
    uint64_t bytes = EGPU_NOT_TOLD;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0) {
        void *image = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (image != MAP_FAILED) {
            bytes = egpu_image(image, (size_t)about.st_size);
            munmap(image, (size_t)about.st_size);
        }
    }
    if (file >= 0)
        close(file);
    return bytes;
}
