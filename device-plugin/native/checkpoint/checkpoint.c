/* egpu-checkpoint VERB PID[:START]...: takes the GPU memory of running processes to the host, and back.
 *
 *   suspend   locks all of the processes, then checkpoints all of them; any failure takes back what was done
 *   resume    from whatever state each is in back to running
 *   state     only says
 *
 * Several processes are locked at the same moment: one whose kernel waits for a kernel of another is not locked before
 * that one is launched. Where that does not succeed all go on for a while, and it is tried again until --lock-ms is over.
 *
 * --signal USR1|USR2|TSTP and --drain-ms: the program can come to rest between two steps. See signals.h.
 *
 * START is a process's start time in clock ticks: one that has another by now is not touched. Processes without CUDA
 * state are passed over. Each verb may be repeated, also after one of its own runs was cut off. On SIGTERM `suspend`
 * takes back what was done, `resume` goes on.
 *
 * One line of JSON on stdout (and in the files of --result, two at most):
 *   {"version":1,"verb":"suspend","ok":true,"error":"","ms":12,"states":{"123":"checkpointed","124":"none"}}
 * Exit status: 0 done; 1 not done, every process is as it was or running; 2 wrong use, or no such driver;
 * 3 not done, and some process could not be brought back. Needs root, and to see the processes. */
#define _GNU_SOURCE
#include "../include/egpu_cuda.h"
#include "signals.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_PROCESSES = 128, MAX_WORDS = MAX_PROCESSES + 16, MAX_TEXT = 8192, LOCK_MS = 10000, MAX_MS = 600000, RESULTS = 2 };
enum { TRIES = 8, LEAST_TRY_MS = 50, LOOK_MS = 5, SLACK_MS = 1000 }; /* at locking several processes */
enum { DONE = 0, NOT_DONE = 1, UNUSABLE = 2, STRANDED = 3 };
enum state { NONE = -2, GONE = -1, RUNNING = 0, LOCKED, CHECKPOINTED, FAILED };

struct process {
    int pid;
    unsigned long long start; /* 0: not known, any will do */
    enum state state;
    long long try_ms; /* to lock it: for so long at most */
    CUresult code;    /* of that */
    _Atomic bool answered;
    bool told;        /* it was asked to come to rest, and has not been let go since */
};

struct request {
    const char *verb, *library, *results[RESULTS];
    unsigned long long lock_ms, drain_ms;
    int signal; /* 0: the program cannot come to rest */
};

static struct {
    __typeof__(cuInit) *init;
    __typeof__(cuGetErrorName) *name_of;
    __typeof__(cuCheckpointProcessGetState) *state;
    __typeof__(cuCheckpointProcessLock) *lock;
    __typeof__(cuCheckpointProcessCheckpoint) *checkpoint;
    __typeof__(cuCheckpointProcessRestore) *restore;
    __typeof__(cuCheckpointProcessUnlock) *unlock;
} cuda;

static struct process processes[MAX_PROCESSES];
static int process_count;
static char error[512]; /* the first one */
static volatile sig_atomic_t told_to_end;

static void on_signal(int number) {
    (void)number;
    told_to_end = 1;
}

__attribute__((format(printf, 1, 2))) static bool fail(const char *format, ...) {
    if (error[0]) return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error, sizeof error, format, arguments);
    va_end(arguments);
    return false;
}

static bool refused(const char *call, int pid, CUresult code) {
    const char *name = NULL;
    if (cuda.name_of(code, &name) != CUDA_SUCCESS || !name) name = "unknown";
    return fail("%s of process %d: %d (%s)%s", call, pid, (int)code, name,
                code == CUDA_ERROR_NOT_SUPPORTED ? ": it has memory that is managed, or shared between processes" : "");
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void pause_ms(long long ms) {
    struct timespec how = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&how, NULL);
}

/* --- the processes ------------------------------------------------------------------------------ */

static bool is_there(const struct process *one) {
    unsigned long long start = process_start(one->pid);
    return start != 0 && (!one->start || one->start == start);
}

/* False: not even that can be told. */
static bool look(struct process *one) {
    if (!is_there(one)) {
        one->state = GONE;
        return true;
    }
    CUprocessState state = CU_PROCESS_STATE_RUNNING;
    CUresult code = cuda.state(one->pid, &state);
    if (code == CUDA_ERROR_INVALID_VALUE || code == CUDA_ERROR_NOT_INITIALIZED) {
        one->state = NONE; /* the driver knows no such process */
        return true;
    }
    if (code != CUDA_SUCCESS) return refused("cuCheckpointProcessGetState", one->pid, code);
    one->state = (enum state)state;
    return true;
}

static bool look_at_all(void) {
    bool known = true;
    for (int i = 0; i < process_count; i++) known &= look(&processes[i]);
    return known;
}

