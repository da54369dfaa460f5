"""What work usually comes, for placement policies that look at it: learned here, kept for the next leader.

The loop owns it, and tells it of each change of a pod. Now and then the outcome is written, see
:mod:`.keeper`. A new leader reads it. Where that cannot be read, it learns from the pods that are there. It
is never needed for a right decision: only for a better place.
"""

import json
from dataclasses import dataclass
from typing import Final

from vc_egpu.admission.kept.keeper import Form
from vc_egpu.core.model.cluster import Instant, Pod
from vc_egpu.core.model.gangs import HOLDING, OVER
from vc_egpu.core.model.policy import FGD, OURS, Mix, Policy
from vc_egpu.core.placing.learning import Count, Experience, Kind, ended, placed, restored, seen
from vc_egpu.report import values_codec

LEARNS: Final = frozenset({FGD, OURS})
"""The meanings of binpack that look at the mix."""


def learns(policy: Policy) -> bool:
    """Whether anything is placed by a policy that looks at the mix: by default, or by a rule."""
    return not LEARNS.isdisjoint({policy.binpack, *policy.profiles.policies})


KEY: Final = "usual-work.json"
WRITE_EVERY_S: Final = 300.0
MOST_BYTES: Final = 256 * 1024
"""A ConfigMap takes 1 MiB. Pods with long affinities make large classes: the rarest are left out then."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class KeptClass:
    """One class of pods in the document."""

    kind: Kind
    count: Count


@dataclass(frozen=True, slots=True)
class Kept:
    """The document."""

    version: int
    pods: int
    ends: int
    placed_mib: float
    released_mib: float
    classes: tuple[KeptClass, ...]


def encode(experience: Experience) -> str:
    """The experience as text of :data:`MOST_BYTES` at most."""
    classes = sorted(experience.counts.items(), key=lambda entry: -entry[1].pods)
    while True:
        kept = Kept(
            version=_VERSION,
            pods=experience.pods,
            ends=experience.ends,
            placed_mib=experience.placed_mib,
            released_mib=experience.released_mib,
            classes=tuple(
                KeptClass(kind, Count(count.pods / experience.scale, count.held_s / experience.scale))
                for kind, count in classes
            ),
        )
        text = json.dumps(values_codec.encode(kept, Kept), separators=(",", ":"))
        if len(text.encode()) <= MOST_BYTES or not classes:
            return text
        classes = classes[: len(classes) // 2]


def decode(text: str) -> Experience:
    """The experience in a text. Raises ``ValueError``."""
    try:
        kept: Kept = values_codec.decode(json.loads(text), Kept)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if kept.version != _VERSION:
        raise ValueError(f"it has version {kept.version}; this program reads version {_VERSION}")
    counts = {each.kind: each.count for each in kept.classes}
    return restored(counts, kept.pods, kept.ends, (kept.placed_mib, kept.released_mib))


class UsualWork:
    """The experience of one leadership. Without ``learns`` it stays empty and costs nothing."""

    def __init__(self, *, learns: bool = False) -> None:
        self.learns = learns
        self.experience = Experience()

    @property
    def mix(self) -> Mix:
        """For the policy of the next decision."""
        return self.experience.mix

    def begin(self, kept: Experience) -> None:
        """Go on from what an earlier leader learned."""
        self.experience = kept

    def change(self, before: Pod | None, now: Pod | None, at: Instant | None) -> None:
        """A managed pod came, changed or went. ``at``: now; None: it is not known."""
        if not self.learns:
            return
        held = before is not None and before.phase in HOLDING
        if before is None and now is not None and now.phase not in OVER:
            self.experience = seen(self.experience, [now.shape])
        if before is not None and not held and now is not None and now.phase in HOLDING:
            self.experience = placed(self.experience, [now.shape])
        if held and before is not None and (now is None or now.phase in OVER):
            since = before.started if before.started is not None else at
            held_s = at - since if at is not None and since is not None else 0.0
            self.experience = ended(self.experience, before.shape, held_s)


FORM: Final = Form[Experience](
    key=KEY,
    encode=encode,
    decode=decode,
    every_s=WRITE_EVERY_S,
    nothing=Experience(),
    unread="what work usually comes is learned from the pods there are",
)
