"""Pods, as plain JSON documents, into the values that a decision takes: see :mod:`.cluster_codec`."""

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from vc_egpu.core.environments.backends import MPS
from vc_egpu.core.environments.needs import NO_NEEDS, Needs
from vc_egpu.core.model.cluster import (
    CardId,
    NodeName,
    Pod,
    PodShape,
    PodUid,
    QueueName,
    Requirement,
    Resources,
    Share,
    ShareClass,
    Toleration,
)
from vc_egpu.volcano import room
from vc_egpu.volcano.api.containers import IN_SPEC, is_sidecar
from vc_egpu.volcano.codec.cluster_codec import (
    Document,
    Owner,
    Terms,
    instant,
    names_in,
    node_terms,
    owner_of,
    share_class,
)
from vc_egpu.volcano.codec.plans import can_name, task_name
from vc_egpu.volcano.codec.pod_status import admitted_of, finished_at, phase_of, refusal_of, start_error_of
from vc_egpu.volcano.codec.share_codec import (
    as_resized,
    asks_of,
    memory_limits,
    options_of,
    shares_of,
    whole_in,
)
from vc_egpu.volcano.needs.pods import needs_in
from vc_egpu.volcano.needs.text import NeedsError
from vc_egpu.volcano.podspec.neighbours import NO_RULES, Rules, keeping_away
from vc_egpu.volcano.podspec.neighbours import read as read_rules
from vc_egpu.volcano.podspec.node_terms import TooManyTermsError, all_of
from vc_egpu.volcano.podspec.node_wishes import excess, long_list, without_wishes
from vc_egpu.volcano.podspec.sums import given, is_over, only_offered, pod_requests
from vc_egpu.volcano.podspec.way import is_direct, waits_for_us
from vc_egpu.volcano.resizing.notes import Stage, note_on, wish_on
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Cards, Request
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.payer import checked_for
from vc_egpu.volcano.words.quantity import QuantityError, parse_seconds

ClaimTerms = Callable[[str, str], Terms]
"""(namespace, claim) to the node terms of the volume it is bound to; empty: anywhere, or unknown."""

_decode_request = lru_cache(maxsize=8192)(Request.decode)


@dataclass(frozen=True, slots=True)
class Words:
    """What a pod's annotations, labels, owner and spec say: most of its changes leave all of it as it was."""

    shape: PodShape
    managed: bool = False
    """Carries our label, gate or request: the admission layer answers for it."""
    gang: str | None = None
    task: str = ""
    index: int = -1
    shares: tuple[tuple[str, Share], ...] = ()
    runs_as: ShareClass | None = None
    plan_id: str = ""
    pinned: NodeName | None = None
    """Where its cards are; it is bound nowhere else."""
    problem: str = ""
    share_class: ShareClass | None = None
    priority_value: int = 0
    owner: Owner | None = None
    queue: QueueName | None = None
    core_policy: str = "hard"
    out_of_sync: bool = False
    is_static: bool = False
    group_unseen: bool = False
    offered: Set[str] | None = None
    """What nodes offered when a pod was read that names very many resources; None for all other pods."""
    annotation_bytes: int = 0
    """All its annotations together."""
    resize: tuple[tuple[str, int | None, int | None], ...] = ()
    rules: Rules = NO_RULES
    """Its rules between pods, which other pods have to be held against."""


@dataclass(frozen=True, slots=True)
class DecodedPod:
    """A pod for the decision, and what the processes need to write to it."""

    pod: Pod
    resource_version: str
    managed: bool = False
    """Carries our label, gate or request: the admission layer answers for it."""
    waiting: bool = False
    """Nothing can start it before we have let it go."""
    bound: bool = False
    problem: str = ""
    """Non-empty: it is no member of anything until this is put right."""
    share_class: ShareClass | None = None
    """From its own annotation; None: not named."""
    priority_value: int = 0
    owner: Owner | None = None
    gates: tuple[str, ...] = ()
    affinity: Document | None = None
    core_policy: str = "hard"
    labels: Mapping[str, str] = field(default_factory=dict)
    admitted: tuple[str, str, str] | None = None
    """(status, reason, message) of our condition, or None."""
    refusal: str = ""
    """Why the kubelet refused the pod, if it did."""
    start_error: str = ""
    """Why our agent keeps a container from starting, if it does."""
    out_of_sync: bool = False
    is_static: bool = False
    """The mirror of a pod that the kubelet runs from a file."""
    group_unseen: bool = False
    """Its PodGroup was not there at the door, so the webhook did not see whose it is."""
    annotation_bytes: int = 0
    """All its annotations together, as Kubernetes bounds them (:mod:`vc_egpu.volcano.room`)."""
    source: Document = field(default_factory=dict, compare=False, repr=False)
    """What it was read from; a later version of the same pod is read against it."""
    words: Words | None = field(default=None, compare=False, repr=False)
    """What that said, for the next reading."""


