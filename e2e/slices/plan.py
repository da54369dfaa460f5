"""How the longer stories are divided into slices. Pure: equal durations give equal slices."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from slices.durations import Durations

SLICES: Final = 10
"""As many commits in a row run every story that fits."""
LANE_S: Final = 240.0
"""Seconds that one cluster of a slice may take."""
LANES: Final = 2
"""Clusters side by side."""


@dataclass(slots=True)
class Lane:
    """Stories that one worker runs after another."""

    stories: list[str] = field(default_factory=list)
    shared: set[str] = field(default_factory=set)
    own_s: float = 0.0

    def seconds(self, durations: Durations, more: Iterable[str] = ()) -> float:
        """How long it takes, and would take with more stories."""
        more = list(more)
        shared = self.shared.union(*(durations.uses.get(story, ()) for story in more))
        own_s = self.own_s + sum(durations.own_s[story] for story in more)
        return own_s + sum(durations.shared_s.get(name, 0.0) for name in shared)

    def add(self, durations: Durations, stories: Sequence[str]) -> None:
        """Take these in as well."""
        self.stories += stories
        self.shared.update(*(durations.uses.get(story, ()) for story in stories))
        self.own_s += sum(durations.own_s[story] for story in stories)


@dataclass(frozen=True, slots=True)
class Division:
    """All slices, and the stories that are too long for one."""

    slices: tuple[tuple[Lane, ...], ...]
    too_long: tuple[str, ...]

    def stories(self, number: int) -> list[str]:
        """The node ids of one slice, ``number`` counted from 0."""
        return [story for lane in self.slices[number] for story in lane.stories]


def divide(durations: Durations, *, slices: int = SLICES) -> Division:
    """Divide all stories of ``durations``.

    Stories of one file stay together, since they share a cluster. A file that is too long for a lane is cut
    into parts, each in a slice of its own. What is left over has no room: it is reported as too long.
    """
    files: dict[str, list[str]] = {}
    for story in durations.own_s:
        files.setdefault(story.partition("::")[0], []).append(story)
    too_long: list[str] = []
    parts = [part for file in sorted(files) for part in _parts(durations, files[file], too_long)]
    parts.sort(key=lambda part: (-Lane().seconds(durations, part), part))
    lanes = [[Lane() for _ in range(LANES)] for _ in range(slices)]
    for part in parts:
        file = part[0].partition("::")[0]
        free = [
            (sum(other.seconds(durations) for other in row), lane.seconds(durations, part), number, place)
            for number, row in enumerate(lanes)
            if not any(story.partition("::")[0] == file for lane in row for story in lane.stories)
            for place, lane in enumerate(row)
            if lane.seconds(durations, part) <= LANE_S
        ]
        if not free:
            too_long += part
            continue
        _, _, number, place = min(free)  # the slice that has least to do
        lanes[number][place].add(durations, part)
    return Division(tuple(tuple(row) for row in lanes), tuple(sorted(too_long)))


def _parts(durations: Durations, stories: Sequence[str], too_long: list[str]) -> list[list[str]]:
    parts: list[list[str]] = []
    lane = Lane()
    for story in sorted(stories):
        if Lane().seconds(durations, [story]) > LANE_S:
            too_long.append(story)
            continue
        if lane.stories and lane.seconds(durations, [story]) > LANE_S:
            parts.append(lane.stories)
            lane = Lane()
        lane.add(durations, [story])
    return [*parts, lane.stories] if lane.stories else parts
