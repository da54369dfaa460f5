"""A gang as a decision looks at it: members that wait, run or are planned, and how many are missing."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from vc_egpu.core.model.cluster import Gang, MemberPlacement, Pod, PodPhase, PodShape, PodUid, plan_key
from vc_egpu.core.model.resources import parts_of, shape_key

Mark = tuple[object, ...]
HOLDING: Final = frozenset({PodPhase.PLACED, PodPhase.TERMINATING})
"""Phases of pods that have their cards."""
OVER: Final = frozenset({PodPhase.SUCCEEDED, PodPhase.FAILED})
"""Phases of pods that have ended."""


class Member(NamedTuple):
    """A pod that waits for a place, or one that its controller will make from the gang's template."""

    key: str
    """Its key in a plan."""
    task: str
    shape_id: int
    """Equal exactly for equal shapes, within one index."""
    shape: PodShape
    is_made: bool = True
    """Whether its pod is there: what it asks for is written on it, and never changes."""
    subgroup: tuple[str, ...] = ()
    """See :attr:`.cluster.Pod.subgroup`."""


class PlannedMember(NamedTuple):
    """A member of a plan in force that does not carry the plan's id yet."""

    key: str
    placement: MemberPlacement
    member: Member | None
    """None: neither a pod nor a template stands behind it now."""


@dataclass(frozen=True, slots=True)
class GangView:
    """One gang and its pods, sorted so that equal clusters give equal views."""

    gang: Gang
    waiting: tuple[Member, ...] = ()
    """Gated by us alone and in no plan; includes members known from a template only."""
    foreign_gated: tuple[Pod, ...] = ()
    """Gated by another controller as well."""
    placed: tuple[Pod, ...] = ()
    terminating: tuple[Pod, ...] = ()
    failed: tuple[Pod, ...] = ()
    succeeded: tuple[Pod, ...] = ()
    planned: tuple[PlannedMember, ...] = ()
    carried: int = 0
    """Live pods that carry the id of the plan in force."""

    @property
    def present(self) -> int:
        """Members that count towards the minimum already: placed, planned or succeeded."""
        return len(self.placed) + len(self.succeeded) + len(self.planned)

    @property
    def missing(self) -> int:
        """How many more the minimum needs, or those of tasks do; zero where further members are surplus."""
        return max(self.gang.min_member - self.present, sum(self.lacking.values()))

    @property
    def lacking(self) -> dict[str, int]:
        """How many more single tasks need: others above the minimum are none of theirs."""
        if not self.gang.min_task_member:
            return {}
        return lacking(self.gang, task_counts(self.present_tasks()))

    def present_tasks(self) -> Iterator[str]:
        """The task of each member that counts towards the minimum already."""
        for pod in (*self.placed, *self.succeeded):
            yield pod.task
        for entry in self.planned:
            yield task_of(entry.key)

    @property
    def runs(self) -> bool:
        """Whether any member is on its node or on its way there."""
        return bool(self.placed)

    @property
    def runtime_s(self) -> float | None:
        """The members that wait all end within so long after their start; None: that is not known of all."""
        spans = [member.shape.runtime_s for member in self.waiting]
        return max((span for span in spans if span is not None), default=None) if None not in spans else None

    def without(self, leaving: Container[PodUid]) -> "GangView":
        """The same gang with pods that are to be evicted counted as terminating already.

        A gang on its way out must not be healed one member at a time while the others still run.
        """
        going = tuple(pod for pod in self.placed if pod.uid in leaving)
        if not going:
            return self
        staying = tuple(pod for pod in self.placed if pod.uid not in leaving)
        return replace(self, placed=staying, terminating=(*self.terminating, *going))


