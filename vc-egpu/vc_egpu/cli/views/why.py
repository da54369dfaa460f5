"""``kubectl egpu why JOB``: what became of a gang, in the words of its condition.

Pure: documents in, story out.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vc_egpu.cli import world
from vc_egpu.cli.views import history, owners, trouble
from vc_egpu.core.model.cluster import Instant
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.model.words import few
from vc_egpu.kube import Json
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import slips
from vc_egpu.volcano.words.makers import controller_of, deployment_behind

NO_VERDICT = "NoVerdictYet"
NOT_MANAGED = "NotManaged"
ASKS_FOR_NONE = "AsksForNone"
WAITS_FOR_MEMBERS = Reason.WAITING_FOR_MEMBERS.value
ONE_BY_ONE = (
    "a StatefulSet makes each pod once the one before it is ready, which none is until the gang is complete: "
    "it needs podManagementPolicy: Parallel"
)
LEFT_OVER = (
    "nobody owns its PodGroup: where it was left over (a Job went without its pods, or a backup brought it), "
    "`kubectl delete podgroup {}`, by whoever runs the cluster, ends this"
)
NOT_LOOKED_AT = "the admission controller has not looked at it yet"
_WITH_PLAN = frozenset({"Admitted", "WaitingForEviction"})
"""Reasons under which a plan on the PodGroup counts; under others it is the record of an earlier one."""


_OVER = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases of Jobs that hold nothing and wait for nothing."""
_SETS = frozenset({"ReplicaSet", "StatefulSet"})
_MAX_NAMED = 5
_UNASKED = world.Listing(())


Gang = tuple[Json, list[Json]]
"""A PodGroup and its members."""


class UnknownJobError(LookupError):
    """There is nothing of that name; the text names what is near."""


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One pod of a gang."""

    pod: str
    phase: str
    node: str
    cards: tuple[str, ...]
    """``<uuid> <MiB> MiB <percent> % cores``."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class GangStory:
    """One gang: its verdict and its members."""

    group: str
    """``namespace/name`` of the PodGroup."""
    job: str
    queue: str
    share_class: str
    min_member: int
    admitted: bool
    reason: str
    message: str
    since: str
    """When the verdict came about, as the API server writes times; empty if unknown."""
    phase: str
    has_plan: bool
    rolled_back: str
    """How often, when, why and what follows from it; empty if not within the last hour."""
    members: tuple[MemberRow, ...] = ()
    notes: tuple[str, ...] = field(default=())


def stories(
    name: str,
    namespace: str,
    *,
    groups: Sequence[Json],
    pods: Sequence[Json],
    queues: Mapping[str, Json],
    jobs: world.Listing = _UNASKED,
    events: Sequence[Json] = (),
    nodes: Mapping[str, Json] | None = None,
    now: Instant | None = None,
    chosen: Sequence[Gang] | None = None,
    makers: Sequence[Json] = (),
) -> tuple[GangStory, ...]:
    """The gangs that ``name`` means: a Job, a Deployment, another maker of pods, a CronJob, a PodGroup or a
    pod of this namespace.

    ``events`` tell of pods that are no more: those that were evicted, and those that were refused at the
    door, which leave one on their ReplicaSet or Job. ``nodes`` are those of :func:`places`. Without
    ``now`` no roll-back is told. ``chosen``: what :func:`meant` found, where it was asked before.
    ``makers``: ReplicaSets, StatefulSets and batch Jobs; :func:`asks_makers` says whether they matter.
    Raises :class:`UnknownJobError`.
    """
    name = name.rpartition("/")[2]
    chosen = meant(name, groups, pods, makers) if chosen is None else chosen
    if chosen:
        return tuple(
            _story(
                group,
                own,
                queues,
                nodes,
                events=events,
                now=now,
                maker=owners.maker_of(group, makers),
                roll_out=owners.roll_out(group, groups, pods, makers, events),
            )
            for group, own in chosen
        )
    for job in jobs.items:
        if job["metadata"]["name"] == name:
            return (_without_group(job, owners.refusal(name, events, str(job["metadata"].get("uid") or ""))),)
    for pod in pods:
        if pod["metadata"]["name"] == name:
            raise UnknownJobError(_unmanaged(name, pod))
    refused = owners.refusal(name, events) or owners.rest(name, makers)
    unseen = f"; {jobs.missing}" if jobs.missing else ""
    known = {str(job["metadata"]["name"]) for job in jobs.items} | {*map(owners.cron_job_of, makers)} - {""}
    raise UnknownJobError(refused or _nothing(name, namespace, groups, pods, known) + unseen)


def places(gangs: Iterable[Gang]) -> list[str]:
    """Names of the nodes on which these have members."""
    return sorted({node for _, own in gangs for node in trouble.places(own)})


