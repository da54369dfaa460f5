"""``kubectl egpu why JOB``: what became of a gang, in the words of its condition.

:func:`read` asks the cluster; everything below it is pure: documents in, story out.
"""

import difflib
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from vc_egpu.cli import partial_snapshot, world
from vc_egpu.cli.resizing import told as resized
from vc_egpu.cli.views import history, links, owners, trouble
from vc_egpu.core.model.cluster import Instant
from vc_egpu.core.model.reasons import Reason
from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import CRON_JOBS, POD_GROUPS, PODS, QUEUES, VOLCANO_JOBS
from vc_egpu.report.gangs import Condition, GangRow
from vc_egpu.volcano.podspec.way import is_direct
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.knobs import slips
from vc_egpu.volcano.words.makers import controller_of, deployment_behind
from vc_egpu.volcano.words.priority import objections_to_low

NO_VERDICT = "NoVerdictYet"
NOT_MANAGED = "NotManaged"
ASKS_FOR_NONE = "AsksForNone"
WAITS_FOR_MEMBERS = Reason.WAITING_FOR_MEMBERS.value
ONE_BY_ONE = (
    "a StatefulSet makes each pod once the one before it is ready, but none is ready before the gang is "
    "complete: it needs podManagementPolicy: Parallel"
)
LEFT_OVER = (
    "its PodGroup has no owner. If it was left over (a Job went without its pods, or a backup brought it), "
    "an operator ends this with `kubectl delete podgroup {}`"
)
NOT_LOOKED_AT = "the admission controller has not looked at it yet"
_WITH_PLAN = frozenset({"Admitted", "WaitingForEviction"})
"""Reasons under which a plan on the PodGroup counts; under others it is the record of an earlier one."""


_OVER = frozenset({"Completed", "Failed", "Aborted", "Terminated"})
"""Phases of Jobs that hold nothing and wait for nothing."""
_SETS = frozenset({"ReplicaSet", "StatefulSet"})
_MAX_NAMED = 5
_MAX_WAYS = 3
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


_KINDS: Final = frozenset(
    {
        *("job", "jobs", "vcjob", "vcjobs", "vj", "podgroup", "podgroups", "pg", "pod", "pods", "po"),
        *("deployment", "deployments", "deploy", "replicaset", "replicasets", "rs"),
        *("statefulset", "statefulsets", "sts", "daemonset", "daemonsets", "ds"),
        *("cronjob", "cronjobs", "cj", "raycluster", "rayjob", "rayservice", "mpijob", "pytorchjob"),
        *("leaderworkerset", "trainjob", "jobset", "workflow"),
    }
)
"""What may stand before a name, as kubectl writes it: not a namespace."""


def read(api: ApiConnection, namespace: str, named: str) -> tuple[GangStory, ...]:
    """The stories of what the user calls ``named``, possibly in another namespace or with its kind.

    Asks for what makes pods, for CronJobs and for Volcano Jobs only where they may have something to say.
    Raises :class:`UnknownJobError`.
    """
    name = named
    before, slash, after = named.partition("/")
    if slash and "/" not in after and not _is_kind(before):
        namespace, name = before, after
    groups = api.list(POD_GROUPS, namespace).items
    pods = api.list(PODS, namespace, transform=world.pod_with_limits).items
    chosen = meant(name, groups, pods)
    jobs = _UNASKED if chosen else world.list_optional(api, VOLCANO_JOBS, namespace)
    makers = world.makers(api, namespace) if asks_makers(chosen) else []
    chosen = chosen or meant(name, groups, pods, makers)
    if not chosen:
        makers += world.list_optional(api, CRON_JOBS, namespace, world.light_maker).items
    return stories(
        name,
        namespace,
        groups=groups,
        pods=pods,
        jobs=jobs,
        queues={queue["metadata"]["name"]: queue for queue in world.list_optional(api, QUEUES).items},
        events=world.events(api, namespace, (*owners.REFUSED, *history.EVICTED)),
        nodes=world.nodes_named(api, places(chosen)),
        now=time.time(),
        chosen=chosen,
        makers=makers,
    )


