/* Edges of graphs, and parameters of their nodes other than kernels. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

API CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    ENTER();
    TRY(graph_of(graph));
    for (size_t i = 0; i < count; i++) {
        TRY(node_of(from[i]));
        TRY(node_of(to[i]));
        CUgraphNode *grown = realloc(to[i]->needs, (to[i]->need_count + 1) * sizeof *grown);
        if (!grown) return CUDA_ERROR_OUT_OF_MEMORY;
        to[i]->needs = grown;
        grown[to[i]->need_count++] = from[i];
    }
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                       const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return cuGraphAddDependencies(graph, from, to, count);
}

static CUresult remove_edges(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    ENTER();
    TRY(graph_of(graph));
    for (size_t i = 0; i < count; i++) {
        TRY(node_of(to[i]));
        bool found = false;
        for (size_t k = 0; k < to[i]->need_count && !found; k++) {
            if (to[i]->needs[k] != from[i]) continue;
            to[i]->needs[k] = to[i]->needs[--to[i]->need_count];
            found = true;
        }
        if (!found) return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

API CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count) {
    return remove_edges(graph, from, to, count);
}

API CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *edges, size_t count) {
    (void)edges;
    return remove_edges(graph, from, to, count);
}

API CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
                                size_t *count) {
    ENTER();
    TRY(graph_of(graph));
    size_t room = from && to ? *count : 0, at = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        for (size_t i = 0; i < node->need_count; i++, at++) {
            if (at >= room) continue;
            from[at] = node->needs[i];
            to[at] = node;
            if (edges) edges[at] = (CUgraphEdgeData){0};
        }
    }
    *count = at;
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, size_t *count) {
    return cuGraphGetEdges_v2(graph, from, to, NULL, count);
}

API CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    if (edges && count) memset(edges, 0, *count * sizeof *edges);
    return cuGraphNodeGetDependencies(node, to, count);
}

API CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode *to, CUgraphEdgeData *edges, size_t *count) {
    ENTER();
    TRY(node_of(node));
    size_t room = to ? *count : 0, at = 0;
    for (CUgraphNode other = node->graph->first; other; other = other->next) {
        for (size_t i = 0; i < other->need_count; i++) {
            if (other->needs[i] != node) continue;
            if (at < room) to[at] = other;
            if (at < room && edges) edges[at] = (CUgraphEdgeData){0};
            at++;
        }
    }
    *count = at;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *to, size_t *count) {
    return cuGraphNodeGetDependentNodes_v2(node, to, NULL, count);
}

API CUresult cuGraphNodeFindInClone(CUgraphNode *to, CUgraphNode node, CUgraph clone) {
    ENTER();
    TRY(graph_of(clone));
    for (CUgraphNode twin = clone->first; twin; twin = twin->next) {
        if (twin->twin != node) continue;
        *to = twin;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* --- parameters --------------------------------------------------------------------------------- */
static CUresult of_kind(CUgraphNode node, CUgraphNodeType kind) {
    TRY(node_of(node));
    return node->content.type == kind ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *to) {
    ENTER();
    TRY(node_of(node));
    if (node->content.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return CUDA_ERROR_INVALID_VALUE;
    *to = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = node->content.memory.bytes, .dptr = node->content.memory.at};
    to->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    to->poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, node->content.memory.device};
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *to) {
    ENTER();
    TRY(node_of(node));
    if (node->content.type != CU_GRAPH_NODE_TYPE_MEM_FREE) return CUDA_ERROR_INVALID_VALUE;
    *to = node->content.memory.at;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *to) {
    ENTER();
    TRY(of_kind(node, CU_GRAPH_NODE_TYPE_MEMCPY));
    *to = node->content.copy_parameters;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *from) {
    ENTER();
    struct node_content content = copy_content(from);
    return node_set(node, &content);
}

API CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *from,
                                            CUcontext context) {
    ENTER();
    (void)context;
    struct node_content content = copy_content(from);
    return exec_set(exec, node, &content);
}

static struct node_content fill_content(const CUDA_MEMSET_NODE_PARAMS *from) {
    return (struct node_content){.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill_parameters = *from,
                                 .fill = {from->dst, from->value, from->elementSize, from->width * from->height}};
}

API CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS *to) {
    ENTER();
    TRY(of_kind(node, CU_GRAPH_NODE_TYPE_MEMSET));
    *to = node->content.fill_parameters;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *from) {
    ENTER();
    struct node_content content = fill_content(from);
    return node_set(node, &content);
}

API CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *from,
                                            CUcontext context) {
    ENTER();
    (void)context;
    struct node_content content = fill_content(from);
    return exec_set(exec, node, &content);
}

API CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS *to) {
    ENTER();
    TRY(of_kind(node, CU_GRAPH_NODE_TYPE_HOST));
    *to = (CUDA_HOST_NODE_PARAMS){node->content.host.function, node->content.host.data};
    return CUDA_SUCCESS;
}

API CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS *from) {
    ENTER();
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {from->fn, from->userData}};
    return node_set(node, &content);
}

API CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS *from) {
    ENTER();
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {from->fn, from->userData}};
    return exec_set(exec, node, &content);
}

API CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent *to) {
    ENTER();
    TRY(of_kind(node, CU_GRAPH_NODE_TYPE_EVENT_RECORD));
    *to = node->content.event;
    return CUDA_SUCCESS;
}

API CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent *to) {
    ENTER();
    TRY(of_kind(node, CU_GRAPH_NODE_TYPE_WAIT_EVENT));
    *to = node->content.event;
    return CUDA_SUCCESS;
}
