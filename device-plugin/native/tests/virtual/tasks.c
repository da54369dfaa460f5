/* Tasks, their clocks, and the system calls by which they wait.
 *
 * They change places by the million. A task's stack is entered once by makecontext; from then on setjmp and longjmp do,
 * which ask nothing of the system, as swapcontext does each time for the signals. What compilers add to check longjmp
 * takes another stack for a fault. */
#undef _FORTIFY_SOURCE
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

enum { CLOCK_NS = 25, SWITCH_NS = 3000, LATE_NS = 300000, MAX_WORDS = 65, FUTEX_WAITV = 449, WORKED_NS = 20000 };
static const int64_t EPOCH_NS = 1000000000000, NEVER = INT64_MAX;

struct task {
    int64_t now_ns; /* where it waits: when it goes on at the latest */
    bool over, begun, background, timed_out;
    ucontext_t entry;
    jmp_buf state;
    struct process *process;
    void (*body)(void *);
    void *with;
    struct contexts contexts;
    const void *waits_on[MAX_WORDS]; /* the first NULL ends them */
    uint64_t calls; /* of the system, that take time of it */
    uint64_t records; /* of events */
};
static struct task tasks[MAX_TASKS];
static int task_count, in_front; /* in front: neither over nor in the background */
static struct task *running;
static jmp_buf outside;
static uint64_t seed = 1;
static uint32_t late_one_in;

void tasks_seed(uint64_t value, uint32_t late)
{
    seed = value * 0x9e3779b97f4a7c15u | 1;
    late_one_in = late;
}

uint64_t dice(uint64_t sides)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (seed >> 11) % sides;
}

int64_t late_by(void)
{
    return SWITCH_NS + (int64_t)dice(2000) + (late_one_in && dice(late_one_in) == 0 ? (int64_t)dice(LATE_NS) : 0);
}

struct process *task_process(void) { return running->process; }
struct contexts *task_contexts(void) { return &running->contexts; }
int64_t task_now(void) { return running ? running->now_ns : EPOCH_NS; }
uint64_t task_calls(void) { return running->calls; }
uint64_t task_records(void) { return running->records; }
void task_recorded(void) { running->records++; }
static struct task *furthest_behind(void)
{
    struct task *best = NULL;
    for (int i = 0; i < task_count; i++)
        if (!tasks[i].over && (best == NULL || tasks[i].now_ns < best->now_ns))
            best = &tasks[i];
    return best;
}

/* The stack of `next` goes on, or that of the caller of tasks_run where none has to. */
static void go_on(struct task *next)
{
    running = in_front != 0 ? next : NULL;
    if (running == NULL)
        _longjmp(outside, 1);
    if (running->waits_on[0] != NULL) {
        running->waits_on[0] = NULL;
        running->timed_out = true;
    }
    if (running->begun)
        _longjmp(running->state, 1);
    running->begun = true;
    setcontext(&running->entry);
}

static void leave(void)
{
    if (_setjmp(running->state) == 0)
        go_on(furthest_behind());
}

static void enter(void)
{
    running->body(running->with);
    running->over = true;
    in_front -= !running->background;
    go_on(furthest_behind());
}

void task_new(struct process *process, void (*body)(void *), void *with, int64_t at_ns)
{
    if (task_count == MAX_TASKS)
        abort();
    struct task *task = &tasks[task_count++];
    *task = (struct task){.process = process, .body = body, .with = with, .now_ns = at_ns, .background = running != NULL};
    in_front += !task->background;
    getcontext(&task->entry);
    task->entry.uc_stack.ss_sp = malloc(STACK_BYTES);
    task->entry.uc_stack.ss_size = STACK_BYTES;
    makecontext(&task->entry, enter, 0);
}

void tasks_run(void)
{
    if (_setjmp(outside) == 0)
        go_on(furthest_behind());
}

void task_lets_others(void)
{
    if (furthest_behind() != running)
        leave();
}

/* So long that others may launch meanwhile: what is in order on a card is so by then. */
void task_works(int64_t ns)
{
    running->now_ns += ns;
    if (ns > WORKED_NS)
        task_lets_others();
}

void task_waits_until(int64_t at_ns)
{
    if (at_ns > running->now_ns)
        running->now_ns = at_ns;
    leave();
}

void task_sleeps_until(int64_t at_ns) { task_waits_until((at_ns > running->now_ns ? at_ns : running->now_ns) + late_by()); }

/* --- what the library asks of the system ---------------------------------------------------------- */

int vt_clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    running->now_ns += CLOCK_NS;
    *time = (struct timespec){running->now_ns / 1000000000, running->now_ns % 1000000000};
    return 0;
}

int vt_nanosleep(const struct timespec *wait, struct timespec *left)
{
    (void)left;
    running->calls++;
    task_sleeps_until(running->now_ns + wait->tv_sec * 1000000000 + wait->tv_nsec);
    return 0;
}

