/* The CUDA driver's entry points as library, fake driver and test programs need them: types and prototypes.
 *
 * Names are those of the shared object: cuMemAlloc_v2 is what programs of today call, plain cuMemAlloc what those of
 * CUDA 2 called. For a pointer to an entry point use __typeof__(cuMemAlloc_v2) *. For tables over all of them include
 * egpu_cuda_api.def and egpu_cuda_memory.def (and egpu_cuda_rest.def, for what the library leaves alone) with EGPU_API,
 * EGPU_API_TSZ and EGPU_API_TDS defined. */
#pragma once

#include "egpu_cuda_types.h"

#define EGPU_API(name, suffix, since, arguments) CUresult name##suffix arguments;
#define EGPU_API_TSZ(name, suffix, since, arguments) \
    CUresult name##suffix arguments;                 \
    CUresult name##suffix##_ptsz arguments;
#define EGPU_API_TDS(name, suffix, since, arguments) \
    CUresult name##suffix arguments;                 \
    CUresult name##suffix##_ptds arguments;
#include "egpu_cuda_api.def"
#include "egpu_cuda_memory.def"
#undef EGPU_API
#undef EGPU_API_TSZ
#undef EGPU_API_TDS
