"""What a user of many clusters types, and what the commands say."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import urllib3
import yaml
from stack.hostmode import REPOSITORY
from stack.kit import StoryError

TIMEOUT_S: Final = 180.0
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What one command said."""

    status: int
    out: str
    err: str
    took_s: float

    @property
    def document(self) -> Any:
        """Its output as JSON. Raises :class:`StoryError` where it is none."""
        try:
            return json.loads(self.out)
        except ValueError as error:
            raise StoryError(f"no JSON: {self.out}{self.err}") from error

    @property
    def text(self) -> str:
        """All it said, on one line."""
        return " ".join(f"{self.out} {self.err}".split())


@dataclass
class User:
    """Runs ``kubectl egpu``. What it remembers of clusters is kept in ``folder``."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def egpu(self, *words: str) -> Said:
        """One command, until it ends."""
        began = time.monotonic()
        done = subprocess.run(
            _argv(words), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=self._env()
        )
        return Said(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def begin(self, *words: str) -> "subprocess.Popen[str]":
        """The same, and it goes on meanwhile."""
        return subprocess.Popen(
            _argv(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self._env()
        )

    def submit(self, job: Json, file: Path, *words: str) -> Said:
        """Send a Job to the cluster where it starts first."""
        return self.egpu(*submission(self.written(job), file), *words)

    def written(self, job: Json) -> Path:
        """A file that holds the Job."""
        manifest = self.folder / "job.yaml"
        manifest.write_text(yaml.safe_dump(job))
        return manifest

    @contextmanager
    def page(self, *words: str) -> Iterator["Page"]:
        """The page while it is served."""
        serving = self.begin("ui", *words)
        try:
            assert serving.stdout is not None
            line = serving.stdout.readline()
            link = next((word for word in line.split() if word.startswith("http://")), "")
            if not link:
                raise StoryError(f"no link: {line}")
            yield Page(link)
        finally:
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=30)

    def _env(self) -> dict[str, str]:
        own = {
            "XDG_CACHE_HOME": str(self.folder),
            "PYTHONPATH": str(REPOSITORY / "vc-egpu"),
            "COLUMNS": "300",
        }
        return {**os.environ, **own, **self.environment}


def submission(manifest: Path, file: Path) -> tuple[str, ...]:
    """The words of a first start."""
    return ("submit", "-f", str(manifest), "--first-start", "--clusters", str(file), "-o", "json")


class Page:
    """A browser without a window."""

    def __init__(self, link: str) -> None:
        self._pool = urllib3.PoolManager(retries=False, timeout=20)
        self._url = link.partition("/?")[0]
        answer = self._pool.request("GET", link, redirect=False)
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def json(self, path: str) -> Any:
        """What the page is told. Raises :class:`StoryError` with the refusal."""
        answer = self._pool.request("GET", self._url + path, headers={"Cookie": self._cookie})
        if answer.status != 200:
            raise StoryError(f"{path}: {answer.status} {answer.data!r}")
        return json.loads(answer.data)

    def sites(self) -> Json:
        """All clusters."""
        found: Json = self.json("/api/sites")
        return found


def _argv(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "vc_egpu.cli.kubectl", *words]
