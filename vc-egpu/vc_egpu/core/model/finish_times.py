"""When a pod ended, by the clock of the process that decides. Nodes use their own clock, which may be wrong.

Cards are kept for a replacement from that moment on. Pods that were made later are told from those that were
there before.
"""

import math
from typing import Final

from vc_egpu.core.model.cluster import Instant
from vc_egpu.core.model.policy import CLOCK_SKEW_S

REPORTED_S: Final = 10.0
"""A kubelet tells of an end within so long. Where it writes an earlier moment, its clock is behind, or it was
cut off. No controller made a replacement in that time either: they learn of the end when we do."""
LONG_AGO: Final[Instant] = 0.0


def seen(written: Instant, now: Instant) -> Instant:
    """When a pod ended that was seen to end at ``now``; ``written`` is what its node says.

    What is written holds where it can be true: our own moment is a little late, and a replacement may have
    been made before it. When pods were made is told in whole seconds.
    """
    return min(max(written, now - REPORTED_S), math.floor(now))


def read(written: Instant, now: Instant) -> Instant:
    """When a pod ended that was over when we came, at ``now``: a hold that ran out does not begin again.

    A moment far ahead was written by a clock that is wrong, and by how much is not known.
    """
    return min(written, now) if written <= now + CLOCK_SKEW_S else LONG_AGO