/* After a call failed: a process that ended meanwhile is no failure. */
static bool bear(struct process *one, const char *call, CUresult code) {
    if (!is_there(one)) {
        one->state = GONE;
        return true;
    }
    return refused(call, one->pid, code);
}

/* --- the verbs ---------------------------------------------------------------------------------- */

static void *lock_one(void *given) {
    struct process *one = given;
    CUcheckpointLockArgs how = {.timeoutMs = (unsigned)one->try_ms};
    one->code = cuda.lock(one->pid, &how);
    atomic_store(&one->answered, true);
    return NULL;
}

/* What of one try has been locked goes on. Whether all of it does. */
static bool unlock_all(void) {
    bool well = true;
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state != LOCKED) continue;
        CUresult code = cuda.unlock(one->pid, NULL);
        if (code == CUDA_SUCCESS) one->state = RUNNING;
        else well &= bear(one, "cuCheckpointProcessUnlock", code);
    }
    return well;
}

static bool all_answered(void) {
    for (int i = 0; i < process_count; i++)
        if (!atomic_load(&processes[i].answered)) return false;
    return true;
}

/* All that run, at the same moment. Some drivers answer nothing about a process while another one that it shares memory
 * with is locked, whatever the time limit: those that are locked go on then. */
static bool lock_once(long long try_ms) {
    static pthread_t threads[MAX_PROCESSES];
    static bool begun[MAX_PROCESSES];
    long long until = now_ms() + try_ms + SLACK_MS;
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        one->try_ms = one->state == RUNNING ? try_ms : 0;
        begun[i] = false;
        one->code = CUDA_SUCCESS;
        atomic_store(&one->answered, one->try_ms == 0);
    }
    for (int i = 0; i < process_count; i++)
        if (processes[i].try_ms && process_count > 1) begun[i] = pthread_create(&threads[i], NULL, lock_one, &processes[i]) == 0;
    for (int i = 0; i < process_count; i++)
        if (processes[i].try_ms && !begun[i]) lock_one(&processes[i]);
    while (!all_answered() && now_ms() < until) pause_ms(1);
    bool stuck = !all_answered();
    for (int i = 0; stuck && i < process_count; i++)
        if (processes[i].try_ms && atomic_load(&processes[i].answered) && processes[i].code == CUDA_SUCCESS)
            cuda.unlock(processes[i].pid, NULL);
    for (int i = 0; i < process_count; i++)
        if (begun[i]) pthread_join(threads[i], NULL);
    for (int i = 0; i < process_count; i++)
        if (processes[i].try_ms && processes[i].code == CUDA_SUCCESS) processes[i].state = LOCKED;
    return !stuck;
}

/* The first that was not locked by the last try; NULL: all were. Those that ended meanwhile are passed over. */
static struct process *not_locked(void) {
    struct process *found = NULL;
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state != RUNNING) continue;
        if (!is_there(one)) one->state = GONE;
        else if (!found || found->code == CUDA_ERROR_NOT_READY) found = one;
    }
    return found;
}

static bool lock_all(long long lock_ms) {
    long long until = now_ms() + lock_ms, try_ms = process_count > 1 ? lock_ms / TRIES : lock_ms;
    for (int i = 0; i < process_count; i++)
        if (processes[i].state == FAILED) return fail("process %d is in the driver's state \"failed\"", processes[i].pid);
    if (try_ms < LEAST_TRY_MS) try_ms = LEAST_TRY_MS < lock_ms ? LEAST_TRY_MS : lock_ms;
    for (;;) {
        if (told_to_end) return fail("told to end");
        if (!lock_once(try_ms)) return fail("the driver answers nothing about one process while another one is locked");
        struct process *one = not_locked();
        if (!one) return true;
        if (one->code != CUDA_ERROR_NOT_READY) return refused("cuCheckpointProcessLock", one->pid, one->code);
        if (now_ms() + try_ms > until)
            return fail("process %d was not locked within %lld ms: its work in flight does not end%s", one->pid, lock_ms,
                        process_count > 1 ? ", or waits for another process" : "");
        if (!unlock_all()) return false;
        pause_ms(try_ms / 2); /* for them to get to where they wait for nobody */
    }
}

static bool checkpoint_all(void) {
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state != LOCKED) continue;
        if (told_to_end) return fail("told to end");
        CUresult code = cuda.checkpoint(one->pid, NULL);
        if (code == CUDA_SUCCESS) one->state = CHECKPOINTED;
        else if (!bear(one, "cuCheckpointProcessCheckpoint", code)) return false;
    }
    return true;
}

