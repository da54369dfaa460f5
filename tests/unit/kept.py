"""How much a part keeps: the sizes of all collections that can be reached from it, and open files."""

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

OURS = ("vc_egpu.", "vc_egpu_node.")


def parts_of(value: object) -> Iterator[tuple[str, object]]:
    """What hangs on one of our objects, by name; nothing of others' objects, threads and connections."""
    module = type(value).__module__
    if not module.startswith(OURS) or module.startswith("vc_egpu.kube.") or isinstance(value, type):
        return
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(value, name):
                yield f".{name}", getattr(value, name)
    for name, part in getattr(value, "__dict__", {}).items():
        yield f".{name}", part


def sizes(root: object, *but: str) -> Counter[str]:
    """How many entries all collections have that can be reached from an object, by the way there.

    ``but``: ends of ways that are not gone.
    """
    found: Counter[str] = Counter()
    seen: set[int] = set()
    ways = [("", root)]
    while ways:
        way, value = ways.pop()
        if id(value) in seen or way.endswith(but):
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            found[way] += len(value)
            ways += [(f"{way}{{}}", part) for part in value.values()]
        elif isinstance(value, (list, tuple, set, frozenset, deque)):
            found[way] += len(value)
            ways += [(f"{way}[]", part) for part in value]
        else:
            ways += [(way + name, part) for name, part in parts_of(value)]
    return +found


def open_below(place: Path) -> list[str]:
    """Files at this place or below it that this process has open, removed ones included."""
    links = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one by which this folder is read
            links.append(str(one.readlink()))
    return sorted(link for link in links if link.startswith(str(place)))
