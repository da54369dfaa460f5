/* The calls that take memory: what they share. */
#pragma once

#include "../usage/usage.h"
#include "hooks.h"

/* --- charge.c --------------------------------------------------------------------------------------- */

/* Card of a device or context for charging: an index, EGPU_NO_CARD or EGPU_NO_LIMITS. Refreshes the limits. */
int egpu_charged_device(CUdevice device);
int egpu_charged_current(void);
/* Charges this process: CUDA_SUCCESS, or CUDA_ERROR_OUT_OF_MEMORY and nothing is charged. Under the lock of pools or
 * graphs, which it asks what they have given back, use egpu_try_charge(). */
CUresult egpu_charge(int card, uint64_t device, uint64_t managed);
struct egpu_room egpu_room_on(int card);
void egpu_pools_refresh(int card);

/* --- between the wrappers -------------------------------------------------------------------------- */

uint64_t egpu_current_context(void);
/* A linear allocation of `bytes` by `allocate`, charged or spilled. */
CUresult egpu_linear(CUdeviceptr *pointer, uint64_t bytes, CUresult (*allocate)(CUdeviceptr *, void *), void *data);
/* That pool, or the graphs of a card, have shrunk or grown: reads what they hold. */
void egpu_pool_refresh(CUmemoryPool pool);
void egpu_graphs_refresh(int card);
/* The device on which memory of that place lies; -1: on none, it is the host's. */
CUdevice egpu_device_at(const CUmemLocation *place);
/* By what two processes know a handle that one has passed to the other. */
uint64_t egpu_blob_key(const void *blob, size_t size);
void egpu_pools_synchronised(void);
/* Moves `bytes` of what is charged for that pool into a new shared entry of that key, which is returned, or -1. */
int egpu_pool_pass(uint64_t pool, uint64_t key, uint64_t bytes);
/* A new backing like that, with one reference, for a handle; its key, or 0 for want of memory. */
uint64_t egpu_new_backing(const struct egpu_track *like, CUmemGenericAllocationHandle handle);
void egpu_drop_backing(uint64_t backing);
/* Of the mapping that holds this address; 0: there is none. */
uint64_t egpu_backing_at(CUdeviceptr address);
/* A multicast object that had that backing is gone. */
enum { EGPU_MULTICAST = 1, EGPU_MULTICAST_ABROAD = 2 /* other processes may have it */ };
void egpu_multicast_gone(uint64_t object);
/* That handle, if it is one of such an object, has been given away. */
void egpu_multicast_abroad(CUmemGenericAllocationHandle handle);
/* Frees of a pointer from a pool; false: it is not from one. */
bool egpu_pooled_free(CUdeviceptr pointer, struct egpu_track *track);
void egpu_pooled_freed(const struct egpu_track *track);
/* The memory of a freed EGPU_LINEAR is the card's again. */
void egpu_end_linear(const struct egpu_track *track);
/* Takes out the context's track and those of what was allocated in it; and says that they have ended. */
struct egpu_track *egpu_context_take(uint64_t context, size_t *count);
void egpu_end_of_context(const struct egpu_track *tracks, size_t count);

/* --- context.c, for primary.c ------------------------------------------------------------------------ */

/* What one context is expected to take, as the agent has learnt it. */
uint64_t egpu_context_overhead(int card);
CUresult egpu_context_reserve(int card);
/* A context was made, for which so much was charged. */
void egpu_context_keep(CUcontext context, int card, uint64_t bytes);
/* One is about to end. What was made in it goes before the driver ends it: afterwards handle and addresses may be another
 * thread's, and events and streams nobody's. Follow with egpu_context_ended(): it has, or it lives on. */
struct egpu_ending { struct egpu_track *tracks; size_t count; };
struct egpu_ending egpu_context_ending(CUcontext context);
void egpu_context_ended(struct egpu_ending *ending, bool really);
