"""Whether a pod can be suspended now, and if not, why. Pure.

A checkpoint moves the GPU memory of single processes into these processes' own host memory. What several
processes share, and what the driver moves by itself, it cannot move; and the host has to hold it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.codec.suspension import SUSPEND_SIGNALS
from vc_egpu.volcano.words import names

LEAST_DRIVER: Final = 570
"""The first with the checkpoint calls."""
RESERVE_MIB: Final = 1024
"""Free memory of the host that is left alone."""
_SHARED: Final = "memory that its processes share or export"
_DRIVER: Final = re.compile(r"^(\d{1,6})\.")


@dataclass(frozen=True, slots=True)
class MemoryRoom:
    """A memory limit above some of the pod's processes."""

    what: str
    """``container main`` or ``the pod``."""
    limit_mib: int
    used_mib: int
    """Without what the kernel gives back by itself."""
    needs_mib: int
    """GPU memory of the processes below it."""


@dataclass(frozen=True, slots=True)
class HostRoom:
    """The node's memory."""

    free_mib: int
    budget_mib: int
    """``hostMemoryMiB`` of the node's policy."""
    booked_mib: int
    """The part of the budget that other pods take, being suspended or able to spill."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What matters of one pod and its node."""

    driver_version: str
    started: bool
    """Every container with shares runs."""
    isolated: bool
    """Each of them has the isolation library."""
    known: bool
    """What its processes hold can be read."""
    managed_mib: int
    shared_mib: int
    """Memory that processes pass to each other."""
    processes: int
    """With GPU state."""
    several_allowed: bool
    """The node's policy lets pods with several such processes be suspended."""
    mps: bool
    """Some of them run under MPS."""
    device_mib: int
    """What it holds on its cards."""
    book_mib: int
    """The most that it may hold there."""
    rooms: Sequence[MemoryRoom]
    host: HostRoom
    signal: str = ""
    """At which its program comes to rest between two steps, and lets go of what its processes share."""
    deaf_pid: int = 0
    """A process of it that uses the GPU and does not catch that signal."""
    ending: bool = False
    """It is being deleted: it may need its cards to save what it has."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Suspendable, or the first reason against it."""

    reason: str = ""
    topic: str = ""
    """What the reason is about: figures in it may change while the topic stays."""

    @property
    def suspendable(self) -> bool:
        """There is nothing against it."""
        return not self.reason


def judge(facts: Facts) -> Verdict:
    """The verdict."""
    for topic, reason in (
        ("driver", _driver(facts.driver_version)),
        ("end", "it is being deleted" if facts.ending else ""),
        ("start", "" if facts.started else "its containers do not all run"),
        ("library", "" if facts.isolated else "it runs without the isolation library"),
        ("page", "" if facts.known else "what its processes hold cannot be read"),
        ("signal", _signal(facts)),
        ("managed", _amount(facts.managed_mib, "managed memory, which a checkpoint cannot move")),
        ("shared", "" if facts.signal else _amount(facts.shared_mib, _SHARED)),
        ("mps", "its processes run under MPS" if facts.mps else ""),
        ("processes", _several(facts)),
        ("budget", _budget(facts)),
        ("host", _host(facts)),
        *(("limit", _limit(room)) for room in facts.rooms),
    ):
        if reason:
            return Verdict(reason, topic)
    return Verdict()


def _driver(version: str) -> str:
    found = _DRIVER.match(version)
    if found is not None and int(found[1]) >= LEAST_DRIVER:
        return ""
    have = version[:32] or "of unknown version"
    return f"driver {have} has no process checkpoint, {LEAST_DRIVER} is the first that does"


def _signal(facts: Facts) -> str:
    named = facts.signal
    if named and named not in SUSPEND_SIGNALS:
        known = ", ".join(SUSPEND_SIGNALS)
        return f"its {names.SUSPEND_SIGNAL} is {named[:32]!r}, it must be one of {known}"
    if facts.deaf_pid:
        return f"process {facts.deaf_pid} uses the GPU and does not catch {named}, its {names.SUSPEND_SIGNAL}"
    return ""


def _amount(mib: int, what: str) -> str:
    return f"it holds {mib} MiB of {what}" if mib else ""


def _several(facts: Facts) -> str:
    if facts.processes <= 1 or facts.several_allowed or facts.signal:
        return ""
    return (
        f"{facts.processes} of its processes use the GPU, which may talk to each other; it names no "
        f"{names.SUSPEND_SIGNAL} to bring them to rest (suspendSeveralProcesses allows it without)"
    )


def _budget(facts: Facts) -> str:
    host = facts.host
    if host.budget_mib <= 0:
        return "the node has no budget of host memory (hostMemoryMiB)"
    if host.booked_mib + facts.book_mib <= host.budget_mib:
        return ""
    return (
        f"its {facts.book_mib} MiB do not fit into the node's host memory budget: "
        f"{host.booked_mib} of {host.budget_mib} MiB are taken"
    )


def _host(facts: Facts) -> str:
    if facts.device_mib + RESERVE_MIB <= facts.host.free_mib:
        return ""
    return (
        f"the host has {facts.host.free_mib} MiB free, its {facts.device_mib} MiB need "
        f"{facts.device_mib + RESERVE_MIB}"
    )


def _limit(room: MemoryRoom) -> str:
    if room.used_mib + room.needs_mib <= room.limit_mib:
        return ""
    return (
        f"{room.what} uses {room.used_mib} of its memory limit of {room.limit_mib} MiB, "
        f"its {room.needs_mib} MiB on cards do not fit on top"
    )
