/* How a program is asked to come to rest between two steps, and told to go on.
 *
 * It gets the signal that its pod names. It ends its step, agrees with its other ranks where that is, waits for its own
 * GPU work, blocks SIGCONT, ignores the signal from now on, and waits for SIGCONT (sigwait). That it ignores the signal is
 * how it is known to be at rest: /proc shows it of every process, and it ends with the process. After SIGCONT it catches
 * the signal again and goes on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct process_signals { uint64_t ignored, caught; }; /* a bit each */

/* Start time in clock ticks; 0: there is no such process. */
unsigned long long process_start(int pid);

/* Nothing of a process that is not there. */
struct process_signals signals_of(int pid);

uint64_t signal_bit(int number);

/* Of "USR1", "USR2", "TSTP"; 0: none of them. */
int signal_number(const char *name);
const char *signal_name(int number);

/* To that very process; start 0: to whatever has the number. False: it is gone. */
bool signal_send(int pid, unsigned long long start, int number);
