"""What happened to a gang lately: for which gang it was evicted, and that it was rolled back.

Its pods are gone then, and their replacements know nothing of it, even under the same names. Events and the
note on the PodGroup are all that is left. Pure: documents in, sentences out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from vc_egpu.admission.state import backoffs
from vc_egpu.cli import world
from vc_egpu.core.model.cluster import Instant
from vc_egpu.core.model.policy import OFTEN
from vc_egpu.core.model.words import why_moved
from vc_egpu.core.room.lateness import lately
from vc_egpu.kube import Json
from vc_egpu.volcano.codec import gang_notes
from vc_egpu.volcano.words.makers import controller_of

EVICTED: Final = ("Preempted", "Replaced", "Moved", "Drained")
"""Reasons of the admission controller's events on pods that it made go."""

_RANDOM: Final = 5
_LONGEST_STEM: Final = 58
"""The API server cuts the beginning that it is given to so much, and adds so many characters."""


def evictions(group: Json, members: Sequence[Json], events: Iterable[Json]) -> list[str]:
    """One sentence for each cause for which pods of the gang were evicted, oldest first."""
    present = {str(pod["metadata"]["name"]) for pod in members}
    stems = _stems(group, members)
    made = str(group["metadata"].get("creationTimestamp") or "")
    pods: dict[str, set[str]] = defaultdict(set)
    last: dict[str, str] = {}
    for event in events:
        about = event.get("involvedObject") or {}
        name = str(about.get("name") or "")
        if event.get("reason") not in EVICTED or about.get("kind") != "Pod" or _when(event) < made:
            continue  # before the gang was made: of an earlier Job of that name
        if name in present or (name[:-_RANDOM] in stems and re.fullmatch("[0-9a-z]+", name[-_RANDOM:])):
            why = str(event.get("message") or "")
            pods[why].add(str(about.get("uid") or name))
            last[why] = max(last.get(why, ""), _when(event))
    return [
        f"{_pods(len(pods[why]))} evicted at {last[why]}: {why}"
        for why in sorted(pods, key=lambda why: (last[why], why))
    ]


def roll_backs(text: str, now: Instant) -> str:
    """The PodGroup's annotation as a sentence; empty where there was none for an hour, or for garbage."""
    value = backoffs.decode(text)
    if not value.count or now - value.at > backoffs.FORGET_S:
        return ""
    often = "once, at" if value.count == 1 else f"{value.count} times, last at"
    told = f"{often} {world.time_of(value.at)}: {value.why}"
    if now < value.until:
        told += f"; tried again at {world.time_of(value.until)}"
    if value.nodes and value.shuts(now):
        left_out = ", ".join(sorted(value.nodes))
        told += f"; until {world.time_of(value.nodes_until)} without {left_out}, unless nothing else has room"
    if value.most and value.shuts(now):
        told += (
            f"; until {world.time_of(value.nodes_until)} at most {value.most} of its members go to one node"
        )
    return told


def spared(text: str, now: Instant) -> list[str]:
    """The PodGroup's note on evictions as a sentence; nothing where it does not make the gang go last."""
    times = lately(gang_notes.decode_victim_at(text), now)
    if len(times) < OFTEN:
        return []
    last = world.time_of(times[-1])
    often = f"{len(times)} times within an hour, last at {last}"
    return [f"it was evicted for others {often}: it is the last to go now"]


def waits_since(text: str) -> list[str]:
    """The PodGroup's claim as a sentence; nothing where it has none."""
    since = gang_notes.since(text)
    if since is None:
        return []
    return [f"it has been the first of its queue and class since {world.time_of(since)}, and claims cards"]


def moves(text: str) -> list[str]:
    """The gang's way to other cards as a sentence; nothing where it was not moved."""
    move = gang_notes.decode_move(text, "", {})
    if move is None:
        return []
    why, when = why_moved(move.whom, move.empties), world.time_of(move.at)
    if gang_notes.claims(text):
        return [f"it moves to other cards, which are claimed for it since {when}, {why}"]
    if move.stays:
        return [f"it was to move to other cards, {why}. That was given up at {when}, and it stays"]
    return [f"it was moved to other cards at {when}, {why}, and is not moved again within a day"]


def _stems(group: Json, members: Iterable[Json]) -> set[str]:
    """How the names of pods begin whose controller gives each new pod another name.

    A name may have an index before its random end (batch Jobs), or its purpose (RayClusters).
    """
    owner = controller_of(group)
    begun = {str(pod["metadata"].get("generateName") or "") for pod in members}
    begun |= {f"{owner['name']}-"} if owner else set()
    return {stem[:_LONGEST_STEM] for stem in begun - {""}}


def _when(event: Json) -> str:
    """To the second, as conditions have it; an event has one of two times."""
    told = str(event.get("lastTimestamp") or event.get("eventTime") or "")
    return re.sub(r"\.\d+", "", told)


def _pods(count: int) -> str:
    return "1 pod was" if count == 1 else f"{count} pods were"
