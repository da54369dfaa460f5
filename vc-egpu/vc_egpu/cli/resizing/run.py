"""``kubectl egpu resize POD``: another size for the shares of a pod that runs, without a restart.

It writes a wish on the pod and waits for what becomes of it. The admission controller judges the wish and
leaves a note in its place; the pod's node applies it.
"""

import argparse
import importlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from rich.console import RenderableType
from rich.text import Text

from vc_egpu.cli import world
from vc_egpu.cli.resizing.told import note_of
from vc_egpu.kube import ApiConnection, Json
from vc_egpu.kube.resources import PODS
from vc_egpu.kube.wire.errors import Conflict, Forbidden, NotFound, Temporary
from vc_egpu.volcano.resizing.notes import Amounts, ResizeNote, ResizeWish, Stage, changes, wish_on
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

POLL_S: Final = 0.5
JUDGED_S: Final = 15.0
"""A wish that no admission controller has judged by then is taken back."""

Progress = Callable[[str], None]


class NotResizableError(LookupError):
    """This pod cannot be resized; the text says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a wish."""

    pod: str
    """``namespace/name``."""
    result: Literal["resized", "granted", "refused", "would be granted", "would be refused", "not known"]
    why: str

    @property
    def reached(self) -> bool:
        """Whether the pod has the size, or would get it."""
        return self.result in {"resized", "would be granted"}


def run(api: ApiConnection, namespace: str, options: argparse.Namespace, progress: Progress) -> Outcome:
    """Write the wish and wait; with ``--dry-run`` only say what would become of it.

    Raises :class:`NotResizableError`.
    """
    place, _, name = str(options.pod).removeprefix("pod/").removeprefix("pods/").rpartition("/")
    pod = _pod(api, place or namespace, name)
    wish = _wish(pod, options.memory_mib, options.cores, options.container)
    _write(api, pod, wish.encode(), dry_run=options.dry_run)
    if options.dry_run:
        return _foresee(api, pod, wish)
    return _wait(api, pod, wish, options.wait_s, progress)


def shown(outcome: Outcome) -> RenderableType:
    """What became of the wish, for people."""
    style = "green" if outcome.reached else "yellow"
    return Text.assemble((f"{outcome.pod}: ", "bold"), (outcome.result, style), f"\n  {outcome.why}")


def _pod(api: ApiConnection, namespace: str, name: str) -> Json:
    try:
        return api.get(PODS, name, namespace)
    except NotFound:
        there = api.list(PODS, namespace, label_selector=world.MANAGED, transform=world.light_pod).items
        near = world.nearest_pod(name, there)
        hint = f"; did you mean {near}?" if near else ""
        raise NotResizableError(f"there is no pod {name} in namespace {namespace}{hint}") from None


def _wish(pod: Json, memory_mib: int | None, cores: int | None, container: str | None) -> ResizeWish:
    name, cards = pod["metadata"]["name"], world.cards_of(pod)
    if world.finished(pod) or pod["metadata"].get("deletionTimestamp"):
        raise NotResizableError(f"pod {name} is {world.phase(pod)}: there is nothing to resize")
    if cards is None or not cards.containers:
        raise NotResizableError(f"pod {name} has no cards of ours: there is nothing to resize")
    known = sorted(cards.containers)
    if container is None and len(known) > 1:
        raise NotResizableError(f"pod {name} has shares in {', '.join(known)}: name one with --container")
    if container is not None and container not in known:
        raise NotResizableError(f"container {container} of pod {name} has no share; {', '.join(known)} have")
    amounts = Amounts(memory_mib=memory_mib, cores=cores)
    return ResizeWish(id=uuid.uuid4().hex, containers={container or known[0]: amounts})


