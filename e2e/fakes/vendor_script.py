"""Steers the fake vendor libraries (``device-plugin/native/fake/vendors``): script and slices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Value = str | int


@dataclass
class VendorScript:
    """What a fake library says. The keys stand at the top of its C file."""

    path: Path
    cards: dict[int, dict[str, Value]] = field(default_factory=dict)
    node: dict[str, Value] = field(default_factory=dict)

    def write(self) -> None:
        """What programs see from their next call on."""
        lines = _lines(self.node)
        for number, keys in self.cards.items():
            lines += [f"card={number}", *_lines(keys)]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n", encoding="utf-8")
        fresh.replace(self.path)

    def say(self, card: int, **keys: Value) -> None:
        """Change a card at once."""
        self.cards[card] |= keys
        self.write()

    @property
    def slices(self) -> list[str]:
        """The slices that lie on the cards, one line each: card, id, template, cores, MiB, in use."""
        path = self.path.with_name(self.path.name + ".slices")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    @slices.setter
    def slices(self, lines: list[str]) -> None:
        self.path.with_name(self.path.name + ".slices").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )


def _lines(keys: Mapping[str, Value]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]
