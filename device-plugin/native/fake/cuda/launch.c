/* Launches: what a kernel's arguments say becomes a unit of the stream, of a length that only the card knows. */
#include "code.h"
#include "graph.h"

#include <string.h>

/* The given length, off by up to the noise: programs and library cannot know it. */
uint64_t noisy(uint64_t length) {
    static _Thread_local uint64_t seed;
    if (!seed) seed = fc_now() * 0x9E3779B97F4A7C15ull ^ (uintptr_t)&seed ^ driver.slot;
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    if (!driver.noise_percent || !length) return length;
    uint64_t spread = 2 * driver.noise_percent * 1000 + 1; /* in 1/100,000 */
    uint64_t part = 100000 - driver.noise_percent * 1000 + (seed >> 11) % spread;
    return (uint64_t)((unsigned __int128)length * part / 100000);
}

static CUresult gather(CUfunction function, void **parameters, void **extra, unsigned char *arguments, size_t room) {
    if (parameters) {
        for (size_t i = 0; i < function->parameter_count; i++) {
            if (!parameters[i] || function->offsets[i] + function->sizes[i] > room) return CUDA_ERROR_INVALID_VALUE;
            memcpy(arguments + function->offsets[i], parameters[i], function->sizes[i]);
        }
        return CUDA_SUCCESS;
    }
    const void *buffer = NULL;
    size_t bytes = 0;
    for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t *)extra[1];
        else return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes > room) return CUDA_ERROR_INVALID_VALUE;
    if (buffer) memcpy(arguments, buffer, bytes);
    return buffer || !function->parameter_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult launch_prepare(CUfunction function, void **parameters, void **extra, struct launch *launch) {
    if (!function || function->magic != MAGIC_FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
    *launch = (struct launch){.function = function, .kind = FC_KERNEL, .grid = {1, 1, 1}, .block = {1, 1, 1}};
    TRY(gather(function, parameters, extra, launch->arguments, sizeof launch->arguments));
    launch->length = driver.kernel_ns;
    if (function->what != KERNEL_OTHER) memcpy(&launch->length, launch->arguments, 8);
    if (function->what == KERNEL_MEET) {
        launch->kind = FC_MEET;
        memcpy(&launch->key, launch->arguments + 8, 8);
        memcpy(&launch->parties, launch->arguments + 16, 4);
    }
    return CUDA_SUCCESS;
}

/* What the kernel does to memory. It is done when it is launched: in the order of the program, so that whoever
 * waits for the kernel sees it. */
void launch_effect(const struct launch *launch) {
    if (launch->function->what != KERNEL_ADD) return;
    CUdeviceptr counter;
    uint64_t more, value;
    memcpy(&counter, launch->arguments + 8, 8);
    memcpy(&more, launch->arguments + 16, 8);
    pthread_mutex_lock(&driver.lock);
    bool known = block_at(counter) != NULL;
    pthread_mutex_unlock(&driver.lock);
    if (!known) return;
    content_copy((CUdeviceptr)&value, counter, 8);
    value += more;
    content_copy(counter, (CUdeviceptr)&value, 8);
}

static void meet(struct fc_unit *unit, void *with) {
    const struct launch *launch = with;
    unit->serial = launch->key;
    unit->meeting = launch->parties;
}

CUresult run_launch(CUstream stream, const struct launch *launch) {
    TRY(context_warm(stream->context));
    const size_t local = code_local_bytes(launch->function);
    if (local) TRY(context_local(stream->context, local));
    launch_effect(launch);
    struct launch copy = *launch;
    return submit(stream, launch->kind, noisy(launch->length), launch->kind == FC_MEET ? meet : NULL, &copy);
}

struct shape { unsigned grid[3], block[3], shared; };

static CUresult launch(CUfunction function, struct shape shape, CUstream handle, void **parameters, void **extra) {
    CUstream stream;
    struct launch what;
    for (int i = 0; i < 3; i++) {
        if (!shape.grid[i] || !shape.block[i]) return CUDA_ERROR_INVALID_VALUE;
    }
    if ((uint64_t)shape.block[0] * shape.block[1] * shape.block[2] > 1024) return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_of(handle, &stream));
    TRY(launch_prepare(function, parameters, extra, &what));
    memcpy(what.grid, shape.grid, sizeof what.grid);
    memcpy(what.block, shape.block, sizeof what.block);
    what.shared_bytes = shape.shared;
    rude_load(function, shape.grid);
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .launch = what};
        return capture_add(stream, &content);
    }
    return run_launch(stream, &what);
}

