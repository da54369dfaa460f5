"""``vc-egpu ui`` for several users, and what ``kubectl egpu ui`` starts for one."""

import asyncio
import functools
import logging
import sys
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urlsplit

from vc_egpu import logs
from vc_egpu.cli.sites import overview
from vc_egpu.cli.sites.catalogue import Catalogue, Site
from vc_egpu.cli.sites.overview import Overview
from vc_egpu.jobsapi.what_if.leader import Leader
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import listening
from vc_egpu.kube.signals import told_to_end
from vc_egpu.kube.wire.config import ConfigError, default_namespace
from vc_egpu.page.cluster.others import AskOthers, by_leader
from vc_egpu.page.serving import guard
from vc_egpu.page.serving.doors import LocalDoor, SecretDoor, SharedDoor
from vc_egpu.page.serving.history import History
from vc_egpu.page.serving.server import PageServer
from vc_egpu.page.serving.visitors import Visitor, Visitors, user_of
from vc_egpu.page.settings import Settings, settings_of
from vc_egpu.page.sites.door import SitesDoor
from vc_egpu.page.sites.rounds import Rounds

_WHOLE_S: Final = 15.0
"""For one request, where nothing waits for it."""

logger = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve the page to several users until SIGTERM; returns the exit status."""
    logs.begin()
    settings = settings_of(sys.argv[1:] if argv is None else argv)
    if settings.ca_file is None:
        logger.warning("no CA file: the API server's certificate must be one that this machine trusts")
    try:
        asyncio.run(_serve_shared(settings))
    except (OSError, ConfigError) as error:
        logger.error("ui: %s", error)
        return 2
    return 0


def shared(settings: Settings) -> tuple[PageServer, Visitors]:
    """The server of a page for several users. It has no rights of its own."""

    def connect(token: str) -> ApiConnection:
        return ApiConnection.with_token(
            settings.server, settings.ca_file, token, user_agent="vc-egpu-ui", pool_size=8
        )

    leader = Leader(settings.leader)
    others = functools.partial(by_leader, leader) if settings.leader else None
    visitors = Visitors(connect, most=settings.most_users, idle_s=settings.idle_s, others=others)
    address = guard.address_of(settings.public_url)
    door = SharedDoor(
        visitors,
        is_secure=address.is_secure,
        proxies=settings.proxy_cidrs,
        proxy_header=settings.proxy_header,
    )
    history = History(settings.prometheus) if settings.prometheus else None
    return PageServer(
        address, door, visitors=visitors, history=history, tls_files=settings.tls_files
    ), visitors


async def _serve_shared(settings: Settings) -> None:
    server, visitors = shared(settings)
    port = await server.start(settings.listen, settings.port)
    logger.info("ui: %s, port %d", settings.public_url, port)
    try:
        await told_to_end()
    finally:
        for visitor in visitors.all():
            visitors.forget(visitor)
        await server.stop()


def local(
    api: ApiConnection,
    namespace: str,
    *,
    port: int = 0,
    prometheus: str = "",
    others: AskOthers | None = None,
    say: Callable[[str], None],
) -> int:
    """The page for the user of this connection, on this machine alone, until interrupted.

    ``say`` gets the URL, which holds a secret. ``others`` tells what others hold. Raises
    :class:`~vc_egpu.kube.wire.errors.KubeError` where the API server does not know the user, and OSError for
    a port that is taken.
    """
    visitor = Visitor(api, user_of(api), tuple(filter(None, namespace.split(","))), others)
    asyncio.run(_serve_local(visitor, port, prometheus, say))
    return 0


async def _serve_local(visitor: Visitor, port: int, prometheus: str, say: Callable[[str], None]) -> None:
    taken = listening("127.0.0.1", port)
    port = int(taken.getsockname()[1])
    door = LocalDoor(visitor, port)
    history = History(prometheus) if prometheus and urlsplit(prometheus).hostname else None
    server = PageServer(_own_address(port), door, history=history)
    await server.start_on(taken)
    await asyncio.to_thread(visitor.live)  # the cluster is read while the user opens the link
    await _until_told(server, _link(port, door), say, visitor.close)


def _own_address(port: int) -> guard.Address:
    """Where the user of this machine alone finds the page."""
    return guard.address_of(*(f"http://{host}:{port}" for host in ("127.0.0.1", "localhost")))


def _link(port: int, door: SecretDoor) -> str:
    return f"http://127.0.0.1:{port}/?token={door.secret}"


async def _until_told(
    server: PageServer, link: str, say: Callable[[str], None], close: Callable[[], None]
) -> None:
    """Tell the user where the page is, and end it when told to."""
    say(link)
    try:
        await told_to_end()
    finally:
        await asyncio.to_thread(close)
        await server.stop()


def local_sites(
    catalogue: Catalogue,
    namespace: str,
    *,
    port: int = 0,
    within_s: float,
    say: Callable[[str], None],
) -> int:
    """The page of several clusters for the user of this machine, until interrupted. ``within_s``: later
    than that, a cluster counts as silent. ``say`` gets the URL, which holds a secret.

    Raises OSError for a port that is taken. A cluster that cannot be reached is told on the page.
    """
    asyncio.run(_serve_sites(catalogue, namespace, port, within_s, say))
    return 0


def sites_door(catalogue: Catalogue, namespace: str, port: int, within_s: float) -> SitesDoor:
    """The door, with all clusters being asked. ``namespace``: empty for that of each context."""

    def quick(site: Site) -> Overview:
        api = ApiConnection.connect(site.kubeconfig, site.context, timeout_s=within_s)
        try:
            return overview.quick(api)
        finally:
            api.close()

    def whole(site: Site) -> Overview:
        api = ApiConnection.connect(site.kubeconfig, site.context, timeout_s=_WHOLE_S)
        try:
            return overview.read(api, _place(site, namespace))
        finally:
            api.close()

    def enter(site: Site) -> Visitor:
        api = ApiConnection.connect(
            site.kubeconfig, site.context, timeout_s=_WHOLE_S, user_agent="vc-egpu-ui"
        )
        return Visitor(api, "", tuple(filter(None, _place(site, namespace).split(","))))

    return SitesDoor(catalogue, Rounds(catalogue, quick, whole, within_s).start(), enter, port)


def _place(site: Site, namespace: str) -> str:
    return namespace or default_namespace(site.kubeconfig, site.context)


async def _serve_sites(
    catalogue: Catalogue, namespace: str, port: int, within_s: float, say: Callable[[str], None]
) -> None:
    taken = listening("127.0.0.1", port)
    port = int(taken.getsockname()[1])
    door = sites_door(catalogue, namespace, port, within_s)
    server = PageServer(_own_address(port), door, sites=door)
    await server.start_on(taken)
    await _until_told(server, _link(port, door), say, door.close)
