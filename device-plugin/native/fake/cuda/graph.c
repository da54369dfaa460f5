/* Graphs as data: nodes, clones, and the memory of allocation nodes. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

CUresult graph_of(CUgraph graph) {
    return graph && graph->magic == MAGIC_GRAPH ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult node_of(CUgraphNode node) {
    return node && node->magic == MAGIC_NODE ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUgraph graph_new(void) {
    CUgraph graph = calloc(1, sizeof *graph);
    if (graph) graph->magic = MAGIC_GRAPH;
    return graph;
}

void graph_free(CUgraph graph) {
    for (CUgraphNode node = graph->first, next; node; node = next) {
        next = node->next;
        if (node->content.child) graph_free(node->content.child);
        node->magic = MAGIC_DEAD;
        free(node->needs);
        free(node);
    }
    objects_drop(graph);
    graph->magic = MAGIC_DEAD;
    free(graph);
}

CUresult graph_add(CUgraph graph, const CUgraphNode *needs, size_t count, const struct node_content *content,
                   CUgraphNode *to) {
    for (size_t i = 0; i < count; i++) {
        if (node_of(needs[i]) != CUDA_SUCCESS || needs[i]->graph != graph) return CUDA_ERROR_INVALID_VALUE;
    }
    CUgraphNode node = calloc(1, sizeof *node);
    CUgraphNode *copy = malloc((count + 1) * sizeof *copy);
    if (!node || !copy) {
        free(node);
        free(copy);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (count) memcpy(copy, needs, count * sizeof *copy);
    *node = (struct CUgraphNode_st){.magic = MAGIC_NODE, .graph = graph, .content = *content, .needs = copy,
                                    .need_count = count};
    if (graph->last) graph->last->next = node;
    else graph->first = node;
    graph->last = node;
    graph->count++;
    if (to) *to = node;
    return CUDA_SUCCESS;
}

CUgraph graph_clone(CUgraph graph) {
    CUgraph clone = graph_new();
    if (clone && objects_clone(clone, graph) != CUDA_SUCCESS) return NULL;
    for (CUgraphNode node = graph->first; clone && node; node = node->next) {
        CUgraphNode twin;
        struct node_content content = node->content;
        if (content.child) content.child = graph_clone(content.child);
        if (graph_add(clone, NULL, 0, &content, &twin) != CUDA_SUCCESS) return NULL;
        twin->twin = node;
        free(twin->needs);
        twin->needs = malloc((node->need_count + 1) * sizeof *twin->needs);
        if (!twin->needs) return NULL;
        /* What a node needs was mostly added before it; dependencies that were added later lie behind it. */
        for (size_t i = 0; i < node->need_count; i++) {
            for (CUgraphNode other = clone->first; other; other = other->next) {
                if (other->twin == node->needs[i]) twin->needs[twin->need_count++] = other;
            }
        }
    }
    return clone;
}

/* --- memory of allocation nodes ------------------------------------------------------------------ */
struct graph_memory { CUdeviceptr at; size_t bytes; CUdevice device; bool used; struct graph_memory *next; };
static struct graph_memory *memories;
static struct { uint64_t used, used_high, reserved, reserved_high; } totals[FC_CARDS];

CUresult graph_memory_reserve(CUdevice device, size_t bytes, CUdeviceptr *to) {
    CUcontext context;
    TRY(current(&context));
    struct graph_memory *memory = calloc(1, sizeof *memory);
    if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
    *memory = (struct graph_memory){.at = space_take(bytes), .bytes = granules(bytes), .device = device};
    pthread_mutex_lock(&driver.lock);
    struct block block = {.base = memory->at, .bytes = bytes, .kind = BLOCK_GRAPH, .context = context, .device = device};
    bool added = memory->at && block_add(block);
    if (added) {
        memory->next = memories;
        memories = memory;
        *to = memory->at;
    }
    pthread_mutex_unlock(&driver.lock);
    return added ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult graph_memory_use(CUdeviceptr at, bool use) {
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&driver.lock);
    for (struct graph_memory *memory = memories; memory; memory = memory->next) {
        if (memory->at != at || memory->used == use) continue;
        CUdevice device = memory->device;
        uint64_t used = use ? totals[device].used + memory->bytes : totals[device].used - memory->bytes;
        result = CUDA_SUCCESS;
        if (used > totals[device].reserved) {
            result = charge(driver.cards[device].index, used - totals[device].reserved);
            if (result != CUDA_SUCCESS) break;
            totals[device].reserved = used;
        }
        totals[device].used = used;
        memory->used = use;
        if (used > totals[device].used_high) totals[device].used_high = used;
        if (totals[device].reserved > totals[device].reserved_high) totals[device].reserved_high = totals[device].reserved;
        break;
    }
    pthread_mutex_unlock(&driver.lock);
    return result;
}

API CUresult cuDeviceGraphMemTrim(CUdevice device) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    pthread_mutex_lock(&driver.lock);
    discharge(card->index, totals[device].reserved - totals[device].used);
    totals[device].reserved = totals[device].used;
    pthread_mutex_unlock(&driver.lock);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void *to) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    if (!to || which < 0 || which > 3) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t *values[] = {&totals[device].used, &totals[device].used_high, &totals[device].reserved,
                                &totals[device].reserved_high};
    memcpy(to, values[which], sizeof(uint64_t));
    return CUDA_SUCCESS;
}

API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute which, void *from) {
    struct visible_card *card;
    ENTER();
    TRY(card_of(device, &card));
    uint64_t value;
    if (!from || (which != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH && which != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(&value, from, sizeof value);
    if (value) return CUDA_ERROR_INVALID_VALUE;
    if (which == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) totals[device].used_high = totals[device].used;
    else totals[device].reserved_high = totals[device].reserved;
    return CUDA_SUCCESS;
}
