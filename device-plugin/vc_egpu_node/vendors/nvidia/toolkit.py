"""The NVIDIA container toolkit's CDI specs: what a container needs to use a card (device nodes, driver
libraries, hooks). Ours are made of exactly the chosen cards' parts of them.
"""

import copy
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from vc_egpu_node.settings.config import ToolkitMode

log = logging.getLogger(__name__)

NVIDIA_KIND: Final = "nvidia.com/gpu"
TENANTS_LIMITS: Final = "apply-cuda-memory-limits"
"""A hook of newer toolkits (seen in 1.20.1): as root it sets what the driver guarantees and allows a
container on a card, by two variables of the container's environment. The tenant writes those, and what one is
guaranteed others lack: on a shared card the plan says it."""

_CARD_NODE: Final = re.compile(r"/dev/nvidia(\d+)")
_LIBCUDA: Final = re.compile(r"/libcuda\.so\.(\d{3,}\.\d+(?:\.\d+)?)")


class ToolkitError(RuntimeError):
    """The toolkit's spec is missing or does not know a card; the text says what to run."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Container edits of some cards: those common to all of the spec's devices, and each card's own."""

    cdi_version: str = "0.3.0"
    parts: tuple[Mapping[str, Any], ...] = ()

    def merged(self, *, shared: bool = False) -> dict[str, Any]:
        """One ``containerEdits`` object; what two parts both name stands in it once. ``shared``: without
        :data:`TENANTS_LIMITS`."""
        result: dict[str, Any] = {}
        for part in self.parts:
            for key, value in part.items():
                if not isinstance(value, list):
                    if value is not None:
                        result.setdefault(key, copy.deepcopy(value))
                    continue
                entries = result.setdefault(key, [])
                entries += [copy.deepcopy(entry) for entry in value if entry not in entries]
        if shared and "hooks" in result:
            result["hooks"] = [
                one for one in result["hooks"] if TENANTS_LIMITS not in (one.get("args") or ())
            ]
        return result


@dataclass(frozen=True, slots=True)
class CardNames:
    """By what names a spec may know a card."""

    uuid: str
    index: int
    """In the driver's own order."""
    minor: int = -1
    """Number of its device node, -1 where unknown."""


@dataclass(slots=True)
class _Spec:
    cdi_version: str
    common: Mapping[str, Any]
    devices: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def drivers(self) -> frozenset[str]:
        """Versions of the libraries that it mounts; none where it does not say."""
        paths = (str(mount.get("containerPath")) for mount in self.common.get("mounts") or ())
        return frozenset(found[1] for path in paths if (found := _LIBCUDA.fullmatch(path[path.rfind("/") :])))

    def fits(self, driver: str) -> bool:
        """Whether it may be of that driver; empty: any."""
        return not driver or not self.drivers or driver in self.drivers


class Toolkit:
    """Reads the toolkit's specs, again when they change."""

    def __init__(self, places: Sequence[Path], mode: ToolkitMode, driver_device: Path) -> None:
        self._places = tuple(places)
        self._mode = mode
        self._driver_device = driver_device
        self._read: dict[Path, tuple[tuple[int, int, int], _Spec | None]] = {}

    @property
    def required(self) -> bool:
        """Whether a container must not start without the toolkit's edits."""
        return self._mode == "required" or (self._mode == "auto" and self._driver_device.exists())

    def edits(self, cards: Sequence[CardNames], driver: str = "") -> Edits:
        """The edits of exactly these cards; raises :class:`ToolkitError`. ``driver``: the version that is
        loaded, whose specs alone count; empty: whichever."""
        if self._mode == "off":
            return Edits()
        specs = self._specs()
        if not specs:
            if self.required:
                places = ", ".join(str(place) for place in self._places)
                raise ToolkitError(
                    f"no CDI spec of kind {NVIDIA_KIND} in {places}: run nvidia-ctk cdi generate"
                )
            return Edits()
        parts: list[Mapping[str, Any]] = []
        version = "0.3.0"
        for card in cards:
            spec, device = _find(specs, card, driver)
            version = max(version, spec.cdi_version, key=_numbers)
            parts += [part for part in (spec.common, device) if part not in parts]
        return Edits(version, tuple(parts))

    def unusable(self, cards: Iterable[CardNames], driver: str = "") -> dict[str, str]:
        """UUID to why no container can be started on the card, for those where that is so."""
        reasons: dict[str, str] = {}
        for card in cards:
            try:
                self.edits([card], driver)
            except ToolkitError as error:
                reasons[card.uuid] = str(error)
        return reasons

    def _specs(self) -> list[_Spec]:
        found = (self._load(path) for place in self._places for path in _files(place))
        return [spec for spec in found if spec is not None]

    def _load(self, path: Path) -> _Spec | None:
        try:
            status = path.stat()
            # The size too: a file that is being written has the same time for as long as a tick of its clock.
            stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
            known = self._read.get(path)
            if known is None or known[0] != stamp:
                known = self._read[path] = (stamp, _spec(path))
        except OSError as error:  # another time, perhaps
            log.warning("%s was not read: %s", path, error)
            return None
        return known[1]