def meant(name: str, groups: Iterable[Json], pods: Iterable[Json], makers: Sequence[Json] = ()) -> list[Gang]:
    """The PodGroups that ``name`` means, each with its members. A Deployment without pods is known by its
    ReplicaSets among ``makers``, a CronJob by its Jobs."""
    name, members = name.rpartition("/")[2], world.members_of(pods)
    timed = {str(job["metadata"]["name"]) for job in owners.jobs_of(name, makers)}
    deployments = {maker["metadata"].get("uid"): owners.deployment_of(maker) for maker in makers}
    each = ((group, members.get(world.key(group), [])) for group in groups)
    return [
        (group, own)
        for group, own in each
        if _means(name, group, own, deployments) or controller_of(group).get("name") in timed
    ]


def _means(name: str, group: Json, members: Sequence[Json], deployments: Mapping[str, str]) -> bool:
    """``deployments``: those behind ReplicaSets, by the UIDs of these."""
    metadata = group["metadata"]
    if name == metadata["name"]:
        return True
    owner = controller_of(group)
    if name in {owner.get("name"), deployments.get(owner.get("uid", ""))}:
        return True
    # A LeaderWorkerSet's groups belong to leading pods; what makes these is called as it is.
    return any(
        name in {pod["metadata"]["name"], _deployment_of(pod), controller_of(pod).get("name")}
        for pod in members
    )


def asks_makers(gangs: Sequence[Gang]) -> bool:
    """Whether what makes the pods has more to say: somebody has none that runs or is to run, or there may be
    another revision, or more replicas that cannot be made."""
    return not gangs or any(
        not _living(own) or controller_of(group).get("kind") in _SETS for group, own in gangs
    )


def _living(members: Iterable[Json]) -> int:
    return sum(not world.finished(pod) for pod in members)


def _deployment_of(pod: Json) -> str:
    """The Deployment behind a pod; empty where there is none."""
    owner = controller_of(pod)
    return deployment_behind(owner.get("kind", ""), owner.get("name", ""), world.labels(pod))


def _story(
    group: Json,
    members: Sequence[Json],
    queues: Mapping[str, Json],
    nodes: Mapping[str, Json] | None,
    *,
    events: Sequence[Json],
    now: Instant | None,
    maker: Json | None,
    roll_out: Sequence[str],
) -> GangStory:
    metadata, spec = group["metadata"], group.get("spec") or {}
    verdict = world.condition(group) or {}
    queue = world.queue_of(group, members)
    owner = controller_of(group)
    foreign = trouble.not_ours(members) if verdict.get("status") != "True" else ""
    if foreign:
        verdict = {"reason": NOT_MANAGED, "message": foreign}
    living = _living(members)
    if not living and (none := owners.wants_none(group, maker)):
        verdict = {"reason": ASKS_FOR_NONE, "message": none}
    told = [*history.evictions(group, members, events), *_notes(group, members, queue, queues, verdict)]
    short = living < int(spec.get("minMember") or 1) and verdict.get("reason") != ASKS_FOR_NONE
    lacks = (short and verdict.get("status") != "True") or (maker is not None and owners.lacks_pods(maker))
    if lacks and not foreign:
        of = str((owner or metadata)["name"])
        told += filter(None, [owners.refusal(of, events, str(owner.get("uid") or ""))])
    told += roll_out
    return GangStory(
        group=world.key(group),
        job=owners.deployment_of(maker) or name_of(group, members),
        queue=queue,
        share_class=class_of(group, members),
        min_member=int(spec.get("minMember") or 1),
        admitted=verdict.get("status") == "True",
        reason=verdict.get("reason") or NO_VERDICT,
        message=verdict.get("message") or NOT_LOOKED_AT,
        since=verdict.get("lastTransitionTime") or "",
        phase=str((group.get("status") or {}).get("phase") or ""),
        has_plan=names.PLAN in world.annotations(group) and verdict.get("reason") in _WITH_PLAN,
        rolled_back=history.roll_backs(world.annotations(group).get(names.ROLLED_BACK, ""), now)
        if now
        else "",
        members=tuple(_member(pod) for pod in sorted(members, key=world.key)),
        notes=(*told, *trouble.notes(members, nodes), *trouble.starting(members), *_slips(members)),
    )


def _slips(members: Sequence[Json]) -> list[str]:
    """Misspelt annotations of the first member: warnings at the door are not seen of a Deployment's pods."""
    return slips(world.annotations(members[0]), world.labels(members[0]), "metadata") if members else []


def name_of(group: Json, members: Sequence[Json]) -> str:
    """What its user calls it: the Deployment or Job behind it, or the PodGroup itself."""
    deployment = next(filter(None, map(_deployment_of, members)), "")
    return deployment or str((controller_of(group) or group["metadata"])["name"])


def class_of(group: Json, members: Sequence[Json]) -> str:
    """high, low or unset, as the first that names a class has it."""
    for document in (*members, group):
        named = world.annotations(document).get(names.PRIORITY)
        if named:
            return named
    return "unset"


