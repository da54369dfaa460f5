/* Captures that are open. They count from before they begin, so that nobody records on a stream that becomes part of
 * one, until they end: by their call, with their stream or context, or unseen. */
#define _GNU_SOURCE
#include "flight.h"
#include "launch.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROWS = 128, CHECK_NS = 1000 * 1000 * 1000 };

EGPU_LINE _Atomic uint32_t egpu_captures;

/* Where a capture began. Of others, beyond so many, only the number is known. */
static struct origin {
    CUstream stream; /* NULL: free row */
    CUcontext context;
    long thread; /* whose own default stream it is; 0: of a stream with a name */
    bool silent; /* its stream does not tell whether it lasts */
} origins[ROWS];
static struct egpu_spin origins_spin;
static uint32_t nameless;

bool egpu_capturing(const struct egpu_real *real, CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return real->cuStreamIsCapturing == NULL || real->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static struct origin origin_of(const struct egpu_real *real, CUstream stream, bool silent) {
    struct origin origin = {.stream = stream, .silent = silent};
    if (stream == EGPU_PER_THREAD)
        origin.thread = syscall(SYS_gettid);
    if (origin.thread != 0 || real->cuStreamGetCtx == NULL || real->cuStreamGetCtx(stream, &origin.context) != CUDA_SUCCESS)
        real->cuCtxGetCurrent(&origin.context);
    return origin;
}

static void keep(struct origin origin) {
    egpu_spin_lock(&origins_spin);
    int row = 0;
    while (row < ROWS && origins[row].stream != NULL)
        row++;
    if (row < ROWS)
        origins[row] = origin;
    else
        nameless++;
    egpu_spin_unlock(&origins_spin);
}

/* Takes it out of the rows. False: it was not there. */
static bool take(const struct origin *origin) {
    bool found = false;
    egpu_spin_lock(&origins_spin);
    for (int i = 0; i < ROWS && !found; i++) {
        struct origin *one = &origins[i];
        found = one->stream == origin->stream && one->thread == origin->thread &&
                (one->thread == 0 || one->context == origin->context);
        if (found)
            one->stream = NULL;
    }
    egpu_spin_unlock(&origins_spin);
    return found;
}

static void ended(const struct origin *origin) {
    bool counted = take(origin);
    egpu_spin_lock(&origins_spin);
    if (!counted && nameless != 0) {
        nameless--;
        counted = true;
    }
    egpu_spin_unlock(&origins_spin);
    if (counted)
        atomic_fetch_sub(&egpu_captures, 1);
}

void egpu_captures_context_gone(CUcontext context) {
    for (int i = 0; i < ROWS && atomic_load(&egpu_captures) != 0; i++) {
        egpu_spin_lock(&origins_spin);
        const bool gone = origins[i].stream != NULL && origins[i].context == context;
        if (gone)
            origins[i].stream = NULL;
        egpu_spin_unlock(&origins_spin);
        atomic_fetch_sub(&egpu_captures, gone);
    }
}

/* Whether it lasts, as far as one can tell. With the streams' lock: its stream lives. */
static bool lasts(const struct egpu_real *real, const struct origin *origin) {
    if (origin->thread != 0)
        return syscall(SYS_tgkill, getpid(), origin->thread, 0) == 0 || errno != ESRCH;
    return origin->silent || egpu_capturing(real, origin->stream);
}

void egpu_captures_check(const struct egpu_real *real, int64_t now_ns) {
    static int64_t checked_ns; /* the watcher's own */
    if (atomic_load(&egpu_captures) == 0 || now_ns - checked_ns < CHECK_NS)
        return;
    checked_ns = now_ns;
    for (int i = 0; i < ROWS; i++) {
        egpu_lock(&egpu_streams_lock);
        egpu_spin_lock(&origins_spin);
        const struct origin one = origins[i];
        egpu_spin_unlock(&origins_spin);
        if (one.stream != NULL && !lasts(real, &one) && take(&one))
            atomic_fetch_sub(&egpu_captures, 1);
        egpu_unlock(&egpu_streams_lock);
    }
}

void egpu_captures_forget(void) {
    origins_spin.held = 0;
    atomic_store(&egpu_captures, 0);
    nameless = 0;
    for (int i = 0; i < ROWS; i++)
        origins[i].stream = NULL;
}

/* --- the calls ------------------------------------------------------------------------------------- */

static CUresult began(const struct egpu_real *real, CUstream stream, bool silent, CUresult result) {
    if (result == CUDA_SUCCESS)
        keep(origin_of(real, stream, silent));
    else
        atomic_fetch_sub(&egpu_captures, 1);
    return result;
}

#define CAPTURE(name, silent, asked, arguments, values)         \
    EGPU_EXPORT CUresult name arguments {                       \
        EGPU_DRIVER(real, name);                                \
        egpu_flight_capture(real);                              \
        return began(real, asked, silent, real->name values);   \
    }
#define CAPTURE_TSZ(name, silent, ...)          \
    CAPTURE(name, silent, stream, __VA_ARGS__)  \
    CAPTURE(name##_ptsz, silent, stream ? stream : EGPU_PER_THREAD, __VA_ARGS__)

CAPTURE_TSZ(cuStreamBeginCapture, false, (CUstream stream), (stream))
CAPTURE_TSZ(cuStreamBeginCapture_v2, false, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))
CAPTURE_TSZ(cuStreamBeginCaptureToGraph, false,
            (CUstream stream, CUgraph graph, const CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count,
             CUstreamCaptureMode mode),
            (stream, graph, nodes, edges, count, mode))
CAPTURE_TSZ(cuStreamBeginRecaptureToGraph, false,
            (CUstream stream, CUstreamCaptureMode mode, CUgraph graph, CUgraphRecaptureCallback callback, void *data),
            (stream, mode, graph, callback, data))

/* To a command list of a graphics API, which runs it. */
CAPTURE_TSZ(cuStreamBeginCaptureToCig, true, (CUstream stream, CUstreamCigCaptureParams *how), (stream, how))

static CUresult cig_ended(const struct egpu_real *real, CUstream stream, CUresult result) {
    const struct origin origin = origin_of(real, stream, true);
    if (result == CUDA_SUCCESS)
        ended(&origin);
    return result;
}

EGPU_EXPORT CUresult cuStreamEndCaptureToCig(CUstream stream) {
    EGPU_DRIVER(real, cuStreamEndCaptureToCig);
    return cig_ended(real, stream, real->cuStreamEndCaptureToCig(stream));
}

EGPU_EXPORT CUresult cuStreamEndCaptureToCig_ptsz(CUstream stream) {
    EGPU_DRIVER(real, cuStreamEndCaptureToCig_ptsz);
    return cig_ended(real, stream ? stream : EGPU_PER_THREAD, real->cuStreamEndCaptureToCig_ptsz(stream));
}

static CUresult capture_ended(const struct egpu_real *real, CUstream stream, bool was, CUresult result) {
    if (was && !egpu_capturing(real, stream)) { /* also one that failed is over; where in doubt it counts on */
        const struct origin origin = origin_of(real, stream, false);
        ended(&origin);
    }
    return result;
}

EGPU_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    EGPU_DRIVER(real, cuStreamEndCapture);
    bool was = atomic_load(&egpu_captures) != 0 && egpu_capturing(real, stream);
    return capture_ended(real, stream, was, real->cuStreamEndCapture(stream, graph));
}

