/* Graphs that a program puts together by hand, and what it may ask of one. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

API CUresult cuGraphCreate(CUgraph *to, unsigned flags) {
    ENTER();
    if (!to || flags) return CUDA_ERROR_INVALID_VALUE;
    *to = graph_new();
    return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphDestroy(CUgraph graph) {
    ENTER();
    TRY(graph_of(graph));
    graph_free(graph);
    return CUDA_SUCCESS;
}

API CUresult cuGraphClone(CUgraph *to, CUgraph graph) {
    ENTER();
    TRY(graph_of(graph));
    *to = graph_clone(graph);
    return *to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                    const struct node_content *content) {
    TRY(graph_of(graph));
    if (!to || (count && !needs)) return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    CUresult result = graph_add(graph, needs, count, content, to);
    pthread_mutex_unlock(&driver.lock);
    return result;
}

/* --- kernels ------------------------------------------------------------------------------------ */
static CUresult kernel_content(const CUDA_KERNEL_NODE_PARAMS_v1 *from, CUkernel kernel, struct node_content *content) {
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    *content = (struct node_content){.type = CU_GRAPH_NODE_TYPE_KERNEL};
    TRY(launch_prepare(from->func ? from->func : (CUfunction)kernel, from->kernelParams, from->extra, &content->launch));
    content->launch.grid[0] = from->gridDimX, content->launch.grid[1] = from->gridDimY;
    content->launch.grid[2] = from->gridDimZ, content->launch.block[0] = from->blockDimX;
    content->launch.block[1] = from->blockDimY, content->launch.block[2] = from->blockDimZ;
    content->launch.shared_bytes = from->sharedMemBytes;
    return CUDA_SUCCESS;
}

API CUresult cuGraphAddKernelNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                  const CUDA_KERNEL_NODE_PARAMS_v1 *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content(from, NULL, &content));
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddKernelNode_v2(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                     const CUDA_KERNEL_NODE_PARAMS *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content((const CUDA_KERNEL_NODE_PARAMS_v1 *)from, from ? from->kern : NULL, &content));
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *to) {
    ENTER();
    TRY(node_of(node));
    if (node->content.type != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
    struct launch *launch = &node->content.launch;
    static _Thread_local void *parameters[MAX_PARAMETERS];
    for (size_t i = 0; i < launch->function->parameter_count; i++) {
        parameters[i] = launch->arguments + launch->function->offsets[i];
    }
    *to = (CUDA_KERNEL_NODE_PARAMS){
        .func = launch->function, .gridDimX = launch->grid[0], .gridDimY = launch->grid[1], .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0], .blockDimY = launch->block[1], .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared_bytes, .kernelParams = parameters};
    return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *to) {
    CUDA_KERNEL_NODE_PARAMS wide;
    TRY(cuGraphKernelNodeGetParams_v2(node, &wide));
    memcpy(to, &wide, sizeof *to);
    return CUDA_SUCCESS;
}

CUresult node_set(CUgraphNode node, const struct node_content *content) {
    TRY(node_of(node));
    if (node->content.type != content->type) return CUDA_ERROR_INVALID_VALUE;
    node->content = *content;
    return CUDA_SUCCESS;
}

API CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content((const CUDA_KERNEL_NODE_PARAMS_v1 *)from, from ? from->kern : NULL, &content));
    return node_set(node, &content);
}

API CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content(from, NULL, &content));
    return node_set(node, &content);
}

API CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content((const CUDA_KERNEL_NODE_PARAMS_v1 *)from, from ? from->kern : NULL, &content));
    return exec_set(exec, node, &content);
}

API CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *from) {
    struct node_content content;
    ENTER();
    TRY(kernel_content(from, NULL, &content));
    return exec_set(exec, node, &content);
}

/* --- the other kinds ---------------------------------------------------------------------------- */
struct node_content copy_content(const CUDA_MEMCPY3D *from) {
    bool host = from->srcMemoryType == CU_MEMORYTYPE_HOST || from->dstMemoryType == CU_MEMORYTYPE_HOST;
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMCPY, .copy_parameters = *from};
    content.copy.bytes = from->WidthInBytes * from->Height * from->Depth;
    content.copy.device = !host;
    if (from->Height == 1 && from->Depth == 1 && from->srcMemoryType != CU_MEMORYTYPE_ARRAY &&
        from->dstMemoryType != CU_MEMORYTYPE_ARRAY) {
        content.copy.from = from->srcXInBytes + (from->srcMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)from->srcHost
                                                                                          : from->srcDevice);
        content.copy.to = from->dstXInBytes + (from->dstMemoryType == CU_MEMORYTYPE_HOST ? (CUdeviceptr)from->dstHost
                                                                                        : from->dstDevice);
    }
    return content;
}

API CUresult cuGraphAddMemcpyNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                  const CUDA_MEMCPY3D *from, CUcontext context) {
    ENTER();
    (void)context;
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    struct node_content content = copy_content(from);
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddMemsetNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                  const CUDA_MEMSET_NODE_PARAMS *from, CUcontext context) {
    ENTER();
    (void)context;
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .fill_parameters = *from,
                                   .fill = {from->dst, from->value, from->elementSize, from->width * from->height}};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddHostNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                const CUDA_HOST_NODE_PARAMS *from) {
    ENTER();
    if (!from || !from->fn) return CUDA_ERROR_INVALID_VALUE;
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {from->fn, from->userData}};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddChildGraphNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                      CUgraph child) {
    ENTER();
    TRY(graph_of(child));
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = graph_clone(child)};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddEmptyNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count) {
    ENTER();
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddEventRecordNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                       CUevent event) {
    ENTER();
    TRY(event_of(event));
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD, .event = event};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddEventWaitNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                     CUevent event) {
    ENTER();
    TRY(event_of(event));
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_WAIT_EVENT, .event = event};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddMemAllocNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                    CUDA_MEM_ALLOC_NODE_PARAMS *from) {
    struct visible_card *card;
    ENTER();
    if (!from || !from->bytesize) return CUDA_ERROR_INVALID_VALUE;
    TRY(card_of(from->poolProps.location.id, &card));
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                                   .memory = {from->bytesize, 0, from->poolProps.location.id}};
    TRY(graph_memory_reserve(from->poolProps.location.id, from->bytesize, &content.memory.at));
    from->dptr = content.memory.at;
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddMemFreeNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                                   CUdeviceptr pointer) {
    ENTER();
    struct node_content content = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE, .memory = {0, pointer, 0}};
    return add(to, graph, needs, count, &content);
}

API CUresult cuGraphAddNode(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, size_t count,
                            CUgraphNodeParams *from) {
    if (!from) return CUDA_ERROR_INVALID_VALUE;
    switch (from->type) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return cuGraphAddKernelNode_v2(to, graph, needs, count, &from->kernel);
        case CU_GRAPH_NODE_TYPE_MEMCPY:
            return cuGraphAddMemcpyNode(to, graph, needs, count, &from->memcpy.copyParams, from->memcpy.copyCtx);
        case CU_GRAPH_NODE_TYPE_MEMSET:
            return cuGraphAddMemsetNode(to, graph, needs, count, &from->memset.plain, from->memset.ctx);
        case CU_GRAPH_NODE_TYPE_HOST: return cuGraphAddHostNode(to, graph, needs, count, &from->host);
        case CU_GRAPH_NODE_TYPE_GRAPH: return cuGraphAddChildGraphNode(to, graph, needs, count, from->graph.graph);
        case CU_GRAPH_NODE_TYPE_EMPTY: return cuGraphAddEmptyNode(to, graph, needs, count);
        case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
            return cuGraphAddEventWaitNode(to, graph, needs, count, from->eventWait.event);
        case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
            return cuGraphAddEventRecordNode(to, graph, needs, count, from->eventRecord.event);
        case CU_GRAPH_NODE_TYPE_MEM_ALLOC: return cuGraphAddMemAllocNode(to, graph, needs, count, &from->alloc);
        case CU_GRAPH_NODE_TYPE_MEM_FREE: return cuGraphAddMemFreeNode(to, graph, needs, count, from->free.dptr);
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

API CUresult cuGraphAddNode_v2(CUgraphNode *to, CUgraph graph, const CUgraphNode *needs, const CUgraphEdgeData *edges,
                               size_t count, CUgraphNodeParams *from) {
    (void)edges;
    return cuGraphAddNode(to, graph, needs, count, from);
}

/* --- questions ---------------------------------------------------------------------------------- */
API CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *to, size_t *count) {
    ENTER();
    TRY(graph_of(graph));
    size_t room = to ? *count : 0, at = 0;
    for (CUgraphNode node = graph->first; node; node = node->next, at++) {
        if (at < room) to[at] = node;
    }
    for (size_t i = at; i < room; i++) to[i] = NULL;
    *count = at;
    return CUDA_SUCCESS;
}

API CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *to, size_t *count) {
    ENTER();
    TRY(graph_of(graph));
    size_t room = to ? *count : 0, at = 0;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        if (node->need_count) continue;
        if (at < room) to[at] = node;
        at++;
    }
    *count = at;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
    ENTER();
    TRY(node_of(node));
    *type = node->content.type;
    return CUDA_SUCCESS;
}

API CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *to, size_t *count) {
    ENTER();
    TRY(node_of(node));
    for (size_t i = 0; to && i < *count && i < node->need_count; i++) to[i] = node->needs[i];
    *count = node->need_count;
    return CUDA_SUCCESS;
}

API CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *to) {
    ENTER();
    TRY(node_of(node));
    if (!node->content.child) return CUDA_ERROR_INVALID_VALUE;
    *to = node->content.child;
    return CUDA_SUCCESS;
}
