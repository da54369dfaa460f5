"""The machines that an image is built for."""

from dataclasses import dataclass
from typing import Final

from localcluster.oci import architecture


@dataclass(frozen=True, slots=True)
class Machine:
    """One kind of processor, as several worlds call it."""

    oci: str
    """In the words of OCI, of Go and of Debian."""
    kernel: str
    """In the words of ``uname -m``, of wheels and of our own builds."""

    @property
    def triplet(self) -> str:
        """Debian's folder of its libraries."""
        return f"{self.kernel}-linux-gnu"

    @property
    def foreign(self) -> str:
        """For :class:`localcluster.oci.ImageConfig`: empty where it is this machine's own."""
        return "" if self.oci == architecture() else self.oci

    def named(self, image: str) -> str:
        """Name of an image between, which is another one for each machine."""
        return image.replace(":", f"-{self.oci}:") if self.foreign else image


AMD64: Final = Machine("amd64", "x86_64")
ARM64: Final = Machine("arm64", "aarch64")
MACHINES: Final = (AMD64, ARM64)


def this_machine() -> Machine:
    """The one that builds; amd64 where we know nothing of it."""
    return next((machine for machine in MACHINES if not machine.foreign), AMD64)