def pod(
    document: Document,
    table: ModelTable,
    claim_terms: ClaimTerms | None = None,
    before: DecodedPod | None = None,
    offered: Set[str] = frozenset(),
) -> DecodedPod:
    """A pod, ours or not. Raises ``KeyError``, ``TypeError`` or ``ValueError`` only for what is no pod.

    ``before``: an earlier reading; with it the same result comes sooner. ``offered``: see :func:`_read`.
    """
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    managed = is_managed(metadata, spec)
    gates = tuple(gate["name"] for gate in spec.get("schedulingGates") or ()) if managed else ()
    if not managed and not takes_room(spec, status):
        words = _NO_WORDS
    else:
        words = _known(before, document, offered, managed=managed) or _read(
            document, table, claim_terms, offered, managed=managed
        )
    node = NodeName(spec["nodeName"]) if spec.get("nodeName") else None
    decoded = Pod(
        uid=PodUid(metadata["uid"]),
        namespace=metadata["namespace"],
        name=metadata["name"],
        shape=words.shape,
        phase=phase_of(document),
        node=node or words.pinned,
        gang=words.gang,
        task=words.task,
        index=words.index,
        shares=words.shares,
        resize=words.resize,
        runs_as=words.runs_as,
        plan_id=words.plan_id,
        created=instant(metadata.get("creationTimestamp")),
        started=instant(status.get("startTime")) or None,
        finished=finished_at(status),
        gone_by=instant(metadata.get("deletionTimestamp")) or None,
        other_gates=tuple(gate for gate in gates if gate != names.GATE),
        queue=words.queue,
    )
    labels = metadata.get("labels") or {} if words is not _NO_WORDS else {}
    version, bound = metadata["resourceVersion"], node is not None
    if not managed:
        return DecodedPod(decoded, version, bound=bound, labels=labels, source=document, words=words)
    return DecodedPod(
        pod=decoded,
        resource_version=version,
        managed=True,
        waiting=waits_for_us(spec),
        bound=bound,
        problem=words.problem,
        share_class=words.share_class,
        priority_value=words.priority_value,
        owner=words.owner,
        gates=gates,
        affinity=spec.get("affinity"),
        core_policy=words.core_policy,
        labels=labels,
        admitted=admitted_of(status.get("conditions") or ()),
        refusal=refusal_of(status),
        start_error=start_error_of(status),
        out_of_sync=words.out_of_sync,
        is_static=words.is_static,
        group_unseen=words.group_unseen,
        annotation_bytes=words.annotation_bytes,
        source=document,
        words=words,
    )


def _known(before: DecodedPod | None, now: Document, offered: Set[str], *, managed: bool) -> Words | None:
    """The words of an earlier reading, where the pod says the same now."""
    words = before.words if before is not None else None
    if before is None or words is None or words is _NO_WORDS or words.managed is not managed:
        return None
    return words if _says_the_same(before, now, offered) else None


def is_managed(metadata: Document, spec: Document) -> bool:
    return (
        (metadata.get("labels") or {}).get(names.MANAGED_LABEL) == "true"
        or waits_for_us(spec)
        or names.REQUEST in (metadata.get("annotations") or {})
    )


def takes_room(spec: Document, status: Document) -> bool:
    """Whether a pod takes anything from a node now."""
    return bool(spec.get("nodeName")) and not is_over(status)


_NO_WORDS: Final = Words(PodShape())
"""For a foreign pod that has no node yet, or is over."""


