"""Which queue a gang counts to: one rule for decisions and for what people are shown."""

from collections.abc import Iterable, Mapping

from vc_egpu.volcano.words import names


def checked_for(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str:
    """The queue that a pod was checked for at the door; empty where none is written on it."""
    return annotations.get(names.QUEUE_NAME) or labels.get(names.JOB_QUEUE_NAME) or ""


def payer(named: str, checked: Iterable[str | None]) -> str:
    """The queue that its PodGroup names, if any of its living pods was checked for that one.

    A PodGroup that was made again while its pods live may name any queue: no check says who may use it.
    ``checked``: :func:`checked_for` of these pods, the same queue as often as it comes.
    """
    known = {queue for queue in checked if queue}
    return named if not known or named in known else min(known)
