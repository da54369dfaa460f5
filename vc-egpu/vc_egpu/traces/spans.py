"""A start as spans: what a collector shows as one picture. Pure.

start                    The Job was made, until as many pods run as it needs.
├─ made                  Until the last pod that it needs was made.
├─ waits                 From there to its plan.
│  └─ waits for          One reason: egpu.reason, egpu.message.
├─ bound                 From the plan until the last pod had its node.
└─ pod                   From its node until it runs, for the pods that took longest.
   ├─ sandbox            Until its network is there.
   └─ containers         Images, the agent's part, the start of the programs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.model.cluster import Instant
from vc_egpu.traces.facts import PodFacts
from vc_egpu.traces.starts import Start

MOST_PODS: Final = 32
"""Pods of one start with spans of their own. The others were quicker."""
_LONGEST_VALUE: Final = 1024
Value = str | int | bool


@dataclass(frozen=True, slots=True)
class Span:
    """One step."""

    name: str
    began: Instant
    ended: Instant
    attributes: Mapping[str, Value]
    parent: int | None
    """Number of the step that it belongs to; None for the whole."""
    trouble: str = ""
    """What went wrong; empty: nothing."""


def spans_of(start: Start) -> list[Span]:
    """The whole first, each step after the one that it belongs to. No step ends before it begins."""
    group = start.group
    namespace, _, name = group.key.partition("/")
    whole: dict[str, Value] = {
        "k8s.namespace.name": namespace,
        "egpu.gang": group.key,
        "egpu.job": group.job or name,
        "egpu.queue": group.queue,
        "egpu.class": start.pods[0].share_class if start.pods else "",
        "egpu.members": len(start.pods),
        "egpu.members_needed": group.needed,
        "egpu.start": start.number,
        "egpu.plan_id": group.plan_id,
    }
    trouble = "" if start.ran else "removed before it ran"
    found = [_span("start", start.began, start.ended, whole, None, trouble=trouble)]
    made = start.made
    if made is None:
        found.append(_span("made", start.began, start.ended, {}, 0, trouble="not all of its pods were made"))
        return found
    made = max(start.began, made)
    found.append(_span("made", start.began, made, {}, 0))
    planned = start.planned
    found.append(_span("waits", made, start.ended if planned is None else planned, {}, 0))
    waits = len(found) - 1
    for wait in start.waits:
        until = wait.until if wait.until is not None else (planned or start.ended)
        about: dict[str, Value] = {"egpu.reason": wait.reason, "egpu.message": wait.message}
        found.append(_span("waits for", max(made, wait.since), until, about, waits))
    if planned is None:
        return found
    bound = [pod.bound for pod in start.pods if pod.bound is not None]
    found.append(_span("bound", planned, max(bound, default=start.ended), {"egpu.members": len(bound)}, 0))
    slowest = sorted(start.pods, key=_took, reverse=True)[:MOST_PODS]
    for pod in sorted(slowest, key=lambda pod: (pod.bound or start.ended, pod.name)):
        if pod.bound is not None:
            found += _of_pod(pod, pod.bound, start.ended, len(found))
    return found


def _of_pod(pod: PodFacts, bound: Instant, ended: Instant, number: int) -> list[Span]:
    runs = pod.running if pod.running is not None else ended
    about: dict[str, Value] = {"k8s.pod.name": pod.name, "k8s.pod.uid": pod.uid, "k8s.node.name": pod.node}
    found = [_span("pod", bound, runs, about, 0, trouble="" if pod.running else "it does not run yet")]
    if pod.sandbox is not None:
        found.append(_span("sandbox", bound, pod.sandbox, {}, number))
        if pod.running is not None:
            found.append(_span("containers", pod.sandbox, pod.running, {}, number))
    return found


def _took(pod: PodFacts) -> float:
    return float("inf") if pod.running is None else pod.running - (pod.bound or pod.running)


def _span(
    name: str,
    began: Instant,
    ended: Instant,
    attributes: Mapping[str, Value],
    parent: int | None,
    *,
    trouble: str = "",
) -> Span:
    kept = {
        key: value[:_LONGEST_VALUE] if isinstance(value, str) else value for key, value in attributes.items()
    }
    return Span(
        name, began, max(began, ended), {key: v for key, v in kept.items() if v != ""}, parent, trouble
    )
