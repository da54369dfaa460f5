/* Modules, libraries, functions. An image is PTX text (kernels are its .entry lines), or anything else, of which every
 * name is a kernel. Names decide what a kernel does:
 *
 *   egpu_spin(u64 ns)                         runs that long
 *   egpu_meet(u64 ns, u64 key, u32 parties)   waits until that many kernels of the key run, then runs that long
 *   egpu_add(u64 ns, u64 *counter, u64 more)  runs that long and adds to a counter in device memory
 *   any other                                 runs FAKE_CUDA_KERNEL_NS
 *
 * Variables that the text puts into .global lie on the card, in granules once they come to more than half of one.
 * Those of a library are there once, for the context that is current when it is loaded or they are first asked for. */
#define _GNU_SOURCE
#include "driver.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_MAX = 1 << 30 };

size_t type_width(const char *type) {
    if (strstr(type, "64")) return 8;
    if (strstr(type, "16")) return 2;
    return strstr(type, "8") && !strstr(type, "32") ? 1 : 4;
}

/* Parameters as the PTX text lists them: ".param .u64 name, .param .align 8 .b8 name[24]". */
static void read_parameters(struct CUfunc_st *function, const char *at, const char *end) {
    size_t offset = 0;
    while ((at = strstr(at, ".param")) && at < end && function->parameter_count < MAX_PARAMETERS) {
        at += 6;
        const char *stop = at;
        while (stop < end && *stop != ',' && *stop != ')') stop++;
        char text[128];
        snprintf(text, sizeof text, "%.*s", (int)(stop - at < 127 ? stop - at : 127), at);
        size_t align = 0, count = 1;
        char *aligned = strstr(text, ".align"), *array = strchr(text, '[');
        if (aligned) {
            align = strtoul(aligned + 6, &aligned, 10);
            memmove(text, aligned, strlen(aligned) + 1);
            array = strchr(text, '[');
        }
        if (array) count = strtoul(array + 1, NULL, 10);
        char *name = text;
        while (isspace((unsigned char)*name)) name++;
        name[strcspn(name, " \t")] = '\0';
        size_t width = type_width(name);
        if (align < width) align = width;
        offset = (offset + align - 1) / align * align;
        function->offsets[function->parameter_count] = offset;
        function->sizes[function->parameter_count++] = width * count;
        offset += width * count;
        at = stop;
    }
}

static void known_parameters(struct CUfunc_st *function) {
    static const size_t SIZES[4][3] = {{0}, {8}, {8, 8, 4}, {8, 8, 8}};
    static const size_t COUNTS[4] = {0, 1, 3, 3};
    if (function->parameter_count || function->what == KERNEL_OTHER) return;
    function->parameter_count = COUNTS[function->what];
    for (size_t i = 0; i < function->parameter_count; i++) {
        function->sizes[i] = SIZES[function->what][i];
        function->offsets[i] = i * 8;
    }
}

static CUfunction add_function(CUmodule module, const char *name, size_t length) {
    CUfunction function = calloc(1, sizeof *function), *more = NULL;
    if (module->count % 32 == 0) more = realloc(module->functions, (module->count + 32) * sizeof *more);
    else more = module->functions;
    if (!function || !more || !(function->name = strndup(name, length))) return NULL;
    module->functions = more;
    module->functions[module->count++] = function;
    function->magic = MAGIC_FUNCTION;
    function->module = module;
    function->what = strcmp(function->name, "egpu_spin") == 0 ? KERNEL_SPIN
                     : strcmp(function->name, "egpu_meet") == 0 ? KERNEL_MEET
                     : strcmp(function->name, "egpu_add") == 0 ? KERNEL_ADD : KERNEL_OTHER;
    function->attributes[0] = 1024; /* threads of a block */
    function->attributes[4] = 32;   /* registers */
    /* versions of text and code: compiled for this card */
    function->attributes[5] = function->attributes[6] = (int)(driver.cards[0].cc_major * 10 + driver.cards[0].cc_minor);
    return function;
}

