"""Pods that are over, with the moment at which that counts for this leader.

The rule is in :mod:`vc_egpu.core.model.finish_times`.
"""

from dataclasses import dataclass, replace

from vc_egpu.core.model import finish_times
from vc_egpu.core.model.cluster import Instant
from vc_egpu.volcano.codec.pod_codec import DecodedPod


@dataclass(slots=True)
class Ends:
    """Owned by the mirror. The loop says what time it is, and when its first lists are taken in."""

    now: Instant | None = None
    """Of what is taken in now; None: nobody says, and what nodes write counts."""
    first_lists: bool = True
    """What comes is how things stood when this leader came, not what happens."""

    def enter(self, decoded: DecodedPod, before: DecodedPod | None) -> DecodedPod:
        """The pod with that moment as its end. It ends once: ``before``, an earlier reading, may have it."""
        written = decoded.pod.finished
        if written is None or self.now is None:
            return decoded
        known = before.pod.finished if before is not None else None
        if known is None:
            known = (finish_times.read if self.first_lists else finish_times.seen)(written, self.now)
        return decoded if known == written else replace(decoded, pod=replace(decoded.pod, finished=known))