def _spec(path: Path) -> _Spec | None:
    """None: it is broken, or none of the toolkit's cards (the GPU operator leaves others, as long as that).
    Raises ``OSError``."""
    try:
        document = _parse(path)
        if document.get("kind") != NVIDIA_KIND:
            return None
        spec = _Spec(str(document.get("cdiVersion", "0.3.0")), document.get("containerEdits") or {})
        for device in document.get("devices") or ():
            if isinstance(device, dict):
                spec.devices[str(device.get("name"))] = device.get("containerEdits") or {}
    except (ValueError, TypeError, yaml.YAMLError) as error:
        log.warning("%s was not read: %s", path, error)
        return None
    return spec


def _parse(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    document = json.loads(text) if path.suffix == ".json" else yaml.load(text, _loader())  # noqa: S506 - safe
    if not isinstance(document, dict):
        raise ValueError("not a CDI spec")
    return document


def _loader() -> Any:
    """The C loader where there is one: the toolkit's specs are long, and the other takes a second."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _files(place: Path) -> Iterable[Path]:
    """The specs at a place, ours left out."""
    if place.is_file():
        return (place,)
    if not place.is_dir():
        return ()
    return sorted(p for p in place.glob("*nvidia*") if p.suffix in (".json", ".yaml", ".yml"))


def _find(specs: Sequence[_Spec], card: CardNames, driver: str) -> tuple[_Spec, Mapping[str, Any]]:
    known = [(spec, device) for spec in specs if (device := _device(spec, card)) is not None]
    # By UUID first: a spec without them may mean another card.
    known.sort(key=lambda one: card.uuid not in one[0].devices)
    fitting = [(spec, device) for spec, device in known if spec.fits(driver)]
    for spec, device in fitting:
        if _opens(device, card):
            return spec, device
    if fitting:
        raise ToolkitError(
            f"the CDI spec of kind {NVIDIA_KIND} opens another card for {card.uuid}, "
            f"which is /dev/nvidia{card.minor} now: run nvidia-ctk cdi generate again"
        )
    if known:
        made_for = ", ".join(sorted(known[0][0].drivers))
        raise ToolkitError(
            f"the CDI spec of kind {NVIDIA_KIND} was made for driver {made_for}, and {driver} is loaded: "
            "run nvidia-ctk cdi generate again"
        )
    raise ToolkitError(
        f"the CDI spec of kind {NVIDIA_KIND} knows neither {card.uuid} nor card {card.index}: "
        "run nvidia-ctk cdi generate again"
    )


def _opens(device: Mapping[str, Any], card: CardNames) -> bool:
    """Whether its device node is that card's. The driver numbers cards as it finds them: once one is gone or
    back, those of an older spec may be others'."""
    paths = (str(node.get("path")) for node in device.get("deviceNodes") or ())
    minors = {int(found[1]) for path in paths if (found := _CARD_NODE.fullmatch(path))}
    return card.minor < 0 or not minors or minors == {card.minor}


def _device(spec: _Spec, card: CardNames) -> Mapping[str, Any] | None:
    """By UUID; by position only in a spec that names no card by UUID (an old one might mean another card)."""
    if card.uuid in spec.devices:
        return spec.devices[card.uuid]
    if any(name.startswith("GPU-") for name in spec.devices):
        return None
    name = next((n for n in (str(card.index), f"gpu{card.index}") if n in spec.devices), None)
    return None if name is None else spec.devices[name]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