def _write(api: ApiConnection, pod: Json, text: str | None, *, dry_run: bool = False) -> None:
    metadata = {"uid": pod["metadata"]["uid"], "annotations": {names.RESIZE: text}}
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    try:
        api.patch(PODS, name, {"metadata": metadata}, namespace, dry_run=dry_run)
    except (NotFound, Conflict) as error:
        raise NotResizableError(f"pod {name} has gone meanwhile") from error
    except Forbidden as error:
        who_may = "an operator allows it with a binding to ClusterRole vc-egpu-resize"
        raise NotResizableError(f"you may not: {error.message}; {who_may}") from error


def _wait(api: ApiConnection, pod: Json, wish: ResizeWish, timeout_s: float, progress: Progress) -> Outcome:
    began, told = time.monotonic(), ""
    name = world.key(pod)
    while True:
        waited_s = time.monotonic() - began
        try:
            seen = api.get(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"])
        except NotFound:
            return Outcome(name, "refused", "the pod has gone meanwhile")
        except Temporary:
            if waited_s >= timeout_s:
                raise
            time.sleep(POLL_S)
            continue
        note = note_of(seen)
        mine = note if note is not None and note.id == wish.id else None
        if seen["metadata"]["uid"] != pod["metadata"]["uid"]:
            return Outcome(name, "refused", "the pod has gone meanwhile")
        if mine is not None and not mine.waits_for_agent:
            return _ended(name, mine)
        if mine is None and not _stands(seen, wish):
            return Outcome(name, "not known", "another wish for this pod came after this one")
        if mine is None and waited_s >= min(timeout_s, JUDGED_S):
            _write(api, pod, None)
            why = "no admission controller has judged it, so it was taken back: `kubectl egpu doctor`"
            return Outcome(name, "not known", why)
        if waited_s >= timeout_s and mine is not None:
            return Outcome(name, "granted", f"{_say(mine)}; it stands")
        if mine is not None and (line := _say(mine)) != told:
            told = line
            progress(f"pod {name}: {line}")
        time.sleep(POLL_S)


def _say(note: ResizeNote) -> str:
    does = "lowers its memory first" if note.stage is Stage.LOWERING else "has not confirmed it yet"
    return f"{'; '.join(changes(note))}: its node {does}"


def _ended(name: str, note: ResizeNote) -> Outcome:
    what = "; ".join(changes(note))
    if note.stage is Stage.DONE:
        return Outcome(name, "resized", what)
    return Outcome(name, "refused", f"{what}: {note.why}" if what else note.why)


def _stands(pod: Json, wish: ResizeWish) -> bool:
    try:
        there = wish_on(world.annotations(pod))
    except AnnotationError:
        return False
    return there is not None and there.id == wish.id


def _foresee(api: ApiConnection, pod: Json, wish: ResizeWish) -> Outcome:
    """By the same decision, on the cluster as it is now. It is loaded for this alone: that takes a while."""
    reading = importlib.import_module("vc_egpu.cli.foresight.reading")
    name = world.key(pod)
    try:
        seen = reading.from_cluster(api)
    except importlib.import_module("vc_egpu.cli.foresight.flags").CannotForeseeError as error:
        return Outcome(name, "not known", f"you may wish for it. Whether there is room is not known: {error}")
    uid = pod["metadata"]["uid"]
    if uid not in seen.snapshot.pods:
        raise NotResizableError(f"pod {name} has gone meanwhile")
    wished = replace(seen.snapshot.pods[uid], resize=wish.sizes())
    snapshot = replace(seen.snapshot, pods={**seen.snapshot.pods, uid: wished}, index=None)
    decide = importlib.import_module("vc_egpu.core.decide").decide
    judged = next(
        (one for one in decide(snapshot, seen.policy, seen.now, ()).resizes if one.pod == uid), None
    )
    if judged is None:
        return Outcome(name, "not known", f"the pod is {world.phase(pod)}")
    if judged.why:
        return Outcome(name, "would be refused", judged.why)
    size = "; ".join(
        f"{container} {share.memory_mib} MiB and {share.cores_percent} cores of card {share.card}"
        for container, share in judged.then
    )
    return Outcome(name, "would be granted", f"{size}. Whether it uses less by now its node will look at")