def _read(
    document: Document,
    table: ModelTable,
    claim_terms: ClaimTerms | None,
    offered: Set[str],
    *,
    managed: bool,
) -> Words:
    """What a pod says. A pod that names very many resources takes only those that nodes offer."""
    spec = document["spec"]
    takes = pod_requests(spec, given(document.get("status") or {}))
    kept = only_offered(takes, offered)
    words = _managed(document, kept, table, claim_terms) if managed else _foreign(document, kept)
    return words if kept is takes else replace(words, offered=offered)


def _foreign(document: Document, takes: Resources) -> Words:
    """For a foreign pod: what it takes from its node, and which pods it keeps away."""
    spec, metadata = document["spec"], document["metadata"]
    words = Words(PodShape(requests=takes, host_ports=_host_ports(spec)))
    if not (away := keeping_away(spec)):
        return words
    try:
        neighbours, rules = read_rules(away, metadata.get("labels") or {}, metadata["namespace"])
    except (KeyError, TypeError, ValueError, AttributeError):
        return words  # the mirror of a file of the kubelet: no API server has checked it
    return replace(words, shape=replace(words.shape, neighbours=neighbours), rules=rules)


def _managed(
    document: Document, takes: Resources, table: ModelTable, claim_terms: ClaimTerms | None
) -> Words:
    """A pod that the admission layer answers for."""
    metadata, spec = document["metadata"], document["spec"]
    annotations = metadata.get("annotations") or {}
    labels = metadata.get("labels") or {}
    problems: list[str] = []
    if waits_for_us(spec) and (too_much := excess(spec) or long_list(annotations)):
        problems.append(too_much)
        document = without_wishes(document)
    request = _annotation(_decode_request, annotations, names.REQUEST, problems) or Request()
    cards = _cards(annotations, metadata["uid"], problems)
    checked = checked_for(annotations, labels)
    taken = room.size_of(metadata)
    if waits_for_us(spec) and (no_room := _no_room(taken, request)):
        problems.append(no_room)
    task = task_name(str(annotations.get(names.TASK_SPEC, "")))
    pinned = not is_direct(spec)
    neighbours, rules = read_rules(document["spec"], labels, metadata["namespace"], pinned=pinned)
    terms = _terms(document, claim_terms, problems)
    needs = _needs(request, problems)
    shape = replace(_shape(document, takes, request, table, terms), neighbours=neighbours, needs=needs)
    if cards is not None and names.RESIZED in annotations:
        shape = replace(shape, asks=as_resized(shape.asks, cards))
    return Words(
        shape=shape,
        managed=True,
        gang=f"{metadata['namespace']}/{group_name(metadata, annotations)}",
        task=task,
        index=_index(task, str(annotations.get(names.TASK_INDEX, ""))),
        shares=shares_of(cards, whole_in(shape.asks)) if cards is not None else (),
        runs_as=ShareClass[cards.share_class.upper()] if cards is not None and cards.containers else None,
        plan_id=cards.plan_id if cards is not None else "",
        pinned=NodeName(cards.node) if cards is not None else None,
        problem="; ".join(problems),
        share_class=share_class(annotations),
        priority_value=int(spec.get("priority") or 0),
        owner=owner_of(metadata),
        queue=QueueName(checked) if checked else None,
        core_policy=request.core_policy,
        out_of_sync=names.OUT_OF_SYNC in annotations,
        is_static="kubernetes.io/config.mirror" in annotations,
        group_unseen=names.GROUP_UNSEEN in annotations,
        annotation_bytes=taken,
        resize=_resize(annotations, metadata["uid"]),
        rules=rules,
    )


def _resize(annotations: Document, uid: str) -> tuple[tuple[str, int | None, int | None], ...]:
    """The sizes that a user wishes; nothing while its node still lowers its memory for an earlier wish."""
    if names.RESIZE not in annotations:
        return ()
    note = note_on(annotations, uid)
    if note is not None and note.stage is Stage.LOWERING:
        return ()
    try:
        wish = wish_on(annotations)
    except AnnotationError:
        return ()
    return wish.sizes() if wish is not None else ()


