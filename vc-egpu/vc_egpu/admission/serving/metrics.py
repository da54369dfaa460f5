"""Level-1 metrics: three pages of the leading process, at the cost of what changed since the last scrape.

``/metrics`` has the process and its queues, ``/metrics/cards`` the cards, ``/metrics/shares`` each share of a
card. A standby shows that it does not lead, and nothing else.

While somebody scrapes, cards and shares are renewed every second, on a thread of its own. A scrape then only
joins what is there.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric

from vc_egpu import __version__
from vc_egpu.admission.serving.following import NOWHERE, Following, Rest
from vc_egpu.admission.serving.foresight.budget import Rests
from vc_egpu.admission.serving.lines import card_lines, queue_lines, share_lines
from vc_egpu.admission.serving.pieces import Page
from vc_egpu.admission.view import View
from vc_egpu.core.check.recount import use_by_queue
from vc_egpu.core.measured.use import is_current
from vc_egpu.core.model.cluster import NodeName, Pod
from vc_egpu.core.model.policy import CLOCK_SKEW_S
from vc_egpu.core.model.reasons import Reason
from vc_egpu.metrics.text import text_of
from vc_egpu.metrics.vocabulary import admission as vocabulary
from vc_egpu.metrics.vocabulary.build import tell_build
from vc_egpu.report.gangs import NO_MEMBERS, GangRow, condition_of, gang_row
from vc_egpu.report.shares import shares_of

PROCESS: Final = "/metrics"
CARDS: Final = "/metrics/cards"
SHARES: Final = "/metrics/shares"

RENEW_S: Final = 1.0
ASKED_S: Final = 600.0
"""Pages that nobody has asked for so long are not renewed."""


logger = logging.getLogger(__name__)


class Level1:
    """``view`` gives the present moment, or None where this process does not lead."""

    def __init__(
        self,
        view: Callable[[], View | None],
        *,
        shares: bool = True,
        rests: Rests = lambda _timeout_s: True,
    ) -> None:
        """``rests``: see :class:`.following.Rest`."""
        self._renewed_s = self._asked_s = float("-inf")
        self._by_itself = False
        """A thread renews the pages while they are asked for."""
        self._stopping = threading.Event()
        self._view = view
        self._lock = threading.Lock()
        """Guards what is followed."""
        self._renewing = threading.Lock()
        """Guards the pieces. To renew all of them takes seconds; the page of the process does not wait."""
        self._rest, self._rest_of_process = Rest(rests), Rest(rests)
        self._following = Following(self._rest)
        self._pages = {CARDS: Page(vocabulary.CARDS)}
        if shares:
            self._pages[SHARES] = Page(vocabulary.SHARES)
        self._build = CollectorRegistry()
        tell_build(self._build, "admission", __version__)

    @property
    def paths(self) -> tuple[str, ...]:
        """Where the pages are."""
        return PROCESS, *self._pages

    def answer(self, path: str, *, gzip: bool = False) -> bytes:
        """One page as it is now."""
        if path == PROCESS:
            return self._process(self._now())
        before, self._asked_s = self._asked_s, time.monotonic()
        is_kept = self._by_itself and self._asked_s - before < ASKED_S
        if not is_kept or self._renewed_s == float("-inf"):
            self.renew()
        page = self._pages[path]
        return page.gzip() if gzip else page.plain()

    def start(self) -> None:
        """Renew cards and shares by itself from now on, while they are asked for."""
        self._by_itself = True
        threading.Thread(target=self._keep_fresh, name="metrics", daemon=True).start()

    def stop(self) -> None:
        """End that."""
        self._stopping.set()

    def renew(self) -> None:
        """Bring cards and shares up to date."""
        with self._renewing:
            view = self._now()
            if view is None:
                self._forget()
            else:
                self._renew(view)
                self._renewed_s = time.monotonic()

    def _keep_fresh(self) -> None:
        while not self._stopping.wait(RENEW_S):
            if time.monotonic() - self._asked_s < ASKED_S:
                try:
                    self.renew()
                except Exception:
                    logger.exception("the pages of cards and shares were not renewed")

    def _now(self) -> View | None:
        with self._lock:
            view = self._view()
            if view is not None:
                self._following.follow(view.snapshot)
            return view

    def _forget(self) -> None:
        """This process leads no more: nothing of that time is kept."""
        self._renewed_s = float("-inf")
        with self._lock:
            self._following = Following(self._rest)
        for page in self._pages.values():
            page.clear()

    # --- cards and shares ------------------------------------------------------------------------

    def _renew(self, view: View) -> None:
        nodes, gangs = view.snapshot.nodes, view.snapshot.gangs
        while changed := self._take_changed():
            name, pods = changed
            self._rest()
            node = nodes.get(name)
            models = {card.uuid: card.model for card in node.cards} if node is not None else {}
            rows = shares_of(pods, gangs, models)
            self._put(CARDS, name, card_lines(node, rows) if node is not None else None)
            self._put(SHARES, name, share_lines(rows) if rows else None)

    def _take_changed(self) -> tuple[NodeName, tuple[Pod, ...]] | None:
        with self._lock:
            return self._following.take_changed()

    def _put(self, path: str, name: NodeName, texts: tuple[str, ...] | None) -> None:
        page = self._pages.get(path)
        if page is None:
            return
        if texts is None:
            page.remove(name or NOWHERE)
        else:
            page.put(name or NOWHERE, texts)

    # --- the process and its queues --------------------------------------------------------------

    def _process(self, view: View | None) -> bytes:
        families = [*self._build.collect(), vocabulary.LEADER.gauges(0.0 if view is None else 1.0)]
        if view is None:
            return text_of(families)
        own = text_of([*families, *_of_leader(view), *view.figures.registry.collect()])
        used = use_by_queue(view.snapshot) if view.used is None else view.used
        return own + queue_lines(view.snapshot.queues, used, self._waiting(view), time.time()).encode()

    def _waiting(self, view: View) -> list[GangRow]:
        rows = []
        for key, said in view.verdicts.items():
            gang = view.snapshot.gangs.get(key)
            if gang is not None and said.reason is not Reason.ADMITTED:
                self._rest_of_process()
                with self._lock:
                    members = self._following.members.get(key, NO_MEMBERS)
                    rows.append(gang_row(gang, members, condition_of(said)))
        return [row for row in rows if row.waits]


def _of_leader(view: View) -> Iterable[Metric]:
    yield vocabulary.ADMITTING.gauges(float(view.admitting))
    yield vocabulary.EPOCH.gauges(view.epoch)
    yield vocabulary.HYPERNODES_WRONG.gauges(view.hypernodes_wrong)
    now_s, uses = time.time(), view.snapshot.measured.values()
    yield vocabulary.NODES_MEASURED.gauges(sum(is_current(use.at, now_s, CLOCK_SKEW_S) for use in uses))
    behind = vocabulary.MIRROR_BEHIND_SECONDS.gauges()
    for kind, seconds in sorted(view.behind_s.items()):
        behind.add_metric((kind,), seconds)
    yield behind
    for family, totals in (
        (vocabulary.OPERATIONS, {str(name): total for name, total in view.counters.items()}),
        (vocabulary.WRITES_REFUSED, view.refused),
        (vocabulary.PODS_LET_GO, view.let_go),
        (vocabulary.KUBELET_REFUSALS, view.by_kubelets),
    ):
        counted = family.counters()
        for name, total in sorted(totals.items()):
            counted.add_metric((name,), total)
        yield counted
