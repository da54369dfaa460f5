"""The way into a page of several clusters: one secret, and the user's own credentials in each of them."""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from vc_egpu.cli.sites.catalogue import Catalogue, Site
from vc_egpu.page.serving.doors import SecretDoor
from vc_egpu.page.serving.server import UnknownSiteError
from vc_egpu.page.serving.visitors import Visitor
from vc_egpu.page.sites.rounds import Rounds, SitesReport

IDLE_S: Final = 60.0
"""The copy of a cluster that nobody looks at is dropped after this time."""

Enter = Callable[[Site], Visitor]
"""Makes the user's connection to a cluster. Raises ConfigError."""


class SitesDoor(SecretDoor):
    """One user and several clusters. Each is read whole only while the user looks into it."""

    def __init__(self, catalogue: Catalogue, rounds: Rounds, enter: Enter, port: int) -> None:
        super().__init__(port)
        self.rounds = rounds
        self._sites = {site.name: site for site in catalogue.clusters}
        self._enter = enter
        self._lock = threading.Lock()
        self._visitors: dict[str, Visitor] = {}

    def visitor(self, _peer: str, _cookie: str, _headers: Mapping[str, str]) -> Visitor | None:
        """Without the name of a cluster there is none."""
        return None

    def names(self) -> list[dict[str, str]]:
        """Name, title and city of each cluster, for the switch."""
        return [{"name": site.name, "title": site.title, "city": site.city} for site in self._sites.values()]

    def report(self) -> SitesReport:
        """What all of them have now. It waits for none."""
        with self._lock:
            self._drop_idle("")
        return self.rounds.report()

    def into(self, name: str) -> Visitor:
        """The user in this cluster. Raises :class:`UnknownSiteError` and ConfigError."""
        site = self._sites.get(name)
        if site is None:
            raise UnknownSiteError("which cluster?" if not name else "there is no such cluster on this page")
        with self._lock:
            self._drop_idle(name)
            if name not in self._visitors:
                self._visitors[name] = self._enter(site)
            found = self._visitors[name]
            found.seen = time.monotonic()
            return found

    def close(self) -> None:
        """End all watches and connections."""
        self.rounds.stop()
        with self._lock:
            left, self._visitors = list(self._visitors.values()), {}
        for visitor in left:
            visitor.close()

    def _drop_idle(self, wanted: str) -> None:
        """Those not looked at; the wanted one too if its credentials were no longer good: they may be now."""
        for name, visitor in list(self._visitors.items()):
            idle = visitor.tabs == 0 and time.monotonic() - visitor.seen > IDLE_S
            if idle if name != wanted else visitor.ended == "signed-out":
                del self._visitors[name]
                threading.Thread(target=visitor.close, name=f"leave-{name}", daemon=True).start()
