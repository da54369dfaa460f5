"""A page of metrics that is kept in compressed pieces: one for each node and family.

A scrape joins them. A gzip stream may have any number of members, so a piece that changes is compressed
alone.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from vc_egpu.metrics.family import Family
from vc_egpu.metrics.text import header

_GZIP: Final = 27
"""The gzip format with a window of 2 KiB: pieces are small, and a large window takes long to prepare."""
_MEMORY: Final = 4
_ANY_GZIP: Final = 31


def compressed(text: str) -> bytes:
    """One member of a gzip stream."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP, _MEMORY)
    return packer.compress(text.encode()) + packer.flush()


class Page:
    """Families in order; of each its header, then the pieces."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = tuple(families)
        self._headers = [compressed(header(family)) for family in self._families]
        self._pieces: list[dict[str, bytes]] = [{} for _ in self._families]

    def put(self, key: str, texts: Sequence[str]) -> None:
        """Replace the pieces of ``key``: one text for each family, empty where it has no series."""
        for pieces, text in zip(self._pieces, texts, strict=True):
            if text:
                pieces[key] = compressed(text)
            else:
                pieces.pop(key, None)

    def remove(self, key: str) -> None:
        """It has no series any more."""
        for pieces in self._pieces:
            pieces.pop(key, None)

    def clear(self) -> None:
        """Nothing is left but the headers."""
        for pieces in self._pieces:
            pieces.clear()

    def gzip(self) -> bytes:
        """The whole page, compressed."""
        return b"".join(self._parts())

    def plain(self) -> bytes:
        """The whole page as text."""
        return b"".join(zlib.decompress(part, _ANY_GZIP) for part in self._parts())

    def size(self) -> int:
        """Bytes that it keeps."""
        return sum(len(part) for part in self._parts())

    def _parts(self) -> Iterator[bytes]:
        for head, pieces in zip(self._headers, self._pieces, strict=True):
            yield head
            yield from list(pieces.values())  # another thread may put one
