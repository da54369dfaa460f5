"""Writes the table of attempts into ``docs/security.md``: ``python -m attacks.page``."""

import re
from collections import Counter
from pathlib import Path
from typing import Final

from attacks.requests import Attack
from attacks.table import ATTACKS, TRIED
from attacks.walls import NAMES

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "security.md"
BEGIN: Final = "<!-- attempts: written by `python -m attacks.page` -->"
END: Final = "<!-- end of attempts -->"


def table() -> str:
    """The lines between the two marks."""
    requests = sum(len(attack.tries) for attack in TRIED)
    states = Counter(attack.state for attack in ATTACKS)
    lines = [
        f"{len(ATTACKS)} rows: {states['tried']} tried here with {requests} requests, "
        f"{states['elsewhere']} by other tests, {states['not tried'] + states['not built']} not tried.",
        "",
        "| # | attempt | wall | with the webhook away |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {attack.row} | {attack.attempt} | {_with(attack)} | {_without(attack)} |" for attack in ATTACKS
    ]
    return "\n".join(lines)


def _with(attack: Attack) -> str:
    names = ", ".join(
        NAMES[letter].partition(" is away")[0].partition("'s cap")[0] for letter in attack.letters
    )
    return f"{names} ({attack.note})" if attack.note else names


def _without(attack: Attack) -> str:
    if attack.state != "tried" and not attack.away:
        return "not built" if attack.state == "not built" else ""
    short = {"F": "nothing comes in"}
    return ", ".join(short.get(letter, NAMES[letter]) for letter in attack.letters_without_webhook)


def written(text: str) -> str:
    """The page with the table as it is now."""
    pattern = f"{re.escape(BEGIN)}.*{re.escape(END)}"
    return re.sub(pattern, lambda _: f"{BEGIN}\n{table()}\n{END}", text, flags=re.DOTALL)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
