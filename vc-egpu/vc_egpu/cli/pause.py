"""``kubectl egpu suspend POD`` and ``resume POD``: a gang leaves its cards for a while, and comes back.

Both only change a wish on pods. The admission controller acts on it for the whole gang, and its conditions on
the pods say what becomes of it. Everything that is told here is read from those.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from vc_egpu.cli import world
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import Conflict, Forbidden, NotFound, Temporary
from vc_egpu.volcano.words import names

POLL_S: Final = 0.5
_REST: Final = 4
"""Times as long as a look took: a large namespace is not read all the time."""
STANDS_S: Final = 10.0
"""A reason against suspending is believed once it stands so long. An agent looks at processes every 2 s, and
knows nothing yet about a pod that has just begun."""
SUSPENDED: Final[Literal["Suspended"]] = "Suspended"
RUNNING: Final[Literal["Running"]] = "Running"
NOT_SUSPENDABLE: Final = "NotSuspendable"
STANDS: Final = "the order stands, `kubectl egpu resume` takes that back"
_LAST_WORDS: Final = frozenset({"RestoreFailed"})
"""Conditions after which waiting does not help."""


class CannotPauseError(LookupError):
    """This pod cannot be suspended or resumed, whatever becomes of its gang; the text says why."""


@dataclass(frozen=True, slots=True)
class MemberState:
    """One pod of the gang."""

    pod: str
    node: str
    state: str
    """Running, Suspending, Suspended, Resuming, or the pod's phase."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PauseOutcome:
    """What became of the gang."""

    gang: str
    """``namespace/name`` of its PodGroup."""
    wanted: Literal["Suspended", "Running"]
    reached: bool
    members: tuple[MemberState, ...]
    why: str
    """Why it was not reached, or a sentence on what was."""


Progress = Callable[[str], None]


def suspend(
    api: ApiConnection,
    namespace: str,
    name: str,
    *,
    timeout_s: float,
    progress: Progress,
    stands_s: float = STANDS_S,
) -> PauseOutcome:
    """Ask for the pod's gang to be suspended and wait for it; takes the wish back where it cannot be met."""
    pod = _pod(api, namespace, name)
    _check(pod)
    gang = _gang_of(pod)
    _wish(api, pod, "true")
    progress(f"gang {gang}: all its pods are asked to leave their cards, since a gang goes as a whole")

    refused_since: float | None = None

    def judge(members: Sequence[MemberState]) -> str:
        nonlocal refused_since
        refusal = _refusal(members)
        now = time.monotonic()
        refused_since = (now if refused_since is None else refused_since) if refusal else None
        return refusal if refused_since is not None and now - refused_since >= stands_s else ""

    try:
        outcome = _wait(api, pod, SUSPENDED, timeout_s, progress=progress, judge=judge)
    except Temporary:
        progress(STANDS)
        raise
    refusal = _refusal(outcome.members)
    if outcome.reached or not refusal:
        return outcome
    _wish(api, pod, None)
    return replace(outcome, why=refusal)


def _refusal(members: Iterable[MemberState]) -> str:
    """Why the gang is not suspended, as the first of its pods says it."""
    return next((f"pod {m.pod}: {m.message}" for m in members if m.reason == NOT_SUSPENDABLE), "")


def resume(
    api: ApiConnection, namespace: str, name: str, *, timeout_s: float, progress: Progress
) -> PauseOutcome:
    """Take back the wish on every pod of the gang and wait until all of them run again."""
    pod = _pod(api, namespace, name)
    members = _members(api, pod)
    if not any(world.cards_of(member) for member in members):
        _check_there(pod, "resume")
    paused = [member for member in members if names.PAUSE in world.annotations(member)]
    for member in paused:
        _wish(api, member, None)
    if paused:
        progress(f"gang {_gang_of(pod)}: runs again as soon as its cards have room for it")
    elif any(names.SUSPEND in world.annotations(member) for member in members):
        progress(f"gang {_gang_of(pod)}: no user suspended it; it comes back when its cards have room for it")
    return _wait(api, pod, RUNNING, timeout_s, progress=progress, judge=lambda _: "")


def state_of(pod: Json) -> MemberState:
    """How far a pod is, from what the admission controller says on it."""
    said = world.condition(pod, names.CONDITION_SUSPENDED) or {}
    return MemberState(
        pod=str(pod["metadata"]["name"]),
        node=str((pod.get("spec") or {}).get("nodeName") or ""),
        state=world.phase(pod),
        reason=str(said.get("reason") or ""),
        message=str(said.get("message") or ""),
    )


def _check_there(pod: Json, to_do: str) -> None:
    name = pod["metadata"]["name"]
    if world.labels(pod).get(names.MANAGED_LABEL) != "true":
        raise CannotPauseError(
            f"pod {name} asks for no managed cards: the admission layer has nothing to do with it"
        )
    if world.finished(pod) or pod["metadata"].get("deletionTimestamp"):
        raise CannotPauseError(f"pod {name} is {world.phase(pod)}: there is nothing to {to_do}")
    if world.waits_for_us(pod) or world.cards_of(pod) is None:
        raise CannotPauseError(f"pod {name} has no cards yet: there is nothing to {to_do}")


