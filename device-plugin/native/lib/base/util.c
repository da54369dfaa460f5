/* A line on stderr, and two locks. */
#define _GNU_SOURCE
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { KEYS = 32, SPINS = 64, YIELDS = 64 };

void egpu_say_once(const char *key, const char *format, ...)
{
    static _Atomic(const char *) said[KEYS];
    for (size_t i = 0; i < KEYS; i++) {
        const char *expected = NULL;
        if (atomic_compare_exchange_strong(&said[i], &expected, key))
            break;
        if (strcmp(expected, key) == 0 || i == KEYS - 1)
            return;
    }
    char line[512];
    int used = snprintf(line, sizeof line, "libvgpu-egpu: ");
    va_list arguments;
    va_start(arguments, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, arguments);
    va_end(arguments);
    if (more < 0)
        return;
    size_t length = strlen(line);
    line[length] = '\n';
    /* A pipe whose reader is gone kills who writes, one that is full stops him: then it remains unsaid. */
    struct pollfd to = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&to, 1, 0) != 1 || to.revents != POLLOUT)
        return;
    ssize_t ignored = write(STDERR_FILENO, line, length + 1); /* one write: lines of processes do not mix */
    (void)ignored;
}

/* The process's number, without a call each time: kept on a page that a forked child finds wiped. */
static uint32_t process_number(void)
{
    static _Atomic(_Atomic uint32_t *) kept;
    static _Atomic uint32_t never;
    _Atomic uint32_t *page = atomic_load_explicit(&kept, memory_order_acquire);
    uint32_t number = page ? atomic_load_explicit(page, memory_order_relaxed) : 0;
    if (__builtin_expect(number != 0, 1))
        return number;
    const int kept_errno = errno;
    number = (uint32_t)getpid();
    if (page == NULL && !atomic_load_explicit(&never, memory_order_relaxed)) {
        const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
        page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED && madvise((void *)page, bytes, MADV_WIPEONFORK) != 0) {
            munmap((void *)page, bytes); /* a kernel before 4.14 */
            page = MAP_FAILED;
        }
        atomic_store_explicit(&never, page == MAP_FAILED, memory_order_relaxed);
        _Atomic uint32_t *before = NULL;
        if (page != MAP_FAILED && !atomic_compare_exchange_strong(&kept, &before, page)) {
            munmap((void *)page, bytes);
            page = before;
        }
    }
    if (page != NULL && page != MAP_FAILED)
        atomic_store_explicit(page, number, memory_order_relaxed);
    errno = kept_errno;
    return number;
}

static __thread __attribute__((tls_model("initial-exec"))) struct { int depth, state; } kept;

void egpu_keep_thread(void)
{
    if (kept.depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &kept.state);
}

void egpu_let_thread(void)
{
    if (--kept.depth == 0)
        pthread_setcancelstate(kept.state, NULL);
}

void egpu_lock(struct egpu_lock *lock)
{
    egpu_keep_thread(); /* files that we read while we hold one are where threads are cancelled */
    const uint32_t self = process_number();
    for (unsigned tries = 0;; tries++) {
        uint32_t holder = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                  memory_order_relaxed))
            return;
        /* Held by a thread of the process that we were forked from: it does not exist here. */
        if (holder && holder != self &&
            atomic_compare_exchange_strong_explicit(&lock->holder, &holder, self, memory_order_acquire,
                                                    memory_order_relaxed))
            return;
        if (tries > SPINS + YIELDS)
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        else if (tries > SPINS)
            sched_yield();
    }
}

void egpu_unlock(struct egpu_lock *lock)
{
    atomic_store_explicit(&lock->holder, 0, memory_order_release);
    egpu_let_thread();
}

void egpu_spin_lock(struct egpu_spin *lock) {
    for (unsigned tries = 0; atomic_exchange_explicit(&lock->held, 1, memory_order_acquire); tries++)
        if (tries > 100) /* not nanosleep(): there a thread may be cancelled, and it may hold what all others wait for */
            syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 5000}, NULL);
}
