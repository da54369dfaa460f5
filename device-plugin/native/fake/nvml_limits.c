/* Memory limits of control groups: nvmlDeviceSetMemoryLimits_v1 and its counterpart, from driver 615 on.
 *
 * As NVIDIA's pages say: set in bytes on a control group's folder, not with MIG, cleared by 0 and the largest number.
 * One that was never set is answered with "not supported", as public programs have seen it of a real driver. A group
 * without a limit of its own has none here, whatever those above it have. */
#include "nvml.h"
#include "cuda/shared.h"

typedef struct { const char *nameSpace; unsigned long long softLimit, hardLimit; } nvmlSetMemoryLimits_v1_t;
typedef struct { const char *nameSpace; unsigned long long softLimit, hardLimit, currentUsed; } nvmlGetMemoryLimits_v1_t;

API nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
    WITH_CARD(device,
        SINCE(615) if (!limits || !limits->nameSpace || limits->softLimit > limits->hardLimit) result = INVALID_ARGUMENT;
        else if (card->mig) result = NOT_SUPPORTED;
        else if (card->limits_error) result = (nvmlReturn_t)card->limits_error;
        else {
            uint64_t group = fc_group_of(limits->nameSpace);
            if (!group) result = NOT_FOUND;
            else if (!card->limits_lost && !fc_limit_put(card->uuid, group, limits->softLimit, limits->hardLimit))
                result = UNKNOWN_ERROR;
        });
}

API nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    WITH_CARD(device,
        SINCE(615) if (!limits || !limits->nameSpace) result = INVALID_ARGUMENT;
        else if (card->mig) result = NOT_SUPPORTED;
        else {
            uint64_t soft;
            uint64_t hard;
            uint64_t group = fc_group_of(limits->nameSpace);
            if (!group) result = NOT_FOUND;
            else if (!fc_limit_get(card->uuid, group, &soft, &hard)) result = NOT_SUPPORTED;
            else {
                limits->softLimit = soft;
                limits->hardLimit = hard;
                limits->currentUsed = used_in_group(card->uuid, group);
            }
        });
}
