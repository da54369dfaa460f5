/* Commands of memory_actor.c that take several threads, and the one that watches how much is in use. */

/* Several threads at once, each with its own things from `first` on. */
struct threaded { size_t first, rounds; int result; CUcontext context; };
static void *allocate_threaded(void *data)
{
    struct threaded *mine = data;
    cu.cuCtxSetCurrent(mine->context);
    for (size_t i = 0; i < mine->rounds && !mine->result; i++) {
        CUdeviceptr plain = 0, pooled = 0;
        size_t left, total;
        int one = cu.cuMemAlloc_v2(&plain, (i * 7919 + mine->first) % 9000000 + 1);
        int two = cu.cuMemAllocAsync(&pooled, i % 4000000 + 1, CU_STREAM_PER_THREAD);
        cu.cuMemGetInfo_v2(&left, &total);
        if ((one && one != CUDA_ERROR_OUT_OF_MEMORY) || (two && two != CUDA_ERROR_OUT_OF_MEMORY))
            mine->result = one ? one : two;
        if (!two)
            mine->result = mine->result ? mine->result : (int)cu.cuMemFreeAsync(pooled, CU_STREAM_PER_THREAD);
        if (!one)
            mine->result = mine->result ? mine->result : (int)cu.cuMemFree_v2(plain);
        cu.cuStreamSynchronize(CU_STREAM_PER_THREAD);
    }
    return NULL;
}

/* All threads at once, round after round: what is small lands in one piece that each of them may find first. */
static pthread_barrier_t together;
static void *allocate_together(void *data)
{
    struct threaded *mine = data;
    cu.cuCtxSetCurrent(mine->context);
    for (size_t i = 0; i < mine->rounds; i++) {
        CUdeviceptr small = 0;
        pthread_barrier_wait(&together);
        int result = cu.cuMemAlloc_v2(&small, 512);
        pthread_barrier_wait(&together);
        result = result ? result : (int)cu.cuMemFree_v2(small);
        mine->result = mine->result ? mine->result : result;
    }
    return NULL;
}

/* As many pieces of a pool as there are threads, again and again: each may have one, and one is looking on. */
static void *allocate_pieces(void *data)
{
    enum { PIECE = 32 << 20 };
    struct threaded *mine = data;
    cu.cuCtxSetCurrent(mine->context);
    for (size_t i = 0; i < mine->rounds; i++) {
        CUdeviceptr pooled = 0;
        size_t left, total;
        pthread_barrier_wait(&together);
        int result = cu.cuMemAllocAsync(&pooled, PIECE, CU_STREAM_PER_THREAD);
        if (mine->first == 0)
            cu.cuMemGetInfo_v2(&left, &total);
        if (!result)
            cu.cuMemFreeAsync(pooled, CU_STREAM_PER_THREAD);
        cu.cuStreamSynchronize(CU_STREAM_PER_THREAD);
        mine->result = mine->result ? mine->result : result;
    }
    return NULL;
}

