/* Objects of the program that live as long as a graph refers to them. */
#include "graph.h"

#include <stdlib.h>

struct CUuserObject_st {
    uint32_t magic;
    unsigned references;
    void *value;
    CUhostFn destroy;
};

struct held { CUuserObject object; unsigned count; struct held *next; };

static CUresult object_of(CUuserObject object, unsigned count) {
    return object && object->magic == MAGIC_OBJECT && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult take(CUuserObject object, unsigned count) {
    TRY(object_of(object, count));
    pthread_mutex_lock(&driver.lock);
    object->references += count;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

static CUresult give(CUuserObject object, unsigned count) {
    TRY(object_of(object, count));
    pthread_mutex_lock(&driver.lock);
    bool enough = object->references >= count, last = object->references == count;
    if (enough) object->references -= count;
    if (last) object->magic = MAGIC_DEAD;
    pthread_mutex_unlock(&driver.lock);
    if (!enough) return CUDA_ERROR_INVALID_VALUE;
    if (last) {
        object->destroy(object->value);
        free(object);
    }
    return CUDA_SUCCESS;
}

API CUresult cuUserObjectCreate(CUuserObject *to, void *value, CUhostFn destroy, unsigned count, unsigned flags) {
    ENTER();
    if (!to || !destroy || !count || flags != 1) return CUDA_ERROR_INVALID_VALUE; /* 1: its end waits for nothing */
    CUuserObject object = calloc(1, sizeof *object);
    if (!object) return CUDA_ERROR_OUT_OF_MEMORY;
    *object = (struct CUuserObject_st){.magic = MAGIC_OBJECT, .references = count, .value = value, .destroy = destroy};
    *to = object;
    return CUDA_SUCCESS;
}

API CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
    ENTER();
    return take(object, count);
}

API CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
    ENTER();
    return give(object, count);
}

static CUresult hold(CUgraph graph, CUuserObject object, unsigned count) {
    struct held *held = calloc(1, sizeof *held);
    if (!held) return CUDA_ERROR_OUT_OF_MEMORY;
    *held = (struct held){object, count, graph->held};
    graph->held = held;
    return CUDA_SUCCESS;
}

/* flags 1: the caller's own references become the graph's. */
API CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
    ENTER();
    TRY(graph_of(graph));
    TRY(object_of(object, count));
    if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
    if (!flags) TRY(take(object, count));
    return hold(graph, object, count);
}

API CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
    ENTER();
    TRY(graph_of(graph));
    TRY(object_of(object, count));
    for (struct held **at = &graph->held; *at; at = &(*at)->next) {
        struct held *held = *at;
        if (held->object != object || held->count < count) continue;
        held->count -= count;
        if (!held->count) {
            *at = held->next;
            free(held);
        }
        return give(object, count);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult objects_clone(CUgraph to, CUgraph from) {
    for (struct held *held = from->held; held; held = held->next) {
        TRY(take(held->object, held->count));
        TRY(hold(to, held->object, held->count));
    }
    return CUDA_SUCCESS;
}

void objects_drop(CUgraph graph) {
    for (struct held *held = graph->held, *next; held; held = next) {
        next = held->next;
        give(held->object, held->count);
        free(held);
    }
    graph->held = NULL;
}
