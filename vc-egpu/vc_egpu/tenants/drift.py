"""What differs between a tenant's document and the cluster, field by field. Pure.

Amounts are compared by value: ``1Ti`` and ``1024Gi`` are no difference. What Kubernetes or Volcano fills in
is none either. In what gives rights or caps, a field that the document does not have is a difference.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.quantity import QuantityError, parse

Json = Mapping[str, Any]
Key = tuple[str, str, str]
"""Kind, namespace (empty for what has none), name."""
ABSENT: Final = None
_CLOSED: Final = ("spec", "rules", "subjects", "roleRef")
"""What these hold is the tenant's document alone."""
_OURS: Final = (f"{names.DOMAIN}/", "pod-security.kubernetes.io/", names.QUEUE_NAME)
"""Labels and annotations of which the same holds."""
_NOT_COMPARED: Final = frozenset({names.TENANT_DOCUMENT})
"""Each difference in it shows in the objects."""
_FILLED_IN: Final[Mapping[str, Any]] = {
    "spec.parent": "root",
    "spec.guarantee": {},
    "spec.deserved": {},
    "spec.affinity": {},
    "spec.dequeueStrategy": "traverse",
    "spec.finalizers": ["kubernetes"],
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One field."""

    kind: str
    namespace: str
    name: str
    path: str
    """Empty where the whole object is missing, or stands in no document."""
    wanted: Any
    """None: the document does not have it."""
    found: Any
    """None: the cluster does not have it."""

    @property
    def subject(self) -> str:
        """``Queue research``, ``ResourceQuota research/tenant``."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def key_of(document: Json) -> Key:
    """Which object it is."""
    metadata = document["metadata"]
    return document["kind"], str(metadata.get("namespace") or ""), str(metadata["name"])


def differences(
    wanted: Iterable[Json], found: Mapping[Key, Json], strangers: Iterable[Json] = ()
) -> list[Difference]:
    """All differences. ``found`` is by :func:`key_of`; ``strangers`` are objects that no document names."""
    result: list[Difference] = []
    for document in wanted:
        key = key_of(document)
        live = found.get(key)
        if live is None:
            result.append(Difference(*key, "", "present", ABSENT))
        else:
            result += [Difference(*key, *found_there) for found_there in _of_object(document, live)]
    result += [Difference(*key_of(stranger), "", ABSENT, "present") for stranger in strangers]
    return result


_Found = tuple[str, Any, Any]


def _of_object(wanted: Json, live: Json) -> Iterator[_Found]:
    for which in ("labels", "annotations"):
        mine, theirs = (document["metadata"].get(which) or {} for document in (wanted, live))
        for key in sorted({*mine, *(key for key in theirs if key.startswith(_OURS))} - _NOT_COMPARED):
            if mine.get(key) != theirs.get(key):
                yield f'metadata.{which}["{key}"]', mine.get(key), theirs.get(key)
    closed = [
        field for field in _CLOSED if field in wanted or (field in live and wanted["kind"] != "Namespace")
    ]
    for field in closed:
        yield from _of_value(field, wanted.get(field), live.get(field))


def _of_value(path: str, wanted: Any, found: Any) -> Iterator[_Found]:
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        for key in sorted({*wanted, *found}):
            yield from _of_value(_below(path, key), wanted.get(key), found.get(key))
    elif isinstance(wanted, list) and isinstance(found, list):
        yield from _of_lists(path, wanted, found)
    elif not _equal(wanted, found) and not (wanted is ABSENT and found == _FILLED_IN.get(path, ABSENT)):
        yield path, wanted, found


def _of_lists(path: str, wanted: Sequence[Any], found: Sequence[Any]) -> Iterator[_Found]:
    """Elements that are alike are no difference, wherever they stand; the others are compared in order."""
    texts = [_text(one) for one in found]
    mine: list[tuple[int, Any]] = []
    for index, one in enumerate(wanted):
        if (text := _text(one)) in texts:
            texts[texts.index(text)] = ""
        else:
            mine.append((index, one))
    theirs = [(index, found[index]) for index, text in enumerate(texts) if text]
    for (index, one), (_, other) in zip(mine, theirs, strict=False):
        yield from _of_value(f"{path}[{index}]", one, other)
    for index, one in mine[len(theirs) :]:
        yield f"{path}[{index}]", one, ABSENT
    for index, other in theirs[len(mine) :]:
        yield f"{path}[{index}]", ABSENT, other


def _below(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f'{path}["{key[:100]}"]'


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _equal(wanted: Any, found: Any) -> bool:
    if wanted == found:
        return True
    if isinstance(wanted, bool) or isinstance(found, bool):
        return False
    try:
        return parse(wanted).value == parse(found).value
    except QuantityError:
        return False
