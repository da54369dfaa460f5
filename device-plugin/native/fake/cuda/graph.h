/* Graphs: nodes in the order in which they were added, each with what it depends on. */
#pragma once

#include "driver.h"

struct node_content {
    CUgraphNodeType type;
    struct launch launch;                                       /* KERNEL */
    struct { CUdeviceptr to, from; size_t bytes; bool device; } copy;   /* MEMCPY; device: within cards */
    struct { CUdeviceptr to; uint64_t value; unsigned width; size_t count; } fill; /* MEMSET */
    struct { CUhostFn function; void *data; } host;
    CUevent event;                                              /* WAIT_EVENT, EVENT_RECORD */
    CUgraph child;
    struct { size_t bytes; CUdeviceptr at; CUdevice device; } memory;   /* MEM_ALLOC, MEM_FREE */
    CUDA_MEMCPY3D copy_parameters;
    CUDA_MEMSET_NODE_PARAMS fill_parameters;
};

struct CUgraphNode_st {
    uint32_t magic;
    CUgraph graph;
    struct node_content content;
    CUgraphNode *needs;
    size_t need_count;
    CUgraphNode next, twin; /* twin: in the graph that this one was cloned from */
    bool disabled, freed;   /* freed: another node of the graph frees what this one allocates */
};

struct CUgraph_st {
    uint32_t magic;
    CUgraphNode first, last;
    size_t count;
    bool captured, owned;
    struct held *held; /* objects that it refers to */
};

struct CUgraphExec_st {
    uint32_t magic;
    CUgraph graph; /* a clone of its own */
    CUcontext context;
    uint64_t flags;
    bool allocated; /* memory of its nodes is in use */
};

struct capture {
    CUgraph graph;
    CUstream origin;
    CUstreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
    unsigned long long id;
    unsigned streams;
};

CUgraph graph_new(void);
void graph_free(CUgraph graph);
CUgraph graph_clone(CUgraph graph);
CUresult graph_add(CUgraph graph, const CUgraphNode *needs, size_t count, const struct node_content *content,
                   CUgraphNode *to);
CUresult graph_of(CUgraph graph);
CUresult node_of(CUgraphNode node);

/* --- objects.c: what a graph refers to --- */
CUresult objects_clone(CUgraph to, CUgraph from);
void objects_drop(CUgraph graph);

/* Memory of a graph's allocation nodes: reserved address space, charged while it is in use. */
CUresult graph_memory_reserve(CUdevice device, size_t bytes, CUdeviceptr *to);
CUresult graph_memory_use(CUdeviceptr at, bool use);

struct node_content copy_content(const CUDA_MEMCPY3D *from);
/* Gives a node, of a graph or of what was instantiated from it, another content of the same kind. */
CUresult node_set(CUgraphNode node, const struct node_content *content);
CUresult exec_set(CUgraphExec exec, CUgraphNode node, const struct node_content *content);
