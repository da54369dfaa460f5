"""What dpkg would write of the packages in an image: mmdebstrap unpacks them and tells nobody.

Tools that look for packages, or for known holes in them, read ``var/lib/dpkg/status``.
"""

import io
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

STATUS: Final = "var/lib/dpkg/status"
ARCHIVES: Final = "./var/cache/apt/archives/"
_STATUS_LINE: Final = "Status: install ok installed"
_DUMMY: Final = "mmdebstrap-dummy"


def controls(raw: Path, work: Path) -> list[str]:
    """The control file of each package whose archive lies in ``raw``, the tar file of a root."""
    found = []
    with tarfile.open(raw) as tar:
        for member in tar:
            if member.name.startswith(ARCHIVES) and member.name.endswith(".deb"):
                data = tar.extractfile(member)
                package = work / "package.deb"
                package.write_bytes(data.read() if data else b"")
                found.append(_control(package))
    return found


def _control(package: Path) -> str:
    done = subprocess.run(["dpkg-deb", "--ctrl-tarfile", str(package)], capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        for member in tar:
            data = tar.extractfile(member) if member.name.removeprefix("./") == "control" else None
            if data is not None:
                return data.read().decode()
    raise ValueError(f"{package} has no control file")


def status(stanzas: Iterable[str]) -> str:
    """The file, with all packages in the order of their names; without those that only help to unpack."""
    by_name = {_field(text, "Package"): text.strip() for text in stanzas if _DUMMY not in text}
    return "".join(f"{_installed(by_name[name])}\n\n" for name in sorted(by_name))


def _installed(stanza: str) -> str:
    first, _, rest = stanza.partition("\n")
    if not first.startswith("Package:"):
        raise ValueError(f"a control file begins with {first!r}")
    return f"{first}\n{_STATUS_LINE}\n{rest}"


def _field(stanza: str, name: str) -> str:
    line = next(line for line in stanza.splitlines() if line.startswith(f"{name}:"))
    return line.partition(":")[2].strip()
