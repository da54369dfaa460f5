/* What the calls that take memory tell the compute side, where that defines it: NULL in a library without it. */
#pragma once

#include "../base/internal.h"

void egpu_time_context_made(CUcontext context) __attribute__((weak));
void egpu_time_context_gone(CUcontext context) __attribute__((weak)); /* before it is destroyed */
void egpu_time_exec_made(CUgraphExec exec, CUgraph graph) __attribute__((weak));
void egpu_time_exec_gone(CUgraphExec exec) __attribute__((weak));     /* before it is destroyed */
void egpu_time_wanted(void) __attribute__((weak)); /* a call waits until the container has its cards again */