int vt_usleep(useconds_t wait) { return vt_nanosleep(&(struct timespec){.tv_nsec = wait * 1000l}, NULL); }

int vt_sched_yield(void)
{
    running->now_ns += 1000;
    running->calls++;
    leave();
    return 0;
}

int vt_prctl(int what, ...)
{
    (void)what;
    if (running)
        running->calls++;
    return 0;
}

pid_t vt_getpid(void)
{
    if (!running)
        return 1;
    running->calls++;
    return 1000 + running->process->number;
}

char *vt_getenv(const char *name)
{
    static char empty[1];
    if (strcmp(name, "EGPU_TEST_ROOT") != 0)
        return NULL;
    return running ? (char *)(uintptr_t)running->process->root : empty;
}

/* A file is mapped once, for all: then a word has one address, and who waits on it is found by that. */
void *vt_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
    static struct { dev_t device; ino_t inode; void *at; } maps[4 * MAX_PROCESSES];
    static int count;
    struct stat about;
    if (!(flags & MAP_SHARED) || file < 0 || offset != 0 || fstat(file, &about) != 0)
        return mmap(at, size, protection, flags, file, offset);
    for (int i = 0; i < count; i++)
        if (maps[i].device == about.st_dev && maps[i].inode == about.st_ino)
            return maps[i].at;
    if (count == 4 * MAX_PROCESSES)
        abort();
    char path[64]; /* it may be open for reading only, and others will write */
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int writable = open(path, O_RDWR | O_CLOEXEC);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, writable, 0);
    close(writable);
    maps[count].device = about.st_dev, maps[count].inode = about.st_ino, maps[count++].at = page;
    return page;
}

static long wait_until(int64_t at_ns)
{
    running->timed_out = false;
    running->now_ns = at_ns;
    leave();
    errno = ETIMEDOUT;
    return running->timed_out ? -1 : 0;
}

static long wait_on(const uint32_t *word, uint32_t seen, const struct timespec *wait)
{
    running->now_ns += 500;
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != seen) {
        errno = EAGAIN;
        return -1;
    }
    running->waits_on[0] = word;
    running->waits_on[1] = NULL;
    return wait_until(wait ? running->now_ns + wait->tv_sec * 1000000000 + wait->tv_nsec + late_by() : NEVER);
}

struct word { uint64_t seen, word; uint32_t flags, reserved; }; /* struct futex_waitv */

static long wait_on_some(const struct word *words, unsigned long count, const struct timespec *until)
{
    running->now_ns += 500;
    for (unsigned long i = 0; i < count; i++) {
        running->waits_on[i] = (const void *)(uintptr_t)words[i].word;
        if (__atomic_load_n((const uint32_t *)running->waits_on[i], __ATOMIC_SEQ_CST) != words[i].seen) {
            running->waits_on[0] = NULL;
            errno = EAGAIN;
            return -1;
        }
    }
    running->waits_on[count] = NULL;
    return wait_until(until->tv_sec * 1000000000 + until->tv_nsec + late_by());
}

static bool waits_on(const struct task *task, const uint32_t *word)
{
    for (int i = 0; task->waits_on[i] != NULL; i++)
        if (task->waits_on[i] == word)
            return true;
    return false;
}

static long wake(const uint32_t *word, long most)
{
    long woken = 0;
    running->now_ns += 500;
    for (int i = 0; i < task_count && woken < most; i++)
        if (!tasks[i].over && waits_on(&tasks[i], word)) {
            int64_t at = running->now_ns + late_by();
            tasks[i].waits_on[0] = NULL;
            tasks[i].now_ns = at < tasks[i].now_ns ? at : tasks[i].now_ns;
            woken++;
        }
    return woken;
}

long vt_syscall(long number, ...)
{
    va_list more;
    va_start(more, number);
    long result = -1;
    running->calls++;
    if (number == SYS_futex) {
        const uint32_t *word = va_arg(more, const uint32_t *);
        int what = va_arg(more, int) & ~FUTEX_PRIVATE_FLAG;
        uint32_t value = va_arg(more, uint32_t);
        result = what == FUTEX_WAIT ? wait_on(word, value, va_arg(more, const struct timespec *)) : wake(word, value);
    } else if (number == FUTEX_WAITV) {
        const struct word *words = va_arg(more, const struct word *);
        unsigned long count = va_arg(more, unsigned long);
        (void)va_arg(more, unsigned long);
        result = count < MAX_WORDS ? wait_on_some(words, count, va_arg(more, const struct timespec *)) : -1;
    } else if (number == SYS_process_vm_readv) {
        (void)va_arg(more, long);
        const struct iovec *to = va_arg(more, const struct iovec *);
        (void)va_arg(more, long);
        const struct iovec *from = va_arg(more, const struct iovec *);
        memcpy(to->iov_base, from->iov_base, to->iov_len);
        running->now_ns += 400;
        result = (long)to->iov_len;
    } else {
        errno = ENOSYS;
    }
    va_end(more);
    return result;
}
