"""The agent: the loop over its parts, which keeps Node, slots and files in step."""

import logging
import threading
import time
from typing import Final

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.server import GetServer, address_of, pages
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words import names

from vc_egpu_node.api.notices import Notices
from vc_egpu_node.cards import inventory
from vc_egpu_node.containers import runtime
from vc_egpu_node.containers.collector import Patience
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.metrics.other_exporter import shown
from vc_egpu_node.parts import assemble
from vc_egpu_node.settings.config import ConfigError, Settings
from vc_egpu_node.vendors.base import Vendor

log = logging.getLogger(__name__)

IDLE_S: Final = 10.0
"""The loop looks around so often even if nothing wakes it."""
GATHER_S: Final = 0.1
"""What happens together is written together."""
SWEEP_S: Final = 60.0
STUCK_S: Final = 60.0
UNFOLLOWED: Final = "the kubelet does not know the cards yet"
REPLACED: Final = "the node agent is being replaced: nothing new until the next one is there"
ARRIVAL_S: Final = 1.0
"""Pods whose gate fell before the admission layer heard of :data:`REPLACED` are bound by then."""
HANDOVER_S: Final = 4.0
"""The longest that an agent that is told to end waits for pods that were placed on its cards to start."""
SYNC_S: Final = 2.0


class Agent:
    """One node's agent: the loop over its parts. ``run`` returns after ``stop``."""

    def __init__(self, settings: Settings, api: ApiConnection, vendor: Vendor) -> None:
        self._settings = settings
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._synced_once = False
        self._beat_s = time.monotonic()
        self._bypasses = runtime.bypasses(settings.runtime_configs, vendor.facts)
        self._cdi_off = ""
        self._problem = ""
        """Why the node takes nothing, as last said on the Node."""
        self._written_s = time.monotonic()
        """When the Node last said all that is known here."""
        self._swept_s = time.monotonic()
        self._metrics = Metrics(self._view)
        self.parts = assemble(settings, api, vendor, self._metrics, self._wake)
        self._sources = self.parts.sources
        self._notices = Notices(self._sources.events, settings.node_name)
        self._shares_namespace = self._sources.hosts.shares_namespace()
        served = pages(self._metrics.registry, self.unhealthy, self.unready)
        self.web = GetServer(address_of(settings.listen), served)

    def run(self) -> None:
        """Work until :meth:`stop`."""
        for sentence in self._bypasses:
            log.warning("%s", sentence)
        self.web.start()
        self.parts.exporter.start()
        self._sources.monitor.start()
        self._sources.pods.start()
        self._sources.node.start()
        self._sources.slices.start()
        self.parts.guard.start()
        patience = Patience()
        while not self._stopping.is_set():
            self._beat_s = time.monotonic()
            self._change_limits()  # also what came while things were gathered
            wait_s = IDLE_S if self._synced_once else SYNC_S
            try:
                if self._ready_to_work():
                    wait_s = patience.wait_s(self._step(), time.monotonic(), IDLE_S)
            except (KubeError, ConfigError) as error:
                log.warning("the node was not brought up to date: %s", error)
                wait_s = patience.again_s(IDLE_S)
            except Exception:
                log.exception("a fault of ours; trying again")
            self._wake.wait(wait_s)
            self._change_limits()
            self._stopping.wait(GATHER_S)
            self._wake.clear()
        try:
            self._hand_over()
        except (KubeError, ConfigError) as error:
            log.warning("the Node does not say that this agent ends: %s", error)

    def _change_limits(self) -> None:
        """At once, before what happens together is gathered: a change is in force soon."""
        if self._synced_once:
            try:
                self.parts.guard.change_limits()
                self._sources.node.say_resizes(self.parts.guard.resizes)
            except KubeError as error:
                log.warning("the Node does not say what became of resizes: %s", error)
            except Exception:
                log.exception("a fault of ours; limits are looked at again")

    def _hand_over(self) -> None:
        """While no agent offers slots, the kubelet refuses pods and does not ask again. So before this agent
        ends, nothing new is placed here, and pods on their way still start."""
        if not self._synced_once:
            return
        self._write(self.parts.stocktaking.take(), REPLACED)
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < HANDOVER_S:
            arriving = any(
                pod.cards is not None and pod.phase == "Pending" and not pod.terminating
                for pod in self._sources.pods.views()
            )
            if passed_s >= ARRIVAL_S and not arriving:
                return
            self._wake.clear()
            self._wake.wait(GATHER_S)

    def wake(self) -> None:
        """Look again soon."""
        self._wake.set()

    def stop(self) -> None:
        """End ``run`` soon. Running containers notice nothing."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """Let go of everything, after ``run`` returned."""
        self.parts.link.stop()
        self.parts.exporter.stop()
        if self.parts.suspension is not None:
            self.parts.suspension.stop()
        if self.parts.trials is not None:
            self.parts.trials.stop()
        self.parts.guard.stop()
        self.parts.books.mps.stop()
        self._sources.close()
        self.web.stop()

    def unhealthy(self) -> str:
        """What keeps the process from working at all; empty if nothing does."""
        now_s = time.monotonic()
        for name, beat_s in (
            ("main", self._beat_s),
            ("cards", self._sources.monitor.beat_s),
            ("kubelet", self.parts.link.beat_s if self._synced_once else None),
            ("second wall", self.parts.guard.beat_s),
        ):
            if beat_s is not None and now_s - beat_s > STUCK_S:
                return f"the {name} loop has not moved for {now_s - beat_s:.0f} s"
        if self._sources.monitor.observation.reading.outdated:
            return "the driver was replaced since this process began: it has to start again"
        if self.parts.books.protection.passing:
            return f"{self.parts.books.protection.closed}; a new process tries again"
        return ""

    def unready(self) -> str:
        """What is still missing before containers can start; empty if nothing is."""
        if not self.parts.stocktaking.stock.ready:
            return "cards are not counted yet, or the API server has not been reached"
        if not self.parts.link.settled:
            return "the kubelet does not know every resource yet"
        return self._sources.known.unknown

    # --- the loop's step -------------------------------------------------------------------------

    def _ready_to_work(self) -> bool:
        """Pods, Node and cards are known; then, once, what runs already is counted."""
        if self._synced_once:
            return True
        synced = (
            self._sources.pods.synced
            and self._sources.node.reflector.synced.is_set()
            and self._sources.slices.settled()
        )
        document = self._sources.node.document()
        if not synced or self._sources.monitor.observation.scans == 0 or document is None:
            return False
        self.parts.others.remember(self.parts.offers_file.load())
        version = document["status"].get("runtime") or ""
        self._cdi_off = runtime.cdi_off(self._settings.runtime_configs, version)
        self.parts.stocktaking.take()
        self._recover()
        self.parts.books.mps.start(
            self.parts.books.grants.all, lambda: self._sources.known.policy.compute == "mps"
        )
        if self.parts.suspension is not None:
            self.parts.suspension.start()
        if self.parts.trials is not None:
            self.parts.trials.start()
        self.parts.link.start()
        self._synced_once = True
        return True

    def _recover(self) -> None:
        restored = self.parts.collector.recover()
        if restored:
            log.warning("%d running containers had no record and are counted again", restored)
        self.parts.guard.recovered()

    def _step(self) -> int:
        self._reload()
        if not self.parts.collector.recovered:
            self._recover()
        leaving = self.parts.collector.collect()
        if time.monotonic() - self._swept_s > SWEEP_S:  # here: the Node may not be written for days
            self.parts.collector.sweep()
            self._swept_s = time.monotonic()
        stock = self.parts.stocktaking.take()
        self._post_slots(stock)
        closed = self.parts.books.protection.closed if stock.needs_library else ""
        disk = self.parts.books.disk.problem()
        self._notices.event("disk", disk, "DiskNotWritable")
        unknown = self._sources.known.unknown
        unfollowed = "" if self.parts.link.follows else UNFOLLOWED
        self._write(stock, unknown or closed or self.parts.stocktaking.stock.problem or disk or unfollowed)
        self._tell(stock)
        self.parts.measuring.turn()
        return leaving

    def _write(self, stock: inventory.Inventory, problem: str) -> None:
        """Bring the Node up to date; ``problem``: why it takes nothing for now, though its cards are well."""
        node_cards = stock.node_cards
        if problem and not node_cards.problem:
            node_cards = node_cards.model_copy(update={"problem": problem[: inventory.PROBLEM_CHARS]})
        self._problem = node_cards.problem
        wanted = inventory.counters(stock, self._sources.known.table, self._sources.pods.requested())
        self._sources.node.write(
            node_cards, inventory.labels(stock.node_cards, self._sources.vendor.facts.labels), wanted
        )
        if self.parts.suspension is None:
            self._sources.node.say_suspension(None)
            self._sources.node.say_swaps(None)
        self._written_s = time.monotonic()

    def _reload(self) -> None:
        node = self._sources.node.document()
        if self._sources.known.refresh(None if node is None else node["metadata"].get("labels") or {}):
            log.info("policy now: %s", self._sources.known.policy)
            self.parts.guard.policy_changed()
        self._notices.event("policy", self._sources.known.policy_problem, "PolicyBroken")
        self._notices.event("models", self._sources.known.models_problem, "ModelTableBroken")

    def _post_slots(self, stock: inventory.Inventory) -> None:
        """Post the slots of every resource that this process ever offered or that a container holds. The
        kubelet restarts no container whose resource is not registered. Where a resource is no longer
        offered, only slots in use remain."""
        known = {plugin.resource for plugin in self.parts.link.plugins()}
        held = {promise.resource for promise in self.parts.books.allocations.all()}
        for resource in known | held | set(stock.offers):
            offer = stock.offers.get(resource, inventory.Offer())
            native = resource.startswith(names.NATIVE_PREFIX)
            per_card = 1 if native else self._sources.known.policy.slots_per_card
            used = self.parts.books.allocations.ids_in_use(resource)
            # Posted before the plugin is seen by the registration: the kubelet's first list is the true one.
            self.parts.link.plugin(resource).board.post(inventory.slots(offer, per_card, used))

    def _tell(self, stock: inventory.Inventory) -> None:
        """Events on the Node for what people must know, once each."""
        node_cards = stock.node_cards
        self._notices.event("problem", node_cards.problem, "CardsNotOffered")
        unread = self._sources.monitor.observation.reading.problem
        self._notices.event("unread", "" if node_cards.problem else unread, "CardNotRead")
        self._notices.event("isolation", self.parts.books.protection.problem, "NotIsolated")
        self._notices.event("started", self.parts.stocktaking.stock.problem, "StartedWithoutCards")
        for card in node_cards.cards:
            trouble = "" if card.healthy and card.offered else f"card {card.uuid}: {card.reason}"
            self._notices.event(
                card.uuid, "" if node_cards.problem else trouble, "CardNotOffered", "CardOffered"
            )
        self._notices.event("cdi", self._cdi_off, "CdiOff")
        self._notices.event("links", node_cards.warning, "DeviceLinksMissing")
        for number, sentence in enumerate(self._bypasses):
            self._notices.event(f"bypass{number}", sentence, "RuntimeBypass")

    def _view(self) -> View:
        observation = self._sources.monitor.observation
        unsaid_s = self.parts.suspension.unsaid_s() if self.parts.suspension is not None else 0.0
        return View(
            node=self._settings.node_name,
            observation=observation,
            node_cards=self.parts.stocktaking.stock.node_cards,
            problem=self._problem,
            behind_s=max(time.monotonic() - self._written_s, unsaid_s),
            grants=self.parts.books.grants.all(),
            uses=self._sources.hosts.uses(observation.processes, self._sources.pods.views()),
            slots={plugin.resource: plugin.board.slots for plugin in self.parts.link.plugins()},
            registrations=self.parts.link.registrations,
            bypasses=len(self._bypasses),
            policy_problem=self._sources.known.policy_problem,
            models_problem=self._sources.known.models_problem,
            isolated=self.parts.books.protection.isolation is not None
            and self._sources.known.policy.isolation != "none",
            mps_programs=sum(len(one.clients) for one in self.parts.books.mps.daemons),
            accounts=self.parts.guard.accounts,
            swaps=self.parts.suspension.totals if self.parts.suspension is not None else None,
            suspensions=self.parts.suspension.pods() if self.parts.suspension is not None else (),
            compute_s=self.parts.compute_time.seconds(),
            sees_processes=self._shares_namespace or self.parts.compute_time.seen_any,
            full=self._settings.container_metrics == "full",
            dcgm_names=shown(self._settings.dcgm_names, lambda: self.parts.exporter.answers),
            dcgm_host_label=self._settings.dcgm_host_label,
            now_s=time.time(),
        )
