/* Stream capture: calls become nodes of a graph, and calls that would wait or synchronise are refused. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct capture *captures[64];
static _Atomic int capturing;
static _Thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

/* A call that might wait for the card. It spoils the captures that forbid it. */
CUresult capture_forbids(void) {
    if (!capturing || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    bool forbidden = false;
    pthread_mutex_lock(&driver.lock);
    for (int i = 0; i < 64; i++) {
        struct capture *capture = captures[i];
        if (!capture || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        bool mine = pthread_equal(capture->thread, pthread_self());
        if (!mine && (capture->mode != CU_STREAM_CAPTURE_MODE_GLOBAL || thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL)) {
            continue;
        }
        capture->invalid = forbidden = true;
    }
    pthread_mutex_unlock(&driver.lock);
    return forbidden ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* Work in the default stream waits for blocking streams: it cannot, while one is being captured. */
CUresult capture_implies(CUstream stream) {
    if (!capturing || stream != &stream->context->null) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&driver.lock);
    for (CUstream other = stream->context->streams; other; other = other->next) {
        if (!other->capture || other->flags & CU_STREAM_NON_BLOCKING) continue;
        other->capture->invalid = true;
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

static CUresult set_tails(CUstream stream, const CUgraphNode *nodes, size_t count) {
    CUgraphNode *tails = malloc((count ? count : 1) * sizeof *tails);
    if (!tails) return CUDA_ERROR_OUT_OF_MEMORY;
    if (count) memcpy(tails, nodes, count * sizeof *tails);
    free(stream->tails);
    stream->tails = tails;
    stream->tail_count = count;
    return CUDA_SUCCESS;
}

CUresult capture_add(CUstream stream, const struct node_content *content) {
    CUgraphNode node;
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    pthread_mutex_lock(&driver.lock);
    CUresult result = graph_add(stream->capture->graph, stream->tails, stream->tail_count, content, &node);
    if (result == CUDA_SUCCESS) result = set_tails(stream, &node, 1);
    if (result != CUDA_SUCCESS) stream->capture->invalid = true;
    pthread_mutex_unlock(&driver.lock);
    return result;
}

CUresult capture_event_record(CUstream stream, CUevent event, bool external) {
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event};
        return capture_add(stream, &content);
    }
    pthread_mutex_lock(&driver.lock);
    CUgraphNode *nodes = malloc((stream->tail_count + 1) * sizeof *nodes);
    if (nodes) {
        if (stream->tail_count) memcpy(nodes, stream->tails, stream->tail_count * sizeof *nodes);
        free(event->nodes);
        event->nodes = nodes;
        event->node_count = stream->tail_count;
        event->capture = stream->capture;
    }
    pthread_mutex_unlock(&driver.lock);
    return nodes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static bool is_live(const struct capture *capture) {
    for (int i = 0; i < 64; i++) {
        if (captures[i] == capture) return true;
    }
    return false;
}

/* An event of this capture joins the streams; one from before it cannot be waited for. */
CUresult capture_event_wait(CUstream stream, CUevent event, bool external) {
    if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external && stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event};
        return capture_add(stream, &content);
    }
    if (!event->capture) {
        stream->capture->invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    pthread_mutex_lock(&driver.lock);
    CUresult result = CUDA_SUCCESS;
    if (!is_live(event->capture)) result = CUDA_ERROR_CAPTURED_EVENT;
    else if (stream->capture && stream->capture != event->capture) result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    else if (stream == &stream->context->null) result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (result == CUDA_SUCCESS && !stream->capture) {
        stream->capture = event->capture;
        stream->capture->streams++;
        stream->tail_count = 0;
    }
    size_t count = stream->tail_count + event->node_count;
    CUgraphNode *both = result == CUDA_SUCCESS ? malloc((count + 1) * sizeof *both) : NULL;
    if (both) {
        if (stream->tail_count) memcpy(both, stream->tails, stream->tail_count * sizeof *both);
        if (event->node_count) memcpy(both + stream->tail_count, event->nodes, event->node_count * sizeof *both);
        result = set_tails(stream, both, count);
        free(both);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* --- begin and end ------------------------------------------------------------------------------ */
static CUresult begin(CUstream handle, CUstreamCaptureMode mode, CUgraph into, const CUgraphNode *needs, size_t count) {
    CUstream stream;
    TRY(enter("cuStreamBeginCapture"));
    TRY(stream_of(handle, &stream));
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    if (stream == &stream->context->null) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    struct capture *capture = calloc(1, sizeof *capture);
    if (!capture) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver.lock);
    *capture = (struct capture){.graph = into ? into : graph_new(), .origin = stream, .mode = mode,
                                .thread = pthread_self(), .id = ++driver.ids, .streams = 1};
    int place = 0;
    while (place < 64 && captures[place]) place++;
    CUresult result = place < 64 && capture->graph ? set_tails(stream, needs, count) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        capture->graph->captured = into != NULL; /* true: it is the caller's, and stays if the capture fails */
        captures[place] = capture;
        capturing++;
        stream->capture = capture;
    } else {
        free(capture);
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}
EXPORT_TSZ(cuStreamBeginCapture, (CUstream stream), begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0))
EXPORT_TSZ(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode), begin(stream, mode, NULL, NULL, 0))
EXPORT_TSZ(cuStreamBeginCaptureToGraph,
           (CUstream stream, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges, size_t count,
            CUstreamCaptureMode mode),
           ((void)edges, graph ? begin(stream, mode, graph, needs, count) : CUDA_ERROR_INVALID_VALUE))

/* Whether `node` is one of those that lie on some way to the given ones. */
static bool leads_to(CUgraphNode node, const CUgraphNode *ends, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (ends[i] == node || leads_to(node, ends[i]->needs, ends[i]->need_count)) return true;
    }
    return false;
}

