"""The Debian packages of an image, as ``var/lib/dpkg/status`` tells of them. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_LICENCES: Final = {
    "acl": "LGPL-2.0-or-later",
    "bzip2": "bzip2-1.0.6",
    "db5.3": "Sleepycat",
    "dpkg": "GPL-2.0-or-later",
    "e2fsprogs": "MIT",
    "expat": "MIT",
    "gcc-12": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "glibc": "LGPL-2.1-or-later",
    "keyutils": "LGPL-2.0-or-later",
    "krb5": "MIT",
    "libffi": "MIT",
    "libmd": "BSD-3-Clause AND BSD-2-Clause AND ISC AND Beerware AND LicenseRef-public-domain",
    "libnsl": "LGPL-2.1-or-later",
    "libselinux": "LicenseRef-public-domain",
    "libtirpc": "BSD-3-Clause AND LGPL-2.1-or-later",
    "libxcrypt": "LGPL-2.1-or-later",
    "libzstd": "BSD-3-Clause OR GPL-2.0-only",
    "media-types": "LicenseRef-public-domain",
    "ncurses": "X11",
    "openssl": "Apache-2.0",
    "pcre2": "BSD-3-Clause",
    "python3-defaults": "PSF-2.0",
    "python3.11": "PSF-2.0",
    "readline": "GPL-3.0-or-later",
    "sqlite3": "blessing",
    "tar": "GPL-3.0-or-later",
    "util-linux": "BSD-3-Clause",
    "xz-utils": "LicenseRef-public-domain",
    "zlib": "Zlib",
}
"""By source package, what those libraries of it are under that the image has: read in the packages' own
``usr/share/doc/*/copyright``. Debian writes there of every file of the source, and few of them are here."""


@dataclass(frozen=True, slots=True)
class Package:
    """One installed package."""

    name: str
    version: str
    architecture: str
    source: str
    """Name of its source package."""

    @property
    def licence(self) -> str:
        """An expression of SPDX; empty where nobody has read it."""
        return _LICENCES.get(self.source, "")


def read(text: str) -> Iterator[Package]:
    """Each package of the file, in its order."""
    for stanza in text.strip().split("\n\n"):
        fields = dict(_fields(stanza))
        if "Package" in fields:
            name = fields["Package"]
            source = fields.get("Source", name).partition(" ")[0]  # a version may follow in brackets
            yield Package(name, fields["Version"], fields["Architecture"], source)


def _fields(stanza: str) -> Iterator[tuple[str, str]]:
    for line in stanza.splitlines():
        if line and not line[0].isspace():
            name, _, value = line.partition(":")
            yield name, value.strip()
