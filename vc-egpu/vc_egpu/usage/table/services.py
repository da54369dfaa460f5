"""The service behind a gang or a pod: what keeps its name while its pods and gangs come and go."""

from typing import Final

_HASH_LETTERS: Final = frozenset("bcdfghjklmnpqrstvwxz2456789")
"""The letters of Kubernetes' random name endings."""
_HEX: Final = frozenset("0123456789abcdef")
_RANDOM_END: Final = 5
_TEMPLATE_HASH: Final = range(8, 11)
_LEAST_DIGITS_OF_A_TIME: Final = 6
_UUID_PARTS: Final = (8, 4, 4, 4, 12)


def service_of(gang: str, pod: str) -> str:
    """The lasting name of what a share belongs to.

    A Volcano Job's PodGroup is named after the Job and its UID, and a CronJob's Job after a time. Pods of
    Deployments and StatefulSets are in PodGroups named after a UID only, so that the pod's name has to tell.
    """
    name = _without_uuid(gang.rpartition("/")[2])
    if name in {"", "podgroup"}:
        return _of_pod(pod)
    return _without_time(name)


def kind_of(gang: str, pod: str) -> str:
    """What kind of object a service is, as far as names tell: ``Job`` for gangs that are named after one."""
    if _without_uuid(gang.rpartition("/")[2]) not in {"", "podgroup"}:
        return "Job"
    parts = pod.split("-")
    if len(parts) > 1 and parts[-1].isdigit():
        return "StatefulSet"
    return "Deployment" if len(parts) > 2 and _is_random(parts[-1]) and _is_hash(parts[-2]) else "Pod"


def _is_random(part: str) -> bool:
    return len(part) == _RANDOM_END and _HASH_LETTERS.issuperset(part)


def _is_hash(part: str) -> bool:
    return len(part) in _TEMPLATE_HASH and _HASH_LETTERS.issuperset(part)


def _without_uuid(name: str) -> str:
    parts = name.split("-")
    tail = parts[-len(_UUID_PARTS) :]
    sizes = tuple(len(part) for part in tail)
    if sizes == _UUID_PARTS and all(_HEX.issuperset(part) for part in tail):
        return "-".join(parts[: -len(_UUID_PARTS)])
    return name


def _without_time(name: str) -> str:
    """Without the time that CronJobs and people put behind a name: ``nightly-29384756``."""
    head, _, tail = name.rpartition("-")
    return head if head and tail.isdigit() and len(tail) >= _LEAST_DIGITS_OF_A_TIME else name


def _of_pod(pod: str) -> str:
    parts = pod.split("-")
    if len(parts) > 1 and parts[-1].isdigit():
        return "-".join(parts[:-1])  # a StatefulSet's ordinal
    if len(parts) > 1 and _is_random(parts[-1]):
        parts = parts[:-1]
        if len(parts) > 1 and _is_hash(parts[-1]):
            parts = parts[:-1]
        return _without_time("-".join(parts))
    return pod