def view_of(gang: Gang, pods: Iterable[Pod], shape_ids: Mapping[PodUid, int], intern: "Intern") -> GangView:
    """Sort the gang's pods by what they mean for a decision. ``shape_ids`` is by pod UID."""
    plan = gang.plan
    by_phase: dict[PodPhase, list[Pod]] = {phase: [] for phase in PodPhase}
    for pod in sorted(pods, key=_pod_order):
        by_phase[pod.phase].append(pod)
    live = (*by_phase[PodPhase.GATED], *by_phase[PodPhase.PLACED], *by_phase[PodPhase.TERMINATING])
    by_key: dict[str, Member] = {}
    if gang.template and not live:
        for task, replicas, template in gang.template:
            shape = template.as_option(option_of(gang.choice, task)) or template
            shape_id = intern(shape)
            for index in range(replicas):
                key = f"{task}/{index}"
                subgroup = partition_of(gang, task, index)
                by_key[key] = Member(key, task, shape_id, shape, is_made=False, subgroup=subgroup)
    foreign: list[Pod] = []
    for pod in by_phase[PodPhase.GATED]:
        if pod.other_gates:
            foreign.append(pod)
        else:
            key = plan_key(pod)
            by_key[key] = Member(key, pod.task, shape_ids[pod.uid], pod.shape, subgroup=pod.subgroup)
    planned: list[PlannedMember] = []
    carried = 0
    if plan is not None:
        carriers = {
            plan_key(pod) for phase in PodPhase for pod in by_phase[phase] if pod.plan_id == plan.plan_id
        }
        carried = sum(1 for pod in live if pod.plan_id == plan.plan_id)
        planned = [
            PlannedMember(key, placement, by_key.get(key))
            for key, placement in sorted(plan.members.items(), key=lambda item: natural(item[0]))
            if key not in carriers
        ]
    in_plan = {entry.key for entry in planned}
    return GangView(
        gang=gang,
        waiting=tuple(member for key, member in by_key.items() if key not in in_plan),
        foreign_gated=tuple(foreign),
        placed=tuple(by_phase[PodPhase.PLACED]),
        terminating=tuple(by_phase[PodPhase.TERMINATING]),
        failed=tuple(by_phase[PodPhase.FAILED]),
        succeeded=tuple(by_phase[PodPhase.SUCCEEDED]),
        planned=tuple(planned),
        carried=carried,
    )


