"""The fake CUDA driver on a test node, as NVIDIA's container toolkit describes the real one: a CDI spec.

Driver files lie in a folder of the node and are mounted into each container that gets a card; so is the state
that stands for the cards themselves, which all processes of the node share.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fakes.nvml_state import FakeNode

BUILT = Path(__file__).resolve().parents[2] / "device-plugin" / "native" / "build"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
INSIDE = "/run/fake-gpu"
"""Where the fake driver looks without any environment."""
NVML_STATE = "nvml.state"
CUDA_STATE = "cuda.state"
_LIBRARY_FOLDER = "/usr/lib/x86_64-linux-gnu"


class FakeDriver:
    """The driver's files on one node."""

    def __init__(self, folder: Path, cards: int, node: int) -> None:
        """``folder`` has the same path inside and outside of the node."""
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(parents=True, exist_ok=True)
        self.fake = FakeNode.of_h20(self.state / NVML_STATE, cards, node)

    @property
    def environment(self) -> dict[str, str]:
        """For processes of the node that load the driver, the agent above all."""
        return {"FAKE_CUDA_STATE": str(self.state / CUDA_STATE)}

    @property
    def timeline(self) -> Path:
        """Where the cards' log is."""
        return self.state / CUDA_STATE

    def install(self, cdi_dir: Path) -> None:
        """Driver files, cards and the spec."""
        for name in LIBRARIES:
            shutil.copyfile(BUILT / name, self.folder / name)
            (self.folder / name).chmod(0o755)
        # Programs of any user write there, as to a device node.
        self.state.chmod(0o777)
        (self.state / "visible").touch()
        for number, card in enumerate(self.fake.cards):
            (self.folder / f"visible-{number}").write_text(f"{card.uuid}\n")
        self.fake.write()
        (cdi_dir / "nvidia.json").write_text(json.dumps(self._spec()))

    def _spec(self) -> dict[str, Any]:
        uuids = [card.uuid for card in self.fake.cards]
        return {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "containerEdits": {
                "env": [f"FAKE_NVML_STATE={INSIDE}/{NVML_STATE}", f"FAKE_CUDA_STATE={INSIDE}/{CUDA_STATE}"],
                "mounts": [
                    *(_mount(self.folder / name, f"{_LIBRARY_FOLDER}/{name}") for name in LIBRARIES),
                    _mount(self.state, INSIDE, "rw"),
                ],
            },
            "devices": [
                {"name": name, "containerEdits": {"mounts": [self._visible(number)]}}
                for number, uuid in enumerate(uuids)
                for name in (str(number), uuid)
            ],
        }

    def _visible(self, number: int) -> dict[str, Any]:
        """Stands for the card's device node."""
        return _mount(self.folder / f"visible-{number}", f"{INSIDE}/visible")


def _mount(source: Path, target: str, mode: str = "ro") -> dict[str, Any]:
    options: Sequence[str] = (mode, "nosuid", "nodev", "rbind", "rprivate")
    return {"hostPath": str(source), "containerPath": target, "options": list(options)}
