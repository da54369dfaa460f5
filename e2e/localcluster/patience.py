"""How long this package waits where a machine is slower than most: emulated, or very busy."""

from __future__ import annotations

import math
import os

from localcluster.errors import LocalClusterError

VARIABLE = "VC_EGPU_PATIENCE"


def stretched(seconds: float) -> float:
    """A wait that is long enough on a usual machine, times VC_EGPU_PATIENCE (1 where it is not set)."""
    text = os.environ.get(VARIABLE) or "1"
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 1 <= factor < math.inf:
        raise LocalClusterError(f"{VARIABLE}={text}: a number from 1 on is needed, as in {VARIABLE}=10")
    return seconds * factor
