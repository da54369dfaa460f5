"""How long each story takes, and what it shares with others: a pytest plugin and the file that it writes.

``make test-long`` records. A story's own time is its set-up, call and tear-down, less what it made for others
too: the clusters that session and module fixtures bring up are counted once for all stories that use them.
"""

import json
import os
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

FILE: Final = Path(__file__).with_name("durations.json")
VARIABLE: Final = "VC_EGPU_DURATIONS"
"""Names the file to write; without it nothing is recorded."""
_SHARED: Final = frozenset({"session", "package", "module"})
_WORTH_S: Final = 1.0
"""Shared fixtures that take less are not worth a row."""
_PROPERTY: Final = "vc_egpu_shared"


@dataclass(slots=True)
class Durations:
    """Seconds by story, and by shared fixture; which stories use which fixtures."""

    own_s: dict[str, float] = field(default_factory=dict)
    """By node id."""
    shared_s: dict[str, float] = field(default_factory=dict)
    """By name of a session fixture, or ``file::name`` of a module fixture."""
    uses: dict[str, list[str]] = field(default_factory=dict)
    """By node id, the shared fixtures that its story needs."""

    @classmethod
    def read(cls, path: Path = FILE) -> "Durations":
        """Raises ``OSError``, and ``ValueError`` for a file that is none of ours."""
        document = json.loads(path.read_text())
        try:
            stories, shared_s = document["stories"], document["shared_s"]
            return cls(
                {story: float(entry["s"]) for story, entry in stories.items()},
                {name: float(seconds) for name, seconds in shared_s.items()},
                {story: [str(name) for name in entry.get("uses", ())] for story, entry in stories.items()},
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}: not a file of durations ({error!r})") from error

    def write(self, path: Path = FILE) -> None:
        """In an order that makes small differences."""
        known = {name: round(seconds, 1) for name, seconds in self.shared_s.items() if seconds >= _WORTH_S}
        stories: dict[str, dict[str, object]] = {}
        for story, seconds in self.own_s.items():
            uses = sorted(name for name in self.uses.get(story, ()) if name in known)
            stories[story] = {"s": round(seconds, 1), **({"uses": uses} if uses else {})}
        document = {"shared_s": known, "stories": stories}
        path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


class Recorder:
    """The plugin. With xdist each worker measures and the controller, which hears all reports, writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._found = Durations()
        self._made_s: dict[str, float] = {}
        self._depth = 0

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None]:
        """Measure shared fixtures; one that another one asks for is counted by itself."""
        began = time.monotonic()
        inner = sum(self._made_s.values())
        yield
        if fixturedef.scope in _SHARED:
            taken = time.monotonic() - began - (sum(self._made_s.values()) - inner)
            self._made_s[_name(fixturedef, request.node)] = taken

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        """Hand on what this story made for others, and what it uses."""
        self._made_s = {}
        yield
        uses = []
        for definitions in getattr(item, "_fixtureinfo").name2fixturedefs.values():  # noqa: B009  pytest's own
            uses += [_name(definitions[-1], item) for _ in (1,) if definitions[-1].scope in _SHARED]
        item.user_properties.append((_PROPERTY, json.dumps([self._made_s, uses])))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up; where a worker ran the story this is called in the controller as well."""
        story = report.nodeid if report.nodeid.startswith("e2e/") else f"e2e/{report.nodeid}"
        found = self._found
        found.own_s[story] = found.own_s.get(story, 0.0) + report.duration
        if report.when == "setup":
            for name, value in report.user_properties:
                if name == _PROPERTY:
                    made_s, uses = json.loads(str(value))
                    found.uses[story] = uses
                    found.shared_s.update(made_s)
                    found.own_s[story] -= sum(made_s.values())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write what ran now beside what was known of the other stories."""
        if hasattr(session.config, "workerinput"):
            return
        try:
            known = Durations.read(self._path)
        except (OSError, ValueError):
            known = Durations()
        known.own_s |= {story: max(0.0, seconds) for story, seconds in self._found.own_s.items()}
        known.shared_s |= self._found.shared_s
        known.uses |= self._found.uses
        known.write(self._path)


def _name(definition: pytest.FixtureDef[Any], node: Any) -> str:
    if definition.scope == "session":
        return definition.argname
    return f"{node.nodeid.partition('::')[0]}::{definition.argname}"


def recorder() -> Recorder | None:
    """The plugin where the environment asks for it."""
    path = os.environ.get(VARIABLE)
    return Recorder(Path(path)) if path else None