def _needs(request: Request, problems: list[str]) -> Needs:
    """What the webhook compiled of the program's needs."""
    try:
        for option in request.options or ():
            needs_in(option.needs)
        return needs_in(request.needs)
    except NeedsError as error:
        problems.append(f"annotation {names.REQUEST}: needs: {error}")
        return NO_NEEDS


def _no_room(taken: int, request: Request) -> str:
    """Why the cards could not be written on a pod that waits for them; empty if they could."""
    asks = request.containers.values()
    need = room.cards_size(len(asks), sum(ask.cards for ask in asks)) if asks else 0
    if taken + need <= room.MAX_BYTES:
        return ""
    return (
        f"its annotations take {taken} bytes of the {room.MAX_BYTES} that Kubernetes allows, and its cards "
        f"need up to {need}: no cards can be written on it until it has fewer or shorter annotations"
    )


def _index(task: str, text: str) -> int:
    """Its number within its task; -1 where no plan could name the pod so."""
    index = int(text) if text.isdecimal() and len(text) < 10 else -1
    return index if can_name(task, index) else -1


_METADATA_READ: Final = ("annotations", room.TAKEN_OUT, "labels", "ownerReferences")
_SPEC_READ: Final = (
    *IN_SPEC,
    "tolerations",
    "affinity",
    "topologySpreadConstraints",
    "nodeSelector",
    "volumes",
    "resources",
    "overhead",
    "priority",
    "activeDeadlineSeconds",
)


def _says_the_same(before: DecodedPod, now: Document, offered: Set[str]) -> bool:
    """Whether its words would be the same, read once more."""
    seen = before.words.offered if before.words is not None else None
    return seen in (None, offered) and _same(before.source, now)


def _same(before: Document, now: Document) -> bool:
    """Whether two versions of a pod say the same in all that :class:`Words` are read from."""
    old, new = before["spec"], now["spec"]
    if claims_of(now):
        return False  # its claim may be bound by now
    said, says = before["metadata"], now["metadata"]
    return (
        all(said.get(key) == says.get(key) for key in _METADATA_READ)
        and all(old.get(key) == new.get(key) for key in _SPEC_READ)
        and waits_for_us(old) is waits_for_us(new)
        and given(before.get("status") or {}) == given(now.get("status") or {})
    )


def group_name(metadata: Document, annotations: Document) -> str:
    """The PodGroup that a pod names, else the one that its controller's pods share, else its own."""
    named = annotations.get(names.GROUP_NAME)
    if named:
        return str(named)
    owner = owner_of(metadata)
    return f"{names.LOOSE_GROUP}{owner.uid if owner is not None else metadata['uid']}"


def _annotation(
    decode: Callable[[str], Any], annotations: Document, name: str, problems: list[str]
) -> Any:  # the caller knows which model `decode` makes
    text = annotations.get(name)
    if text is None:
        return None
    try:
        return decode(text)
    except AnnotationError as error:
        problems.append(f"annotation {name} is malformed: {error}")
        return None


def _cards(annotations: Document, uid: str, problems: list[str]) -> Cards | None:
    """The cards that were written for this very pod."""
    cards: Cards | None = _annotation(Cards.decode, annotations, names.CARDS, problems)
    if cards is not None and cards.pod_uid != uid:
        problems.append(f"annotation {names.CARDS} was written for another pod ({cards.pod_uid})")
        return None
    return cards


