/* A node in virtual time: programs, each with the whole compute side of the library, and cards, in one process.
 *
 * Every thread of every program is a task with a clock of its own. The one that is furthest behind runs; its clock
 * moves on when it asks for the time, calls the driver or sleeps. Nothing depends on the machine, so the same seed
 * gives the same run. Each program loads a copy of the library of its own (process.c), as each process would. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "../../include/egpu_cuda.h"

enum { MAX_PROCESSES = 16, MAX_CARDS = 2, MAX_TASKS = 40, STACK_BYTES = 256 * 1024 };

struct process {
    int number;
    int card;            /* that it uses */
    const char *root;    /* where its container's files are */
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
    CUresult (*launch_graph)(CUgraphExec, CUstream);
};

/* --- tasks.c --- */
void tasks_seed(uint64_t seed, uint32_t late_one_in);
/* A task that begins at that time. */
void task_new(struct process *process, void (*body)(void *), void *with, int64_t at_ns);
/* Runs until nobody is left but those that `background` tasks wait for. */
void tasks_run(void);
struct process *task_process(void);
struct contexts { CUcontext stack[8]; };
struct contexts *task_contexts(void); /* of the running task; the first is current */
int64_t task_now(void);        /* costs nothing */
uint64_t task_calls(void);     /* calls of the system that the task has made so far */
uint64_t task_records(void);   /* events that it has recorded */
void task_recorded(void);
void task_works(int64_t ns);   /* CPU time passes */
void task_waits_until(int64_t at_ns); /* exactly, with no wake-up's lateness */
void task_sleeps_until(int64_t at_ns);
void task_lets_others(void);   /* those that are behind come first */
uint64_t dice(uint64_t sides);
int64_t late_by(void);         /* how long a wake-up takes this time */

/* --- card.c --- */
extern bool cards_in_slices, cards_side_by_side;
extern char kernel_that_meets; /* its address is the function */
struct stretch { int32_t process, card; int64_t enqueued, start, end; };
void cards_name(int card, const char *uuid, const char *bus);
void *driver_function(const char *name); /* of our driver, or NULL */
CUstream stream_new(struct process *process);
void stream_wait(CUstream stream);
void cards_save(FILE *file); /* all stretches */