def _member(pod: Json) -> MemberRow:
    cards = world.cards_of(pod)
    shares = [share for shares in cards.containers.values() for share in shares] if cards else []
    verdict = world.condition(pod) or {}
    if world.phase(pod) in world.ON_ITS_WAY:
        verdict = world.condition(pod, names.CONDITION_SUSPENDED) or {}
    return MemberRow(
        pod=str(pod["metadata"]["name"]),
        phase=world.phase(pod),
        node=str((pod.get("spec") or {}).get("nodeName") or (cards.node if cards else "")),
        cards=tuple(f"{share.uuid} {share.memory_mib} MiB {share.cores} % cores" for share in shares),
        reason=verdict.get("reason") or "",
        message=verdict.get("message") or "",
    )


def _notes(
    group: Json, members: Sequence[Json], queue: str, queues: Mapping[str, Json], verdict: Mapping[str, str]
) -> list[str]:
    notes: list[str] = []
    said = world.condition(group, names.CONDITION_SUSPENDED)
    if said is not None and said.get("reason") in {*world.ON_ITS_WAY, "NotSuspendable", "RestoreFailed"}:
        notes.append(f"{said.get('message', '')} (since {said.get('lastTransitionTime', 'unknown')})")
    if queues and queue not in queues:
        near = difflib.get_close_matches(queue, list(queues), 1)
        notes.append(f"queue {queue} does not exist" + (f"; did you mean {near[0]}?" if near else ""))
    named = world.queue_of(group, ())
    if named != queue:
        notes.append(f"its PodGroup names queue {named}, its pods were checked for {queue} and count there")
    foreign = {gate for pod in members for gate in world.gates(pod) if gate != names.GATE}
    if foreign:
        notes.append(f"its pods also wait for {', '.join(sorted(foreign))}, which is not ours to lift")
    if not members and verdict.get("reason") != ASKS_FOR_NONE:
        phase = (group.get("status") or {}).get("phase") or "Pending"
        notes.append(f"it has no pods yet; its PodGroup is {phase}")
        if not group["metadata"].get("ownerReferences"):
            notes.append(LEFT_OVER.format(group["metadata"]["name"]))
    in_turn = controller_of(group).get("kind") == "StatefulSet" and verdict.get("reason") == WAITS_FOR_MEMBERS
    if in_turn and _living(members) < int((group.get("spec") or {}).get("minMember") or 1):
        notes.append(ONE_BY_ONE)
    if not verdict and any(names.GATE in world.gates(pod) for pod in members):
        notes.append(
            "no verdict after half a minute means that no admission controller leads: `kubectl egpu doctor`"
        )
    return notes


def _without_group(job: Json, refused: str) -> GangStory:
    spec, told = job.get("spec") or {}, (job.get("status") or {}).get("state") or {}
    state, said = str(told.get("phase") or "Pending"), str(told.get("message") or "")
    over = state in _OVER
    if over:
        message = f"the Job is {state} and holds no cards" + (f": {said}" if said else "")
    else:
        said = said or "its controller has not made one yet, or it is done"
        message = f"the Job is {state} and has no PodGroup: {said}"
    templates = [{"metadata": {}} | (task.get("template") or {}) for task in spec.get("tasks") or ()]
    return GangStory(
        group="",
        job=str(job["metadata"]["name"]),
        queue=str(spec.get("queue") or "default"),
        share_class=class_of(job, templates),
        min_member=int(spec.get("minAvailable") or 1),
        admitted=False,
        reason=state if over else NO_VERDICT,
        message=message,
        since=str(told.get("lastTransitionTime") or ""),
        phase=state,
        has_plan=False,
        rolled_back="",
        notes=tuple(filter(None, [refused])),
    )


def _unmanaged(name: str, pod: Json) -> str:
    if world.labels(pod).get(names.MANAGED_LABEL) == "true":
        return f"pod {name} has no PodGroup yet: the Job controller (or Volcano) makes it"
    return f"pod {name}: {trouble.not_ours([pod])}"


def _nothing(
    name: str, namespace: str, groups: Iterable[Json], pods: Sequence[Json], known: Iterable[str]
) -> str:
    members = world.members_of(pods)
    called = {*known, *(name_of(group, members.get(world.key(group), ())) for group in groups)}
    text = f"nothing called {name!r} in namespace {namespace}"
    if not called:
        return f"{text}, which has no gangs at all"
    others = {str(document["metadata"]["name"]) for document in (*groups, *pods)}
    near = difflib.get_close_matches(name, sorted(called), 3, cutoff=0.5)
    near = near or difflib.get_close_matches(name, sorted(others), 1, cutoff=0.5)
    if near:
        return f"{text}; did you mean {' or '.join(near)}?"
    return f"{text}; there are {few(sorted(called), _MAX_NAMED)}"
