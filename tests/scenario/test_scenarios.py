"""Every ``*.txt`` beside this file is a story: see :mod:`scenario.script` for its language.

``pytest tests/scenario --rewrite`` writes what the core says now into the files; commit that only if you
understand what caused the difference.
"""

import re
from pathlib import Path

import pytest
from scenario import script as language
from scenario.script import Script

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


def blocks(text: str) -> tuple[str, list[tuple[list[str], str]]]:
    """(prose head, [(commands, expected output)])."""
    head, _, body = text.partition("\n\n")
    found = []
    for chunk in body.strip("\n").split("\n\n"):
        commands, _, expected = chunk.partition("----")
        found.append((commands.strip("\n").split("\n"), expected.strip("\n")))
    return head, found


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path, rewrite: bool) -> None:
    head, steps = blocks(story.read_text())
    assert head.startswith("#"), "a story opens with what it is about"
    script = Script()
    shown = [(commands, script.run(commands)) for commands, _ in steps]
    if rewrite:
        parts = [head, *("\n".join([*commands, "----", output]).rstrip("\n") for commands, output in shown)]
        story.write_text("\n\n".join(parts) + "\n")
        return
    for (commands, expected), (_, output) in zip(steps, shown, strict=True):
        assert output == expected, "after: " + " / ".join(commands)


def test_there_are_enough_stories() -> None:
    assert len(STORIES) >= 20


def test_every_command_is_explained() -> None:
    explained = set(re.findall(r"[a-z-]+", str(language.__doc__)))
    commands = {
        name.removeprefix("_do_").replace("_", "-") for name in dir(Script) if name.startswith("_do_")
    }
    assert commands - explained == set()
