"""The second wall: what the driver itself sees of each container, held against what it was granted. Pure.

The library in the container is no wall against a root user there, who can start programs without it. What the
driver counts cannot be hidden: memory above the grant, a process that the library never registered, work
while the container is held. One look may fall into a moment of change, so only what two looks in a row
show counts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, get_args

LOOKS: Final = 2
"""So many in a row."""
TOLERANCE_MIB: Final = 64
"""What the driver takes on top of the allocations that a library can see."""
HELD_PERCENT: Final = 25
"""A held container that keeps a card so busy does not wait. Above the floor that low always has, and above
what its last units in flight leave behind."""
SAMPLES: Final = 8
"""Fewer tell nothing of the time between."""
ALWAYS: Final = 0.95


Action = Literal["reported", "killed", "failed"]
"""What was done about an offence; ``failed``: the processes could not be killed."""
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)


class Offence(Enum):
    """What a container may not do."""

    OVER_GRANT = "OverGrant"
    """More memory than granted."""
    NOT_GRANTED = "NotGranted"
    """On a card that is not its own."""
    UNREGISTERED = "Unregistered"
    """On its card, past the library."""
    WHILE_HELD = "WhileHeld"
    """Working while a higher class is."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One process on one card, as the driver tells."""

    uuid: str
    pid: int
    """On the host."""
    start_ticks: int
    memory_mib: int
    sm_percent: int
    owner: str
    """Key of its container."""
    registered: bool | None = None
    """Whether the library knows it on that card; None: there is no library in that container."""
    mps: bool = False
    """Its work goes through NVIDIA's MPS server."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one container may do."""

    memory_mib: Mapping[str, int] = field(default_factory=dict)
    """By card UUID: at most that much is not held against it."""
    whole: bool = False
    """Native cards: all of their memory."""
    held: frozenset[str] = frozenset()
    """Cards on which it had to wait during the whole time since the last look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one container did on one card."""

    offence: Offence
    owner: str
    uuid: str
    text: str
    processes: tuple[tuple[int, int], ...]
    """(pid, start) of those that did it."""

    @property
    def key(self) -> tuple[str, str, str]:
        """What is counted in a row."""
        return (self.owner, self.uuid, self.offence.value)


def judge(
    seen: Iterable[Seen], allowances: Mapping[str, Allowance], untold: Collection[str] = ()
) -> list[Finding]:
    """What one look shows. A container without an allowance was granted nothing. ``untold``: cards of which
    the driver told nothing this time."""
    groups: dict[tuple[str, str], list[Seen]] = {}
    for one in (one for one in seen if one.uuid not in untold):
        groups.setdefault((one.owner, one.uuid), []).append(one)
    findings: list[Finding] = []
    for (owner, uuid), processes in sorted(groups.items()):
        allowance = allowances.get(owner, Allowance())
        granted = allowance.memory_mib.get(uuid)
        if granted is None:
            text = f"{_count(processes)} on card {uuid}, which it was not granted"
            findings.append(_finding(Offence.NOT_GRANTED, processes, text))
        elif not allowance.whole:
            findings += _on_own_card(processes, granted, held=uuid in allowance.held)
    return findings


def _on_own_card(processes: Sequence[Seen], granted_mib: int, *, held: bool) -> list[Finding]:
    uuid, findings = processes[0].uuid, []
    used_mib = sum(one.memory_mib for one in processes)
    if used_mib > granted_mib + TOLERANCE_MIB:
        text = f"{used_mib} MiB on card {uuid}, granted are {granted_mib}"
        findings.append(_finding(Offence.OVER_GRANT, processes, text))
    strangers = [one for one in processes if one.registered is False]
    if strangers:
        text = f"{_count(strangers)} on card {uuid} past the isolation library"
        findings.append(_finding(Offence.UNREGISTERED, strangers, text))
    busy = [one for one in processes if one.sm_percent > 0]
    percent = sum(one.sm_percent for one in busy)
    if held and percent > HELD_PERCENT:
        text = f"{percent} % of card {uuid} while a higher class had work there"
        findings.append(_finding(Offence.WHILE_HELD, busy, text))
    return findings


def _finding(offence: Offence, processes: Sequence[Seen], text: str) -> Finding:
    who = tuple(sorted((one.pid, one.start_ticks) for one in processes))
    return Finding(offence, processes[0].owner, processes[0].uuid, text, who)


def _count(processes: Sequence[Seen]) -> str:
    named = ", ".join(str(one.pid) for one in processes[:4])
    more = ", ..." if len(processes) > 4 else ""
    return f"process {named}" if len(processes) == 1 else f"{len(processes)} processes ({named}{more})"


Strikes = Mapping[tuple[str, str, str], int]
"""How often in a row each thing was seen."""


def strike(
    before: Strikes, findings: Iterable[Finding], untold: Collection[str] = ()
) -> tuple[dict[tuple[str, str, str], int], list[Finding]]:
    """After one more look: the counts, and what is proven by now. A look without the finding starts the
    count again. A look that was told nothing of the card does not count."""
    now = {key: count for key, count in before.items() if key[1] in untold}
    now |= {finding.key: before.get(finding.key, 0) + 1 for finding in findings}
    return now, [finding for finding in findings if now[finding.key] >= LOOKS]


def lowered(ceiling_mib: int, granted_mib: int, used_mib: int) -> int:
    """What a container may still use whose grant was lowered while it ran: what it uses now, never more
    again. Once it is down to its grant, the grant."""
    return max(granted_mib, min(ceiling_mib, used_mib))


def held_through(samples: Iterable[tuple[int, int]]) -> bool:
    """Whether some neighbour of higher class was active as good as always between two looks. Each sample
    says how often a neighbour was found active, and how often the agent looked."""
    return any(looked >= SAMPLES and active >= ALWAYS * looked for active, looked in samples)
