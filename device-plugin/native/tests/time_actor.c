/* Programs that want a card's time. What they say on stdout is JSON.
 *
 *   time_actor run SECONDS DEPTH NS[,NS...]  kernels of these lengths in random order, DEPTH launched before each wait
 *   time_actor serve SECONDS LOAD            requests of 40 kernels of 100 us, Poisson arrivals, LOAD percent of the card
 *   time_actor graph SECONDS KERNELS NS      graphs of so many kernels, captured
 *   time_actor meet SECONDS STREAMS          kernels that wait for each other on so many streams; three rounds at least
 *   time_actor threads SECONDS THREADS      each with a stream of its own, and one default stream for all
 *   time_actor beside SECONDS NS[,NS...]     a thread for each length: kernels of it, one after the other, on its stream
 *   time_actor cost ROUNDS LIBRARY           what a launch costs the program: with that library, loaded and not
 *                                            preloaded, and without it, in turn
 *   time_actor sets SECONDS BYTES            memsets and copies on the card
 *
 * Each begins when a line comes on stdin. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "actor.h"

static CUfunction spin, meet;
static uint64_t seed;

static uint64_t dice(void) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed >> 11;
}

static void launch(CUstream stream, uint64_t ns) {
    void *params[] = {&ns};
    TRY(cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
}

static void run(double seconds, int depth, const char *list) {
    uint64_t lengths[16], count = 0;
    for (char *at = strdup(list); at && count < 16; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        lengths[count++] = strtoull(at, NULL, 10);
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9);
    uint64_t launches = 0;
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (now() < end) {
        for (int i = 0; i < depth && now() < end; i++, launches++)
            launch(stream, lengths[dice() % count]);
        TRY(cuStreamSynchronize(stream));
    }
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"launches\": %lu}\n", getpid(), began, now(), launches);
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void serve(double seconds, double load) {
    enum { KERNELS = 40, LENGTH_NS = 100000, MOST = 100000 };
    static uint64_t took[MOST];
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9), due = began, count = 0;
    double mean = KERNELS * (double)LENGTH_NS * 100 / load;
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (due < end && count < MOST) {
        due += (uint64_t)(-log(((double)(dice() % 1000000) + 1) / 1000001) * mean);
        for (uint64_t at = now(); at < due; at = now())
            nanosleep(&(struct timespec){(time_t)((due - at) / 1000000000), (long)((due - at) % 1000000000)}, NULL);
        for (int i = 0; i < KERNELS; i++)
            launch(stream, LENGTH_NS);
        TRY(cuStreamSynchronize(stream));
        took[count++] = now() - due;
    }
    qsort(took, count, sizeof *took, by_size);
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"requests\": %lu, \"p50_ns\": %lu, \"p99_ns\": %lu}\n",
           getpid(), began, now(), count, took[count / 2], took[count * 99 / 100]);
}

static void graph(double seconds, int kernels, uint64_t ns) {
    CUstream stream;
    CUgraph made;
    CUgraphExec exec;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int i = 0; i < kernels; i++)
        launch(stream, ns);
    TRY(cuStreamEndCapture(stream, &made));
    size_t nodes = 0;
    TRY(cuGraphGetNodes(made, NULL, &nodes));
    TRY(cuGraphInstantiateWithFlags(&exec, made, 0));
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9), launches = 0;
    for (; now() < end; launches++)
        TRY(cuGraphLaunch(exec, stream));
    TRY(cuStreamSynchronize(stream));
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"launches\": %lu, \"nodes\": %zu}\n", getpid(), began, now(),
           launches, nodes);
}

static void rendezvous(double seconds, int parties) {
    CUstream streams[16];
    for (int i = 0; i < parties; i++)
        TRY(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9), rounds = 0, worst = 0;
    uint64_t ns = 100000, key = (uint64_t)getpid() << 32;
    for (; now() < end || rounds < 3; rounds++) {
        uint64_t start = now();
        key++;
        void *params[] = {&ns, &key, &parties};
        for (int i = 0; i < parties; i++)
            TRY(cuLaunchKernel(meet, 1, 1, 1, 32, 1, 1, 0, streams[i], params, NULL));
        for (int i = 0; i < parties; i++)
            TRY(cuStreamSynchronize(streams[i]));
        worst = now() - start > worst ? now() - start : worst;
    }
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"rounds\": %lu, \"worst_ns\": %lu}\n", getpid(), began, now(),
           rounds, worst);
}

static uint64_t threads_end;
static CUcontext threads_context;

static void *one_length(void *with) {
    const uint64_t ns = *(const uint64_t *)with;
    CUstream stream;
    TRY(cuCtxSetCurrent(threads_context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    while (now() < threads_end) {
        launch(stream, ns);
        TRY(cuStreamSynchronize(stream));
    }
    return NULL;
}

/* One thread for each length, launching units of it one after the other on a stream of its own. */
static void beside(double seconds, const char *list) {
    pthread_t handles[16];
    uint64_t lengths[16], count = 0, began = now();
    for (char *at = strdup(list); at && count < 16; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        lengths[count++] = strtoull(at, NULL, 10);
    threads_end = began + (uint64_t)(seconds * 1e9);
    TRY(cuCtxGetCurrent(&threads_context));
    for (uint64_t i = 0; i < count; i++)
        if (pthread_create(&handles[i], NULL, one_length, &lengths[i]) != 0)
            exit(1);
    for (uint64_t i = 0; i < count; i++)
        pthread_join(handles[i], NULL);
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu}\n", getpid(), began, now());
}

