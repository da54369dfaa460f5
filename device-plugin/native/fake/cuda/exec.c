/* Graphs at work: instantiation and launch. A graph's run on the card is one unit, cut only where a host function or
 * an event must come in between. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static CUresult check_nodes(CUgraph graph, bool auto_free) {
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->content.type == CU_GRAPH_NODE_TYPE_CONDITIONAL || node->content.type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP) {
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (node->content.child) TRY(check_nodes(node->content.child, auto_free));
    }
    return CUDA_SUCCESS;
}

static CUresult instantiate(CUgraphExec *to, CUgraph graph, unsigned long long flags) {
    CUcontext context;
    TRY(current(&context));
    TRY(graph_of(graph));
    if (!to || flags & ~15ull) return CUDA_ERROR_INVALID_VALUE;
    TRY(check_nodes(graph, flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
    CUgraphExec exec = calloc(1, sizeof *exec);
    if (!exec) return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&driver.lock);
    *exec = (struct CUgraphExec_st){.magic = MAGIC_EXEC, .graph = graph_clone(graph), .context = context, .flags = flags};
    pthread_mutex_unlock(&driver.lock);
    *to = exec;
    return exec->graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphInstantiate(CUgraphExec *to, CUgraph graph, CUgraphNode *error, char *text, size_t bytes) {
    ENTER();
    if (error) *error = NULL;
    if (text && bytes) *text = '\0';
    return instantiate(to, graph, 0);
}

API CUresult cuGraphInstantiate_v2(CUgraphExec *to, CUgraph graph, CUgraphNode *error, char *text, size_t bytes) {
    return cuGraphInstantiate(to, graph, error, text, bytes);
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *to, CUgraph graph, unsigned long long flags) {
    ENTER();
    return instantiate(to, graph, flags);
}

API CUresult cuGraphInstantiateWithParams(CUgraphExec *to, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how) {
    ENTER();
    if (!how) return CUDA_ERROR_INVALID_VALUE;
    how->hErrNode_out = NULL;
    how->result_out = 0;
    return instantiate(to, graph, how->flags);
}

API CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *to, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how) {
    return cuGraphInstantiateWithParams(to, graph, how);
}

static CUresult exec_of(CUgraphExec exec) {
    return exec && exec->magic == MAGIC_EXEC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphExecGetFlags(CUgraphExec exec, uint64_t *flags) {
    ENTER();
    TRY(exec_of(exec));
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* --- launch ------------------------------------------------------------------------------------- */
static uint64_t length_of(const struct node_content *content) {
    if (content->type == CU_GRAPH_NODE_TYPE_KERNEL) return noisy(content->launch.length);
    if (content->type == CU_GRAPH_NODE_TYPE_MEMCPY) return copy_ns(content->copy.bytes, !content->copy.device);
    if (content->type == CU_GRAPH_NODE_TYPE_MEMSET) return copy_ns(content->fill.width * content->fill.count, false);
    return 0;
}

static void effect_of(const struct node_content *content) {
    if (content->type == CU_GRAPH_NODE_TYPE_KERNEL) launch_effect(&content->launch);
    if (content->type == CU_GRAPH_NODE_TYPE_MEMCPY && content->copy.to) {
        content_copy(content->copy.to, content->copy.from, content->copy.bytes);
    }
    if (content->type == CU_GRAPH_NODE_TYPE_MEMSET) {
        content_fill(content->fill.to, content->fill.value, content->fill.width, content->fill.count);
    }
}

static CUresult flush(CUstream stream, uint64_t *length) {
    uint64_t now = *length;
    *length = 0;
    return now ? submit(stream, FC_GRAPH, now, NULL, NULL) : CUDA_SUCCESS;
}

static CUresult run(CUgraph graph, CUstream stream, uint64_t *length) {
    for (CUgraphNode node = graph->first; node; node = node->next) {
        const struct node_content *content = &node->content;
        if (node->disabled) continue;
        if (content->child) {
            TRY(run(content->child, stream, length));
        } else if (content->type == CU_GRAPH_NODE_TYPE_HOST) {
            TRY(flush(stream, length));
            TRY(submit_host(stream, content->host.function, content->host.data));
        } else if (content->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
            TRY(flush(stream, length));
            TRY(event_record(content->event, stream));
        } else if (content->type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
            TRY(flush(stream, length));
            TRY(event_wait(content->event, stream));
        } else if (content->type == CU_GRAPH_NODE_TYPE_KERNEL && content->launch.kind == FC_MEET) {
            TRY(flush(stream, length));
            TRY(run_launch(stream, &content->launch));
        } else if (content->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
            graph_memory_use(content->memory.at, false);
        } else {
            effect_of(content);
            *length += length_of(content);
        }
    }
    return CUDA_SUCCESS;
}

