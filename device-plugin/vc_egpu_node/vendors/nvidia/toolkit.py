"""The NVIDIA container toolkit's CDI specs: what a container needs to use a card (device nodes, driver
libraries, hooks). Ours are made of exactly the chosen cards' parts of them.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from vc_egpu_node.settings.config import ToolkitMode
from vc_egpu_node.vendors.base import ANY_DRIVER, CardReading, Edits, EditsError, refused_singly
from vc_egpu_node.vendors.nvidia.mig.instances import MINORS
from vc_egpu_node.vendors.nvidia.words import minor_of
from vc_egpu_node.vendors.slices import Realised

log = logging.getLogger(__name__)

NVIDIA_KIND: Final = "nvidia.com/gpu"
TENANTS_LIMITS: Final = "apply-cuda-memory-limits"
"""A hook of newer toolkits (seen in 1.20.1). As root it sets what the driver guarantees and allows a
container on a card, by two variables of the container's environment. The tenant writes these variables, and
a guarantee to one takes from the others. On a shared card only the plan may say it."""

UNKNOWN_MINOR: Final = -1
_CARD_NODE: Final = re.compile(r"/dev/nvidia(\d+)")
_LIBCUDA: Final = re.compile(r"/libcuda\.so\.(\d{3,}\.\d+(?:\.\d+)?)")


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

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str = ANY_DRIVER,
        *,
        shared: bool = False,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :meth:`ContainerEdits.edits`; specs that were made for another driver do not count. ``shared``:
        without :data:`TENANTS_LIMITS`."""
        if realised:
            return self._of_slices(cards, realised, driver_version)
        return self._edits([(card, minor_of(card)) for card in cards], driver_version, shared=shared)

    def record(
        self, cards: Sequence[CardReading], *, shared: bool = False, realised: Sequence[Realised] = ()
    ) -> Edits:
        """See :meth:`ContainerEdits.record`: by UUID or position, whatever the card's number is now."""
        if realised:
            return self._of_slices(cards, realised, ANY_DRIVER)
        return self._edits([(card, UNKNOWN_MINOR) for card in cards], ANY_DRIVER, shared=shared)

    def unusable(self, cards: Iterable[CardReading], driver_version: str = ANY_DRIVER) -> dict[str, str]:
        """See :meth:`ContainerEdits.unusable`."""
        return refused_singly(self, cards, driver_version)

    def _edits(self, cards: Iterable[tuple[CardReading, int]], driver: str, *, shared: bool) -> Edits:
        """Each card comes with the number of its device node."""
        if self._mode == "off":
            return Edits()
        specs = self._specs()
        if not specs:
            if self.required:
                places = ", ".join(str(place) for place in self._places)
                raise EditsError(
                    f"no CDI spec of kind {NVIDIA_KIND} in {places}: run nvidia-ctk cdi generate"
                )
            return Edits()
        parts: list[Mapping[str, Any]] = []
        version = "0.3.0"
        for card, minor in cards:
            spec, device = _find(specs, card, minor, driver)
            version = max(version, spec.cdi_version, key=_numbers)
            parts += [part for part in (spec.common, device) if part not in parts]
        return Edits(version, tuple(_without_limits(part) if shared else part for part in parts))

    def _of_slices(self, cards: Sequence[CardReading], realised: Sequence[Realised], driver: str) -> Edits:
        """The spec's common part, the node of each card, and the two capabilities of each instance.

        A spec's own entries of instances may be older than the instances.
        """
        specs = [] if self._mode == "off" else self._specs()
        if not specs and self.required:
            raise EditsError(f"no CDI spec of kind {NVIDIA_KIND}: run nvidia-ctk cdi generate")
        spec = next((one for one in specs if one.fits(driver)), None)
        if specs and spec is None:
            raise EditsError(f"no CDI spec of kind {NVIDIA_KIND} was made for driver {driver}")
        nodes = [name for card in cards for name in card.devices]
        for one in realised:
            caps = [one.slice.numbers.get(name) for name in ("cap-gi", "cap-ci")]
            if None in caps and self.required:
                raise EditsError(
                    f"the driver names no capabilities of instance {one.slice.id} in {MINORS}: count again"
                )
            nodes += [f"nvidia-caps/nvidia-cap{number}" for number in caps if number is not None]
        parts: list[Mapping[str, Any]] = [] if spec is None else [_without_limits(spec.common)]
        if self.required or specs:
            parts.append({"deviceNodes": [{"path": f"/dev/{name}"} for name in nodes]})
        return Edits("0.3.0" if spec is None else spec.cdi_version, tuple(parts))

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


def _without_limits(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same without the hook :data:`TENANTS_LIMITS`."""
    hooks = part.get("hooks")
    if not isinstance(hooks, list):
        return part
    return {**part, "hooks": [one for one in hooks if TENANTS_LIMITS not in (one.get("args") or ())]}


def _find(
    specs: Sequence[_Spec], card: CardReading, minor: int, driver: str
) -> tuple[_Spec, Mapping[str, Any]]:
    known = [(spec, device) for spec in specs if (device := _device(spec, card)) is not None]
    # By UUID first: a spec without them may mean another card.
    known.sort(key=lambda one: card.uuid not in one[0].devices)
    fitting = [(spec, device) for spec, device in known if spec.fits(driver)]
    for spec, device in fitting:
        if _opens(device, minor):
            return spec, device
    if fitting:
        raise EditsError(
            f"the CDI spec of kind {NVIDIA_KIND} opens another card for {card.uuid}, "
            f"which is /dev/nvidia{minor} now: run nvidia-ctk cdi generate again"
        )
    if known:
        made_for = ", ".join(sorted(known[0][0].drivers))
        raise EditsError(
            f"the CDI spec of kind {NVIDIA_KIND} was made for driver {made_for}, and {driver} is loaded: "
            "run nvidia-ctk cdi generate again"
        )
    raise EditsError(
        f"the CDI spec of kind {NVIDIA_KIND} knows neither {card.uuid} nor card {card.index}: "
        "run nvidia-ctk cdi generate again"
    )


def _opens(device: Mapping[str, Any], minor: int) -> bool:
    """Whether its device node is that card's. The driver numbers cards as it finds them: once one is gone or
    back, those of an older spec may be others'."""
    paths = (str(node.get("path")) for node in device.get("deviceNodes") or ())
    minors = {int(found[1]) for path in paths if (found := _CARD_NODE.fullmatch(path))}
    return minor < 0 or not minors or minors == {minor}


def _device(spec: _Spec, card: CardReading) -> Mapping[str, Any] | None:
    """By UUID; by position only in a spec that names no card by UUID (an old one might mean another card)."""
    if card.uuid in spec.devices:
        return spec.devices[card.uuid]
    if any(name.startswith("GPU-") for name in spec.devices):
        return None
    name = next((n for n in (str(card.index), f"gpu{card.index}") if n in spec.devices), None)
    return None if name is None else spec.devices[name]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split("."))