static void *one_thread(void *with) {
    uint64_t *launches = with;
    CUstream stream;
    TRY(cuCtxSetCurrent(threads_context));
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (; now() < threads_end; ++*launches) {
        launch(*launches % 8 ? stream : NULL, 20000);
        if (*launches % 32 == 0)
            TRY(cuStreamSynchronize(stream));
    }
    TRY(cuStreamDestroy_v2(stream));
    return NULL;
}

static void threads(double seconds, int count) {
    pthread_t handles[16];
    uint64_t launches[16] = {0}, sum = 0, began = now();
    threads_end = began + (uint64_t)(seconds * 1e9);
    TRY(cuCtxGetCurrent(&threads_context));
    for (int i = 0; i < count && i < 16; i++)
        if (pthread_create(&handles[i], NULL, one_thread, &launches[i]) != 0)
            exit(1);
    for (int i = 0; i < count && i < 16; i++) {
        pthread_join(handles[i], NULL);
        sum += launches[i];
    }
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"launches\": %lu}\n", getpid(), began, now(), sum);
}

/* CPU time of a launch: the median over batches, and percentiles of single ones, one after the other and after waits.
 * With the library and without it in turn, each first every other time: what the machine does meanwhile is in both. */
enum { BATCH = 100, WAITS = 4, WAYS = 2, POPULATE_WRITE = 23 };
typedef CUresult launch_function(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 CUstream, void **, void **);
struct costs { uint64_t *batch, *single[2]; size_t batches, singles[2]; }; /* single: as they come, after waits */

