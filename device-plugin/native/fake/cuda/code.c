/* Local memory of kernels, as their text declares it: ".local .align 8 .b8 __local_depot0[4096];" in the body. As with a
 * real driver nothing takes it before the first launch, and then no call tells. */
#define _GNU_SOURCE
#include "code.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* Of kernels that need any; they stay when their module goes, since functions of it may be queued. */
struct need {
    CUmodule module;
    char *name;
    size_t bytes;
    struct need *next;
};
static _Atomic(struct need *) needs;

static size_t declared(const char *at, const char *end) {
    size_t bytes = 0;
    while ((at = strstr(at, ".local")) && at < end) {
        at += 6;
        const char *size = strchr(at, '[');
        if (isspace((unsigned char)*at) && size && size < at + strcspn(at, ";")) bytes += strtoul(size + 1, NULL, 10);
    }
    return bytes;
}

void code_find(CUmodule module, const char *image) {
    for (const char *at = image; (at = strstr(at, ".entry"));) {
        at += 6;
        at += strspn(at, " \t\r\n");
        const char *name = at, *next = strstr(at, ".entry");
        size_t bytes = declared(at, next ? next : at + strlen(at));
        struct need *need = bytes ? calloc(1, sizeof *need) : NULL;
        if (!need) continue;
        *need = (struct need){module, strndup(name, strcspn(name, " \t\r\n({")), bytes, needs};
        while (!atomic_compare_exchange_weak(&needs, &need->next, need)) continue;
    }
}

size_t code_local_bytes(CUfunction function) {
    for (const struct need *need = needs; need; need = need->next)
        if (need->module == function->module && need->name && strcmp(need->name, function->name) == 0)
            return need->bytes;
    return 0;
}
