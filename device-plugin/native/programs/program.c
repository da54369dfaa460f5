#define _GNU_SOURCE
#include "program.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__asm__(".section .rodata\n"
        ".global kernels_ptx\n"
        "kernels_ptx: .incbin \"programs/kernels.ptx\"\n"
        ".byte 0\n"
        ".previous\n");
extern const char kernels_ptx[];

void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

void program_check(CUresult result, const char *call) {
    if (result == CUDA_SUCCESS) return;
    say("error %d from %s", (int)result, call);
    exit(result == CUDA_ERROR_OUT_OF_MEMORY ? 3 : 1);
}

static const char *argument(int count, char **arguments, const char *name) {
    for (int i = 1; i < count; i++) {
        if (strncmp(arguments[i], "--", 2) == 0 && strcmp(arguments[i] + 2, name) == 0) {
            return i + 1 < count ? arguments[i + 1] : "";
        }
    }
    return NULL;
}

const char *text_option(int count, char **arguments, const char *name, const char *otherwise) {
    const char *text = argument(count, arguments, name);
    return text ? text : otherwise;
}

long long option(int count, char **arguments, const char *name, long long otherwise) {
    const char *text = argument(count, arguments, name);
    return text ? strtoll(text, NULL, 0) : otherwise;
}

bool flag(int count, char **arguments, const char *name) {
    return argument(count, arguments, name) != NULL;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void sleep_until_ns(uint64_t at) {
    struct timespec until = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0) {}
}

#ifdef DIRECT
static void find_calls(struct calls *cu) {
#define X(name, symbol) cu->name = symbol;
    PROGRAM_CALLS(X)
#undef X
}
#else
static void find_calls(struct calls *cu) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        say("no driver: %s", dlerror());
        exit(2);
    }
    const char *how = getenv("EGPU_LOOKUP");
    if (how && strcmp(how, "proc") == 0) {
        __typeof__(cuGetProcAddress_v2) *look_up;
        CUdriverProcAddressQueryResult status;
        *(void **)&look_up = dlsym(library, "cuGetProcAddress_v2");
#define X(name, symbol) program_check(look_up(#name, (void **)&cu->name, 12000, 0, &status), "cuGetProcAddress " #name);
        PROGRAM_CALLS(X)
#undef X
        return;
    }
#define X(name, symbol) *(void **)&cu->name = dlsym(library, #symbol);
    PROGRAM_CALLS(X)
#undef X
}
#endif

void program_start(struct program *program, int count, char **arguments) {
    find_calls(&program->cu);
    const struct calls *cu = &program->cu;
    CHECK(cu->cuInit(0));
    CHECK(cu->cuDeviceGet(&program->device, (int)option(count, arguments, "device", 0)));
    CHECK(cu->cuDevicePrimaryCtxRetain(&program->context, program->device));
    CHECK(cu->cuCtxSetCurrent(program->context));
    CHECK(cu->cuModuleLoadData(&program->module, kernels_ptx));
    CHECK(cu->cuModuleGetFunction(&program->spin, program->module, "egpu_spin"));
    CHECK(cu->cuModuleGetFunction(&program->add, program->module, "egpu_add"));
    CHECK(cu->cuModuleGetFunction(&program->meet, program->module, "egpu_meet"));
}

void launch_spin(struct program *program, CUstream stream, uint64_t ns) {
    void *arguments[] = {&ns};
    CHECK(program->cu.cuLaunchKernel(program->spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

void launch_add(struct program *program, CUstream stream, uint64_t ns, CUdeviceptr counter, uint64_t more) {
    void *arguments[] = {&ns, &counter, &more};
    CHECK(program->cu.cuLaunchKernel(program->add, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}

void launch_meet(struct program *program, CUstream stream, uint64_t ns, CUdeviceptr key, uint32_t parties) {
    void *arguments[] = {&ns, &key, &parties};
    CHECK(program->cu.cuLaunchKernel(program->meet, 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL));
}
