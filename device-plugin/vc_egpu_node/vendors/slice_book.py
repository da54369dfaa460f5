"""Which container each slice is for: a record on disk before and after each call of the driver.

The agent may die at any point. The record then says what was meant, and the driver what is there. A slice
that no record owns is somebody else's: it is never removed.
"""

import json
import logging
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from vc_egpu_node.files import StateError, write_atomically
from vc_egpu_node.vendors.slices import HeldSlice, Realised, SliceError, Slicer, SliceWish

log = logging.getLogger(__name__)

VERSION: Final = 1
Stage = Literal["intended", "made", "ending"]
_STAGES: Final[tuple[Stage, ...]] = ("intended", "made", "ending")


@dataclass(frozen=True, slots=True)
class Entry:
    """One container's slice of one card."""

    owner: str
    wish: SliceWish
    stage: Stage
    before: tuple[str, ...] = ()
    """Ids of the slices that lay on the card when this one was meant: a later one of its kind is ours."""
    slice: HeldSlice | None = None
    """Once it is made."""
    adopted: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """A container has at most one slice of a card."""
        return self.owner, self.wish.uuid


class SliceBook:
    """The records of this node. Thread-safe: one caller of the driver at a time."""

    def __init__(self, folder: Path, slicer: Slicer) -> None:
        self._folder = folder
        self._slicer = slicer
        self._lock = threading.Lock()
        self._entries: dict[tuple[str, str], Entry] = {}
        self._ended: dict[str, set[str]] = {}
        """By card: ids of slices that were removed, for as long as an older list of the driver names them."""
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            for leftover in folder.glob(".*.tmp"):
                leftover.unlink(missing_ok=True)
        except OSError as error:
            raise StateError(f"{folder}: {error}") from error
        for path in sorted(folder.glob("*.json")):
            entry = _read(path)
            if entry is not None:
                self._entries[entry.key] = entry

    def entries(self) -> tuple[Entry, ...]:
        """All records."""
        with self._lock:
            return tuple(self._entries.values())

    def strange(self, uuid: str, seen: Collection[HeldSlice]) -> tuple[HeldSlice, ...]:
        """Slices in a list of the driver that are not ours. The list may be older than the record."""
        with self._lock:
            there = {one.id for one in seen}
            ended = self._ended.get(uuid, set()) & there
            self._ended[uuid] = ended
            entries = [one for one in self._entries.values() if one.wish.uuid == uuid]
            known = ended | {one.id for entry in entries if (one := self._ours(entry, seen)) is not None}
            return tuple(one for one in seen if one.id not in known)

    def of(self, owner: str) -> tuple[Realised, ...]:
        """The slices that a container has, as recorded; the driver is not asked."""
        return tuple(_realised(one) for one in self.entries() if one.owner == owner and one.slice is not None)

    def realise(self, owner: str, wish: SliceWish) -> Realised:
        """Make or adopt the slice for that container. A second call gives the same slice, or a new one where
        the first is gone (MIG instances end with the node). Raises :class:`SliceError` and ``OSError``."""
        with self._lock:
            entry = self._entries.get((owner, wish.uuid))
            if entry is not None and entry.wish != wish:
                self._end(entry)
                entry = None
            here = self._slicer.slices(wish.uuid)
            found = self._ours(entry, here) if entry is not None else None
            if entry is not None and found is not None and not found.half:
                return self._keep(entry, found, adopted=entry.adopted)
            if entry is not None and found is not None:
                self._end(entry)
                here = self._slicer.slices(wish.uuid)
            return self._begin(owner, wish, here)

    def _begin(self, owner: str, wish: SliceWish, here: Collection[HeldSlice]) -> Realised:
        owned = self._owned(wish.uuid)
        entry = Entry(owner, wish, "intended", before=tuple(one.id for one in here))
        self._write(entry)
        try:
            made = self._slicer.make(wish)
        except SliceError as error:
            # With no answer it may be made yet. Then the record stays, as with one that is half made: the end
            # looks for it.
            if error.why != "no-answer" and not self._left_half(entry):
                self._drop(entry)
            raise
        if made is not None:
            return self._keep(entry, made, adopted=False)
        free = (one for one in here if one.id not in owned and not one.half)
        adopted = next((one for one in free if _is_wished(one, wish)), None)
        if adopted is None:
            self._drop(entry)
            place = f" at {wish.start}" if wish.start >= 0 else ""
            raise SliceError("absent", f"card {wish.uuid} has no free slice {wish.template}{place}")
        return self._keep(entry, adopted, adopted=True)

    def _left_half(self, entry: Entry) -> bool:
        """Whether something of it lies on the card, or nobody can tell."""
        try:
            found = self._ours(entry, self._slicer.slices(entry.wish.uuid))
        except SliceError:
            return True
        return found is not None and found.half

    def _ours(self, entry: Entry, here: Iterable[HeldSlice]) -> HeldSlice | None:
        """The record's slice among those that are there."""
        if entry.slice is not None:
            known = entry.slice
            return next((one for one in here if one.is_that(known)), None)
        owned = self._owned(entry.wish.uuid)
        fresh = (one for one in here if one.id not in entry.before and one.id not in owned)
        return next((one for one in fresh if _is_wished(one, entry.wish)), None)

    def _owned(self, uuid: str) -> set[str]:
        entries = self._entries.values()
        return {one.slice.id for one in entries if one.slice is not None and one.wish.uuid == uuid}

    def _keep(self, entry: Entry, found: HeldSlice, *, adopted: bool) -> Realised:
        """It is made: say so on disk. One that is smaller than wished is removed again."""
        made = replace(entry, stage="made", slice=found, adopted=adopted)
        self._write(made)
        short = found.memory_mib < entry.wish.memory_mib or not _is_wished(found, entry.wish)
        if short:
            wish, has = entry.wish, f"{found.template or 'a slice'} of {found.memory_mib} MiB"
            self._end(made)
            raise SliceError(
                "other-size",
                f"card {wish.uuid} gave {has}, and {wish.template} of {wish.memory_mib} MiB was asked for",
            )
        return _realised(made)

    def release(self, owner: str) -> None:
        """The container is gone: remove what the record owns. Raises :class:`SliceError` where a slice stays,
        and ``OSError``; the record stays then too."""
        with self._lock:
            for entry in [one for one in self._entries.values() if one.owner == owner]:
                self._end(entry)

    def release_others(
        self, owners: Collection[str], entries: Iterable[Entry] | None = None
    ) -> dict[str, str]:
        """Remove the slices of containers that are not among these. Returns what stays, owner to why.
        ``entries``: the records as they were before the owners were listed; None: nothing starts now."""
        kept: dict[str, str] = {}
        for owner in {one.owner for one in (self.entries() if entries is None else entries)} - set(owners):
            try:
                self.release(owner)
            except (SliceError, OSError) as error:
                kept[owner] = str(error)
        return kept

    def _end(self, entry: Entry) -> None:
        """Adopted slices stay on the card."""
        if not entry.adopted:
            found = self._ours(entry, self._slicer.slices(entry.wish.uuid))
            if found is not None:
                entry = replace(entry, stage="ending", slice=found)
                self._write(entry)
                self._slicer.destroy(entry.wish.uuid, found.id)
                self._ended.setdefault(entry.wish.uuid, set()).add(found.id)
        self._drop(entry)

    def _path(self, entry: Entry) -> Path:
        return self._folder / f"{entry.owner}.{entry.wish.uuid}.json"

    def _write(self, entry: Entry) -> None:
        write_atomically(self._path(entry), json.dumps(_document(entry)), flush=True)
        self._entries[entry.key] = entry

    def _drop(self, entry: Entry) -> None:
        self._path(entry).unlink(missing_ok=True)
        self._entries.pop(entry.key, None)


