"""Arguments of Job plugins as Go's flag package takes them: one or two dashes, ``=`` or the next argument.

They are read from left to right, each once. Users write them, so what is quoted of them is short.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

_SHOWN: Final = 64
"""Characters of an argument that a refusal quotes."""


class PluginError(ValueError):
    """The plugin cannot be used like this; the text names the argument."""


def read_flags(
    plugin: str, arguments: Sequence[str], known: Mapping[str, Callable[[str], object]]
) -> dict[str, Any]:
    """The value of each flag that is said, by its name; the last one counts. Raises :class:`PluginError`.

    ``known`` reads each flag's text, and raises ValueError with a sentence. Only :func:`boolean` flags may
    stand without a value.
    """
    values: dict[str, Any] = {}
    at = 0
    while at < len(arguments):
        argument = arguments[at]
        at += 1
        name, has_value, text = argument.lstrip("-").partition("=")
        read = known.get(name) if argument.startswith("-") else None
        if read is None:
            spelled = f"--{argument.lstrip('-')}" if argument.startswith("-") else argument
            raise PluginError(f"{plugin} has no argument {short(spelled)}")
        following = arguments[at] if at < len(arguments) and not has_value else None
        if following is not None and not (read is boolean and following.startswith("-")):
            text = following
            at += 1
        elif not has_value:
            if read is not boolean:
                raise PluginError(f"argument --{name}: a value has to follow")
            text = "true"
        try:
            values[name] = read(text)
        except ValueError as error:
            raise PluginError(f"argument --{name}: {error}") from error
    return values


def boolean(text: str) -> bool:
    """As Go reads it; raises ValueError."""
    if text.lower() in {"1", "t", "true"}:
        return True
    if text.lower() in {"0", "f", "false"}:
        return False
    raise ValueError(f"{short(text)} is neither true nor false")


def port(text: str) -> int:
    """1 to 65535; raises ValueError."""
    if not text.isdecimal() or len(text) > 5 or not 1 <= int(text) <= 65535:
        raise ValueError(f"{short(text)} is no port, 1 to 65535")
    return int(text)


def whole_number(text: str) -> int:
    """A number of at most nine digits; raises ValueError."""
    if not text.isdecimal() or len(text) > 9:
        raise ValueError(f"{short(text)} is no whole number below 1000000000")
    return int(text)


def short(text: str) -> str:
    """Quoted, and cut where it is long."""
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")
