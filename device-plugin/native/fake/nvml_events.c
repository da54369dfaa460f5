/* Events of the fake NVML: XIDs that appear in the file. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EVENT_DOUBLE_BIT_ECC = 0x2, EVENT_XID = 0x8 };

struct event_set { nvmlDevice_t devices[MAX_CARDS]; size_t count; };
typedef struct event_set *nvmlEventSet_t;
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

API nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    WITH_CARD(device, *types = EVENT_DOUBLE_BIT_ECC | EVENT_XID;);
}

API nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    WITH_STATE(
        *set = calloc(1, sizeof **set);
        if (!*set) result = INVALID_ARGUMENT;);
}

/* XIDs that the file already shows when a process registers first are the past, as with the real library.
 * Between two registrations nothing is lost, so that tests need not hit the moment in between. */
API nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    (void)types;
    WITH_CARD(device,
        if (set->count == MAX_CARDS) {
            result = INVALID_ARGUMENT;
        } else {
            set->devices[set->count++] = device;
            unsigned long long newest = 0;
            for (size_t i = 0; i < card->xid_count; i++) {
                if (card->xids[i].number > newest) newest = card->xids[i].number;
            }
            /* Fewer than were told: another test's file, with a history of its own. */
            if (!device->registered || newest < device->xid_told) device->xid_told = newest;
            device->registered = true;
        });
}

static bool next_event(const struct state *state, struct event_set *set, nvmlEventData_t *data) {
    for (size_t i = 0; i < set->count; i++) {
        nvmlDevice_t device = set->devices[i];
        const struct card *card = state_card(state, device->uuid);
        for (size_t x = 0; card && x < card->xid_count; x++) {
            if (card->xids[x].number <= device->xid_told) continue;
            device->xid_told = card->xids[x].number;
            memset(data, 0, sizeof *data);
            data->device = device;
            data->eventType = EVENT_XID;
            data->eventData = card->xids[x].code;
            return true;
        }
    }
    return false;
}

static nvmlReturn_t take_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    WITH_STATE(if (!next_event(state, set, data)) result = TIMEOUT;);
}

API nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (;;) {
        nvmlReturn_t result = take_event(set, data);
        if (result != TIMEOUT) return result;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long left = (long long)timeout_ms - (now.tv_sec - begin.tv_sec) * 1000LL -
                         (now.tv_nsec - begin.tv_nsec) / 1000000LL;
        if (left <= 0) return TIMEOUT;
        /* The watch starts after the look above: a change in between is seen at the latest in 200 ms. */
        state_wait(left > 200 ? 200 : (int)left);
    }
}

API nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return SUCCESS;
}
