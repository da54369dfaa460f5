/* fuzz_images STEPS: images that are cut, garbled and glued together, each in a piece of memory of exactly its size. Built
 * with sanitizers; prints how many said what they need. */
#include "../lib/memory/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 88172645463325252u;
static uint64_t next(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static const char *const TEXTS[] = {
    ".version 8.0\n.target sm_90\n.visible .global .align 16 .b8 table[1048576];\n.visible .entry f() { ret; }\n",
    ".version 8.0\n// .global .b8 x[5];\n.extern .global .b8 y[];\n.global .v4 .f32 z[4][5] = {1, 2};\n",
    ".version 8.0\n.entry f(.param .u64 .ptr .global .align 8 p) { ld.global.u32 %r1, [%rd1]; }\n.global .f16x2 w[3];\n",
};
enum { MOST = 4096 };

static size_t text(unsigned char *to) {
    const char *from = TEXTS[next(3)];
    memcpy(to, from, strlen(from));
    return strlen(from);
}

static size_t object(unsigned char *to) {
    static const char names[] = "\0.nv.global\0.nv.global.init";
    uint64_t head[8] = {0x00010102464c457fu, 0, 0, 0, 0, 128, 0, 0}, section[8] = {0};
    head[7] = 64ull << 16 << 16 | 0; /* e_shentsize at 58, e_shnum at 60, e_shstrndx at 62 */
    memcpy(to, head, 64);
    memcpy(to + 58, (uint16_t[]){64, 2, 1}, 6);
    memcpy(to + 40, (uint64_t[]){128}, 8);
    memcpy(to + 64, names, sizeof names);
    memset(to + 128, 0, 64);
    memcpy(to + 128, (uint32_t[]){1, 8}, 8);
    memcpy(to + 160, (uint64_t[]){next(1 << 30)}, 8);
    section[3] = 64, section[4] = sizeof names;
    memcpy(to + 192, section, 64);
    return 256;
}

static size_t bundle(unsigned char *to) {
    size_t at = 16;
    for (uint64_t members = next(4); members-- && at + 700 < MOST;) {
        size_t size = next(2) ? text(to + at + 64) : object(to + at + 64);
        memset(to + at, 0, 64);
        memcpy(to + at, (uint16_t[]){1, 1}, 4);
        memcpy(to + at + 4, (uint32_t[]){64}, 4);
        memcpy(to + at + 8, (uint64_t[]){size}, 8);
        if (next(8) == 0) to[at + 41] = 0x20;
        at += 64 + size;
    }
    memcpy(to, (uint32_t[]){0xba55ed50u}, 4);
    memcpy(to + 4, (uint16_t[]){1, 16}, 4);
    memcpy(to + 8, (uint64_t[]){at - 16}, 8);
    return at;
}

int main(int count, char **values) {
    long told = 0, steps = count > 1 ? atol(values[1]) : 1000;
    for (long i = 0; i < steps; i++) {
        unsigned char made[MOST];
        size_t size = next(3) == 0 ? text(made) : next(2) ? object(made) : bundle(made);
        if (next(2)) size = next(size + 1);
        for (uint64_t change = next(4); change-- && size;) made[next(size)] = (unsigned char)(next(3) ? next(256) : 255);
        unsigned char *exact = malloc(size ? size : 1);
        memcpy(exact, made, size);
        told += egpu_image(exact, size) != EGPU_NOT_TOLD;
        free(exact);
    }
    printf("%ld\n", told);
    return 0;
}
