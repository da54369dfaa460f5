"""What this agent has done about notes on pods that are resized, until it is not asked any more. Pure but for
what it remembers: the same notes make a new agent find the same.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from vc_egpu.volcano.resizing.notes import MAX_PODS_PER_NODE, MAX_WHY, NodeResizes, ResizeNote, ResizeReport
from vc_egpu.volcano.words.annotations import CardShare


def used_too_much(
    container: str, had: Sequence[CardShare], target: Sequence[CardShare], used_mib: Mapping[str, int]
) -> str:
    """Why a container's memory cannot be lowered from what it ``had`` to the target now; empty: it can."""
    before = {share.uuid: share.memory_mib for share in had}
    for share in target:
        used = used_mib.get(share.uuid, 0)
        if share.memory_mib < before.get(share.uuid, 0) and used > share.memory_mib:
            return (
                f"container {container} uses {used} MiB of card {share.uuid} now, which is more than "
                f"{share.memory_mib} MiB"
            )
    return ""


class Resizes:
    """One thread owns it."""

    def __init__(self) -> None:
        self._notes: Mapping[str, ResizeNote] = {}
        self._reports: dict[str, ResizeReport] = {}

    def keep(self, notes: Mapping[str, ResizeNote]) -> None:
        """These notes, by pod UID, ask for something now; answers to others are forgotten."""
        self._notes = notes
        self._reports = {
            uid: report
            for uid, report in self._reports.items()
            if uid in notes and notes[uid].number == report.number
        }

    def note(self, uid: str) -> ResizeNote | None:
        """The pod's note, if it asks for something."""
        return self._notes.get(uid)

    def refuse(self, uid: str, why: str) -> None:
        """What the pod's note asks for cannot be done."""
        self._answer(uid, "refused", why)

    def lowered(self, uid: str) -> None:
        """The pod's containers are held to less memory."""
        self._answer(uid, "lowered")

    def applied(self, uid: str) -> None:
        """The pod's containers have what its cards annotation says."""
        self._answer(uid, "applied")

    def is_refused(self, uid: str) -> bool:
        """Whether that was answered."""
        return self._state(uid) == "refused"

    def is_lowered(self, uid: str) -> bool:
        """Whether that was answered."""
        return self._state(uid) == "lowered"

    def is_open(self, uid: str) -> bool:
        """Whether the note has no answer yet."""
        return uid in self._notes and uid not in self._reports

    def text(self) -> str | None:
        """For the Node; None: there is nothing to say."""
        pods = dict(sorted(self._reports.items())[:MAX_PODS_PER_NODE])
        return NodeResizes(pods=pods).encode() if pods else None

    def _state(self, uid: str) -> str:
        report = self._reports.get(uid)
        return report.state if report is not None else ""

    def _answer(self, uid: str, state: Literal["lowered", "applied", "refused"], why: str = "") -> None:
        note = self._notes.get(uid)
        if note is not None:
            self._reports[uid] = ResizeReport(number=note.number, state=state, reason=why[:MAX_WHY])