static uint64_t timed(launch_function *by, CUstream stream, int launches, uint64_t timer) {
    static uint64_t ns = 1000;
    void *params[] = {&ns};
    uint64_t at = now();
    for (int i = 0; i < launches; i++)
        TRY(by(spin, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
    uint64_t took = now() - at;
    return took > timer ? took - timer : 0;
}

/* The pages of the fake card's timeline are first touched by whoever is launching then: not while one measures. */
static void touch_timeline(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long begin, end;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "rw-s") && strstr(line, ".cuda") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            madvise((void *)begin, end - begin, POPULATE_WRITE);
    if (maps)
        fclose(maps);
}

static void measure_once(struct costs *to, launch_function *by, CUstream stream, uint64_t timer) {
    to->batch[to->batches++] = timed(by, stream, BATCH, timer) / BATCH;
    TRY(cuStreamSynchronize(stream));
    for (int i = 0; i < BATCH; i++)
        to->single[0][to->singles[0]++] = timed(by, stream, 1, timer);
    TRY(cuStreamSynchronize(stream));
    for (int i = 0; i < WAITS; i++) {
        to->single[1][to->singles[1]++] = timed(by, stream, 1, timer);
        TRY(cuStreamSynchronize(stream));
    }
}

static uint64_t percentile(uint64_t *list, size_t count, size_t percent) {
    qsort(list, count, sizeof *list, by_size);
    return list[count * percent / 100];
}

static void cost(int rounds, const char *library) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    launch_function *by[WAYS] = {cuLaunchKernel, loaded ? (launch_function *)dlsym(loaded, "cuLaunchKernel") : NULL};
    static struct costs costs[WAYS];
    uint64_t timer = UINT64_MAX;
    CUstream stream[WAYS];
    if (by[1] == NULL || by[1] == by[0]) {
        fprintf(stderr, "%s cannot be loaded: %s\n", library, dlerror());
        exit(1);
    }
    touch_timeline();
    for (int i = 0; i < 1000; i++) {
        uint64_t at = now();
        uint64_t took = now() - at;
        timer = took < timer ? took : timer;
    }
    for (int way = 0; way < WAYS; way++) {
        costs[way].batch = calloc((size_t)rounds, 8);
        costs[way].single[0] = calloc((size_t)rounds * BATCH, 8);
        costs[way].single[1] = calloc((size_t)rounds * WAITS, 8);
        TRY(cuStreamCreate(&stream[way], CU_STREAM_NON_BLOCKING));
    }
    for (int k = 0; k < rounds; k++) {
        for (int turn = 0; turn < WAYS; turn++) {
            int way = (k + turn) % WAYS;
            measure_once(&costs[way], by[way], stream[way], timer);
        }
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
    }
    printf("{\"pid\": %d, \"timer_ns\": %lu", getpid(), timer);
    for (int way = 0; way < WAYS; way++) {
        struct costs *one = &costs[way];
        printf(", \"%s\": {\"p50_ns\": %lu, \"single_p50_ns\": %lu, \"single_p99_ns\": %lu, \"waited_p50_ns\": %lu, "
               "\"waited_p99_ns\": %lu}", way ? "with" : "without", percentile(one->batch, one->batches, 50),
               percentile(one->single[0], one->singles[0], 50), percentile(one->single[0], one->singles[0], 99),
               percentile(one->single[1], one->singles[1], 50), percentile(one->single[1], one->singles[1], 99));
    }
    puts("}");
}

static void sets(double seconds, size_t bytes) {
    CUdeviceptr here, there;
    CUstream stream;
    TRY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    TRY(cuMemAlloc_v2(&here, bytes));
    TRY(cuMemAlloc_v2(&there, bytes));
    uint64_t began = now(), end = began + (uint64_t)(seconds * 1e9), launches = 0;
    for (; now() < end; launches++) {
        if (launches % 2)
            TRY(cuMemsetD8Async(here, 1, bytes, stream));
        else
            TRY(cuMemcpyDtoDAsync_v2(there, here, bytes, stream));
        if (launches % 16 == 0)
            TRY(cuStreamSynchronize(stream));
    }
    TRY(cuStreamSynchronize(stream));
    printf("{\"pid\": %d, \"from_ns\": %lu, \"to_ns\": %lu, \"launches\": %lu}\n", getpid(), began, now(), launches);
}

int main(int count, char **values) {
    static const unsigned char image[64] = {0x7f, 0x45, 1}; /* not text: the fake takes every name for a kernel of it */
    CUcontext context;
    CUmodule module;
    char line[8];
    if (count < 3)
        return 2;
    seed = (now() ^ (uint64_t)getpid() << 32) | 1;
    TRY(cuInit(0));
    TRY(cuCtxCreate_v2(&context, 0, 0));
    TRY(cuModuleLoadData(&module, image));
    TRY(cuModuleGetFunction(&spin, module, "egpu_spin"));
    TRY(cuModuleGetFunction(&meet, module, "egpu_meet"));
    puts("ready");
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        return 1;
    if (strcmp(values[1], "run") == 0 && count == 5)
        run(atof(values[2]), atoi(values[3]), values[4]);
    else if (strcmp(values[1], "serve") == 0 && count == 4)
        serve(atof(values[2]), atof(values[3]));
    else if (strcmp(values[1], "graph") == 0 && count == 5)
        graph(atof(values[2]), atoi(values[3]), strtoull(values[4], NULL, 10));
    else if (strcmp(values[1], "meet") == 0 && count == 4)
        rendezvous(atof(values[2]), atoi(values[3]));
    else if (strcmp(values[1], "threads") == 0 && count == 4)
        threads(atof(values[2]), atoi(values[3]));
    else if (strcmp(values[1], "beside") == 0 && count == 4)
        beside(atof(values[2]), values[3]);
    else if (strcmp(values[1], "cost") == 0 && count == 4)
        cost(atoi(values[2]), values[3]);
    else if (strcmp(values[1], "sets") == 0 && count == 4)
        sets(atof(values[2]), strtoull(values[3], NULL, 10));
    else
        return 2;
    return 0;
}
