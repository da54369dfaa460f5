/* Physical memory with handles, and what is bound to it. */
#pragma once

#include "driver.h"

enum { MAGIC_PHYSICAL = 0x50485953 };

struct physical {
    uint32_t magic, card, shared; /* shared: its place among fc_handles, or FC_NONE */
    size_t bytes;
    unsigned handles, mappings, bindings;
    int fd; /* memory file once it is exported or imported, else -1 */
    CUmemAllocationProp properties;
    void *kept; /* pages of the last mapping, while there is none */
    /* A multicast object: no memory of its own, but of others on the devices of its team. */
    unsigned team_size;
    uint64_t team;
    struct binding *bound;
};

CUresult physical_of(CUmemGenericAllocationHandle handle, struct physical **to);
/* Under driver.lock: what nobody holds any more goes. */
void physical_settle(struct physical *physical);
/* Under driver.lock: an object that goes lets go of what is bound to it. */
void multicast_gone(struct physical *object);
