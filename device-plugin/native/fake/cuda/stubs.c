/* Every entry point of the real driver is there: what the fake does not do answers CUDA_ERROR_NOT_SUPPORTED. The
 * definitions of the other files take the place of these. */
#include "egpu_cuda.h"

#ifdef __clang__
#pragma clang diagnostic ignored "-Wc2x-extensions"
#endif

#define STUB(name, arguments)                                                                     \
    __attribute__((weak, visibility("default"))) CUresult name arguments {                        \
        return CUDA_ERROR_NOT_SUPPORTED;                                                          \
    }
#define EGPU_API(name, suffix, since, arguments) STUB(name##suffix, arguments)
#define EGPU_API_TSZ(name, suffix, since, arguments) STUB(name##suffix, arguments) STUB(name##suffix##_ptsz, arguments)
#define EGPU_API_TDS(name, suffix, since, arguments) STUB(name##suffix, arguments) STUB(name##suffix##_ptds, arguments)
#include "egpu_cuda_api.def"
#include "egpu_cuda_memory.def"
#include "egpu_cuda_rest.def"
