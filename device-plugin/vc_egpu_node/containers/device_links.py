"""Whether a reload of systemd takes the cards from containers that run.

Where systemd manages cgroups, runc tells it by links in ``/dev/char`` which devices a container may open. A
vendor's driver may make its device nodes past udev, so that there are no such links. At its next
``daemon-reload`` systemd then finds no devices, and closes the cards to containers that run
(NVIDIA/nvidia-container-toolkit#48).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from vc_egpu.core.model.words import few

from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.vendors.base import CardReading

LOST: Final = "systemctl daemon-reload takes the cards from running containers"


class DeviceLinks:
    """Looks for the links of cards below a mount of the host's ``/dev/char``."""

    def __init__(self, dev_char: Path, cgroups: PodCgroups, shared: Sequence[str]) -> None:
        """``shared``: names of the device nodes that each container with cards of the vendor needs."""
        self._dev_char = dev_char
        self._cgroups = cgroups
        self._shared = tuple(shared)

    def trouble(self, cards: Iterable[CardReading]) -> str:
        """A sentence where links are missing and systemd manages cgroups.

        Empty where all is well, where there are no cards, and where the folder cannot be seen.
        """
        missing = self._missing([name for card in cards for name in card.devices or (card.device,)])
        if not missing or not self._cgroups.by_systemd():
            return ""
        return f"{LOST}: /dev/char has no link to {few(missing)}"

    def _missing(self, own: Sequence[str]) -> list[str]:
        try:
            links = [entry for entry in self._dev_char.iterdir() if entry.is_symlink()]
            linked = {link.readlink().name for link in links}
        except OSError:
            return []
        return [name for name in (*self._shared, *own) if name not in linked] if own else []