def _check(pod: Json) -> None:
    _check_there(pod, "suspend")
    name, cards = pod["metadata"]["name"], world.cards_of(pod)
    if cards is not None and cards.share_class != "low":
        text = f'has class {cards.share_class}; only pods of {names.PRIORITY} "low" are ever suspended'
        raise CannotPauseError(f"pod {name} {text}")


def _wait(
    api: ApiConnection,
    pod: Json,
    wanted: Literal["Suspended", "Running"],
    timeout_s: float,
    *,
    progress: Progress,
    judge: Callable[[Sequence[MemberState]], str],
) -> PauseOutcome:
    deadline = time.monotonic() + timeout_s
    last = ""
    while True:
        began = time.monotonic()
        try:
            found = _members(api, pod)
        except Temporary as error:  # what was asked for is asked for: the answer may still come
            if time.monotonic() >= deadline:
                raise
            last = _once(progress, f"the cluster does not answer: {error.message}", last)
            time.sleep(pause_s(0.0, deadline - time.monotonic()))
            continue
        took_s = time.monotonic() - began
        members = tuple(state_of(member) for member in found if world.cards_of(member) is not None)
        there = sum(1 for member in members if member.state == wanted)
        ordered = wanted == RUNNING or _target_ordered(found, pod)
        if ordered and members and there == len(members):
            text = f"{len(members)} pods are suspended" if wanted == SUSPENDED else "all its pods run"
            return PauseOutcome(_gang_of(pod), wanted, reached=True, members=members, why=text)
        why = judge(members) or next((m.message for m in members if m.reason in _LAST_WORDS), "")
        if why or not members or time.monotonic() >= deadline:
            why = why or ("its pods are gone" if not members else _late(members, wanted, timeout_s))
            return PauseOutcome(_gang_of(pod), wanted, reached=False, members=members, why=why)
        last = _once(
            progress, f"{there} of {len(members)} pods {wanted.lower()}; {_first(members, wanted)}", last
        )
        time.sleep(pause_s(took_s, deadline - time.monotonic()))


def _once(progress: Progress, line: str, last: str) -> str:
    """Tell it unless it was told last."""
    if line != last:
        progress(line)
    return line


def pause_s(took_s: float, left_s: float) -> float:
    """How long to wait after a look that took so long, where so much time is left."""
    return max(0.0, min(left_s, max(POLL_S, _REST * took_s)))


def _late(members: Sequence[MemberState], wanted: str, timeout_s: float) -> str:
    text = f"not {wanted.lower()} within {timeout_s:.0f} s; {_first(members, wanted)}"
    if wanted == RUNNING:
        return f"{text}; it comes back by itself when there is room"
    return f"{text}; the order stands, `kubectl egpu resume` takes that back"


def _first(members: Sequence[MemberState], wanted: str) -> str:
    left = next((member for member in members if member.state != wanted), members[0])
    said = left.message or "the admission controller has said nothing about it yet"
    return f"pod {left.pod} is {left.state}: {said}"


def _target_ordered(members: Iterable[Json], pod: Json) -> bool:
    uid = pod["metadata"]["uid"]
    return any(m["metadata"]["uid"] == uid and names.SUSPEND in world.annotations(m) for m in members)


def _pod(api: ApiConnection, namespace: str, name: str) -> Json:
    try:
        return api.get(PODS, name, namespace)
    except NotFound:
        near = world.nearest_pod(name, _managed(api, namespace))
        hint = f"; did you mean {near}?" if near else ""
        raise CannotPauseError(f"there is no pod {name} in namespace {namespace}{hint}") from None


def _members(api: ApiConnection, pod: Json) -> list[Json]:
    """The living pods of its gang."""
    group, namespace = world.group_key(pod), pod["metadata"]["namespace"]
    found = [
        p
        for p in _managed(api, namespace)
        if p["metadata"]["uid"] == pod["metadata"]["uid"] or (group and world.group_key(p) == group)
    ]
    return [p for p in found if not world.finished(p) and not p["metadata"].get("deletionTimestamp")]


def _managed(api: ApiConnection, namespace: str) -> list[Json]:
    return api.list(PODS, namespace, label_selector=world.MANAGED, transform=world.light_pod).items


def _gang_of(pod: Json) -> str:
    return world.group_key(pod) or world.key(pod)


def _wish(api: ApiConnection, pod: Json, value: str | None) -> None:
    metadata = {"uid": pod["metadata"]["uid"], "annotations": {names.PAUSE: value}}
    try:
        api.patch(PODS, pod["metadata"]["name"], {"metadata": metadata}, pod["metadata"]["namespace"])
    except (NotFound, Conflict) as error:
        # Gone, or another one by that name: with it its wish.
        if isinstance(error, Conflict) and "UID" not in error.message:
            raise
        if value is not None:
            raise CannotPauseError(f"pod {pod['metadata']['name']} has gone meanwhile") from error
    except Forbidden as error:
        who_may = "an operator allows it with a binding to ClusterRole vc-egpu-suspend"
        raise CannotPauseError(f"you may not: {error.message}; {who_may}") from error
