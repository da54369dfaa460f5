/* Modules and libraries: the arrays that a program declares in its device code lie on the card from the moment its
 * image is loaded. What an image puts into global memory is charged here: by what it says itself, or, where it is
 * compressed, by what the driver says of each variable that the program asks for. Code and small variables are part of
 * what a context takes, or of what the agent sees beyond all charges: how much the driver takes for them no call tells. */
#include "image.h"
#include "memory.h"

/* --- loading --- */

enum { SMALL = 4096 }; /* what comes to less is part of the context */

/* Charges `bytes` of that image, unless that is done; CUDA_ERROR_OUT_OF_MEMORY: nothing is charged. */
static CUresult keep(enum egpu_kind kind, uint64_t key, uint64_t image, int card, uint64_t bytes, uint64_t managed,
                     bool charged)
{
    const struct egpu_track track = {.key = key, .kind = kind, .card = card, .bytes = bytes, .managed = managed,
                                     .context = egpu_current_context(), .other = image, .shared = -1, .references = 1};
    CUresult result = charged ? CUDA_SUCCESS : egpu_charge(card, bytes, managed);
    if (result != CUDA_SUCCESS || egpu_put(&track))
        return result;
    egpu_discharge(card, bytes, managed);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t pages(uint64_t bytes)
{
    if (bytes > EGPU_GRANULE / 2)
        return egpu_round(bytes);
    return bytes <= SMALL ? 0 : egpu_add(bytes, SMALL - 1) & ~(uint64_t)(SMALL - 1);
}

/* `charged`: that is done, and `card` is whose. */
static CUresult loaded(CUresult result, void *handle, uint64_t bytes, CUresult (*unload)(void *), int card, bool charged)
{
    const bool told = bytes != EGPU_NOT_TOLD;
    if (card == EGPU_NO_LIMITS && (!told || pages(bytes))) /* a library: into which contexts it goes will be seen */
        egpu_put(&(struct egpu_track){.key = (uint64_t)(uintptr_t)handle, .kind = EGPU_IMAGE, .card = EGPU_NO_CARD,
                                      .other = 1, .shared = -1, .references = 1});
    if (card < 0 || (told && !pages(bytes)))
        return result;
    result = keep(EGPU_IMAGE, (uint64_t)(uintptr_t)handle, !told, card, told ? pages(bytes) : 0, 0, charged);
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
    if (result == CUDA_SUCCESS &&                                                 \
        (result = loaded(result, *(to), bytes, unload, egpu_charged_current(), false)) != CUDA_SUCCESS) \
        *(to) = NULL;                                                             \
    return result
/* A file can be read before: what does not fit never is on the card. */
#define LOAD_FILE(name, to, path, unload, values)                                 \
    EGPU_DRIVER(real, name);                                                      \
    const uint64_t bytes = egpu_image_file(path);                                 \
    const int card = egpu_charged_current();                                      \
    const uint64_t ahead = card >= 0 && bytes != EGPU_NOT_TOLD ? pages(bytes) : 0; \
    CUresult result = egpu_charge(card < 0 ? EGPU_NO_LIMITS : card, ahead, 0);    \
    if (result != CUDA_SUCCESS)                                                   \
        return result;                                                            \
    result = real->name values;                                                   \
    if (result != CUDA_SUCCESS)                                                   \
        egpu_discharge(card, ahead, 0);                                           \
    else if ((result = loaded(result, *(to), bytes, unload, card, ahead)) != CUDA_SUCCESS) \
        *(to) = NULL;                                                             \
    return result

EGPU_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD_FILE(cuModuleLoad, module, path, unload_module, (module, path));
}

EGPU_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, module, egpu_image(image, EGPU_NO_END), unload_module, (module, image));
}

EGPU_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, CUjit_option *options,
                                        void **values)
{
    LOAD(cuModuleLoadDataEx, module, egpu_image(image, EGPU_NO_END), unload_module, (module, image, count, options, values));
}

EGPU_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadFatBinary, module, egpu_image(image, EGPU_NO_END), unload_module, (module, image));
}

EGPU_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *jit, void **jit_values,
                                       unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    LOAD(cuLibraryLoadData, library, egpu_image(image, EGPU_NO_END), unload_library,
         (library, image, jit, jit_values, jit_count, options, values, count));
}

EGPU_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *jit, void **jit_values,
                                           unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    LOAD_FILE(cuLibraryLoadFromFile, library, path, unload_library,
              (library, path, jit, jit_values, jit_count, options, values, count));
}

/* --- variables of an image that did not tell --- */

static CUresult found(CUresult result, void *image, CUdeviceptr at, uint64_t bytes, bool managed)
{
    struct egpu_track track;
    if (result != CUDA_SUCCESS || !pages(bytes) || egpu_get(EGPU_VARIABLE, at, &track) ||
        !egpu_get(EGPU_IMAGE, (uint64_t)(uintptr_t)image, &track) || (!track.other && !managed))
        return result;
    const int card = egpu_charged_current();
    bytes = pages(bytes);
    return card < 0 ? result : keep(EGPU_VARIABLE, at, track.key, card, managed ? 0 : bytes, managed ? bytes : 0, false);
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
