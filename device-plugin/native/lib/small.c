/* A line on stderr, and a lock. */
#define _GNU_SOURCE
#include "internal.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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
    ssize_t ignored = write(STDERR_FILENO, line, length + 1); /* one write: lines of processes do not mix */
    (void)ignored;
}

void egpu_lock(struct egpu_lock *lock)
{
    const uint32_t self = (uint32_t)getpid();
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
}