/* All memory first, then all of them go on: ranks that wait for each other begin together. */
static bool bring_back(void) {
    bool well = true;
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state == FAILED) well &= fail("process %d is in the driver's state \"failed\"", one->pid);
        if (one->state != CHECKPOINTED) continue;
        CUresult code = cuda.restore(one->pid, NULL);
        if (code == CUDA_SUCCESS) one->state = LOCKED;
        else well &= bear(one, "cuCheckpointProcessRestore", code);
    }
    for (int i = 0; well && i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state != LOCKED) continue;
        CUresult code = cuda.unlock(one->pid, NULL);
        if (code == CUDA_SUCCESS) one->state = RUNNING;
        else well &= bear(one, "cuCheckpointProcessUnlock", code);
    }
    return well;
}

/* --- the program's own help ---------------------------------------------------------------------- */

static bool rests(const struct process *one, const struct request *request) {
    return signals_of(one->pid).ignored & signal_bit(request->signal);
}

/* All come to rest between two steps. One may be there already: a process of another pod was told. */
static bool drain_all(const struct request *request) {
    long long until = now_ms() + (long long)request->drain_ms;
    const char *name = signal_name(request->signal);
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state != RUNNING || rests(one, request) || signals_of(one->pid).caught & signal_bit(request->signal)) continue;
        if (is_there(one)) return fail("process %d does not catch SIG%s, which its pod names to come to rest", one->pid, name);
        one->state = GONE;
    }
    for (int i = 0; i < process_count; i++) {
        struct process *one = &processes[i];
        if (one->state == RUNNING && !rests(one, request)) one->told = signal_send(one->pid, one->start, request->signal);
    }
    for (int i = 0; i < process_count;) {
        struct process *one = &processes[i];
        if (one->state != RUNNING || rests(one, request)) {
            i++;
        } else if (!is_there(one)) {
            one->state = GONE;
        } else if (told_to_end) {
            return fail("told to end");
        } else if (now_ms() > until) {
            return fail("process %d did not come to rest within %llu ms of SIG%s", one->pid, request->drain_ms, name);
        } else {
            pause_ms(LOOK_MS);
        }
    }
    return true;
}

/* All go on with their steps. One that was told and does not rest yet will: it is waited for, so that it does not
 * wait for us afterwards. */
static void let_go(const struct request *request) {
    long long until = now_ms() + (request->signal ? (long long)request->drain_ms : 0);
    bool again = request->signal != 0;
    while (again) {
        again = false;
        for (int i = 0; i < process_count; i++) {
            struct process *one = &processes[i];
            if (one->state != RUNNING) continue;
            bool there = is_there(one);
            if (there && rests(one, request)) {
                signal_send(one->pid, one->start, SIGCONT);
                one->told = false;
                again = true; /* until it is seen to go on: a second signal of the kind is the same one */
            } else if (there && one->told) {
                again = true;
            }
        }
        if (now_ms() > until) return;
        if (again) pause_ms(LOOK_MS);
    }
}

/* --- the verbs, as they are asked for ------------------------------------------------------------ */

static int suspend(const struct request *request) {
    if ((!request->signal || drain_all(request)) && lock_all((long long)request->lock_ms) && checkpoint_all()) return DONE;
    bool known = look_at_all(); /* a call that failed may have changed something all the same */
    bool back = bring_back();
    let_go(request);
    return back && known ? NOT_DONE : STRANDED;
}

static int resume(const struct request *request) {
    /* Told by a helper that was cut off: it may come to rest yet. */
    for (int i = 0; i < process_count; i++) processes[i].told = request->signal && processes[i].state == RUNNING;
    if (!bring_back()) return STRANDED;
    let_go(request);
    return DONE;
}

static int run(const struct request *request) {
    if (!look_at_all()) return NOT_DONE;
    if (strcmp(request->verb, "suspend") == 0) return suspend(request);
    if (strcmp(request->verb, "resume") == 0) return resume(request);
    return DONE;
}

/* --- in and out --------------------------------------------------------------------------------- */

static bool load(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return fail("%s", dlerror());
    const struct { const char *name; void *slot; } needed[] = {
        {"cuInit", &cuda.init},
        {"cuGetErrorName", &cuda.name_of},
        {"cuCheckpointProcessGetState", &cuda.state},
        {"cuCheckpointProcessLock", &cuda.lock},
        {"cuCheckpointProcessCheckpoint", &cuda.checkpoint},
        {"cuCheckpointProcessRestore", &cuda.restore},
        {"cuCheckpointProcessUnlock", &cuda.unlock},
    };
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        void *found = dlsym(handle, needed[i].name);
        if (!found) return fail("%s has no %s: its driver is older than 570", library, needed[i].name);
        memcpy(needed[i].slot, &found, sizeof found);
    }
    CUresult code = cuda.init(0); /* also what a restore needs where the driver does not stay loaded */
    return code == CUDA_SUCCESS || fail("cuInit: %d", (int)code);
}

static const char *name_of(enum state state) {
    switch (state) {
    case NONE: return "none";
    case GONE: return "gone";
    case RUNNING: return "running";
    case LOCKED: return "locked";
    case CHECKPOINTED: return "checkpointed";
    default: return "failed";
    }
}