/* Memory first: a graph that does not fit does not run at all. */
static CUresult take_memory(CUgraphExec exec) {
    for (CUgraphNode node = exec->graph->first; node; node = node->next) {
        if (node->content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
        if (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) graph_memory_use(node->content.memory.at, false);
        CUresult result = graph_memory_use(node->content.memory.at, true);
        if (result == CUDA_SUCCESS) continue;
        for (CUgraphNode before = exec->graph->first; before != node; before = before->next) {
            if (before->content.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) graph_memory_use(before->content.memory.at, false);
        }
        return result;
    }
    return CUDA_SUCCESS;
}

static CUresult launch(CUgraphExec exec, CUstream handle) {
    CUstream stream;
    uint64_t length = 0;
    TRY(enter("cuGraphLaunch"));
    TRY(exec_of(exec));
    TRY(stream_of(handle, &stream));
    if (stream->capture) {
        struct node_content content = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = graph_clone(exec->graph)};
        return capture_add(stream, &content);
    }
    TRY(context_warm(stream->context));
    TRY(take_memory(exec));
    TRY(run(exec->graph, stream, &length));
    return flush(stream, &length);
}
EXPORT_TSZ(cuGraphLaunch, (CUgraphExec exec, CUstream stream), launch(exec, stream))

static CUresult upload(CUgraphExec exec, CUstream handle) {
    CUstream stream;
    TRY(enter("cuGraphUpload"));
    TRY(exec_of(exec));
    return stream_of(handle, &stream);
}
EXPORT_TSZ(cuGraphUpload, (CUgraphExec exec, CUstream stream), upload(exec, stream))

API CUresult cuGraphExecDestroy(CUgraphExec exec) {
    ENTER();
    TRY(exec_of(exec));
    pthread_mutex_lock(&driver.lock);
    graph_free(exec->graph);
    pthread_mutex_unlock(&driver.lock);
    exec->magic = MAGIC_DEAD;
    free(exec);
    return CUDA_SUCCESS;
}

/* --- changes to what was instantiated ------------------------------------------------------------ */
static CUgraphNode twin_in(CUgraphExec exec, CUgraphNode node) {
    for (CUgraphNode twin = exec->graph->first; twin; twin = twin->next) {
        if (twin->twin == node) return twin;
    }
    return NULL;
}

CUresult exec_set(CUgraphExec exec, CUgraphNode node, const struct node_content *content) {
    TRY(exec_of(exec));
    CUgraphNode twin = twin_in(exec, node);
    if (!twin || twin->content.type != content->type) return CUDA_ERROR_INVALID_VALUE;
    twin->content = *content;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
    ENTER();
    TRY(exec_of(exec));
    CUgraphNode twin = twin_in(exec, node);
    if (!twin) return CUDA_ERROR_INVALID_VALUE;
    twin->disabled = !enabled;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned *enabled) {
    ENTER();
    TRY(exec_of(exec));
    CUgraphNode twin = twin_in(exec, node);
    if (!twin) return CUDA_ERROR_INVALID_VALUE;
    *enabled = !twin->disabled;
    return CUDA_SUCCESS;
}

/* The same nodes in the same order, or nothing changes. */
static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *why) {
    TRY(exec_of(exec));
    TRY(graph_of(graph));
    CUgraphNode old = exec->graph->first, new = graph->first;
    for (; old && new; old = old->next, new = new->next) {
        if (old->content.type == new->content.type && old->need_count == new->need_count) continue;
        *error = new;
        *why = old->content.type == new->content.type ? 2 : 3;
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    *why = old || new ? 2 : 0;
    *error = new;
    if (old || new) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    CUgraph clone = graph_clone(graph);
    if (!clone) return CUDA_ERROR_OUT_OF_MEMORY;
    graph_free(exec->graph);
    exec->graph = clone;
    return CUDA_SUCCESS;
}

API CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error, CUgraphExecUpdateResult *why) {
    ENTER();
    CUgraphNode place = NULL;
    CUgraphExecUpdateResult reason = 0;
    CUresult result = update(exec, graph, &place, &reason);
    if (error) *error = place;
    if (why) *why = reason;
    return result;
}

API CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info) {
    ENTER();
    CUgraphExecUpdateResultInfo said = {0};
    CUresult result = update(exec, graph, &said.errorNode, &said.result);
    if (info) *info = said;
    return result;
}
