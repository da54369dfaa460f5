"""Values of the core as JSON documents and back, driven by the declared types of their fields.

It knows dataclasses, enums, tuples, frozen sets, mappings, unions and plain values. A new field, or a new
dataclass in a field, needs no code here. A value of a union of several dataclasses carries the name of its
class under ``class``. Decoding is strict: a document is hostile input until it is decoded.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, NewType, Union

Plain = Any
"""What JSON can say: objects, arrays, texts, numbers, true, false, null."""

CLASS_KEY: Final = "class"
"""No field is called so: it is a word of the language."""
_PLAIN: Final = (str, int, bool)
_INFINITE: Final = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""JSON has no such numbers: they are written as words."""


class DamagedError(ValueError):
    """A document does not hold a value of the wanted type. The text names the place."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(f"{path or 'the document'}: {problem}")
        self.problem = problem
        self.path = path

    def below(self, part: object) -> "DamagedError":
        """The same, seen from the value that holds the damaged one under ``part``."""
        return DamagedError(self.problem, f"{part}.{self.path}" if self.path else str(part))


def encode(value: Any, kind: Any) -> Plain:
    """``value``, which is of type ``kind``, as a plain document."""
    return _form(kind).encode(value)


def decode(document: Plain, kind: Any) -> Any:
    """The value of type ``kind`` that a document holds. Raises :class:`DamagedError`."""
    return _form(kind).decode(document)


class _Form(NamedTuple):
    """How values of one type are written and read."""

    encode: Callable[[Any], Plain]
    decode: Callable[[Plain], Any]


class _Fields(NamedTuple):
    """How the fields of a dataclass are written and read."""

    forms: Mapping[str, _Form]
    written: Iterable[tuple[str, Callable[[Any], Plain]]]
    """Fields that do not go into the document as they are."""


@cache
def _form(kind: Any) -> _Form:
    kind = _bare(kind)
    for form_of in (_plain, _float, _enum, _dataclass, _tuple, _set, _mapping, _union):
        if (form := form_of(kind)) is not None:
            return form
    raise TypeError(f"{kind} has no form in JSON")


def _bare(kind: Any) -> Any:
    """The type behind a name that ``NewType`` or ``type X = ...`` gave it."""
    while isinstance(kind, NewType) or hasattr(kind, "__value__"):
        kind = kind.__supertype__ if isinstance(kind, NewType) else kind.__value__
    return kind


def _wrong(found: Plain, wanted: str) -> DamagedError:
    return DamagedError(f"{wanted} is wanted, not {repr(found)[:80]}")


def _array(found: Plain) -> list[Plain]:
    if not isinstance(found, list):
        raise _wrong(found, "an array")
    return found


def _object(found: Plain) -> dict[str, Plain]:
    if not isinstance(found, dict):
        raise _wrong(found, "an object")
    return found


# --- single values -------------------------------------------------------------------------------


def _as_it_is(value: Any) -> Any:
    return value


def _plain(kind: Any) -> _Form | None:
    if typing.get_origin(kind) is typing.Literal:
        return _Form(_as_it_is, _one_of(typing.get_args(kind)))
    return _Form(_as_it_is, _exactly(kind)) if kind in _PLAIN else None


def _exactly(*kinds: type) -> Callable[[Plain], Any]:
    wanted = " or ".join(kind.__name__ for kind in kinds)

    def decode_plain(found: Plain) -> Any:
        if type(found) not in kinds:
            raise _wrong(found, wanted)
        return found

    return decode_plain


def _one_of(words: Iterable[Any]) -> Callable[[Plain], Any]:
    known = [(type(word), word) for word in words]  # True is not 1 here

    def decode_word(found: Plain) -> Any:
        if (type(found), found) not in known:
            raise _wrong(found, f"one of {', '.join(str(word) for _, word in known)}")
        return found

    return decode_word


def _float(kind: Any) -> _Form | None:
    return _Form(_encode_float, _decode_float) if kind is float else None


def _encode_float(value: float) -> Plain:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decode_float(found: Plain) -> float:
    if type(found) is float:
        return found
    if type(found) is int and found.bit_length() < 1024:
        return float(found)
    if isinstance(found, str) and found in _INFINITE:
        return _INFINITE[found]
    raise _wrong(found, "a number")


def _enum(kind: Any) -> _Form | None:
    if not (isinstance(kind, type) and issubclass(kind, Enum)):
        return None
    check = _one_of(kind.__members__)
    return _Form(lambda value: value.name, lambda found: kind[check(found)])


# --- containers ----------------------------------------------------------------------------------


def _tuple(kind: Any) -> _Form | None:
    if typing.get_origin(kind) is not tuple:
        return None
    arguments = typing.get_args(kind)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _form(arguments[0])
        return _Form(_list_of(item), _collected(item, tuple))
    return _record(arguments)


def _set(kind: Any) -> _Form | None:
    if typing.get_origin(kind) is not frozenset:
        return None
    item = _form(typing.get_args(kind)[0])
    items = _list_of(item)
    # In order, so that equal snapshots give equal documents.
    return _Form(lambda value: sorted(items(value), key=repr), _collected(item, frozenset))


def _list_of(item: _Form) -> Callable[[Any], Plain]:
    write = item.encode
    return list if write is _as_it_is else lambda value: [write(one) for one in value]


def _collected(item: _Form, collect: Callable[[Iterable[Any]], Any]) -> Callable[[Plain], Any]:
    read = item.decode

    def decode_items(found: Plain) -> Any:
        parts = _array(found)
        try:
            return collect([read(one) for one in parts])
        except DamagedError:
            raise _first_damage(read, enumerate(parts)) from None

    return decode_items


def _first_damage(read: Callable[[Plain], Any], parts: Iterable[tuple[object, Plain]]) -> DamagedError:
    """The damage in the first of these parts that has one. Looked for only once there is one."""
    for place, part in parts:
        try:
            read(part)
        except DamagedError as error:
            return error.below(place)
    raise AssertionError("one of them was damaged a moment ago")


def _record(kinds: tuple[Any, ...]) -> _Form:
    items = tuple(map(_form, kinds))

    def decode_record(found: Plain) -> tuple[Any, ...]:
        parts = _array(found)
        if len(parts) != len(items):
            raise DamagedError(f"{len(items)} parts are wanted, there are {len(parts)}")
        values = []
        for place, (item, part) in enumerate(zip(items, parts, strict=True)):
            try:
                values.append(item.decode(part))
            except DamagedError as error:
                raise error.below(place) from None
        return tuple(values)

    return _Form(
        lambda value: [item.encode(one) for item, one in zip(items, value, strict=True)], decode_record
    )


def _mapping(kind: Any) -> _Form | None:
    origin = typing.get_origin(kind)
    if origin is None or not (isinstance(origin, type) and issubclass(origin, Mapping)):
        return None
    key, item = (_form(argument) for argument in typing.get_args(kind))
    key_kind = _bare(typing.get_args(kind)[0])
    read, write = item.decode, item.encode

    def decode_mapping(found: Plain) -> dict[Any, Any]:
        parts = _object(found)
        try:
            values = {key.decode(name): read(part) for name, part in parts.items()}
        except DamagedError:
            raise _first_damage(lambda pair: (key.decode(pair[0]), read(pair[1])), _named(parts)) from None
        return values

    if key_kind is not str and not (isinstance(key_kind, type) and issubclass(key_kind, Enum)):
        raise TypeError(f"{kind} has no form in JSON: its keys are no texts")
    return _Form(lambda value: {key.encode(name): write(one) for name, one in value.items()}, decode_mapping)


def _named(parts: Mapping[str, Plain]) -> Iterable[tuple[str, tuple[str, Plain]]]:
    return ((name, (name, part)) for name, part in parts.items())


# --- dataclasses and unions ----------------------------------------------------------------------


def _dataclass(kind: Any) -> _Form | None:
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return None
    # Fields that are caches are no part of the value.
    fields = [one for one in dataclasses.fields(kind) if one.compare and one.init]
    names = [one.name for one in fields]
    needed = [one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING]
    ready: list[_Fields] = []

    def prepared() -> _Fields:
        """Not before the first value: a type may hold itself. Other threads see all of it or nothing."""
        if not ready:
            hints = typing.get_type_hints(kind)
            forms = {name: _form(hints[name]) for name in names}
            written = [(name, form.encode) for name, form in forms.items() if form.encode is not _as_it_is]
            ready.append(_Fields(forms, written))
        return ready[0]

    def encode_fields(value: Any) -> Plain:
        parts = {name: getattr(value, name) for name in names}
        for name, write in prepared().written:
            parts[name] = write(parts[name])
        return parts

    def decode_fields(found: Plain) -> Any:
        forms = prepared().forms
        parts = _object(found)
        for name in parts.keys() - forms.keys():
            raise DamagedError(f"{kind.__name__} has no field {name!r}")
        for name in needed:
            if name not in parts:
                raise DamagedError(f"{kind.__name__} lacks its field {name!r}")
        values = {}
        for name, part in parts.items():
            try:
                values[name] = forms[name].decode(part)
            except DamagedError as error:
                raise error.below(name) from None
        try:
            return kind(**values)
        except ValueError as error:  # the value itself refuses it
            raise DamagedError(str(error)) from error

    return _Form(encode_fields, decode_fields)


def _union(kind: Any) -> _Form | None:
    if typing.get_origin(kind) not in {Union, types.UnionType}:
        return None
    members = [_bare(member) for member in typing.get_args(kind)]
    values = [member for member in members if member is not types.NoneType]
    if len(values) == 1:
        form = _form(values[0])
    elif all(member in _PLAIN for member in values):
        form = _Form(_as_it_is, _exactly(*values))
    elif all(dataclasses.is_dataclass(member) for member in values):
        form = _tagged({member: _form(member) for member in values})
    else:
        raise TypeError(f"{kind} has no form in JSON: its members cannot be told apart")
    return _optional(form) if len(values) < len(members) else form


def _optional(form: _Form) -> _Form:
    write, read = form
    return _Form(
        write if write is _as_it_is else lambda value: None if value is None else write(value),
        lambda found: None if found is None else read(found),
    )


def _tagged(forms: Mapping[Any, _Form]) -> _Form:
    by_name = {kind.__name__: form for kind, form in forms.items()}

    def decode_tagged(found: Plain) -> Any:
        parts = dict(_object(found))
        name = parts.pop(CLASS_KEY, None)
        if not isinstance(name, str) or name not in by_name:
            raise _wrong(name, f"as {CLASS_KEY} one of {', '.join(by_name)}")
        return by_name[name].decode(parts)

    return _Form(
        lambda value: {CLASS_KEY: type(value).__name__, **forms[type(value)].encode(value)}, decode_tagged
    )