EGPU_EXPORT CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    EGPU_DRIVER(real, cuStreamEndCapture_ptsz);
    CUstream asked = stream ? stream : EGPU_PER_THREAD;
    bool was = atomic_load(&egpu_captures) != 0 && egpu_capturing(real, asked);
    return capture_ended(real, asked, was, real->cuStreamEndCapture_ptsz(stream, graph));
}

/* --- streams that end ------------------------------------------------------------------------------ */

/* The handle may be the next one's once it is gone. True: a capture goes with it. */
static bool gone(const struct egpu_real *real, CUstream stream) {
    egpu_flight_stream_gone(real, stream);
    if (atomic_load(&egpu_captures) == 0)
        return false;
    egpu_lock(&egpu_streams_lock); /* whoever asks about it has the answer */
    const bool taken = take(&(struct origin){.stream = stream});
    egpu_unlock(&egpu_streams_lock);
    return taken;
}

EGPU_EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    EGPU_DRIVER(real, cuStreamDestroy_v2);
    const bool captured = gone(real, stream);
    CUresult result = real->cuStreamDestroy_v2(stream);
    atomic_fetch_sub(&egpu_captures, captured);
    return result;
}

EGPU_EXPORT CUresult cuStreamDestroy(CUstream stream) {
    EGPU_DRIVER(real, cuStreamDestroy);
    const bool captured = gone(real, stream);
    CUresult result = real->cuStreamDestroy(stream);
    atomic_fetch_sub(&egpu_captures, captured);
    return result;
}
