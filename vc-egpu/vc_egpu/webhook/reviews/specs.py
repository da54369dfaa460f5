"""Checks that pods and templates have in common: forged annotations, pins, knobs, scheduler, class."""

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from vc_egpu.core.environments.backends import MPS
from vc_egpu.core.model.policy import PLACEMENTS
from vc_egpu.volcano.api.containers import IN_SPEC
from vc_egpu.volcano.codec.alternatives import ORDERS
from vc_egpu.volcano.codec.pod_codec import models_like
from vc_egpu.volcano.codec.request import PodAsk
from vc_egpu.volcano.codec.suspension import SUSPEND_SIGNALS
from vc_egpu.volcano.podspec.node_wishes import CARD_LISTS, MOST_NAMED, entries, excess
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Request
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.priority import PRIORITY_CLASSES, ClassName, class_of_priority_class
from vc_egpu.volcano.words.quantity import QuantityError, parse_seconds
from vc_egpu.webhook.protocol.context import Context, items, mapping
from vc_egpu.webhook.protocol.decision import Json, Refusal

WRITTEN_BY_US: Final = (names.CARDS, names.PLAN, names.SUSPEND, names.CHOICE, names.RESIZED)
"""Annotations that no user may set."""
_KEPT_PLACES: Final = ("/etc/egpu", "/etc/ld.so.preload", "/run/egpu", "/usr/local/vc-egpu", "/var/run/egpu")
"""What the node agent puts into a container with shares."""


@dataclass(slots=True)
class Knobs:
    """What the annotations of a template ask for, checked; warnings are for the person who applies it."""

    core_policy: Literal["hard", "soft"] = "hard"
    oversubscribe: bool = False
    """Its memory may spill to the host."""
    swap: bool = False
    """It has its cards in turns with others."""
    best: bool = False
    """While none of its alternatives can start, the one that will start soonest is chosen."""
    mixes: bool = False
    """Members of its gang may take different models, where it names several."""
    warnings: list[str] = field(default_factory=list)


def refuse_forged(annotations: Mapping[str, Any], path: str, *, request_too: bool) -> None:
    """Refuse annotations that only our own processes write."""
    for name in (*WRITTEN_BY_US, *((names.REQUEST,) if request_too else ())):
        if name in annotations:
            writer = "the webhook" if name == names.REQUEST else "the admission layer"
            raise Refusal(f'{path}["{name}"]: written by {writer} alone; leave it out')
    for name, command in ((names.PAUSE, "suspend"), (names.RESIZE, "resize")):
        if name in annotations:
            raise Refusal(f'{path}["{name}"]: only for pods that run (kubectl egpu {command}); leave it out')


def check_label(labels: Mapping[str, Any], path: str) -> bool:
    """True if the managed label is there; any value but "true" is refused."""
    value = labels.get(names.MANAGED_LABEL)
    if value is None:
        return False
    if value != "true":
        raise Refusal(f'{path}["{names.MANAGED_LABEL}"]: {str(value)[:63]!r}, it must be "true" or absent')
    return True


def decode_request(text: object) -> Request:
    """The request annotation of a pod that was completed before; refuses what does not parse."""
    try:
        return Request.decode(str(text))
    except AnnotationError as error:
        raise Refusal(f'metadata.annotations["{names.REQUEST}"]: {error}; leave it out') from error


