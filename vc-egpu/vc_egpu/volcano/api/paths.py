"""Which texts may be one part of the path of an object.

A client or a proxy tidies a path up before it sends it: ``…/jobs/.`` becomes ``…/jobs``, and a DELETE of that
takes all of them. Kubernetes itself has no object whose name is refused here.
"""

from typing import Final
from urllib.parse import quote

_RELATIVE: Final = frozenset({".", ".."})
_OF_PATHS: Final = ("/", "%")


class PathNameError(ValueError):
    """A name that would address something else than one object; the text says what is wrong."""


def problem_of(name: object) -> str:
    """Why this is no name of an object, to be put behind "the name"; empty for a name that can be one.

    Other rules hold for names as well. They are the API server's to tell, since they address no other object.
    """
    if not isinstance(name, str):
        return f"is {'missing' if name is None else 'no text'}"
    if not name:
        return "is empty"
    if name in _RELATIVE:
        return f"is {name!r}, which is no object but a place in a path"
    found = next((sign for sign in _OF_PATHS if sign in name), "")
    return f"{name[:63]!r} has a {found!r}, which no name of an object has" if found else ""


def segment(name: object, what: str, which: str = "name") -> str:
    """The name as one part of a path; ``what`` and ``which`` say in an error whose part it is.

    Raises :class:`PathNameError`.
    """
    if problem := problem_of(name):
        raise PathNameError(f"{what}: the {which} {problem}")
    return quote(str(name), safe=":.")
