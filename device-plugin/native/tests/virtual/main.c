/* virtual_time LIBRARY FOLDER < lines
 *
 *   card UUID BUS                                 in the order of their numbers
 *   mode fifo|slices|overlap
 *   seed N                                        all noise of the run
 *   late N                                        one of N wake-ups comes late, by up to 300 us; 0: none does
 *   change MS FILE FROM                           then a control page's bytes become those of another file
 *   program ROOT CARD BEGIN_MS END_MS run DEPTH NS[,NS...] [HOST_NS [each]]  launches without end, DEPTH of them before
 *                                                            each wait, after each of them HOST_NS of the program's own;
 *                                                            of one kernel, or each length of a kernel of its own
 *   program ROOT CARD BEGIN_MS END_MS then DEPTH NS[,NS...]  one of the first length, then DEPTH of each other
 *   program ROOT CARD BEGIN_MS END_MS beside DEPTH NS[,NS...] [one]  a thread with a stream for each length: runs of
 *                                                            it, each of a kernel of its own or all of one
 *   program ROOT CARD BEGIN_MS END_MS meet PARTIES NS        kernels that wait for each other, on as many streams
 *   program ROOT CARD BEGIN_MS END_MS graph NS               graphs of that length
 *   program ROOT CARD BEGIN_MS END_MS serve LOAD SEED        requests of 40 kernels of 100 us, Poisson arrivals
 *
 * Writes FOLDER/stretches (struct stretch), FOLDER/waits (process, from, to of each launch that took longer than
 * 10 us), FOLDER/calls (process, from, number of each launch of a kernel that called the system), and one line of JSON per program. Times are in ns. */
#include "world.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MS = 1000000, WAITED_NS = 10000, KERNELS = 40, KERNEL_NS = 100000, REQUESTS = 1 << 16, CHANGES = 16, SECOND_NS = 1000 * MS };

struct program {
    struct process process;
    int64_t begin, end;
    char kind[16];
    int64_t lengths[16];
    int length_count, depth, host_ns;
    bool one_kernel, each_its_own;
    uint64_t seed;
    uint64_t launches, recorded, requests; /* recorded: launches behind which an event was recorded */
    int64_t *took;
};
struct wait { int64_t process, from, to; };
struct waits { struct wait *list; size_t count, room; };
struct change { char path[512], from[512]; };

static const int64_t EPOCH_NS = 1000000000000;
static struct program programs[MAX_PROCESSES];
static int program_count;
static struct waits waits, calls;
static char kernels[16]; /* their addresses are the functions; the first is of all lengths */

static void note(struct waits *in, int process, int64_t from, int64_t to)
{
    if (in->count == in->room)
        in->list = realloc(in->list, (in->room = in->room * 2 + 4096) * sizeof *in->list);
    in->list[in->count++] = (struct wait){process, from, to};
}

static void waited(int process, int64_t from)
{
    int64_t to = task_now();
    if (to - from > WAITED_NS)
        note(&waits, process, from, to);
    task_lets_others();
}

static void launch_of(struct program *program, CUstream stream, char *function, void **params)
{
    int64_t from = task_now();
    uint64_t before = task_calls(), records = task_records();
    program->process.launch((CUfunction)function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL);
    program->launches++;
    program->recorded += task_records() != records;
    if (task_calls() != before)
        note(&calls, program->process.number, from, (int64_t)(task_calls() - before));
    waited(program->process.number, from);
}

static void launch(struct program *program, CUstream stream, int64_t length)
{
    launch_of(program, stream, &kernels[0], (void *[]){&length});
}

static void run(struct program *program, CUstream stream)
{
    while (task_now() < program->end) {
        for (int i = 0; i < program->depth && task_now() < program->end; i++) {
            const uint64_t which = dice((uint64_t)program->length_count);
            launch_of(program, stream, &kernels[program->each_its_own ? which : 0], (void *[]){&program->lengths[which]});
            task_works(program->host_ns);
        }
        stream_wait(stream);
    }
}

