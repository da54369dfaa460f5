/* Allocators as frameworks have them.
 *
 *   allocate --style pytorch|vllm|jax --mib 4096 --hold-ms 0
 *
 * pytorch: blocks of 2 and 20 MiB and larger ones, cached, up to --mib; vllm: asks what is free, takes 90 % of it as
 * mapped physical memory in granules of 2 MiB, then the very rest by plain allocation; jax: 75 % of the total at once.
 * Prints one JSON object: what the driver said, what was got, the code of the call that failed last (0: none). */
#include "program.h"

#include <string.h>

static struct program program;
static uint64_t got, calls;
static CUresult last;

static bool take(size_t bytes) {
    CUdeviceptr at;
    calls++;
    last = program.cu.cuMemAlloc(&at, bytes);
    if (last == CUDA_SUCCESS) got += bytes;
    return last == CUDA_SUCCESS;
}

/* Small ones from blocks of 2 MiB, middle ones from 20 MiB, large ones in steps of 2 MiB; freed blocks are kept. */
static void pytorch(uint64_t goal) {
    for (uint64_t turn = 0; got < goal; turn++) {
        size_t want = turn % 8 < 4 ? 2ull << 20 : turn % 8 < 7 ? 20ull << 20 : 256ull << 20;
        if (want > goal - got) want = (size_t)(goal - got);
        if (!take(want)) return;
    }
}

static bool map(size_t bytes, size_t granule) {
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, program.device}};
    CUmemAccessDesc access = {what.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at;
    CHECK(program.cu.cuMemAddressReserve(&at, bytes, granule, 0, 0));
    calls++;
    last = program.cu.cuMemCreate(&handle, bytes, &what, 0);
    if (last != CUDA_SUCCESS) return false;
    CHECK(program.cu.cuMemMap(at, bytes, 0, handle, 0));
    CHECK(program.cu.cuMemSetAccess(at, bytes, &access, 1));
    got += bytes;
    return true;
}

static void vllm(size_t available) {
    CUmemAllocationProp what = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, program.device}};
    size_t granule, rest, total;
    CHECK(program.cu.cuMemGetAllocationGranularity(&granule, &what, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (!map(available / 10 * 9 / granule * granule, granule)) return;
    CHECK(program.cu.cuMemGetInfo(&rest, &total));
    if (rest >= granule) take(rest);
}

int main(int count, char **arguments) {
    program_start(&program, count, arguments);
    const char *style = text_option(count, arguments, "style", "pytorch");
    size_t available, total;
    CHECK(program.cu.cuMemGetInfo(&available, &total));
    if (strcmp(style, "vllm") == 0) vllm(available);
    else if (strcmp(style, "jax") == 0) take(total / 4 * 3);
    else pytorch((uint64_t)option(count, arguments, "mib", 4096) << 20);
    say("{\"style\": \"%s\", \"free\": %zu, \"total\": %zu, \"got\": %llu, \"calls\": %llu, \"code\": %d}", style, available,
        total, (unsigned long long)got, (unsigned long long)calls, (int)last);
    sleep_until_ns(now_ns() + (uint64_t)option(count, arguments, "hold-ms", 0) * 1000000);
    return 0;
}
