"""Pods whose shares have, or were wished to have, another size than their template asks for. Pure."""

from collections.abc import Iterable, Iterator

from vc_egpu.cli import world
from vc_egpu.kube import Json
from vc_egpu.volcano.resizing.notes import ResizeNote, Stage, changes, note_on
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError, Request


def note_of(pod: Json) -> ResizeNote | None:
    """What became of the last wish to resize it; None: there was none."""
    return note_on(world.annotations(pod), str(pod["metadata"].get("uid") or ""))


def notes(pods: Iterable[Json]) -> list[str]:
    """A sentence for each pod that was resized, or for which a user wished it."""
    return [f"pod {pod['metadata']['name']}: {text}" for pod in pods for text in _about(pod)]


def sizes(pods: Iterable[Json]) -> list[str]:
    """The same, of those alone that have another size now."""
    return [
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']} was resized: {text}"
        for pod in pods
        for text in _otherwise(pod)
    ]


def _about(pod: Json) -> Iterator[str]:
    if world.finished(pod):
        return
    note = note_of(pod)
    if names.RESIZE in world.annotations(pod):
        yield "a wish for another size waits to be judged"
    if note is not None:
        what = "; ".join(changes(note))
        match note.stage:
            case Stage.LOWERING:
                yield f"{what}: its node lowers its memory first"
            case Stage.APPLYING:
                yield f"{what}: granted, and its node has not confirmed it yet"
            case Stage.REFUSED:
                yield f"not resized{f' ({what})' if what else ''}: {note.why}"
            case Stage.DONE:
                pass  # said below
    yield from (f"it was resized: {text}" for text in _otherwise(pod))


def _otherwise(pod: Json) -> Iterator[str]:
    """Containers whose share has another size than the pod's request."""
    annotations = world.annotations(pod)
    cards = world.cards_of(pod)
    if names.RESIZED not in annotations or cards is None:
        return
    try:
        request = Request.decode(annotations.get(names.REQUEST) or "{}")
    except AnnotationError:
        return
    for name, ask in sorted(request.containers.items()):
        for share in cards.containers.get(name, ())[:1]:  # all of its cards have the same size
            if (share.memory_mib, share.cores) != (ask.memory_mib, ask.cores_percent):
                yield (
                    f"{name} has {share.memory_mib} MiB and {share.cores} cores. Its request is still "
                    f"{ask.memory_mib} MiB and {ask.cores_percent} cores, and Volcano counts that until the "
                    "pod is made again"
                )
