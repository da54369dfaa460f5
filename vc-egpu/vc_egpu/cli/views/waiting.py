"""``kubectl egpu why`` without a name: every gang that waits, and why. Pure: documents in, rows out."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vc_egpu.cli import world
from vc_egpu.cli.views import owners, why
from vc_egpu.kube import Json
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.makers import controller_of


@dataclass(frozen=True, slots=True)
class WaitingGang:
    """One gang that has not been admitted."""

    gang: str
    """``namespace/name`` of the Job, Deployment or pod: what ``why`` takes."""
    queue: str
    share_class: str
    reason: str
    since: str
    """When this reason came about, as the API server writes times; empty if nothing was said yet."""
    message: str


@dataclass(frozen=True, slots=True)
class WaitingReport:
    """All of them, those that have waited longest first; and where was looked."""

    place: str
    """A namespace, or empty for all."""
    waiting: tuple[WaitingGang, ...]
    notes: tuple[str, ...] = ()
    """What cannot even wait: pods that are refused at the door."""


def report(
    groups: Iterable[Json],
    pods: Iterable[Json],
    *,
    place: str,
    makers: Sequence[Json] = (),
    events: Sequence[Json] = (),
) -> WaitingReport:
    """The gangs that the admission controller has not admitted, or has said nothing about yet.

    ``makers`` are ReplicaSets, StatefulSets and batch Jobs, ``events`` what they say of pods that they cannot
    make.
    """
    members = world.members_of(pod for pod in pods if not world.finished(pod))
    made = {maker["metadata"].get("uid"): maker for maker in makers}
    rows = []
    for group in groups:
        own = members.get(world.key(group), [])
        if own or not owners.wants_none(group, made.get(controller_of(group).get("uid", ""))):
            rows += [row] if (row := _row(group, own)) is not None else []
    waiting = tuple(sorted(rows, key=lambda row: (row.since or "~", row.gang)))
    return WaitingReport(place, waiting, tuple(_refusals(makers, events)))


def _refusals(makers: Iterable[Json], events: Sequence[Json]) -> Iterator[str]:
    about: dict[str, list[Json]] = defaultdict(list)
    for event in events:
        about[str((event.get("involvedObject") or {}).get("uid") or "")].append(event)
    for maker in filter(owners.lacks_pods, makers):
        metadata = maker["metadata"]
        told = owners.refusal(metadata["name"], about.get(metadata["uid"], ()), metadata["uid"])
        if told:
            yield f"{metadata['namespace']}: {told}"


def _row(group: Json, members: list[Json]) -> WaitingGang | None:
    said = world.condition(group)
    if (group.get("status") or {}).get("phase") == "Completed":
        return None
    if said is None and not any(names.GATE in world.gates(pod) for pod in members):
        return None  # not ours, or made this moment
    if said is not None and said.get("status") == "True":
        return None
    told = said or {}
    return WaitingGang(
        gang=f"{group['metadata']['namespace']}/{why.name_of(group, members)}",
        queue=world.queue_of(group, members),
        share_class=why.class_of(group, members),
        reason=told.get("reason") or why.NO_VERDICT,
        since=told.get("lastTransitionTime") or "",
        message=told.get("message") or why.NOT_LOOKED_AT,
    )
