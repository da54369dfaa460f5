/* A container that is suspended does not bring itself back: its share of the card is somebody else's meanwhile. The agent
 * does, from outside. Its own checkpoints are the program's affair. */
#include "internal.h"

EGPU_EXPORT CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *how)
{
    EGPU_DRIVER(real, cuCheckpointProcessRestore);
    return egpu_suspended(egpu_control_refresh()) ? CUDA_ERROR_NOT_PERMITTED : real->cuCheckpointProcessRestore(pid, how);
}

/* What stands still before its memory goes would run on. */
EGPU_EXPORT CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *how)
{
    EGPU_DRIVER(real, cuCheckpointProcessUnlock);
    return egpu_suspended(egpu_control_refresh()) ? CUDA_ERROR_NOT_PERMITTED : real->cuCheckpointProcessUnlock(pid, how);
}
