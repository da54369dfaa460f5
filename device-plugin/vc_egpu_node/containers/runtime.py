"""What the container runtime's configuration says that concerns cards.

With a vendor's runtime as the default one, an image that names all cards gets every card of the node without
asking Kubernetes. The agent cannot close that door, but it says that it is open. Where a file
leaves CDI off the agent only warns, since another may be in force; :mod:`.start_checks` looks.
"""

import json
import logging
import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from vc_egpu_node.vendors.base import VendorFacts

log = logging.getLogger(__name__)


def bypasses(places: Sequence[Path], vendor: VendorFacts) -> tuple[str, ...]:
    """A sentence for each runtime configuration whose default runtime is the vendor's."""
    found = []
    for path in _files(places):
        name = _default_runtime(path)
        if name is not None and vendor.runtime in name:
            found.append(
                f"{path} makes {name!r} the default runtime: any image with {vendor.all_cards} "
                "gets all cards without asking; use a RuntimeClass instead"
            )
    return tuple(found)


_CRI_PLUGINS: Final = ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
"""Tables of containerd's CRI plugin in versions 1 and 2."""


_ON_AS_IT_COMES: Final = re.compile(r"containerd://(?!1\.)|cri-o://")


def cdi_off(places: Sequence[Path], runtime: str) -> str:
    """A sentence where these files leave CDI off in that runtime (``containerd://1.7.27``), else an empty
    text."""
    tables = _cri_tables(places)
    if not tables or not runtime.startswith("containerd://") or not may_lack_cdi(places, runtime):
        return ""
    return (
        f"CDI is off in {next(iter(tables))}, by which {runtime} would start containers without their cards "
        "and limits: set enable_cdi = true there and restart it"
    )


def may_lack_cdi(places: Sequence[Path], runtime: str) -> bool:
    """Whether CDI may be off there: where no file says so, it is on in CRI-O and in containerd from 2 on."""
    said = [table["enable_cdi"] for table in _cri_tables(places).values() if "enable_cdi" in table]
    return True not in said if said else not _ON_AS_IT_COMES.match(runtime)


def _cri_tables(places: Sequence[Path]) -> dict[Path, dict[str, Any]]:
    tables: dict[Path, dict[str, Any]] = {}
    for path in _files(places):
        document = _read(path) if path.suffix == ".toml" else None
        plugins = document.get("plugins") if isinstance(document, dict) else None
        for name in _CRI_PLUGINS:
            table = plugins.get(name) if isinstance(plugins, dict) else None
            if isinstance(table, dict):
                tables[path] = table
    return tables


def _files(places: Sequence[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        elif place.is_dir():
            yield from sorted(p for p in place.rglob("*") if p.suffix in (".toml", ".json", ".conf"))


def _default_runtime(path: Path) -> str | None:
    """The default runtime that a containerd, CRI-O or Docker configuration names."""
    return _find(_read(path))


def _read(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        log.debug("%s was not read: %s", path, error)
        return None


def _find(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    for key in ("default_runtime_name", "default-runtime", "default_runtime"):
        if isinstance(document.get(key), str):
            return str(document[key])
    return next((name for value in document.values() if (name := _find(value)) is not None), None)
