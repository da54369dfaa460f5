/* What comes from outside: memory that another interface took on the card. */
#include "memory.h"

/* Memory of Vulkan, OpenGL or another container's device: no call of ours saw it being taken, and the program uses it as
 * its own. So it is charged to whoever imports it, by the size he names, for as long as he keeps it: once per import,
 * as nothing tells two imports of one piece from imports of two. */
EGPU_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)
{
    EGPU_DRIVER(real, cuImportExternalMemory);
    const int card = memory && what ? egpu_charged_current() : EGPU_NO_LIMITS;
    if (card == EGPU_NO_LIMITS)
        return real->cuImportExternalMemory(memory, what);
    const uint64_t bytes = egpu_round(what->size);
    CUresult result = egpu_charge(card, bytes, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = real->cuImportExternalMemory(memory, what);
    if (result != CUDA_SUCCESS) {
        egpu_discharge(card, bytes, 0);
        return result;
    }
    const struct egpu_track track = {.key = (uint64_t)(uintptr_t)*memory, .kind = EGPU_EXTERNAL, .card = card,
                                     .bytes = bytes, .context = egpu_current_context(), .shared = -1, .references = 1};
    if (egpu_put(&track))
        return result;
    if (real->cuDestroyExternalMemory)
        real->cuDestroyExternalMemory(*memory);
    egpu_discharge(card, bytes, 0);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

EGPU_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    EGPU_DRIVER(real, cuDestroyExternalMemory);
    struct egpu_track track;
    bool known = egpu_take(EGPU_EXTERNAL, (uint64_t)(uintptr_t)memory, &track);
    CUresult result = real->cuDestroyExternalMemory(memory);
    if (known && result == CUDA_SUCCESS)
        egpu_end_track(&track);
    else if (known)
        egpu_put(&track);
    return result;
}
