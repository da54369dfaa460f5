/* What device code takes on the card besides its variables. */
#pragma once

#include "driver.h"

/* Notes what the kernels of that text need of local memory. */
void code_find(CUmodule module, const char *image);

/* What a thread of the kernel needs of local memory. */
size_t code_local_bytes(CUfunction function);

/* The card sets aside that much for each thread that it can hold, and keeps it until the context ends. */
CUresult context_local(CUcontext context, size_t bytes);