/* One passes memory on while another maps it and lets go of it: charged for as long as it is mapped, not longer. */
static void *pass_on_and_map(void *data)
{
    enum { BYTES = 4 << 20, MAPPINGS = 8 };
    static CUmemGenericAllocationHandle handle;
    static CUdeviceptr at;
    const CUmemAllocationProp here = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
    struct threaded *mine = data;
    const bool first = mine->first == 0;
    size_t free = 0, mapped = 0, after = 0, total;
    int result = cu.cuCtxSetCurrent(mine->context), file = -1;
    for (size_t i = 0; i < mine->rounds; i++) {
        if (first) {
            result = result ? result : (int)cu.cuMemAddressReserve(&at, BYTES, 0, 0, 0);
            result = result ? result : (int)cu.cuMemGetInfo_v2(&free, &total);
            result = result ? result : (int)cu.cuMemCreate(&handle, BYTES, &here, 0);
        }
        pthread_barrier_wait(&together);
        if (first)
            result = result ? result : (int)cu.cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        for (int j = 0; !first && j < MAPPINGS; j++) {
            result = result ? result : (int)cu.cuMemMap(at, BYTES, 0, handle, 0);
            result = result || j == MAPPINGS - 1 ? result : (int)cu.cuMemUnmap(at, BYTES);
        }
        pthread_barrier_wait(&together);
        if (first) {
            close(file);
            result = result ? result : (int)cu.cuMemRelease(handle);
            result = result ? result : (int)cu.cuMemGetInfo_v2(&mapped, &total);
            result = result ? result : (int)cu.cuMemUnmap(at, BYTES);
            result = result ? result : (int)cu.cuMemGetInfo_v2(&after, &total);
            result = result ? result : (int)cu.cuMemAddressFree(at, BYTES);
            result = result ? result : free - mapped != BYTES ? CUDA_ERROR_UNKNOWN : after != free ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
        }
        mine->result = mine->result ? mine->result : result;
    }
    return NULL;
}

/* Each wants the primary context, of which there is one. */
static void *retain_together(void *data)
{
    struct threaded *mine = data;
    for (size_t i = 0; i < mine->rounds; i++) {
        CUcontext context;
        pthread_barrier_wait(&together);
        int result = cu.cuDevicePrimaryCtxRetain(&context, 0);
        pthread_barrier_wait(&together);
        result = result ? result : (int)cu.cuDevicePrimaryCtxRelease_v2(0);
        mine->result = mine->result ? mine->result : result;
    }
    return NULL;
}

/* Each makes contexts and ends them, all but the last, in which it has 4 MiB. */
static void *contexts_in_turn(void *data)
{
    struct threaded *mine = data;
    CUcontext context = NULL;
    for (size_t i = 0; i < mine->rounds && !mine->result; i++) {
        CUdeviceptr pointer;
        int result = context ? cu.cuCtxDestroy_v2(context) : CUDA_SUCCESS;
        result = result ? result : (int)cu.cuCtxCreate_v2(&context, 0, 0);
        result = result ? result : (int)cu.cuMemAlloc_v2(&pointer, 4 << 20);
        mine->result = result;
    }
    return NULL;
}

/* One that looks how much is free is cancelled, again and again, wherever it is just then. */
static void *look_until_cancelled(void *context)
{
    size_t left, total;
    for (cu.cuCtxSetCurrent(context);; pthread_testcancel())
        cu.cuMemGetInfo_v2(&left, &total);
    return NULL;
}

static int cancelled(size_t rounds)
{
    for (size_t i = 0; i < rounds; i++) {
        pthread_t thread;
        CUdeviceptr pointer;
        pthread_create(&thread, NULL, look_until_cancelled, contexts[0]);
        usleep(1000 + i % 7 * 100);
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        int result = cu.cuMemAlloc_v2(&pointer, 1 << 20);
        result = result ? result : (int)cu.cuMemFree_v2(pointer);
        if (result)
            return result;
    }
    return 0;
}

static int threads(size_t count, size_t rounds, void *(*run)(void *))
{
    pthread_t ids[16];
    struct threaded data[16];
    int result = 0;
    count = count < 16 ? count : 16;
    pthread_barrier_init(&together, NULL, (unsigned)count);
    for (size_t i = 0; i < count; i++) {
        data[i] = (struct threaded){i * 1000, rounds, 0, contexts[0]};
        pthread_create(&ids[i], NULL, run, &data[i]);
    }
    for (size_t i = 0; i < count; i++) {
        pthread_join(ids[i], NULL);
        result = result ? result : data[i].result;
    }
    pthread_barrier_destroy(&together);
    return result;
}

static _Atomic size_t peak;
static void *watch(void *context)
{
    cu.cuCtxSetCurrent(context);
    for (size_t left, total; cu.cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS; usleep(200))
        if (total - left > atomic_load(&peak))
            atomic_store(&peak, total - left);
    return NULL;
}
