"""The image of test containers: Debian with a shell and Python, and programs that use the driver."""

from collections.abc import Mapping
from pathlib import Path

from localcluster.images import python_base
from localcluster.oci import ImageConfig, build_image
from localcluster.toolchain import Say

IMAGE = "vc-egpu.local/cuda-programs:1"
PROBE = "/opt/egpu/probe.py"
_SOURCE = Path(__file__).with_name("probe.py")


def archive(say: Say, programs: Mapping[str, Path] | None = None) -> Path:
    """The archive; ``programs`` are put into /opt/egpu by name."""
    files = {f"/opt/egpu/{name}": path for name, path in (programs or {}).items()}
    return build_image(
        python_base(say),
        IMAGE,
        files={PROBE: _SOURCE, **files},
        config=ImageConfig(
            command=("/bin/sh",), env={"PATH": "/usr/bin:/bin", "NVIDIA_VISIBLE_DEVICES": "all"}
        ),
    )
