"""What a container needs to use Ascend cards or vNPUs: device nodes, the driver's files, a group."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors import paths
from vc_egpu_node.vendors.base import CardReading, Edits, EditsError, refused_singly
from vc_egpu_node.vendors.slices import Realised

MANAGER: Final = "davinci_manager"
COMMON: Final = (MANAGER, "devmm_svm", "hisi_hdc")
"""Every container with a card opens them."""
WHERE_PRESENT: Final = ("dvpp_cmdlist",)
FILES: Final = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/include",
    "/usr/local/Ascend/driver/version.info",
    "/usr/local/dcmi",
    "/usr/local/bin/npu-smi",
    "/etc/ascend_install.info",
    "/etc/hccn.conf",
    "/etc/hccl_rootinfo.json",
)
"""The driver's part; CANN itself is in the image."""


class AscendEdits:
    """Edits from the vendor's list. ``dev`` is ``/dev``; ``root`` is the host's, as the agent sees it."""

    def __init__(self, dev: Path, root: Path) -> None:
        self._dev = dev
        self._root = root

    def edits(
        self,
        cards: Sequence[CardReading],
        driver_version: str,  # noqa: ARG002 - the protocol's
        *,
        shared: bool,
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        absent = paths.missing(self._dev, [*COMMON, *_host_names(cards, realised)])
        if absent:
            raise EditsError(f"{absent} is not there: the Ascend driver is not loaded, or has lost the card")
        return self.record(cards, shared=shared, realised=realised)

    def record(
        self,
        cards: Sequence[CardReading],
        *,
        shared: bool,  # noqa: ARG002 - the protocol's
        realised: Sequence[Realised] = (),
    ) -> Edits:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        common = [*COMMON, *(name for name in WHERE_PRESENT if (self._dev / name).exists())]
        shown = [MANAGER] if (self._dev / MANAGER).exists() else []
        part: dict[str, Any] = {
            "deviceNodes": [*paths.nodes(common), *_nodes(cards, realised)],
            "mounts": paths.read_only(self._root, FILES),
            "additionalGids": paths.groups(self._dev, shown),
        }
        return Edits(paths.VERSION, (part,))

    def unusable(self, cards: Iterable[CardReading], driver_version: str) -> dict[str, str]:
        """See :class:`vc_egpu_node.vendors.base.ContainerEdits`."""
        return refused_singly(self, cards, driver_version)


def _host_names(cards: Sequence[CardReading], realised: Sequence[Realised]) -> list[str]:
    if realised:
        return [f"vdavinci{one.slice.numbers['vdev']}" for one in realised]
    return [card.devices[0] for card in cards]


def _nodes(cards: Sequence[CardReading], realised: Sequence[Realised]) -> list[Mapping[str, Any]]:
    """A vNPU is shown under the name of a card with its id."""
    if not realised:
        return [{"path": f"/dev/{name}"} for name in _host_names(cards, realised)]
    ids = [one.slice.numbers["vdev"] for one in realised]
    return [{"path": f"/dev/davinci{number}", "hostPath": f"/dev/vdavinci{number}"} for number in ids]