def _is_wished(one: HeldSlice, wish: SliceWish) -> bool:
    return one.template == wish.template and (wish.start < 0 or one.start == wish.start)


def _realised(entry: Entry) -> Realised:
    if entry.slice is None:
        raise ValueError("the slice is not made")
    return Realised(entry.owner, entry.wish.uuid, entry.slice, entry.adopted)


def _document(entry: Entry) -> dict[str, Any]:
    wish, held = entry.wish, entry.slice
    return {
        "version": VERSION,
        "owner": entry.owner,
        "uuid": wish.uuid,
        "template": wish.template,
        "start": wish.start,
        "memoryMiB": wish.memory_mib,
        "stage": entry.stage,
        "before": list(entry.before),
        "adopted": entry.adopted,
        "slice": None
        if held is None
        else {
            "id": held.id,
            "template": held.template,
            "start": held.start,
            "memoryMiB": held.memory_mib,
            "numbers": dict(held.numbers),
        },
    }


def _read(path: Path) -> Entry | None:
    """One file. A broken one is set aside: its slice stays on the card, and an operator can look."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION:
            log.error("%s has version %r, this agent reads %d", path, document["version"], VERSION)
            return None
        held = document["slice"]
        return Entry(
            owner=str(document["owner"]),
            wish=SliceWish(
                str(document["uuid"]),
                str(document["template"]),
                int(document["start"]),
                int(document["memoryMiB"]),
            ),
            stage=_STAGES[_STAGES.index(document["stage"])],
            before=tuple(str(one) for one in document["before"]),
            slice=None
            if held is None
            else HeldSlice(
                id=str(held["id"]),
                template=str(held["template"]),
                start=int(held["start"]),
                memory_mib=int(held["memoryMiB"]),
                numbers={str(key): int(value) for key, value in held["numbers"].items()},
            ),
            adopted=bool(document["adopted"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.exception("%s is broken and set aside", path, exc_info=error)
        path.replace(path.with_suffix(".broken"))
        return None