static bool is_text(const unsigned char *image) {
    for (int i = 0; i < 8; i++) {
        if (!image[i]) return i > 0;
        if (image[i] > 126 || (image[i] < 32 && !isspace(image[i]))) return false;
    }
    return true;
}

/* The text in a bundle of images, the first there is; what its head says of compression is not believed. */
static const void *text_of(const void *image) {
    struct { uint32_t magic; uint16_t version, head; uint64_t size; } bundle;
    struct { uint16_t kind, version; uint32_t head; uint64_t size; } member;
    memcpy(&bundle, image, sizeof bundle);
    if (bundle.magic != 0xba55ed50u || bundle.size > 1ull << 32) return image;
    for (uint64_t at = bundle.head; at + sizeof member <= bundle.head + bundle.size;) {
        memcpy(&member, (const char *)image + at, sizeof member);
        if (is_text((const unsigned char *)image + at + member.head)) return (const char *)image + at + member.head;
        at += member.head + member.size;
    }
    return image;
}

static CUresult load(const void *image, CUcontext context, CUmodule *to) {
    if (!to || !image) return CUDA_ERROR_INVALID_VALUE;
    if (!is_text(image)) image = text_of(image);
    bool text = is_text(image);
    if (text && !strstr(image, ".version") && !strstr(image, ".entry")) return CUDA_ERROR_INVALID_PTX;
    CUmodule module = calloc(1, sizeof *module);
    if (!module) return CUDA_ERROR_OUT_OF_MEMORY;
    module->magic = MAGIC_MODULE;
    module->context = context;
    module->any = !text;
    const char *at = text ? image : "";
    while ((at = strstr(at, ".entry"))) {
        at += 6;
        while (isspace((unsigned char)*at)) at++;
        size_t length = strcspn(at, " \t\r\n({");
        CUfunction function = add_function(module, at, length);
        const char *open = strchr(at, '('), *body = strchr(at, '{');
        if (function && open && body && open < body) read_parameters(function, open, body);
        if (function) known_parameters(function);
        at += length;
    }
    if (text) variables_find(module, image);
    CUresult result = variables_place(module);
    if (result != CUDA_SUCCESS) return free(module), result;
    *to = module;
    return CUDA_SUCCESS;
}

static CUresult load_file(const char *path, CUcontext context, CUmodule *to) {
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *image = size > 0 && size <= IMAGE_MAX ? calloc(1, (size_t)size + 1) : NULL;
    size_t length = image ? fread(image, 1, (size_t)size, file) : 0;
    fclose(file);
    CUresult result = length ? load(image, context, to) : CUDA_ERROR_INVALID_IMAGE;
    free(image);
    return result;
}

static CUresult function_of(CUmodule module, const char *name, CUfunction *to) {
    if (!module || module->magic != MAGIC_MODULE) return CUDA_ERROR_INVALID_HANDLE;
    if (!name || !to) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    *to = NULL;
    for (size_t i = 0; i < module->count; i++) {
        if (strcmp(module->functions[i]->name, name) == 0) *to = module->functions[i];
    }
    pthread_mutex_unlock(&driver.lock);
    return *to ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

/* An image that is not text may hold a kernel of any name. */
static CUresult any_function(CUmodule module, const char *name, CUfunction *to) {
    CUresult result = function_of(module, name, to);
    if (result != CUDA_ERROR_NOT_FOUND || !module->any) return result;
    pthread_mutex_lock(&driver.lock);
    *to = add_function(module, name, strlen(name));
    if (*to) known_parameters(*to);
    pthread_mutex_unlock(&driver.lock);
    return *to ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuModuleLoadData(CUmodule *to, const void *image) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    return load(image, context, to);
}

API CUresult cuModuleLoadDataEx(CUmodule *to, const void *image, unsigned count, CUjit_option *options, void **values) {
    ENTER_CONTEXT(context);
    (void)count, (void)options, (void)values;
    TRY(capture_forbids());
    return load(image, context, to);
}

API CUresult cuModuleLoadFatBinary(CUmodule *to, const void *image) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    return load(image, context, to);
}

