"""The fake CUDA driver on a test node, as NVIDIA's container toolkit describes the real one: a CDI spec.

Driver files lie in a folder of the node and are mounted into each container that gets a card; so is the state
that stands for the cards themselves, which all processes of the node share.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BUILT = Path(__file__).resolve().parents[2] / "device-plugin" / "native" / "build"
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
INSIDE = "/run/fake-gpu"
"""Where the fake driver looks without any environment."""
PROGRAMS = "/opt/egpu-programs"
NVML_STATE = "nvml.state"
CUDA_STATE = "cuda.state"
_LIBRARY_FOLDER = "/usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """The driver's files on one node."""

    uuids: Sequence[str]
    folder: Path
    """Driver files and programs, by the same path inside and outside of the node."""
    state: Path
    """What all processes share, as this machine sees it."""
    state_on_node: Path
    """The same folder, as the node's processes see it."""

    @property
    def environment(self) -> dict[str, str]:
        """For processes of the node that load the driver, the agent above all."""
        return {"FAKE_CUDA_STATE": str(self.state_on_node / CUDA_STATE)}

    @property
    def nvml_state(self) -> Path:
        """Where :class:`fakes.nvml_state.FakeNode` says what cards there are."""
        return self.state / NVML_STATE

    @property
    def timeline(self) -> Path:
        """Where the cards' log is."""
        return self.state / CUDA_STATE

    def install(self, cdi_dir: Path, programs: Sequence[Path] = ()) -> None:
        """Driver files and the spec; ``programs`` come into containers as the driver's own tools do."""
        (self.folder / "programs").mkdir(parents=True, exist_ok=True)
        self.state.mkdir(parents=True, exist_ok=True)
        # Programs of any user write there, as to a device node.
        self.state.chmod(0o777)
        for path in (*(BUILT / name for name in LIBRARIES), *programs):
            target = self.folder / ("programs" if path in programs else "") / path.name
            shutil.copyfile(path, target)
            target.chmod(0o755)
        (self.state / "visible").touch()
        for number, uuid in enumerate(self.uuids):
            (self.folder / f"visible-{number}").write_text(f"{uuid}\n")
        (cdi_dir / "nvidia.json").write_text(json.dumps(self._spec()))

    def _spec(self) -> dict[str, Any]:
        return {
            "cdiVersion": "0.5.0",
            "kind": "nvidia.com/gpu",
            "containerEdits": {
                "env": [f"FAKE_NVML_STATE={INSIDE}/{NVML_STATE}", f"FAKE_CUDA_STATE={INSIDE}/{CUDA_STATE}"],
                "mounts": [
                    *(_mount(self.folder / name, f"{_LIBRARY_FOLDER}/{name}") for name in LIBRARIES),
                    _mount(self.folder / "programs", PROGRAMS),
                    _mount(self.state_on_node, INSIDE, "rw"),
                ],
            },
            "devices": [
                {"name": name, "containerEdits": {"mounts": [self._visible(number)]}}
                for number, uuid in enumerate(self.uuids)
                for name in (str(number), uuid)
            ],
        }

    def _visible(self, number: int) -> dict[str, Any]:
        """Stands for the card's device node."""
        return _mount(self.folder / f"visible-{number}", f"{INSIDE}/visible")


def _mount(source: Path, target: str, mode: str = "ro") -> dict[str, Any]:
    options: Sequence[str] = (mode, "nosuid", "nodev", "rbind", "rprivate")
    return {"hostPath": str(source), "containerPath": target, "options": list(options)}
