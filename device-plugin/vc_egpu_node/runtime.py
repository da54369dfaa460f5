"""Whether the container runtime hands out cards past this agent.

With NVIDIA's runtime as the default one, an image that sets NVIDIA_VISIBLE_DEVICES=all gets every card of the
node without asking Kubernetes. The agent cannot close that door, but it says that it is open.
"""

import json
import logging
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


def bypasses(places: Sequence[Path]) -> tuple[str, ...]:
    """A sentence for each runtime configuration whose default runtime is NVIDIA's."""
    found = []
    for path in _files(places):
        name = _default_runtime(path)
        if name is not None and "nvidia" in name:
            found.append(
                f"{path} makes {name!r} the default runtime: any image with NVIDIA_VISIBLE_DEVICES=all "
                "gets all cards without asking; use a RuntimeClass instead"
            )
    return tuple(found)


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        elif place.is_dir():
            yield from sorted(p for p in place.rglob("*") if p.suffix in (".toml", ".json", ".conf"))


def _default_runtime(path: Path) -> str | None:
    """The default runtime that a containerd, CRI-O or Docker configuration names."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        log.debug("%s was not read: %s", path, error)
        return None
    return _find(document)


def _find(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    for key in ("default_runtime_name", "default-runtime", "default_runtime"):
        if isinstance(document.get(key), str):
            return str(document[key])
    return next((name for value in document.values() if (name := _find(value)) is not None), None)
