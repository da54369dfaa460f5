"""``vc-egpu jobs-api``: Jobs over plain HTTP. The process has no rights of its own."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu import __version__, logs
from vc_egpu.jobsapi.catalogue import Catalogue, CatalogueError
from vc_egpu.jobsapi.server import JobsServer, Metrics
from vc_egpu.jobsapi.settings import Settings, settings_of
from vc_egpu.jobsapi.what_if.leader import Leader
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import GetServer, listening, pages
from vc_egpu.kube.signals import told_to_end
from vc_egpu.kube.wire.config import ConfigError

LOOK_S: Final = 10.0
"""How often the catalogue's file is looked at."""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM; returns the exit status."""
    logs.begin()
    settings = settings_of(sys.argv[1:] if argv is None else argv)
    try:
        asyncio.run(_serve(settings))
    except (OSError, ConfigError, ValueError) as error:
        logger.error("jobs-api: %s", error)
        return 2
    return 0


def connected(settings: Settings) -> ApiConnection:
    """The way to the API server, for nobody in particular. Raises :class:`ConfigError`."""
    return ApiConnection.without_credentials(
        settings.server,
        settings.ca_file,
        timeout_s=settings.timeout_s,
        user_agent=f"vc-egpu-jobs-api/{__version__}",
    )


def read_catalogue(file: Path, last: Catalogue, metrics: Metrics) -> Catalogue:
    """The file as it is now; one that cannot be read leaves the last one in force. No file: no entries."""
    try:
        found = Catalogue.from_yaml(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        found = Catalogue()
    except (OSError, UnicodeDecodeError, CatalogueError) as error:
        logger.error("jobs-api: %s: %s; the last good one stays in force", file, error)
        metrics.catalogue_broken.set(1)
        return last
    metrics.catalogue_broken.set(0)
    return found


async def _serve(settings: Settings) -> None:
    metrics, api = Metrics(), connected(settings)
    leader = Leader(settings.leader, settings.timeout_s)
    server = JobsServer(api, metrics, most_under_way=settings.most_under_way, leader=leader)
    server.catalogue = read_catalogue(settings.catalogue, server.catalogue, metrics)
    port = await server.start_on(listening(settings.listen, settings.port), settings.tls_files)
    told = None
    if settings.metrics_port:
        answer = pages(metrics.registry, lambda: "", lambda: "")
        told = GetServer((settings.listen, settings.metrics_port), answer).start()
    logger.info("jobs-api: port %d, %d models in the catalogue", port, len(server.catalogue.models))
    follow = asyncio.create_task(_follow(settings, server, metrics))
    try:
        await told_to_end()
    finally:
        follow.cancel()
        await server.stop()
        if told is not None:
            told.stop()
        api.close()


async def _follow(settings: Settings, server: JobsServer, metrics: Metrics) -> None:
    """Read the catalogue again when it changes."""
    while True:
        await asyncio.sleep(LOOK_S)
        server.catalogue = read_catalogue(settings.catalogue, server.catalogue, metrics)
