/* What the files of the fake NVML share: handles, codes, and the present state under a lock. */
#pragma once

#include "cuda_view.h"
#include "state.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, GPU_IS_LOST = 15,
    LIB_RM_VERSION_MISMATCH = 18, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN_ERROR = 999,
};

/* A handle lives as long as the library: the uuid says which card of the present state it means. */
struct device {
    char uuid[TEXT];
    unsigned long long xid_told;
    bool registered;
    unsigned gi; /* of a MIG instance, one more than its id; else 0 */
};

typedef struct device *nvmlDevice_t;

extern pthread_mutex_t nvml_lock;
/* The MIG instance that a handle means, or NULL; only with the card as it is now. */
const struct instance *nvml_instance(const struct card *card, nvmlDevice_t device);

extern unsigned nvml_users; /* initialised so often, and not shut down */

/* For WITH_STATE and WITH_CARD: a function of the drivers from `major` on. A name that a real library lacks cannot go
 * from this one; callers get the same code. */
#define SINCE(major) if (atoi(state->driver) < (major)) result = FUNCTION_NOT_FOUND; else

/* Runs `body` with `state` bound, under the lock, unless the library or the node is in error. */
#define WITH_STATE(body)                                                     \
    do {                                                                     \
        pthread_mutex_lock(&nvml_lock);                                           \
        const struct state *state = state_now();                             \
        nvmlReturn_t result = !nvml_users ? UNINITIALIZED : (nvmlReturn_t)state->error; \
        if (result == SUCCESS) { body }                                      \
        pthread_mutex_unlock(&nvml_lock);                                         \
        return result;                                                       \
    } while (0)

/* The same with `card` bound: the card of `handle` as it is now. */
#define WITH_CARD(handle, body)                                              \
    WITH_STATE(                                                              \
        const struct card *card = (handle) ? card_with_cuda(state_card(state, (handle)->uuid)) : NULL; \
        if (!(handle)) result = INVALID_ARGUMENT;                            \
        else if (!card) result = GPU_IS_LOST;                                \
        else if (card->error) result = (nvmlReturn_t)card->error;            \
        else { body })