def _is_kind(text: str) -> bool:
    """Also ``deployment.apps`` and ``Deployment``, as kubectl writes them; no namespace has a dot."""
    return "." in text or text.lower() in _KINDS


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
    """The gangs that ``name`` means in this namespace.

    ``name`` may be a Job, a Deployment, another maker of pods, a CronJob, a PodGroup or a pod.
    ``events`` tell of pods that are not there: evicted ones, and ones that were refused at the door.
    ``nodes`` are those of :func:`places`. Without ``now`` no roll-back is told. ``chosen`` is what
    :func:`meant` found, where it was asked before. ``makers`` are ReplicaSets, StatefulSets and batch Jobs;
    :func:`asks_makers` says whether they matter. Raises :class:`UnknownJobError`.
    """
    name = name.rpartition("/")[2]
    chosen = meant(name, groups, pods, makers) if chosen is None else chosen
    if chosen:
        rows = _rows(chosen)
        return tuple(
            _story(
                row,
                group,
                own,
                queues,
                nodes,
                events=events,
                now=now,
                maker=owners.maker_of(group, makers),
                roll_out=owners.roll_out(group, groups, pods, makers, events),
            )
            for row, (group, own) in zip(rows, chosen, strict=True)
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
    """Whether what makes the pods has more to say.

    A gang may have no living pod, another revision, or more replicas that cannot be made.
    """
    return not gangs or any(
        not _living(own) or controller_of(group).get("kind") in _SETS for group, own in gangs
    )


def _living(members: Iterable[Json]) -> int:
    return sum(not world.finished(pod) for pod in members)


def _deployment_of(pod: Json) -> str:
    """The Deployment behind a pod; empty where there is none."""
    owner = controller_of(pod)
    return deployment_behind(owner.get("kind", ""), owner.get("name", ""), world.labels(pod))


def _rows(gangs: Iterable[Gang]) -> tuple[GangRow, ...]:
    members = {world.key(group): own for group, own in gangs}
    return partial_snapshot.gang_rows([group for group, _ in gangs], members)


def _story(
    row: GangRow,
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
    metadata, owner = group["metadata"], controller_of(group)
    living = _living(members)
    foreign = "" if row.condition is not None and row.condition.admitted else trouble.not_ours(members)
    none = "" if living else owners.wants_none(group, maker)
    said = row.condition
    if none:
        said = Condition(admitted=False, reason=ASKS_FOR_NONE, message=none)
    elif foreign:
        said = Condition(admitted=False, reason=NOT_MANAGED, message=foreign)
    told = [*history.evictions(group, members, events), *_notes(row, group, members, queues, said)]
    told += history.spared(world.annotations(group).get(names.VICTIM_AT, ""), now) if now else []
    told += history.waits_since(world.annotations(group).get(names.RESERVED, ""))
    told += history.moves(world.annotations(group).get(names.MOVED, ""))
    short = living < row.min_member and not none
    admitted = said is not None and said.admitted
    if ((short and not admitted) or (maker is not None and owners.lacks_pods(maker))) and not foreign:
        of = str((owner or metadata)["name"])
        told += filter(None, [owners.refusal(of, events, str(owner.get("uid") or ""))])
    told += roll_out
    reason = said.reason if said is not None else NO_VERDICT
    return GangStory(
        group=row.key,
        job=owners.deployment_of(maker) or name_of(group, members),
        queue=row.queue,
        share_class=row.share_class.name.lower(),
        min_member=row.min_member,
        admitted=admitted,
        reason=reason,
        message=(said.message if said is not None else "") or NOT_LOOKED_AT,
        since=said.since if said is not None else "",
        phase=str((group.get("status") or {}).get("phase") or ""),
        has_plan=names.PLAN in world.annotations(group) and reason in _WITH_PLAN,
        rolled_back=history.roll_backs(world.annotations(group).get(names.ROLLED_BACK, ""), now)
        if now
        else "",
        members=tuple(member_row(pod) for pod in sorted(members, key=world.key)),
        notes=(
            *(*told, *resized.notes(members), *trouble.notes(members, nodes), *trouble.starting(members)),
            *(*trouble.unheld(members), *trouble.turns(members, nodes)),
            *links.notes(members, nodes),
            *(*ways(members), *_slips(members)),
        ),
    )


def _slips(members: Sequence[Json]) -> list[str]:
    """What is misspelt or has no say in the annotations of the first member.

    Warnings at the door are not seen of a Deployment's pods.
    """
    if not members:
        return []
    annotations, labels = world.annotations(members[0]), world.labels(members[0])
    low = annotations.get(names.PRIORITY) == "low"
    objections = objections_to_low(annotations, labels, "metadata") if low else []
    return [*objections, *slips(annotations, labels, "metadata")]


def ways(members: Iterable[Json]) -> list[str]:
    """Which way those go that wait: bound by us, or by a scheduler because of what their spec says."""
    count: Counter[str] = Counter()
    for pod in members:
        if world.waits_for_us(pod):
            spec = pod.get("spec") or {}
            by = str(spec.get("schedulerName") or names.SCHEDULER_DEFAULT)
            if is_direct(spec):
                count["the admission layer binds {} itself"] += 1
            elif because := spec.get(world.LEFT_TO_A_SCHEDULER):
                count[f"{by} binds {{}} once the gate is lifted: {because}"] += 1
    return [text.format(f"{number} of its waiting pods") for text, number in count.most_common(_MAX_WAYS)]


def name_of(group: Json, members: Sequence[Json]) -> str:
    """What its user calls it: the Deployment or Job behind it, or the PodGroup itself."""
    deployment = next(filter(None, map(_deployment_of, members)), "")
    return deployment or str((controller_of(group) or group["metadata"])["name"])


def member_row(document: Json) -> MemberRow:
    """One pod, whole or light."""
    (pod,) = partial_snapshot.pods_of([document]).pods.values()
    phase = world.phase(document)
    kind = names.CONDITION_SUSPENDED if phase in world.ON_ITS_WAY else names.CONDITION_ADMITTED
    verdict = world.condition(document, kind) or {}
    return MemberRow(
        pod=pod.name,
        phase=phase,
        node=pod.node or "",
        cards=tuple(
            f"{share.card} {share.memory_mib} MiB {share.cores_percent} % cores" for _, share in pod.shares
        ),
        reason=verdict.get("reason") or "",
        message=verdict.get("message") or "",
    )


def _notes(
    row: GangRow,
    group: Json,
    members: Sequence[Json],
    queues: Mapping[str, Json],
    verdict: Condition | None,
) -> list[str]:
    notes: list[str] = []
    queue, reason = row.queue, verdict.reason if verdict is not None else ""
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
    if not members and reason != ASKS_FOR_NONE:
        phase = (group.get("status") or {}).get("phase") or "Pending"
        notes.append(f"it has no pods yet; its PodGroup is {phase}")
        if not group["metadata"].get("ownerReferences"):
            notes.append(LEFT_OVER.format(group["metadata"]["name"]))
    in_turn = controller_of(group).get("kind") == "StatefulSet" and reason == WAITS_FOR_MEMBERS
    if in_turn and _living(members) < row.min_member:
        notes.append(ONE_BY_ONE)
    if verdict is None and any(world.waits_for_us(pod) for pod in members):
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
        share_class=world.class_of(job, templates),
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