static void escape(char *to, size_t room, const char *from) {
    size_t length = 0;
    for (; *from && length + 2 < room; from++) {
        if (*from == '"' || *from == '\\') to[length++] = '\\';
        to[length++] = *from >= ' ' && *from < 0x7f ? *from : '?';
    }
    to[length] = '\0';
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    if (file) fputs(text, file);
    if (!file || fclose(file) != 0) fprintf(stderr, "egpu-checkpoint: %s: %s\n", path, strerror(errno));
}

static void say(const char *verb, int status, long long ms, const char *const *results) {
    char text[MAX_TEXT], said[2 * sizeof error];
    escape(said, sizeof said, error);
    int length = snprintf(text, sizeof text, "{\"version\":1,\"verb\":\"%.16s\",\"ok\":%s,\"error\":\"%s\",\"ms\":%lld,\"states\":{",
                          verb, status == DONE ? "true" : "false", said, ms);
    for (int i = 0; i < process_count; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "%s\"%d\":\"%s\"", i ? "," : "", processes[i].pid,
                           name_of(processes[i].state));
    }
    snprintf(text + length, sizeof text - (size_t)length, "}}\n");
    fputs(text, stdout);
    fflush(stdout);
    for (int i = 0; i < RESULTS; i++) {
        if (results[i]) put(results[i], text);
    }
}

static bool number(const char *text, unsigned long long least, unsigned long long most, unsigned long long *to) {
    char *end;
    errno = 0;
    *to = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && !*end && !errno && *to >= least && *to <= most;
}

static bool add_process(char *word) {
    unsigned long long pid, start = 0;
    char *colon = strchr(word, ':');
    if (colon) *colon++ = '\0';
    if (!number(word, 1, 1 << 22, &pid) || (colon && !number(colon, 1, UINT64_MAX, &start)))
        return fail("%.64s is no PID[:START]", word);
    if (process_count == MAX_PROCESSES) return fail("more than %d processes", MAX_PROCESSES);
    for (int i = 0; i < process_count; i++) {
        if (processes[i].pid == (int)pid) return fail("process %llu is named twice", pid);
    }
    processes[process_count++] = (struct process){.pid = (int)pid, .start = start, .state = NONE};
    return true;
}

static bool understand(int count, char **words, struct request *to) {
    for (int i = 0; i < count; i++) {
        char *word = words[i];
        const char **text = strcmp(word, "--library") == 0 ? &to->library : NULL;
        if (strcmp(word, "--result") == 0) text = &to->results[to->results[0] != NULL];
        unsigned long long *ms = strcmp(word, "--lock-ms") == 0 ? &to->lock_ms : NULL;
        if (strcmp(word, "--drain-ms") == 0) ms = &to->drain_ms;
        if (text || ms || strcmp(word, "--signal") == 0) {
            if (++i == count) return fail("%s needs a value", word);
            if (text) *text = words[i];
            else if (ms && !number(words[i], 1, MAX_MS, ms)) return fail("%s is 1 to %d, not %.64s", word, MAX_MS, words[i]);
            else if (!ms && !(to->signal = signal_number(words[i]))) return fail("--signal is USR1, USR2 or TSTP, not %.64s", words[i]);
        } else if (*word == '-') {
            return fail("no such flag: %.64s", word);
        } else if (!to->verb) {
            to->verb = word;
        } else if (!add_process(word)) {
            return false;
        }
    }
    if (!to->verb) return fail("no verb: suspend, resume or state");
    if (strcmp(to->verb, "suspend") && strcmp(to->verb, "resume") && strcmp(to->verb, "state"))
        return fail("no such verb: %.64s", to->verb);
    return true;
}

/* `--words TEXT` stands for the words in TEXT: a pod passes them on from its own annotation. */
static int spread(int count, char **given, char **words) {
    int spread_to = 0;
    for (int i = 1; i < count && spread_to < MAX_WORDS; i++) {
        if (strcmp(given[i], "--words") != 0 || i + 1 == count) {
            words[spread_to++] = given[i];
            continue;
        }
        for (char *rest = given[++i], *word; (word = strsep(&rest, " ")) && spread_to < MAX_WORDS;)
            if (*word) words[spread_to++] = word;
    }
    return spread_to;
}

int main(int count, char **given) {
    static char *words[MAX_WORDS];
    struct request request = {.library = "libcuda.so.1", .lock_ms = LOCK_MS, .drain_ms = LOCK_MS};
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGTERM, &act, NULL);
    long long began = now_ms();
    int status = UNUSABLE;
    if (understand(spread(count, given, words), words, &request) && load(request.library))
        status = run(&request);
    say(request.verb ? request.verb : "", status, now_ms() - began, request.results);
    return status;
}