API CUresult cuModuleLoad(CUmodule *to, const char *path) {
    ENTER_CONTEXT(context);
    TRY(capture_forbids());
    return load_file(path, context, to);
}

static CUresult unload(CUmodule module) {
    if (!module || module->magic != MAGIC_MODULE) return CUDA_ERROR_INVALID_HANDLE;
    module->magic = MAGIC_DEAD; /* functions of it may be queued */
    variables_drop(module);
    return CUDA_SUCCESS;
}

API CUresult cuModuleUnload(CUmodule module) {
    ENTER();
    return unload(module);
}

API CUresult cuModuleGetFunction(CUfunction *to, CUmodule module, const char *name) {
    ENTER();
    return any_function(module, name, to);
}

API CUresult cuModuleGetFunctionCount(unsigned *count, CUmodule module) {
    ENTER();
    if (!module || module->magic != MAGIC_MODULE) return CUDA_ERROR_INVALID_HANDLE;
    *count = (unsigned)module->count;
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    ENTER();
    *mode = 2; /* lazy */
    return CUDA_SUCCESS;
}

/* --- libraries: modules of no context, kernels: functions of those ------------------------------- */
API CUresult cuLibraryLoadData(CUlibrary *to, const void *image, CUjit_option *jit, void **jit_values, unsigned jit_count,
                               CUlibraryOption *options, void **values, unsigned count) {
    ENTER();
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load(image, NULL, (CUmodule *)to);
}

API CUresult cuLibraryLoadFromFile(CUlibrary *to, const char *path, CUjit_option *jit, void **jit_values,
                                   unsigned jit_count, CUlibraryOption *options, void **values, unsigned count) {
    ENTER();
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    return load_file(path, NULL, (CUmodule *)to);
}

API CUresult cuLibraryUnload(CUlibrary library) {
    ENTER();
    return unload((CUmodule)library);
}

API CUresult cuLibraryGetKernel(CUkernel *to, CUlibrary library, const char *name) {
    ENTER();
    return any_function((CUmodule)library, name, (CUfunction *)to);
}

API CUresult cuLibraryGetModule(CUmodule *to, CUlibrary library) {
    ENTER();
    *to = (CUmodule)library;
    return CUDA_SUCCESS;
}

API CUresult cuKernelGetFunction(CUfunction *to, CUkernel kernel) {
    ENTER();
    if (!kernel || ((CUfunction)kernel)->magic != MAGIC_FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    *to = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

/* --- functions ---------------------------------------------------------------------------------- */
#define ENTER_FUNCTION(function)                                                                     \
    ENTER();                                                                                         \
    if (!(function) || (function)->magic != MAGIC_FUNCTION) return CUDA_ERROR_INVALID_HANDLE

API CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
    ENTER_FUNCTION(function);
    if (!value || which < 0 || which >= 17) return CUDA_ERROR_INVALID_VALUE;
    *value = function->attributes[which];
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) {
    ENTER_FUNCTION(function);
    if (which < 0 || which >= 17) return CUDA_ERROR_INVALID_VALUE;
    function->attributes[which] = value;
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
    ENTER_FUNCTION(function);
    (void)config;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
    ENTER_FUNCTION(function);
    *module = function->module;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetName(const char **name, CUfunction function) {
    ENTER_FUNCTION(function);
    *name = function->name;
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *size) {
    ENTER_FUNCTION(function);
    if (index >= function->parameter_count) return CUDA_ERROR_INVALID_VALUE;
    *offset = function->offsets[index];
    if (size) *size = function->sizes[index];
    return CUDA_SUCCESS;
}

API CUresult cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function) {
    ENTER_FUNCTION(function);
    *state = 1;
    return CUDA_SUCCESS;
}

API CUresult cuFuncLoad(CUfunction function) {
    ENTER_FUNCTION(function);
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared) {
    ENTER_FUNCTION(function);
    (void)shared;
    *blocks = threads > 0 && threads <= 1024 ? 2048 / threads : 0;
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int threads,
                                                                  size_t shared, unsigned flags) {
    (void)flags;
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
