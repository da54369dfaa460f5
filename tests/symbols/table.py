"""Writes ``driver-symbols.md`` of the library: every entry point of the driver, and what is done about it."""

import re
import textwrap
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from symbols.headers import Symbol, committed
from symbols.rows import LEFT_OUT, NATIVE, wrapped

HERE: Final = Path(__file__).resolve().parent
REPOSITORY: Final = HERE.parents[1]
CLASSES: Final = HERE / "classes.toml"
DONE: Final = HERE / "done.txt"
"""Symbols that the fake driver did something for when they were called."""

DOCUMENT: Final = NATIVE / "lib" / "driver-symbols.md"
CALLS: Final = "tests/unit/native/test_symbols.py"
EFFECTS: Final = frozenset({"taken", "returned", "gated", "followed", "shown"})


@dataclass(frozen=True, slots=True)
class Group:
    """Entry points of which the same is true."""

    name: str
    patterns: tuple[str, ...]
    how: str = ""
    """What the library does; empty: nothing."""
    effect: str = ""
    reason: str = ""
    """Why it need not do anything."""
    tests: tuple[str, ...] = ()
    resident: bool = False
    """Memory that is charged already may come to lie on the card."""
    symbols: list[Symbol] = field(default_factory=list)

    @property
    def limited(self) -> bool:
        """The library has functions for these."""
        return bool(self.how)


def bare(symbol: str) -> str:
    """Its name without version and default stream."""
    return re.sub(r"(_v\d)?(_pt[ds][sz])?$", "", symbol)


def groups(limited: frozenset[str]) -> list[Group]:
    """All groups with their symbols; ``limited``: those that the library has functions for.

    :raises ValueError: a symbol fits no group, or an effect is none.
    """
    text = tomllib.loads(CLASSES.read_text())
    made = []
    for kind in ("limited", "harmless"):
        for raw in text[kind]:
            more: dict[str, Any] = {key: tuple(raw.pop(key, ())) for key in ("patterns", "tests")}
            made.append(Group(**raw, **more))
    for group in made:
        if group.limited != (group.effect in EFFECTS) or group.limited == bool(group.reason):
            raise ValueError(f"{group.name}: either how and effect, or a reason")
    for symbol in committed():
        home = next(
            (
                group
                for group in made
                if group.limited == (symbol.name in limited)
                and any(re.fullmatch(pattern, bare(symbol.name)) for pattern in group.patterns)
            ),
            None,
        )
        if home is None:
            raise ValueError(f"{symbol.name} is of no group of {CLASSES.name}")
        home.symbols.append(symbol)
    return made


def _section(group: Group) -> list[str]:
    named = ", ".join(f"`{test}`" for test in group.tests)
    why = group.how or group.reason
    lines = [f"### {group.name}", "", f"{why[0].upper()}{why[1:]}."]
    lines += [f"Shown by {named}."] if named else []
    lines += ["", "| symbol | header | CUDA | on the fake driver |", "|---|---|---|---|"]
    done = set(DONE.read_text().split())
    for one in group.symbols:
        tried = "done" if one.name in done else "not called" if one.name in LEFT_OUT else "refused"
        lines.append(f"| `{one.name}` | {one.header} | {', '.join(one.cuda)} | {tried} |")
    return [*lines, ""]


def document(limited: frozenset[str]) -> str:
    """The page's text."""
    made = groups(limited)
    counts = [sum(len(group.symbols) for group in made if group.limited == kind) for kind in (True, False)]
    lines = ["# Every entry point of the CUDA driver", ""]
    for paragraph in tomllib.loads(CLASSES.read_text())["about"]:
        text = paragraph.format(limited=counts[0], harmless=counts[1], calls=CALLS)
        lines += [*textwrap.wrap(text, 120, break_on_hyphens=False), ""]
    lines += ["## Limited", ""]
    for group in made:
        if group.limited:
            lines += _section(group)
    lines += ["## Harmless", ""]
    for group in made:
        if not group.limited:
            lines += _section(group)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    """Writes the page."""
    DOCUMENT.write_text(document(wrapped()))


if __name__ == "__main__":
    main()
