/* Memory nodes of graphs: charged when a graph is made executable, for the card takes what they need at the launch,
 * where no error would be expected. What a card keeps for graphs beyond that is charged too, until it is trimmed. */
#include "memory.h"

#include <stdlib.h>

enum { DEPTH = 64, MOST_NODES = 1 << 24 };

static struct egpu_lock graph_lock;

struct need {
    uint64_t bytes[EGPU_MAX_CARDS];
    CUdevice device[EGPU_MAX_CARDS];
    bool any, refused; /* refused: some of it on a card that is not one of this container's, or too much to look at */
};

static void add_nodes(const struct egpu_real *real, CUgraph graph, struct need *need, int depth)
{
    size_t count = 0;
    if (real->cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || !count)
        return;
    CUgraphNode *nodes = depth < DEPTH && count <= MOST_NODES ? calloc(count, sizeof *nodes) : NULL;
    need->refused |= !nodes;
    if (!nodes || real->cuGraphGetNodes(graph, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count; i++) {
        CUgraphNodeType type;
        CUgraph child;
        CUDA_MEM_ALLOC_NODE_PARAMS wanted;
        if (real->cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_GRAPH && real->cuGraphChildGraphNodeGetGraph &&
            real->cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
            add_nodes(real, child, need, depth + 1);
        if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !real->cuGraphMemAllocNodeGetParams ||
            real->cuGraphMemAllocNodeGetParams(nodes[i], &wanted) != CUDA_SUCCESS)
            continue;
        const CUdevice device = egpu_device_at(&wanted.poolProps.location);
        int card = device < 0 ? EGPU_NO_LIMITS : egpu_charged_device(device);
        need->refused |= card == EGPU_NO_CARD;
        if (card < 0)
            continue;
        need->any = true;
        need->device[card] = device;
        need->bytes[card] = egpu_add(need->bytes[card], egpu_round(wanted.bytesize));
    }
    free(nodes);
}

static uint64_t reserved(CUdevice device)
{
    const struct egpu_real *real = egpu_driver();
    uint64_t bytes = 0;
    if (real->cuDeviceGetGraphMemAttribute &&
        real->cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS)
        return egpu_round(bytes);
    return 0;
}

/* Charges the larger of what executable graphs may take and what the card keeps for them. */
static void update(int card, uint64_t more, uint64_t less, CUdevice device)
{
    struct egpu_track track;
    egpu_lock(&graph_lock);
    if (!egpu_get(EGPU_GRAPHS, (uint64_t)card, &track))
        track = (struct egpu_track){.key = (uint64_t)card, .kind = EGPU_GRAPHS, .card = card, .shared = -1,
                                    .references = (uint32_t)device};
    track.other = egpu_sub(egpu_add(track.other, more), less);
    const uint64_t before = egpu_add(track.bytes, more), kept = reserved((CUdevice)track.references);
    track.bytes = kept > track.other ? kept : track.other;
    egpu_put(&track);
    egpu_unlock(&graph_lock);
    egpu_charge_anyway(card, egpu_sub(track.bytes, before), 0);
    egpu_discharge(card, egpu_sub(before, track.bytes), 0);
}

void egpu_graphs_refresh(int card)
{
    struct egpu_track track;
    if (card >= 0 && egpu_get(EGPU_GRAPHS, (uint64_t)card, &track))
        update(card, 0, 0, 0);
}

static CUresult reserve(CUgraph graph, struct need *need)
{
    const struct egpu_real *real = egpu_driver();
    *need = (struct need){0};
    if (!real->cuGraphGetNodes || !real->cuGraphNodeGetType)
        return CUDA_SUCCESS;
    add_nodes(real, graph, need, 0);
    if (need->refused)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int card = 0; need->any && card < EGPU_MAX_CARDS; card++)
        if (egpu_charge(card, need->bytes[card], 0) != CUDA_SUCCESS) {
            while (--card >= 0)
                egpu_discharge(card, need->bytes[card], 0);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    return CUDA_SUCCESS;
}

static uint64_t exec_key(CUgraphExec exec, int card)
{
    return (uint64_t)(uintptr_t)exec * EGPU_MAX_CARDS + (unsigned)card;
}

static CUresult made(CUresult result, const CUgraphExec *exec, CUgraph graph, const struct need *need)
{
    for (int card = 0; need->any && card < EGPU_MAX_CARDS; card++) {
        if (!need->bytes[card])
            continue;
        if (result != CUDA_SUCCESS) {
            egpu_discharge(card, need->bytes[card], 0);
            continue;
        }
        egpu_put(&(struct egpu_track){.key = exec_key(*exec, card), .kind = EGPU_EXEC, .card = card,
                                      .bytes = need->bytes[card], .shared = -1, .references = 1});
        update(card, need->bytes[card], 0, need->device[card]);
    }
    if (result == CUDA_SUCCESS && egpu_time_exec_made)
        egpu_time_exec_made(*exec, graph);
    return result;
}

#define INSTANTIATE(call)                                   \
    do {                                                    \
        struct need need;                                   \
        CUresult result = reserve(graph, &need);            \
        return result ? result : made(call, exec, graph, &need); \
    } while (0)

EGPU_EXPORT CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log, size_t size)
{
    EGPU_DRIVER(real, cuGraphInstantiate);
    INSTANTIATE(real->cuGraphInstantiate(exec, graph, node, log, size));
}

EGPU_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
                                           size_t size)
{
    EGPU_DRIVER(real, cuGraphInstantiate_v2);
    INSTANTIATE(real->cuGraphInstantiate_v2(exec, graph, node, log, size));
}

EGPU_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    EGPU_DRIVER(real, cuGraphInstantiateWithFlags);
    INSTANTIATE(real->cuGraphInstantiateWithFlags(exec, graph, flags));
}

EGPU_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                                  CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    EGPU_DRIVER(real, cuGraphInstantiateWithParams);
    INSTANTIATE(real->cuGraphInstantiateWithParams(exec, graph, parameters));
}

EGPU_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    EGPU_DRIVER(real, cuGraphInstantiateWithParams_ptsz);
    INSTANTIATE(real->cuGraphInstantiateWithParams_ptsz(exec, graph, parameters));
}

EGPU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    EGPU_DRIVER(real, cuGraphExecDestroy);
    struct egpu_track tracks[EGPU_MAX_CARDS];
    size_t count = 0;
    if (egpu_time_exec_gone)
        egpu_time_exec_gone(exec);
    for (int card = 0; card < EGPU_MAX_CARDS; card++)
        count += egpu_take(EGPU_EXEC, exec_key(exec, card), &tracks[count]);
    CUresult result = real->cuGraphExecDestroy(exec);
    for (size_t i = 0; i < count; i++) {
        if (result == CUDA_SUCCESS)
            update(tracks[i].card, 0, tracks[i].bytes, 0);
        else
            egpu_put(&tracks[i]);
    }
    return result;
}

EGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    EGPU_DRIVER(real, cuDeviceGraphMemTrim);
    CUresult result = real->cuDeviceGraphMemTrim(device);
    egpu_graphs_refresh(egpu_charged_device(device));
    return result;
}
