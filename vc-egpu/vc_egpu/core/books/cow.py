"""A mapping that can be handed out as it is now, at no cost, and go on changing."""

from collections.abc import Iterator, Mapping
from typing import Final, TypeVar
from zlib import crc32

_K = TypeVar("_K", bound=str)
_V = TypeVar("_V")
_SHARDS: Final = 256


class Frozen(Mapping[_K, _V]):
    """What :meth:`Shards.freeze` hands out; never changes. Its order does not depend on the process."""

    __slots__ = ("_length", "_shards")

    def __init__(self, shards: tuple[dict[_K, _V], ...], length: int) -> None:
        self._shards = shards
        self._length = length

    def __getitem__(self, key: _K) -> _V:
        return self._shards[crc32(key.encode()) % _SHARDS][key]

    def __iter__(self) -> Iterator[_K]:
        for shard in self._shards:
            yield from shard

    def __len__(self) -> int:
        return self._length

    def changes(self, earlier: "Frozen[_K, _V]") -> Iterator[tuple[_K, _V | None, _V | None]]:
        """(key, value in ``earlier``, value here) of all entries that are not the same object; None: absent.

        What was not touched in between costs nothing.
        """
        for before, now in zip(earlier._shards, self._shards, strict=True):
            if before is now:
                continue
            for key, value in now.items():
                old = before.get(key)
                if old is not value:
                    yield key, old, value
            for key in before.keys() - now.keys():
                yield key, before[key], None


class Shards(dict[_K, _V]):
    """A dict that also keeps its content in many small ones; a change copies the one it touches, if shared.

    Only item assignment and ``del`` are for changes.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shards: list[dict[_K, _V]] = [{} for _ in range(_SHARDS)]
        self._shared: set[int] = set()

    def freeze(self) -> Frozen[_K, _V]:
        """The content as it is now."""
        self._shared = set(range(_SHARDS))
        return Frozen(tuple(self._shards), len(self))

    def _own(self, key: _K) -> dict[_K, _V]:
        number = crc32(key.encode()) % _SHARDS
        if number in self._shared:
            self._shared.discard(number)
            self._shards[number] = dict(self._shards[number])
        return self._shards[number]

    def __setitem__(self, key: _K, value: _V) -> None:
        super().__setitem__(key, value)
        self._own(key)[key] = value

    def __delitem__(self, key: _K) -> None:
        super().__delitem__(key)
        del self._own(key)[key]