def _shape(
    document: Document,
    requests: Resources,
    request: Request,
    table: ModelTable,
    terms: Terms,
) -> PodShape:
    spec = document["spec"]
    get = (document["metadata"].get("annotations") or {}).get
    limits_mib = memory_limits(spec) if request.oversubscribe or request.swap else {}
    return PodShape(
        asks=asks_of(request, limits_mib),
        requests=requests,
        node_selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
        affinity_terms=terms,
        tolerations=(
            *(
                Toleration(
                    t.get("key") or "",
                    t.get("operator") or "Equal",
                    t.get("value") or "",
                    t.get("effect") or "",
                )
                for t in spec.get("tolerations") or ()
            ),
            *(
                # Where MPS shares time, programs of one namespace run that ask for it.
                [Toleration(names.MPS, "Equal", str(document["metadata"].get("namespace") or ""))]
                if get(names.ISOLATION) == MPS
                else ()
            ),
        ),
        host_ports=_host_ports(spec),
        use_cards=_card_names(
            get(names.USE_CARDS), get(names.VOLCANO_USE_GPU_UUID), get(names.HAMI_USE_GPU_UUID)
        ),
        avoid_cards=_card_names(
            get(names.AVOID_CARDS), get(names.VOLCANO_NO_USE_GPU_UUID), get(names.HAMI_NO_USE_GPU_UUID)
        ),
        use_models=names_in(get(names.USE_MODELS, "")) | models_like(get(names.HAMI_USE_GPU_TYPE, ""), table),
        avoid_models=names_in(get(names.AVOID_MODELS, ""))
        | models_like(get(names.HAMI_NO_USE_GPU_TYPE, ""), table),
        card_policy=str(get(names.CARD_POLICY, "")),
        node_policy=str(get(names.NODE_POLICY, "")),
        prefers=_preferred(spec),
        runtime_s=_runtime_s(get(names.EXPECTED_RUNTIME), spec.get("activeDeadlineSeconds")),
        options=options_of(request, limits_mib),
        choice=request.choice or "",
        mixes=bool(request.mixes),
        takes_soonest=request.order == "best",
    )


def _preferred(spec: Document) -> tuple[tuple[int, tuple[Requirement, ...]], ...]:
    """Its preferred node affinity."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    return tuple(
        (int(one["weight"]), term)
        for one in found
        for term in node_terms({"nodeSelectorTerms": [one["preference"]]})
    )


def _runtime_s(expected: object, deadline_s: object) -> float | None:
    """How long it runs at most, as its user says or the kubelet enforces; None: that is not known.

    What is no span of time says nothing: the webhook has warned of it.
    """
    spans = [float(deadline_s)] if isinstance(deadline_s, int) and deadline_s > 0 else []
    with suppress(QuantityError):
        spans += [parse_seconds(expected)] if expected is not None else []
    return min(spans, default=None)


def _card_names(*texts: str | None) -> frozenset[CardId]:
    return frozenset(CardId(name) for text in texts if text for name in names_in(text))


def models_like(text: str, table: ModelTable) -> frozenset[str]:
    """HAMi names products by parts of their names; the models whose products hold one of the parts."""
    parts = [part.lower() for part in names_in(text)]
    if not parts:
        return frozenset()
    return frozenset(
        model.name
        for model in table.models
        if any(part in product.lower() for part in parts for product in (model.name, *model.products))
    )


def _host_ports(spec: Document) -> tuple[tuple[str, str, int], ...]:
    containers = [*(spec.get("containers") or ()), *filter(is_sidecar, spec.get("initContainers") or ())]
    # In the host's network all ports are the host's: templates of Jobs do not say so.
    where = ("hostPort", "containerPort") if spec.get("hostNetwork") else ("hostPort",)
    return tuple(
        (port.get("hostIP") or "", port.get("protocol") or "TCP", int(number))
        for container in containers
        for port in container.get("ports") or ()
        if (number := next((port[key] for key in where if port.get(key)), None))
    )


def _terms(document: Document, claim_terms: ClaimTerms | None, problems: list[str]) -> Terms:
    """What its node affinity and its volumes say together."""
    affinity = (document["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    own = node_terms(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    try:
        return all_of(own, _volume_terms(document, claim_terms))
    except TooManyTermsError as error:
        problems.append(str(error))
        return own


def _volume_terms(document: Document, claim_terms: ClaimTerms | None) -> Iterable[Terms]:
    if claim_terms is not None:
        namespace = document["metadata"]["namespace"]
        for claim in claims_of(document):
            yield claim_terms(namespace, claim)


def claims_of(document: Document) -> list[str]:
    """The PersistentVolumeClaims that a pod names, or that Kubernetes makes for it (ephemeral volumes)."""
    found = []
    for volume in document["spec"].get("volumes") or ():
        if named := volume.get("persistentVolumeClaim"):
            found.append(str(named["claimName"]))
        elif "ephemeral" in volume:
            found.append(f"{document['metadata']['name']}-{volume['name']}")
    return found
