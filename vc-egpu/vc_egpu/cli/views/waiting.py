"""``kubectl egpu why`` without a name: every gang that waits, and why."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.cli.views import owners, why
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import POD_GROUPS, PODS
from vc_egpu.report.gangs import GangRow
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


def read(api: ApiConnection, namespace: str | None) -> WaitingReport:
    """The report of one namespace; of all where it is None."""
    groups = api.list(POD_GROUPS, namespace).items
    pods = api.list(PODS, namespace, label_selector=world.MANAGED, transform=world.light_pod).items
    makers = world.makers(api, namespace)
    events = world.events(api, namespace, owners.REFUSED)
    return report(groups, pods, place=namespace or "", makers=makers, events=events)


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
    undecided = [group for group in groups if not _is_over_or_in(group)]
    members = world.members_of(pod for pod in pods if not world.finished(pod))
    made = {maker["metadata"].get("uid"): maker for maker in makers}
    rows = []
    for group, row in zip(undecided, partial_snapshot.gang_rows(undecided, members), strict=True):
        own = members.get(row.key, [])
        if own or not owners.wants_none(group, made.get(controller_of(group).get("uid", ""))):
            rows += [waits] if (waits := _waiting(row, group, own)) is not None else []
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


def _is_over_or_in(group: Json) -> bool:
    """Most are: their pods, which may be thousands, are not looked at."""
    return partial_snapshot.is_completed(group) or world.condition_is_true(group, names.CONDITION_ADMITTED)


def _waiting(row: GangRow, group: Json, members: list[Json]) -> WaitingGang | None:
    said = row.condition
    if said is None and not any(world.waits_for_us(pod) for pod in members):
        return None  # not ours, or made this moment
    return WaitingGang(
        gang=f"{group['metadata']['namespace']}/{why.name_of(group, members)}",
        queue=row.queue,
        share_class=row.share_class.name.lower(),
        reason=said.reason if said is not None else why.NO_VERDICT,
        since=said.since if said is not None else "",
        message=(said.message if said is not None else "") or why.NOT_LOOKED_AT,
    )
