/* Waits for a card, after which pools may have given memory back. */
#include "memory.h"

static CUresult synchronised(CUresult result)
{
    egpu_pools_synchronised();
    return result;
}

EGPU_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    EGPU_DRIVER(real, cuStreamSynchronize);
    return synchronised(real->cuStreamSynchronize(stream));
}

EGPU_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    EGPU_DRIVER(real, cuStreamSynchronize_ptsz);
    return synchronised(real->cuStreamSynchronize_ptsz(stream));
}

EGPU_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    EGPU_DRIVER(real, cuEventSynchronize);
    return synchronised(real->cuEventSynchronize(event));
}

EGPU_EXPORT CUresult cuCtxSynchronize(void)
{
    EGPU_DRIVER(real, cuCtxSynchronize);
    return synchronised(real->cuCtxSynchronize());
}

EGPU_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    EGPU_DRIVER(real, cuCtxSynchronize_v2);
    return synchronised(real->cuCtxSynchronize_v2(context));
}
