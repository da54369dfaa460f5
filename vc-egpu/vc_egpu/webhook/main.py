"""``vc-egpu webhook``: wires caches, certificates and server together and runs until SIGTERM."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vc_egpu import logs, threads
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.volcano.needs.file import read_environments
from vc_egpu.volcano.words.model_table import ModelTable, ModelTableError
from vc_egpu.webhook.serving.caches import Caches
from vc_egpu.webhook.serving.metrics import Metrics
from vc_egpu.webhook.serving.options import Options, OptionsError, parse_options
from vc_egpu.webhook.serving.oracle import Oracle
from vc_egpu.webhook.serving.reviewer import Reviewer
from vc_egpu.webhook.serving.server import WebhookServer
from vc_egpu.webhook.serving.tls import TlsKeeper

_MODELS_INTERVAL_S: Final = 10.0
_EXIT_USAGE: Final = 2

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the webhook; returns the exit status."""
    logs.begin()
    try:
        options = parse_options(sys.argv[1:] if argv is None else argv)
        table = load_table(options.file.models)
        api = ApiConnection.connect(options.file.kubeconfig, user_agent="vc-egpu-webhook", timeout_s=10.0)
    except (OptionsError, ModelTableError, ConfigError, OSError) as error:
        logger.error("webhook: %s", error)
        return _EXIT_USAGE
    # Threads that watch and ask share the interpreter with the reviews: hand it back quickly.
    threads.take_short_turns()
    asyncio.run(run(options, table, api))
    return 0


def load_table(path: Path) -> ModelTable:
    """The model table; raises :class:`ModelTableError` or OSError."""
    return ModelTable.from_yaml(path.read_text(encoding="utf-8"))


async def run(options: Options, table: ModelTable, api: ApiConnection) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    metrics, caches, oracle = Metrics.create(), Caches(api).start(), Oracle(api)
    tls = TlsKeeper(api, options.tls).start()
    reviewer = Reviewer(caches, oracle, options.settings, metrics)
    reviewer.table = table
    metrics.certificate_expiry.set_function(lambda: tls.not_after.timestamp() if tls.not_after else 0.0)
    server = WebhookServer(reviewer, metrics, lambda: _unready(caches, tls))
    follow = asyncio.create_task(_follow_models(options.file.models, reviewer, metrics))
    table_of_needs = options.file.environments
    follow_needs = asyncio.create_task(_follow_environments(table_of_needs, reviewer, metrics))
    try:
        port, metrics_port = await server.start(
            options.file.listen, options.file.port, tls.context, options.file.metrics_port
        )
        logger.info("webhook: reviews on port %d, probes and metrics on %d", port, metrics_port)
        await _freeze_when_ready(caches, tls, stop)
        await stop.wait()
        logger.info("webhook: shutting down, serving for %.0f s more", options.file.drain_s)
        await server.drain(options.file.drain_s)
    finally:
        follow.cancel()
        follow_needs.cancel()
        await server.stop()
        tls.stop()
        caches.stop()
        oracle.close()
        api.close()


def _unready(caches: Caches, tls: TlsKeeper) -> str:
    """Why reviews cannot be answered yet; empty when they can."""
    if not tls.ready.is_set():
        return "no certificate yet"
    unsynced = caches.unsynced()
    return f"not listed yet: {', '.join(unsynced)}" if unsynced else ""


async def _freeze_when_ready(caches: Caches, tls: TlsKeeper, stop: asyncio.Event) -> None:
    """Once the first lists are in, take them out of the collector's sight: full collections cost p99."""
    while not stop.is_set() and _unready(caches, tls):
        await asyncio.sleep(0.1)
    gc.collect()
    gc.freeze()
    logger.info("webhook: ready")


async def _follow_models(path: Path, reviewer: Reviewer, metrics: Metrics) -> None:
    """Take a changed model table into use; one that cannot be read changes nothing."""
    last: str | None = None
    while True:
        await asyncio.sleep(_MODELS_INTERVAL_S)
        try:
            text = await asyncio.to_thread(path.read_text, encoding="utf-8")
            if text == last:
                continue
            last = text
            table = ModelTable.from_yaml(text)
        except (OSError, ModelTableError) as error:
            metrics.models_rejected.inc()
            metrics.models_broken.set(1)
            logger.warning("model table %s: %s; the last good one stays", path, error)
            continue
        metrics.models_broken.set(0)
        if table != reviewer.table:
            reviewer.table = table
            logger.info("model table %s: %d models now", path, len(table.models))


async def _follow_environments(path: Path, reviewer: Reviewer, metrics: Metrics) -> None:
    """The same for the table of what software needs. Without the file it is the one that is shipped."""
    while True:
        await asyncio.sleep(_MODELS_INTERVAL_S)
        try:
            table = await asyncio.to_thread(read_environments, path)
        except (OSError, ValueError) as error:
            metrics.environments_broken.set(1)
            logger.warning("table of needs %s: %s; the last good one stays", path, error)
            continue
        metrics.environments_broken.set(0)
        if reviewer.take_environments(table):
            logger.info("table of needs %s: %d rows, %d of images", path, len(table.rows), len(table.images))


if __name__ == "__main__":
    sys.exit(main())
