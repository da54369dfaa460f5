/* Included before each source of the library where it is built for virtual time: what it asks of the system goes to
 * the world (world.h), where clocks stand still unless somebody works or waits. */
#pragma once
#define _GNU_SOURCE

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int vt_clock_gettime(clockid_t clock, struct timespec *time);
int vt_nanosleep(const struct timespec *wait, struct timespec *left);
int vt_usleep(useconds_t wait);
int vt_sched_yield(void);
int vt_prctl(int what, ...);
long vt_syscall(long number, ...);
pid_t vt_getpid(void);
char *vt_getenv(const char *name);
void *vt_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);

#define EGPU_ONE_CLOCK
#define clock_gettime vt_clock_gettime
#define nanosleep vt_nanosleep
#define usleep vt_usleep
#define sched_yield vt_sched_yield
#define prctl vt_prctl
#define syscall vt_syscall
#define getpid vt_getpid
#define getenv vt_getenv
#define mmap vt_mmap
