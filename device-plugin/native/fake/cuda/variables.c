/* Variables that an image puts into .global, and its code behind them. */
#include "code.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ".global .align 4 .b8 table[4096]", also with several dimensions: its bytes and where its name is. */
static size_t variable_bytes(const char *at, const char **name, size_t *name_length) {
    size_t bytes = 0, vector = 1;
    const char *end = at + strcspn(at, ";={");
    for (at += strspn(at, " \t\r\n"); at < end && *at == '.'; at += strspn(at, " \t\r\n")) {
        char word[16];
        size_t length = strcspn(at, " \t\r\n");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        at += length;
        if (strcmp(word, ".align") == 0) {
            at += strspn(at, " \t\r\n");
            at += strspn(at, "0123456789");
        } else if (word[1] == 'v' && isdigit((unsigned char)word[2])) {
            vector = (size_t)(word[2] - '0');
        } else {
            bytes = type_width(word);
        }
    }
    *name = at;
    *name_length = strcspn(at, " \t\r\n[;={");
    bytes *= vector;
    while ((at = strchr(at, '[')) && at < end) bytes *= strtoul(++at, NULL, 0);
    return bytes;
}

static bool begins_word(const char *image, const char *at) {
    return at == image || isspace((unsigned char)at[-1]) || at[-1] == ';' || at[-1] == '}';
}

void variables_find(CUmodule module, const char *image) {
    for (const char *at = image; (at = strstr(at, ".global")); at += 7) {
        if (!begins_word(image, at) || !isspace((unsigned char)at[7])) continue;
        const char *name;
        size_t length, more = variable_bytes(at + 7, &name, &length);
        if (module->variable_count < MAX_VARIABLES && length < sizeof module->variables[0].name) {
            struct variable *variable = &module->variables[module->variable_count++];
            *variable = (struct variable){.at = module->variable_bytes, .bytes = more};
            memcpy(variable->name, name, length);
        }
        module->variable_bytes += more;
    }
    const size_t code = strlen(image); /* little of it is part of what a context takes */
    if (code > FC_GRANULE / 2) module->variable_bytes += code;
    code_find(module, image);
}

/* A library's are placed when there is a context for them. */
CUresult variables_place(CUmodule module) {
    CUcontext context = module->context;
    const size_t bytes = module->variable_bytes;
    if (!bytes || module->space || (!context && current(&context) != CUDA_SUCCESS)) return CUDA_SUCCESS;
    module->charged = bytes > FC_GRANULE / 2 ? granules(bytes) : 0;
    TRY(charge(context->card, module->charged));
    context->charged += module->charged; /* goes with the context, if not before */
    module->home = context;
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = space_take(bytes), .bytes = bytes, .kind = BLOCK_DEVICE, .context = context,
                          .device = context->device};
    if (block.base && block_add(block)) module->space = block.base;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

void variables_drop(CUmodule module) {
    if (!module->home || module->home->magic != MAGIC_CONTEXT) return;
    discharge(module->home->card, module->charged);
    module->home->charged -= module->charged;
    pthread_mutex_lock(&driver.lock);
    if (module->space && block_at(module->space)) {
        space_give(module->space, block_at(module->space)->bytes);
        block_remove(module->space);
    }
    pthread_mutex_unlock(&driver.lock);
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *to, size_t *bytes, CUmodule module, const char *name) {
    ENTER();
    if (!module || module->magic != MAGIC_MODULE) return CUDA_ERROR_INVALID_HANDLE;
    TRY(variables_place(module));
    for (size_t i = 0; name && module->space && i < module->variable_count; i++) {
        if (strcmp(module->variables[i].name, name) != 0) continue;
        if (to) *to = module->space + module->variables[i].at;
        if (bytes) *bytes = module->variables[i].bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuLibraryGetGlobal(CUdeviceptr *to, size_t *bytes, CUlibrary library, const char *name) {
    return cuModuleGetGlobal_v2(to, bytes, (CUmodule)library, name);
}
