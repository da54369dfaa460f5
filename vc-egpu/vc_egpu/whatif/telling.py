"""The answer for one reader: what is of namespaces that the reader may not see is told in numbers alone."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from vc_egpu.core.model.cluster import Instant, QueueName, Snapshot
from vc_egpu.core.model.reasons import Reason, Verdict
from vc_egpu.whatif.outlook import Fit, Going, Outlook
from vc_egpu.whatif.question import Question

Json = dict[str, Any]
Sees = Callable[[str], bool]
"""Whether the reader may list the pods of a namespace."""

_PLAIN: Final = {
    Reason.WAITING_FOR_QUOTA: "its queue has not enough left",
    Reason.EXCEEDS_CAP: "it asks for more than its queue ever allows",
    Reason.WAITING_FOR_CARDS: "too few cards are free",
    Reason.WAITING_FOR_TURN: "other work is before it",
    Reason.WAITING_FOR_EVICTION: "others leave for it",
    Reason.WAITING_FOR_MODEL: "no node has the model that it asks for",
    Reason.QUEUE_CLOSED: "its queue is closed",
}
"""Sentences for readers from whom the full one would hide something."""
_OTHERWISE: Final = "it waits"


ANYWHERE: Final = ""
"""All namespaces."""


def everything(_namespace: str) -> bool:
    """What a reader sees who may see all."""
    return True


def document(outlook: Outlook, question: Question, snapshot: Snapshot, now: Instant, sees: Sees) -> Json:
    """The answer as JSON; no byte of it names what the reader may not see."""
    mine = [entry for entry in outlook.going if sees(_namespace(entry.gang))]
    others = [entry for entry in outlook.going if not sees(_namespace(entry.gang))]
    verdict = outlook.verdict
    return {
        "version": 1,
        "gang": question.key,
        "fits": outlook.fit.value,
        "at": _time(outlook.at),
        "inSeconds": None if outlook.at is None else round(outlook.at - now, 3),
        "reason": verdict.reason.value if verdict is not None else "",
        "message": _message(verdict, question, snapshot, sees),
        "places": [
            {
                "member": key,
                "node": place.node or "",
                "cards": [
                    {
                        "container": container,
                        "card": share.card,
                        "memoryMiB": share.memory_mib,
                        "cores": share.cores_percent,
                    }
                    for container, share in place.shares
                ],
            }
            for key, place in sorted(outlook.places.items())
        ],
        "going": [_going(entry) for entry in mine],
        "goingOfOthers": {
            "gangs": len({entry.gang for entry in others}),
            "pods": sum(len(entry.pods) for entry in others),
        },
        "more": outlook.more,
        "moreIsLeast": outlook.more_is_bound,
    }


def sentence(told: Json) -> str:
    """The answer's first line for people, from the document."""
    gone = sum(len(entry["pods"]) for entry in told["going"]) + told["goingOfOthers"]["pods"]
    waits = f"; now {told['message']}" if told["message"] else ""
    return {
        Fit.NOW: "It fits now, and nothing has to go.",
        Fit.ROOM: f"It fits now, and {gone} pods have to go for it.",
        Fit.LATER: f"It fits at {told['at']} at the latest, if nothing changes{waits}.",
        Fit.NEVER: f"It does not fit, not even on the empty cluster{waits}.",
        Fit.UNKNOWN: f"It fits once others end, and when these do is not known{waits}.",
    }[Fit(told["fits"])]


def _going(entry: Going) -> Json:
    return {
        "gang": entry.gang,
        "pods": [f"{pod.namespace}/{pod.name}" for pod in entry.pods],
        "how": "suspended" if entry.suspended else "evicted",
    }


def _message(verdict: Verdict | None, question: Question, snapshot: Snapshot, sees: Sees) -> str:
    """The sentence of the decision, unless it names what is hidden."""
    if verdict is None or verdict.reason is Reason.ADMITTED:
        return ""
    text = verdict.message
    if all(name not in text for name in _hidden(question, snapshot, sees)):
        return text
    return _PLAIN.get(verdict.reason, _OTHERWISE)


def _hidden(question: Question, snapshot: Snapshot, sees: Sees) -> Iterator[str]:
    """Names that the reader must not learn: of others' namespaces, gangs, pods and queues."""
    if sees(ANYWHERE):
        return
    own = {queue for key, gang in snapshot.gangs.items() if sees(_namespace(key)) for queue in [gang.queue]}
    if question.gang is not None:
        own.add(question.gang.queue)
    for name in list(own):
        own |= set(_above(snapshot, name))
    yield from (queue for queue in snapshot.queues if queue not in own)
    for key in snapshot.gangs:
        if not sees(_namespace(key)):
            yield from (_namespace(key), key.partition("/")[2])
    for pod in snapshot.pods.values():
        if not sees(pod.namespace):
            yield from (pod.namespace, pod.name)


def _above(snapshot: Snapshot, name: QueueName) -> Iterator[QueueName]:
    seen: set[QueueName] = set()
    queue = snapshot.queues.get(name)
    while queue is not None and queue.parent is not None and queue.parent not in seen:
        seen.add(queue.parent)
        yield queue.parent
        queue = snapshot.queues.get(queue.parent)


def _namespace(key: str) -> str:
    return key.partition("/")[0]


def _time(at: Instant | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