static CUresult launch_plain(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, CUstream stream, void **parameters, void **extra) {
    TRY(enter("cuLaunchKernel"));
    return launch(f, (struct shape){{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, extra);
}
EXPORT_TSZ(cuLaunchKernel,
           (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
            CUstream stream, void **parameters, void **extra),
           launch_plain(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra))

static CUresult launch_cooperative(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                   unsigned bz, unsigned shared, CUstream stream, void **parameters) {
    TRY(enter("cuLaunchCooperativeKernel"));
    if ((uint64_t)gx * gy * gz > 132 * 32) return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    return launch(f, (struct shape){{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, NULL);
}
EXPORT_TSZ(cuLaunchCooperativeKernel,
           (CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
            CUstream stream, void **parameters),
           launch_cooperative(f, gx, gy, gz, bx, by, bz, shared, stream, parameters))

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra, bool per_thread) {
    TRY(enter("cuLaunchKernelEx"));
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    struct shape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                          {config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes};
    CUstream stream = config->hStream;
    if (!stream) stream = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
    return launch(f, shape, stream, parameters, extra);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    return launch_ex(config, f, parameters, extra, false);
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    return launch_ex(config, f, parameters, extra, true);
}

API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned count, unsigned flags) {
    ENTER();
    if (!list || !count || flags & ~3u) return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        const CUDA_LAUNCH_PARAMS *one = &list[i];
        if (!one->hStream) return CUDA_ERROR_INVALID_VALUE;
        struct shape shape = {{one->gridDimX, one->gridDimY, one->gridDimZ},
                              {one->blockDimX, one->blockDimY, one->blockDimZ}, one->sharedMemBytes};
        TRY(launch(one->function, shape, one->hStream, one->kernelParams, NULL));
    }
    return CUDA_SUCCESS;
}

/* --- the oldest way: shape and arguments are set on the function first --------------------------- */
static _Thread_local struct { unsigned char bytes[256]; size_t size; unsigned block[3], shared; } old;

API CUresult cuFuncSetBlockShape(CUfunction f, int x, int y, int z) {
    ENTER();
    if (!f || f->magic != MAGIC_FUNCTION) return CUDA_ERROR_INVALID_HANDLE;
    old.block[0] = (unsigned)x, old.block[1] = (unsigned)y, old.block[2] = (unsigned)z;
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetSharedSize(CUfunction f, unsigned bytes) {
    ENTER();
    old.shared = bytes;
    return f ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuParamSetSize(CUfunction f, unsigned bytes) {
    ENTER();
    old.size = bytes;
    return f && bytes <= sizeof old.bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuParamSetv(CUfunction f, int offset, void *from, unsigned bytes) {
    ENTER();
    if (!f || offset < 0 || (size_t)offset + bytes > sizeof old.bytes) return CUDA_ERROR_INVALID_VALUE;
    memcpy(old.bytes + offset, from, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuParamSeti(CUfunction f, int offset, unsigned value) {
    return cuParamSetv(f, offset, &value, sizeof value);
}

API CUresult cuParamSetf(CUfunction f, int offset, float value) {
    return cuParamSetv(f, offset, &value, sizeof value);
}

static CUresult launch_old(CUfunction f, int width, int height, CUstream stream) {
    if (width < 1 || height < 1) return CUDA_ERROR_INVALID_VALUE;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, old.bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &old.size, CU_LAUNCH_PARAM_END};
    struct shape shape = {{(unsigned)width, (unsigned)height, 1},
                          {old.block[0] ? old.block[0] : 1, old.block[1] ? old.block[1] : 1, old.block[2] ? old.block[2] : 1},
                          old.shared};
    return launch(f, shape, stream, NULL, extra);
}

API CUresult cuLaunch(CUfunction f) {
    ENTER();
    return launch_old(f, 1, 1, CU_STREAM_LEGACY);
}

API CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    ENTER();
    return launch_old(f, width, height, CU_STREAM_LEGACY);
}

API CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    ENTER();
    return launch_old(f, width, height, stream ? stream : CU_STREAM_LEGACY);
}