static bool joined(const struct capture *capture) {
    for (CUcontext context = driver.contexts; context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            if (stream->capture != capture || stream == capture->origin) continue;
            for (size_t i = 0; i < stream->tail_count; i++) {
                if (!leads_to(stream->tails[i], capture->origin->tails, capture->origin->tail_count)) return false;
            }
        }
    }
    return true;
}

static void leave(struct capture *capture) {
    for (CUcontext context = driver.contexts; context; context = context->next) {
        for (CUstream stream = context->streams; stream; stream = stream->next) {
            if (stream->capture == capture) stream->capture = NULL;
        }
    }
    for (int i = 0; i < 64; i++) {
        if (captures[i] == capture) captures[i] = NULL;
    }
    capturing--;
}

/* A stream that is destroyed ends the capture that began there, and spoils one that it only joined. */
void capture_stream_gone(CUstream stream) {
    pthread_mutex_lock(&driver.lock);
    struct capture *capture = stream->capture;
    if (capture && capture->origin == stream) {
        leave(capture);
        if (!capture->graph->captured) graph_free(capture->graph);
        free(capture);
    } else if (capture) {
        capture->invalid = true;
    }
    pthread_mutex_unlock(&driver.lock);
}

static CUresult end(CUstream handle, CUgraph *to) {
    CUstream stream;
    TRY(enter("cuStreamEndCapture"));
    TRY(stream_of(handle, &stream));
    struct capture *capture = stream->capture;
    if (!to) return CUDA_ERROR_INVALID_VALUE;
    if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self())) {
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    }
    *to = NULL;
    pthread_mutex_lock(&driver.lock);
    CUresult result = capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                      : joined(capture) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    leave(capture);
    if (result == CUDA_SUCCESS) *to = capture->graph;
    else if (!capture->graph->captured) graph_free(capture->graph);
    free(capture);
    pthread_mutex_unlock(&driver.lock);
    return result;
}
EXPORT_TSZ(cuStreamEndCapture, (CUstream stream, CUgraph *to), end(stream, to))

/* --- questions ---------------------------------------------------------------------------------- */
static CUresult info(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,
                     const CUgraphNode **nodes, const CUgraphEdgeData **edges, size_t *count) {
    CUstream stream;
    TRY(enter("cuStreamGetCaptureInfo"));
    TRY(stream_of(handle, &stream));
    if (!status) return CUDA_ERROR_INVALID_VALUE;
    TRY(capture_implies(stream));
    const struct capture *capture = stream->capture;
    *status = !capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
    if (id) *id = capture->id;
    if (graph) *graph = capture->graph;
    if (nodes) *nodes = stream->tails;
    if (edges) *edges = NULL;
    if (count) *count = stream->tail_count;
    return CUDA_SUCCESS;
}
EXPORT_TSZ(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
           info(stream, status, NULL, NULL, NULL, NULL, NULL))
EXPORT_TSZ(cuStreamGetCaptureInfo, (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id),
           info(stream, status, id, NULL, NULL, NULL, NULL))
EXPORT_TSZ(cuStreamGetCaptureInfo_v2,
           (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
            size_t *count),
           info(stream, status, id, graph, nodes, NULL, count))
EXPORT_TSZ(cuStreamGetCaptureInfo_v3,
           (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph, const CUgraphNode **nodes,
            const CUgraphEdgeData **edges, size_t *count),
           info(stream, status, id, graph, nodes, edges, count))

static CUresult update(CUstream handle, CUgraphNode *nodes, size_t count, unsigned flags) {
    CUstream stream;
    TRY(enter("cuStreamUpdateCaptureDependencies"));
    TRY(stream_of(handle, &stream));
    if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    size_t before = flags ? 0 : stream->tail_count;
    CUgraphNode *all = malloc((before + count + 1) * sizeof *all);
    if (!all) return CUDA_ERROR_OUT_OF_MEMORY;
    if (before) memcpy(all, stream->tails, before * sizeof *all);
    if (count) memcpy(all + before, nodes, count * sizeof *all);
    CUresult result = set_tails(stream, all, before + count);
    free(all);
    return result;
}
EXPORT_TSZ(cuStreamUpdateCaptureDependencies, (CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags),
           update(stream, nodes, count, flags))
EXPORT_TSZ(cuStreamUpdateCaptureDependencies_v2,
           (CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edges, size_t count, unsigned flags),
           ((void)edges, update(stream, nodes, count, flags)))

API CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER();
    if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