def check_placement(spec: Json, path: str) -> None:
    """Refuse pods that the admission layer could not pin. Such a pod is bound by hand, or has terms that
    match nothing. Or the kube-scheduler holds it back until its own gang is complete, while the members keep
    cards that they do not use. Refuse also pods that say more about their node than we can weigh."""
    if too_much := excess(spec):
        raise Refusal(f"{path}: {too_much} in one pod")
    if spec.get("nodeName"):
        raise Refusal(
            f"{path}.nodeName: {str(spec['nodeName'])[:253]!r} goes past the admission layer; "
            "use nodeSelector or nodeAffinity"
        )
    for key in ("schedulingGroup", "workloadRef"):
        if spec.get(key):
            raise Refusal(
                f"{path}.{key}: gangs of the kube-scheduler do not wait for cards; leave it out, and make "
                f"the pods a Volcano Job's or name a Volcano PodGroup (annotation {names.GROUP_NAME})"
            )
    affinity = mapping(mapping(spec.get("affinity")).get("nodeAffinity"))
    required = mapping(affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    for index, term in enumerate(items(required.get("nodeSelectorTerms"))):
        if not mapping(term).get("matchExpressions") and not mapping(term).get("matchFields"):
            raise Refusal(
                f"{path}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
                f".nodeSelectorTerms[{index}]: is empty and matches no node; take it out"
            )


def check_isolation(spec: Json, path: str, ask: PodAsk) -> None:
    """Refuse shares for pods that nothing could keep to them.

    A privileged container has every card of its node, one among the host's processes steers its neighbours'.
    """
    shared = next((each for each in ask.ways[0].containers.values() if not each.native), None)
    if shared is None:
        return
    advice = f"leave it out, or ask for whole cards ({names.native_resource(shared.model)})"
    if spec.get("hostPID"):
        raise Refusal(f"{path}.hostPID: true goes past the limits of a share; {advice}")
    for key in IN_SPEC:
        for container in items(spec.get(key)):
            which = f'{path}.{key}["{str(mapping(container).get("name"))[:63]}"]'
            if mapping(mapping(container).get("securityContext")).get("privileged"):
                raise Refusal(
                    f"{which}.securityContext.privileged: true goes past the limits of a share; {advice}"
                )
            check_mounts(items(mapping(container).get("volumeMounts")), f"{which}.volumeMounts")


def check_mounts(mounts: Sequence[object], path: str) -> None:
    """Refuse volumes that would lie over the isolation library or its pages."""
    for index, mount in enumerate(mounts):
        place = posixpath.normpath("/" + str(mapping(mount).get("mountPath") or "/").strip("/"))
        if any(place == kept or place.startswith(f"{kept}/") for kept in _KEPT_PLACES):
            raise Refusal(
                f"{path}[{index}].mountPath: {place[:253]!r} is where the limits of a share are "
                "kept; mount it elsewhere"
            )


def check_grace(spec: Json, cls: ClassName, context: Context, path: str) -> None:
    """Refuse low priority that takes long to give way: its cards are its own until it is gone."""
    seconds, limit_s = spec.get("terminationGracePeriodSeconds"), context.settings.max_low_grace_s
    if cls == "low" and isinstance(seconds, int) and seconds > limit_s:
        raise Refusal(
            f"{path}.terminationGracePeriodSeconds: {seconds} is above {limit_s}, the longest that pods of "
            f'{names.PRIORITY} "low" may take to give way'
        )


def check_knobs(annotations: Mapping[str, Any], path: str, ask: PodAsk, table: ModelTable) -> Knobs:
    """Check the annotations that tune placement and isolation."""
    knobs = Knobs()
    core_policy = _one_of(annotations, names.CORE_POLICY, ("hard", "soft"), path)
    knobs.core_policy = "soft" if core_policy == "soft" else "hard"
    word = _one_of(annotations, names.OVERSUBSCRIBE, ("true", "false", "swap"), path)
    knobs.oversubscribe, knobs.swap = word == "true", word == "swap"
    moves = word if word in {"true", "swap"} else ""
    if moves:
        _check_shared(annotations, path, ask)
    _check_slices(ask, path, soft=core_policy == "soft", spills=moves)
    if knobs.swap:
        _check_turns(annotations, path, ask, table)
    knobs.best = _one_of(annotations, names.ALTERNATIVES_ORDER, ORDERS, path) == "best"
    knobs.mixes = _one_of(annotations, names.MIX_MODELS, ("true", "false"), path) == "true"
    if knobs.oversubscribe and any(each.whole for each in ask.ways[0].containers.values()):
        knobs.warnings.append(
            f"{names.OVERSUBSCRIBE}: a container that names only the model has the whole card to itself, "
            f"nothing of it spills; name {names.LIMIT_MEMORY} too"
        )
    for name in (names.CARD_POLICY, names.NODE_POLICY):
        _one_of(annotations, name, PLACEMENTS, path)
    _one_of(annotations, names.SUSPEND_SIGNAL, SUSPEND_SIGNALS, path)
    _check_span(annotations, path)
    for name in CARD_LISTS:
        _list(annotations, name, path)
    for used, avoided, read in (
        (names.USE_MODELS, names.AVOID_MODELS, _models),
        (names.HAMI_USE_GPU_TYPE, names.HAMI_NO_USE_GPU_TYPE, _products),
    ):
        use, avoid = read(annotations, used, path, table), read(annotations, avoided, path, table)
        for model in sorted(ask.models):
            if model in avoid or (annotations.get(used) and model not in use):
                which = avoided if model in avoid else used
                raise Refusal(f'{path}["{which}"]: rules out model {model!r}, which the containers ask for')
    return knobs


def check_mps(annotations: Mapping[str, Any], path: str, ask: PodAsk, cls: ClassName) -> None:
    """Refuse what cannot be under an MPS server: classes, memory on the host, several cards, whole cards."""
    if annotations.get(names.ISOLATION) != MPS:
        return
    said = f'{path}["{names.ISOLATION}"]: "{MPS}"'
    if cls != "unset":
        raise Refusal(
            f"{said} and class {cls}: nobody holds launches or suspends programs there; leave one of the two "
            f"out ({names.PRIORITY})"
        )
    if str(annotations.get(names.OVERSUBSCRIBE) or "") not in {"", "false"}:
        raise Refusal(f"{said}: no memory moves to the host there; leave {names.OVERSUBSCRIBE} out")
    for way in ask.ways:
        for name, each in way.containers.items():
            if each.native:
                raise Refusal(f"{said}: container {name!r} asks for whole cards, which nobody shares")
            if each.cards > 1:
                raise Refusal(
                    f"{said}: container {name!r} asks for {each.cards} cards. Each card has its own server, "
                    "and a program reaches one: ask for 1 card per container"
                )


def _check_slices(ask: PodAsk, path: str, *, soft: bool, spills: str) -> None:
    """A slice has its size: nothing above it while the card is idle, and nothing on the host."""
    cut = next(((name, each) for name, each in ask.ways[0].containers.items() if each.slice), None)
    if cut is None or not (soft or spills):
        return
    said = f'{names.CORE_POLICY}"]: "soft"' if soft else f'{names.OVERSUBSCRIBE}"]: "{spills}"'
    raise Refusal(
        f'{path}["{said}: container {cut[0]!r} gets the slice {cut[1].slice} of a {cut[1].model}, whose '
        "size is fixed; leave it out"
    )


def _check_span(annotations: Mapping[str, Any], path: str) -> None:
    raw = annotations.get(names.EXPECTED_RUNTIME)
    try:
        if raw is not None and parse_seconds(raw) <= 0:
            raise Refusal(f'{path}["{names.EXPECTED_RUNTIME}"]: {str(raw)[:63]!r} is no time at all')
    except QuantityError as error:
        raise Refusal(f'{path}["{names.EXPECTED_RUNTIME}"]: {error}') from error


def _products(annotations: Mapping[str, Any], name: str, path: str, table: ModelTable) -> list[str]:
    """The models that HAMi's spelling means, by parts of their products' names."""
    return sorted(models_like(",".join(_list(annotations, name, path)), table))


def _check_turns(annotations: Mapping[str, Any], path: str, ask: PodAsk, table: ModelTable) -> None:
    """Programs that have a card in turns have all of it each time, and no class that others go by."""
    said = f'{path}["{names.OVERSUBSCRIBE}"]: "swap"'
    cls = annotations.get(names.PRIORITY)
    if cls == "low":
        raise Refusal(
            f"{said} next to {names.PRIORITY} low: low pods are suspended for others without it; leave it out"
        )
    if cls is not None:
        raise Refusal(
            f"{said} next to {names.PRIORITY} {str(cls)[:63]}: a pod that waits for its turn serves nobody; "
            "leave one of the two out"
        )
    for way in ask.ways:
        for name, each in way.containers.items():
            model = table.get(each.model)
            if each.whole or (model is not None and each.memory_mib < model.memory_mib):
                had = "none" if each.whole else f"{each.memory_mib} MiB"
                raise Refusal(
                    f"{said}: container {name!r} names {had} of the memory of a {each.model}. In its turn it "
                    f"has all of it: write {names.LIMIT_MEMORY_PERCENTAGE}: 100"
                )
            if each.cores_percent:
                raise Refusal(
                    f"{said}: container {name!r} asks for {each.cores_percent} cores. In its turn it has all "
                    f"of the card's time: leave {names.LIMIT_CORES} out"
                )


def _check_shared(annotations: Mapping[str, Any], path: str, ask: PodAsk) -> None:
    """Refuse memory that moves to the host for cards that no library stands before."""
    native = next(((name, each) for name, each in ask.ways[0].containers.items() if each.native), None)
    if native is not None:
        name, each = native
        said = f'{path}["{names.OVERSUBSCRIBE}"]: "{annotations[names.OVERSUBSCRIBE]}"'
        raise Refusal(
            f"{said} next to {names.native_resource(each.model)}: "
            f"{each.cards} of container {name!r}: the memory of whole cards cannot spill; leave it out, or "
            f"ask for shares ({names.shared_resource(each.model)})"
        )


def scheduler_for(named: object, path: str, settings_name: str) -> tuple[str, str]:
    """(the scheduler that will bind, a warning or nothing). A third scheduler is refused."""
    known = {"", names.SCHEDULER_VOLCANO, names.SCHEDULER_DEFAULT, names.SCHEDULER_DIRECT}
    if not isinstance(named, str) or named not in known:
        raise Refusal(f"{path}: {str(named)[:63]!r} cannot bind managed pods, leave it out")
    if named in {names.SCHEDULER_VOLCANO, names.SCHEDULER_DIRECT} and settings_name not in {
        named,
        names.SCHEDULER_DIRECT,
    }:
        return settings_name, f"{path}: {named!r} becomes {settings_name!r}, which binds managed pods here"
    return settings_name, ""


def priority_class_for(
    named: str, cls: ClassName, context: Context, path: str, *, preemption_policy: str | None = None
) -> str:
    """The PriorityClass of a pod: the one of its class, or the one it names, if that may not preempt.

    ``preemption_policy`` is what the API server filled in from the named class, where it has done so.
    """
    ours = PRIORITY_CLASSES[cls]
    known = context.priority_classes.get(named) if named else None
    if not named or named == ours or (known is not None and known.get("globalDefault") is True):
        return ours
    stands_for = class_of_priority_class(named)
    if stands_for is not None:
        raise Refusal(
            f'{path}: {named!r} stands for priority "{stands_for}", the annotation {names.PRIORITY} says '
            f'"{cls}"; set the annotation and leave the class out'
        )
    policy = preemption_policy or (known or {}).get("preemptionPolicy")
    if known is None and policy is None:
        raise Refusal(f"{path}: PriorityClass {named[:253]!r} does not exist")
    if policy != "Never":
        raise Refusal(
            f"{path}: PriorityClass {named[:253]!r} has preemptionPolicy {policy or 'PreemptLowerPriority'}: "
            "it would evict single members behind the plan; use one with preemptionPolicy Never"
        )
    return named


def service_account_of(spec: Json) -> str:
    """The service account that a pod with this spec runs as."""
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or "default")


def _one_of(annotations: Mapping[str, Any], name: str, allowed: tuple[str, ...], path: str) -> str | None:
    value = annotations.get(name)
    if value is None:
        return None
    if value not in allowed:
        # What is no text came without quotes: to YAML a bare true is no word.
        bare = "" if isinstance(value, str) else ", in quotes"
        text = str(value)[:63]
        raise Refusal(f'{path}["{name}"]: {text!r}, it must be one of {", ".join(allowed)}{bare}')
    return str(value)


def _list(annotations: Mapping[str, Any], name: str, path: str) -> list[str]:
    found = entries(annotations.get(name))
    if len(found) > MOST_NAMED:
        raise Refusal(f'{path}["{name}"]: {len(found)} entries, the limit is {MOST_NAMED}')
    return found


def _models(annotations: Mapping[str, Any], name: str, path: str, table: ModelTable) -> list[str]:
    models = _list(annotations, name, path)
    for entry in models:
        if table.get(entry) is None:
            raise Refusal(f'{path}["{name}"]: model {entry[:63]!r} is not known')
    return models
