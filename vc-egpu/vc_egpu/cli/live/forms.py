"""``--sort-by`` and the forms of ``-o``, for all reports alike: a report is a dataclass with rows in it.

Rows are the first field that holds dataclasses. Columns to sort by are the fields of a row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import orjson
import yaml

Form = Literal["table", "wide", "json", "yaml", "name"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)
_NAMES: Final = ("gang", "pod", "queue", "name", "uuid", "subject")
"""The field that names a row, the first that it has."""
_DOWN: Final = ":desc"


class FormError(Exception):
    """The answer cannot be shown so; the text says what can."""


def as_json(document: Any) -> bytes:
    """Dataclasses as objects with their own field names (units in the names), indented."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS)


def as_yaml(document: Any) -> bytes:
    """The same as YAML."""
    text: str = yaml.safe_dump(orjson.loads(as_json(document)), sort_keys=False, allow_unicode=True)
    return text.encode().rstrip(b"\n")


def as_names(document: Any) -> bytes:
    """One name a line, for shells. Raises :class:`FormError`."""
    _, rows = _rows(document)
    if not rows:
        return b""
    field = next((name for name in _NAMES if hasattr(rows[0], name)), None)
    if field is None:
        raise FormError("this answer has no names: take -o json")
    return "\n".join(str(getattr(row, field)) for row in rows).encode()


def ordered(document: Any, by: str) -> Any:
    """The same report with its rows in another order: ``FIELD``, or ``FIELD:desc``.

    Raises :class:`FormError` with the fields that there are.
    """
    name, rows = _rows(document)
    field, down = by.removesuffix(_DOWN).replace("-", "_"), by.endswith(_DOWN)
    if not rows:
        return document
    known = [one.name for one in dataclasses.fields(rows[0])]
    plain = [one for one in known if isinstance(getattr(rows[0], one), (str, int, float))]
    if field not in plain:
        raise FormError(f"there is no {by!r} to sort by; there are {', '.join(plain)}")
    turned = tuple(sorted(rows, key=lambda row: getattr(row, field), reverse=down))
    return turned if name is None else dataclasses.replace(document, **{name: turned})


def _rows(document: Any) -> tuple[str | None, Sequence[Any]]:
    """The field of the report that has the rows, and these; no field where the report is the rows."""
    if isinstance(document, Sequence) and not isinstance(document, (str, bytes)):
        return None, document
    if dataclasses.is_dataclass(document):
        for field in dataclasses.fields(document):
            value = getattr(document, field.name)
            if isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
                return field.name, value
        return None, ()
    raise FormError("this answer has no rows: take -o json")