def partition_of(gang: Gang, task: str, index: int) -> tuple[str, ...]:
    """The subgroup that a pod will be in once it is made."""
    if task not in gang.partitions:
        return ()
    name, size = gang.partitions[task]
    return (name, str(index // size)) if size else (name,)


def option_of(choice: str, task: str) -> str:
    """The option that members of this task take: ``h20``, or by task ``ps=l20,w=h20``; empty: none yet."""
    if "=" not in choice:
        return choice
    return dict(part.partition("=")[::2] for part in choice.split(",")).get(task, "")


def is_made_otherwise(shape: PodShape, choice: str, task: str) -> bool:
    """Whether a pod was made before this choice, so that another has to take its place.

    An option that the pod does not have asks nothing of it: its template has changed since the choice.
    """
    name = option_of(choice, task)
    return shape.choice != name and any(option.name == name for option in shape.options)


def mark_of(
    view: GangView, kind_of: Callable[[Member], tuple[int, int]] = lambda member: (member.shape_id, -1)
) -> Mark | None:
    """Equal for gangs that any decision treats alike; None for one that has more to it than its asks.

    ``kind_of`` is equal for members that are alike.
    """
    gang = view.gang
    if view.placed or view.succeeded or view.planned or view.foreign_gated or not view.waiting:
        return None
    if any(member.shape.neighbours.grow for member in view.waiting):
        return None  # what is placed for one may be what another one waits for
    shapes: dict[tuple[str, tuple[int, int], tuple[str, ...]], int] = {}
    for member in view.waiting:
        kind = (member.task, kind_of(member), member.subgroup)
        shapes[kind] = shapes.get(kind, 0) + 1
    return (
        gang.queue,
        gang.share_class,
        gang.single,
        gang.min_member,
        gang.blocked_nodes,
        gang.most_per_node,
        gang.spares_since,
        gang.takes_free_room,
        gang.traits,
        gang.bound,
        tuple(sorted(gang.subgroups.items(), key=lambda entry: entry[0])),
        tuple(sorted(gang.min_task_member.items())),
        tuple(sorted(shapes.items())),
    )


def mark_in_any_queue(mark: Mark) -> Mark:
    """The same for gangs of all queues that ask for the same places: see :func:`mark_of`."""
    return mark[1:]


class Intern:
    """Numbers for shapes: equal shapes, equal number."""

    def __init__(self) -> None:
        self.parts = 0
        """The parts of all shapes together, see :func:`.resources.parts_of`."""
        self._numbers: dict[object, int] = {}

    def __call__(self, shape: PodShape) -> int:
        key, new = shape_key(shape), len(self._numbers)
        number = self._numbers.setdefault(key, new)
        if number == new:
            self.parts += parts_of(shape)
        return number

    def __len__(self) -> int:
        return len(self._numbers)


def natural(key: str) -> tuple[str, int]:
    """Sorts ``worker/2`` before ``worker/10``."""
    task, _, index = key.rpartition("/")
    return (task, int(index)) if task and index.isdecimal() else (key, -1)


def _pod_order(pod: Pod) -> tuple[str, int, str]:
    return (pod.task, pod.index, str(pod.uid))


def task_counts(tasks: Iterable[str]) -> dict[str, int]:
    """How many members of each task."""
    counts: dict[str, int] = {}
    for task in tasks:
        counts[task] = counts.get(task, 0) + 1
    return counts


def task_minimums(gang: Gang) -> dict[str, int]:
    """Each task's minimum; none where their sum exceeds the gang's own, as in Volcano."""
    return counted_minimums(gang.min_member, gang.min_task_member)


def counted_minimums(size: int, minimums: Mapping[str, int]) -> dict[str, int]:
    """Those minimums of tasks that count in a gang of this ``size``, as in Volcano's gang plugin."""
    counted = {task: count for task, count in minimums.items() if count > 0}
    return counted if sum(counted.values()) <= size else {}


class TooFew(NamedTuple):
    """What keeps a gang from being complete."""

    have: int
    wanted: int
    task: str = ""
    """Empty where the gang as a whole has too few members."""


def too_few(size: int, minimums: Mapping[str, int], counts: Mapping[str, int]) -> TooFew | None:
    """What the members of each task, ``counts``, lack to be a gang of ``size`` members; None if nothing.

    The door asks this of a Job, before any pod is made, and the decision of a gang. So no gang gets in that
    waits for ever.
    """
    have = sum(counts.values())
    if have < size:
        return TooFew(have, size)
    for task, wanted in sorted(counted_minimums(size, minimums).items()):
        if counts.get(task, 0) < wanted:
            return TooFew(counts.get(task, 0), wanted, task)
    return None


def lacking(gang: Gang, counts: Mapping[str, int]) -> dict[str, int]:
    """How many more members each task needs that has fewer than its minimum."""
    short = {task: least - counts.get(task, 0) for task, least in task_minimums(gang).items()}
    return {task: count for task, count in short.items() if count > 0}


def short_of(gang: Gang, tasks: Iterable[str]) -> TooFew | None:
    """What a gang whose members are of these tasks is short of; None where it is whole.

    Asked before a plan is made, while it stands, before its first gate falls, and for a roll-back.
    """
    return too_few(gang.min_member, gang.min_task_member, task_counts(tasks))


def task_of(key: str) -> str:
    """The task in a member's key in a plan; empty where it has no name of its own."""
    return key.rpartition("/")[0]


def shares_of(pods: Iterable[Pod]) -> int:
    """Cards held by these pods, a card counted once for each pod that sits on it."""
    return sum(len({share.card for _, share in pod.shares}) for pod in pods)
