/* Launches into a capture are no work of their own. Until a program first begins one, nobody asks. */
#include "launch.h"

static _Atomic bool ever;

bool egpu_capturing(const struct egpu_real *real, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (__builtin_expect(!atomic_load_explicit(&ever, memory_order_acquire), 1))
        return false;
    return real->cuStreamIsCapturing == NULL || real->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

#define CAPTURE(name, arguments, values)     \
    EGPU_EXPORT CUresult name arguments {    \
        EGPU_DRIVER(real, name);             \
        atomic_store(&ever, true);           \
        return real->name values;            \
    }
#define CAPTURE_TSZ(name, ...) CAPTURE(name, __VA_ARGS__) CAPTURE(name##_ptsz, __VA_ARGS__)

CAPTURE_TSZ(cuStreamBeginCapture, (CUstream stream), (stream))
CAPTURE_TSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CAPTURE_TSZ(cuStreamBeginCaptureToGraph,
            (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
             CUstreamCaptureMode mode),
            (stream, graph, nodes, edges, count, mode))
CAPTURE_TSZ(cuStreamBeginRecaptureToGraph,
            (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data),
            (stream, mode, graph, callback, data))
/* To a command list of a graphics API, which runs it. */
CAPTURE_TSZ(cuStreamBeginCaptureToCig, (CUstream stream, CUstreamCigCaptureParams *how), (stream, how))

/* --- streams that end: the handle may be the next one's once it is gone --- */

EGPU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    EGPU_DRIVER(real, cuStreamDestroy_v2);
    egpu_streams_gone(stream);
    return real->cuStreamDestroy_v2(stream);
}

EGPU_EXPORT CUresult cuStreamDestroy(CUstream stream) {
    EGPU_DRIVER(real, cuStreamDestroy);
    egpu_streams_gone(stream);
    return real->cuStreamDestroy(stream);
}