static void then(struct program *program, CUstream stream)
{
    for (int at = 0; task_now() < program->end; at += at + 1 < program->length_count) {
        for (int i = 0; i < (at ? program->depth : 1) && task_now() < program->end; i++)
            launch(program, stream, program->lengths[at]);
        stream_wait(stream);
    }
}

static void graphs(struct program *program, CUstream stream)
{
    for (; task_now() < program->end; program->launches++) {
        int64_t from = task_now();
        program->process.launch_graph((CUgraphExec)program->lengths, stream);
        waited(program->process.number, from);
    }
    stream_wait(stream);
}

static void meet(struct program *program)
{
    CUstream streams[16];
    for (int i = 0; i < program->depth; i++)
        streams[i] = stream_new(&program->process);
    while (task_now() < program->end && program->requests < REQUESTS) {
        int64_t from = task_now();
        for (int i = 0; i < program->depth; i++)
            launch_of(program, streams[i], &kernel_that_meets, (void *[]){&program->lengths[0], &program->depth});
        for (int i = 0; i < program->depth; i++)
            stream_wait(streams[i]);
        program->took[program->requests++] = task_now() - from;
    }
}

/* Arrivals are the program's own, so that the same ones come whoever else runs. */
static double between_0_and_1(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

static void serve(struct program *program, CUstream stream)
{
    double mean = (double)KERNELS * KERNEL_NS * 100 / program->depth;
    for (int64_t due = program->begin; due < program->end && program->requests < REQUESTS;) {
        due += (int64_t)(-log(between_0_and_1(&program->seed)) * mean);
        if (due > task_now())
            task_sleeps_until(due);
        for (int i = 0; i < KERNELS; i++)
            launch(program, stream, KERNEL_NS);
        stream_wait(stream);
        program->took[program->requests++] = task_now() - due;
    }
}

static void use_context(const struct program *program)
{
    static char contexts[MAX_PROCESSES]; /* their addresses are the handles */
    task_contexts()->stack[0] = (CUcontext)(void *)&contexts[program->process.number];
}

struct thread { struct program *program; int length; };

static void one_thread(void *with)
{
    const struct thread *thread = with;
    struct program *program = thread->program;
    use_context(program);
    CUstream stream = stream_new(&program->process);
    while (task_now() < program->end) {
        for (int i = 0; i < program->depth && task_now() < program->end; i++)
            launch_of(program, stream, &kernels[program->one_kernel ? 0 : thread->length], (void *[]){&program->lengths[thread->length]});
        stream_wait(stream);
    }
}

static void beside(struct program *program)
{
    struct thread threads[16];
    for (int i = 0; i < program->length_count; i++)
        threads[i] = (struct thread){program, i};
    for (int i = 1; i < program->length_count; i++)
        task_new(&program->process, one_thread, &threads[i], task_now());
    one_thread(&threads[0]);
    task_waits_until(program->end + SECOND_NS); /* nobody runs on what is ours */
}

static void body(void *with)
{
    struct program *program = with;
    use_context(program);
    CUstream stream = stream_new(&program->process);
    strcmp(program->kind, "run") == 0 ? run(program, stream)
        : strcmp(program->kind, "then") == 0 ? then(program, stream)
        : strcmp(program->kind, "beside") == 0 ? beside(program)
        : strcmp(program->kind, "meet") == 0 ? meet(program)
        : strcmp(program->kind, "graph") == 0 ? graphs(program, stream) : serve(program, stream);
}

static void write_page(void *with)
{
    struct change *change = with;
    char page[1 << 16];
    FILE *from = fopen(change->from, "rb"), *to = fopen(change->path, "r+b");
    if (from == NULL || to == NULL)
        abort();
    fwrite(page, 1, fread(page, 1, sizeof page, from), to);
    fclose(from), fclose(to);
}

/* A library of its own: the dynamic linker takes another file for another library. */
static void load(struct process *process, const char *library, const char *folder)
{
    char path[600], block[1 << 16];
    snprintf(path, sizeof path, "%s/process-%d.so", folder, process->number);
    FILE *from = fopen(library, "rb"), *to = fopen(path, "wb");
    if (from == NULL || to == NULL)
        abort();
    for (size_t got; (got = fread(block, 1, sizeof block, from)) != 0;)
        fwrite(block, 1, got, to);
    fclose(from), fclose(to);
    void *copy = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    if (copy == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    *(void **)&process->launch = dlsym(copy, "cuLaunchKernel");
    *(void **)&process->launch_graph = dlsym(copy, "cuGraphLaunch");
}

static void add_program(const char *line, const char *library, const char *folder)
{
    struct program *program = &programs[program_count];
    char root[512], lengths[256] = "";
    int used = 0;
    long begin, end, number = 0;
    if (program_count == MAX_PROCESSES ||
        sscanf(line, "program %511s %d %ld %ld %15s%n", root, &program->process.card, &begin, &end, program->kind, &used) != 5)
        abort();
    if (strcmp(program->kind, "run") == 0 || strcmp(program->kind, "then") == 0 ||
        strcmp(program->kind, "beside") == 0 || strcmp(program->kind, "meet") == 0)
        sscanf(line + used, "%d %255s %d", &program->depth, lengths, &program->host_ns), program->one_kernel = strstr(line + used, " one") != NULL,
            program->each_its_own = strstr(line + used, " each") != NULL;
    else if (strcmp(program->kind, "graph") == 0)
        sscanf(line + used, "%255s", lengths);
    else
        sscanf(line + used, "%d %ld", &program->depth, &number);
    for (char *at = lengths; *at && program->length_count < 16; at += strcspn(at, ","), at += *at == ',')
        program->lengths[program->length_count++] = atoll(at);
    program->seed = (uint64_t)number;
    program->took = malloc(REQUESTS * sizeof *program->took);
    program->process.number = program_count++;
    program->process.root = strdup(root);
    program->begin = EPOCH_NS + begin * MS, program->end = EPOCH_NS + end * MS;
    load(&program->process, library, folder);
    task_new(&program->process, body, program, program->begin);
}

static void add_change(const char *line)
{
    static struct process nobody = {.number = MAX_PROCESSES - 1, .root = ""};
    static struct change changes[CHANGES];
    static int count;
    long at;
    if (count == CHANGES || sscanf(line, "change %ld %511s %511s", &at, changes[count].path, changes[count].from) != 3)
        abort();
    task_new(&nobody, write_page, &changes[count++], EPOCH_NS + at * MS);
}

static FILE *open_in(const char *folder, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        abort();
    return file;
}

static void save(const char *folder, const char *name, const struct waits *all)
{
    FILE *file = open_in(folder, name);
    fwrite(all->list, sizeof *all->list, all->count, file);
    fclose(file);
}

int main(int count, char **values)
{
    char line[2048], first[512], second[512];
    unsigned long seed = 1, late = 0;
    int card = 0;
    if (count != 3)
        return 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (sscanf(line, "card %47s %31s", first, second) == 2 && card < MAX_CARDS)
            cards_name(card++, first, second);
        else if (sscanf(line, "mode %15s", first) == 1)
            cards_in_slices = strcmp(first, "slices") == 0, cards_side_by_side = strcmp(first, "overlap") == 0;
        else if (sscanf(line, "seed %lu", &seed) == 1 || sscanf(line, "late %lu", &late) == 1)
            tasks_seed(seed, (uint32_t)late);
        else if (strncmp(line, "program ", 8) == 0)
            add_program(line, values[1], values[2]);
        else if (strncmp(line, "change ", 7) == 0)
            add_change(line);
        else
            return 2;
    }
    tasks_run();
    FILE *file = open_in(values[2], "stretches");
    cards_save(file);
    fclose(file);
    save(values[2], "waits", &waits);
    save(values[2], "calls", &calls);
    for (int i = 0; i < program_count; i++) {
        printf("{\"launches\": %" PRIu64 ", \"recorded\": %" PRIu64 ", \"took_ns\": [", programs[i].launches, programs[i].recorded);
        for (uint64_t j = 0; j < programs[i].requests; j++)
            printf("%s%" PRId64, j ? ", " : "", programs[i].took[j]);
        printf("]}\n");
    }
    fflush(stdout);
    _exit(0); /* no clock runs any more, for what the libraries would do at an end */
}
