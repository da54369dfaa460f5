"""The agent: all parts put together, and the loop that keeps Node, slots and files in step."""

import logging
import threading
import time
from typing import Final

from vc_egpu.kube import ApiConnection, EventRecorder
from vc_egpu.kube.server import GetServer, address_of, pages
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words import names

from vc_egpu_node.api.node import OwnNode
from vc_egpu_node.api.notices import Notices
from vc_egpu_node.api.pods import NodePods
from vc_egpu_node.cards import inventory
from vc_egpu_node.cards.monitor import Monitor
from vc_egpu_node.cards.slots import slots
from vc_egpu_node.containers import runtime
from vc_egpu_node.containers.allocations import AllocationStore
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.containers.collect import Collector, Patience
from vc_egpu_node.containers.identity import Identity
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.containers.started import Started
from vc_egpu_node.deviceplugin.plugin import Plugin
from vc_egpu_node.deviceplugin.registration import KubeletLink
from vc_egpu_node.disk import FILES_BYTES, PAGES_BYTES, Disk
from vc_egpu_node.guard import Guard
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.kubelet.podresources import Checkpoint, PodResources
from vc_egpu_node.metrics import Metrics, View
from vc_egpu_node.offers import stocktaking
from vc_egpu_node.offers.other_plugins import CardSlices, Kept, Others
from vc_egpu_node.settings.config import ConfigError, Settings
from vc_egpu_node.settings.last_good import NodeSettings
from vc_egpu_node.suspension.world import Suspension
from vc_egpu_node.vendors.base import Vendor
from vc_egpu_node.vendors.nvidia.toolkit import Toolkit

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
"""Pods whose gate fell before anybody heard of :data:`REPLACED` are bound by then."""
HANDOVER_S: Final = 4.0
"""The longest that an agent that is told to end waits for pods that were placed on its cards to start."""
SYNC_S: Final = 2.0


class Agent:
    """One node's agent. ``run`` returns after ``stop``."""

    def __init__(self, settings: Settings, api: ApiConnection, vendor: Vendor) -> None:
        self._settings = settings
        self._api = api
        self._suspension: Suspension | None = None
        self._known = NodeSettings(settings)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._synced_once = False
        self._beat_s = time.monotonic()
        self._offers: dict[str, inventory.Offer] = {}
        self._bypasses = runtime.bypasses(settings.runtime_configs)
        self._cdi_off = ""
        self._problem = ""
        """Why the node takes nothing, as last said on the Node."""
        self._written_s = time.monotonic()
        """When the Node last said all that is known here."""
        self._swept_s = time.monotonic()
        self._build(settings, api, vendor)

    def _build(self, settings: Settings, api: ApiConnection, vendor: Vendor) -> None:
        self._events = EventRecorder(api, "vc-egpu-node", settings.node_name, qps=1.0, burst=10)
        self._notices = Notices(self._events, settings.node_name)
        self._allocations = AllocationStore(settings.state_dir / "allocations")
        self._guard = Guard(
            settings,
            policy=lambda: self._known.policy,
            observation=lambda: self._monitor.observation,
        )
        files = dict.fromkeys((settings.state_dir, settings.cdi_dir), FILES_BYTES)
        pages_room = {settings.run_dir / USAGE.name: PAGES_BYTES} if self._guard.isolation is not None else {}
        self._disk = Disk(files | pages_room, on_failure=self._wake.set)
        self._grants = GrantFolder(settings.cdi_dir, settings.state_dir / "containers", self._guard.isolation)
        self._pods = NodePods(api, settings.node_name, self._pods_changed)
        self._node = OwnNode(api, settings.node_name, self._wake.set)
        self._slices = CardSlices(api, settings.node_name, self._wake.set)
        self._toolkit = Toolkit(settings.toolkit_specs, settings.toolkit, settings.driver_device)
        self._processes = ContainerOfProcess(settings.proc_dir)
        self._metrics = Metrics(self._view)
        self._pod_resources = PodResources(settings.pod_resources_socket, observe=self._metrics.observe)
        checkpoint = Checkpoint(settings.kubelet_dir)
        self._stocktaking = self._stocktaker(checkpoint)
        self._identity = Identity(
            node=settings.node_name,
            allocations=self._allocations,
            grants=self._grants,
            pods=self._pods,
            pod_resources=self._pod_resources,
            checkpoint=checkpoint,
            toolkit=self._toolkit,
            stock=lambda: self._stocktaking.stock,
            on_change=self._wake.set,
            suspended=lambda: self._suspension.suspender.suspended() if self._suspension else frozenset(),
            closed=lambda: self._guard.closed,
            on_disk_error=self._disk.failed,
        )
        self._collector = Collector(
            allocations=self._allocations,
            grants=self._grants,
            pods=self._pods,
            pod_resources=self._pod_resources,
            checkpoint=checkpoint,
            cgroups=PodCgroups(settings.cgroup_dir),
            identity=self._identity,
        )
        self._kubelet = KubeletLink(
            settings.kubelet_dir,
            lambda resource: Plugin(resource, settings.kubelet_dir, self._identity, self._metrics.observe),
            on_change=self._wake.set,
        )
        self._monitor = Monitor(
            vendor,
            probe_interval_s=settings.probe_interval_s,
            rescan_interval_s=settings.rescan_interval_s,
            recovery_s=lambda: self._known.policy.recovery_s,
            on_change=self._wake.set,
            look_interval_s=self._guard.look_interval_s,
            on_look=self._guard.poke,
        )
        self._guard.connect(
            grants=self._grants,
            pods=self._pods,
            identity=self._identity,
            hosts=self._processes,
            events=self._events,
            metrics=self._metrics,
        )
        self._suspension = self._guard.suspension(api, self._node, lambda: self._stocktaking.stock)
        shown = pages(self._metrics.registry, self.unhealthy, self.unready)
        self.web = GetServer(address_of(settings.listen), shown)

    def _stocktaker(self, checkpoint: Checkpoint) -> stocktaking.Stocktaking:
        settings = self._settings
        self._others_before = Kept(settings.state_dir / "others.json")
        self._others = Others(self._pod_resources.holders, checkpoint.resources, self._others_before.keep)
        return stocktaking.Stocktaking(
            stocktaking.Parts(
                node_name=settings.node_name,
                known=self._known,
                node=self._node,
                pods=self._pods,
                slices=self._slices,
                grants=self._grants,
                toolkit=self._toolkit,
                others=self._others,
                started=Started(self._processes, self._events, settings.runtime_configs),
                observation=lambda: self._monitor.observation,
            )
        )

    def _pods_changed(self) -> None:
        self._wake.set()
        if self._suspension is not None:
            self._suspension.poke()

    def run(self) -> None:
        """Work until :meth:`stop`."""
        for sentence in self._bypasses:
            log.warning("%s", sentence)
        self.web.start()
        self._monitor.start()
        self._pods.start()
        self._node.start()
        self._slices.start()
        self._guard.start()
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
            log.warning("nobody could be told that this agent ends: %s", error)

    def _change_limits(self) -> None:
        """At once, before what happens together is gathered: a change is in force soon."""
        if self._synced_once:
            try:
                self._guard.change_limits()
            except Exception:
                log.exception("a fault of ours; limits are looked at again")

    def _hand_over(self) -> None:
        """While no agent offers slots the kubelet refuses pods, for good: so before this one ends, nothing
        new is placed here, and what is on its way already still starts."""
        if not self._synced_once:
            return
        self._write(self._stocktaking.take(), REPLACED)
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < HANDOVER_S:
            arriving = any(
                pod.cards is not None and pod.phase == "Pending" and not pod.terminating
                for pod in self._pods.views()
            )
            if passed_s >= ARRIVAL_S and not arriving:
                return
            self._wake.clear()
            self._wake.wait(GATHER_S)

    def stop(self) -> None:
        """End ``run`` soon. Running containers notice nothing."""
        self._stopping.set()
        self._wake.set()

    def close(self) -> None:
        """Let go of everything, after ``run`` returned."""
        self._kubelet.stop()
        if self._suspension is not None:
            self._suspension.suspender.stop()
        self._guard.stop()
        self._monitor.stop()
        self._pods.stop()
        self._node.stop()
        self._slices.stop()
        self._pod_resources.close()
        self._events.stop()
        self.web.stop()

    def unhealthy(self) -> str:
        """What keeps the process from working at all; empty if nothing does."""
        now_s = time.monotonic()
        for name, beat_s in (
            ("main", self._beat_s),
            ("cards", self._monitor.beat_s),
            ("kubelet", self._kubelet.beat_s if self._synced_once else None),
            ("second wall", self._guard.beat_s),
        ):
            if beat_s is not None and now_s - beat_s > STUCK_S:
                return f"the {name} loop has not moved for {now_s - beat_s:.0f} s"
        if self._monitor.observation.reading.outdated:
            return "the driver was replaced since this process began: it has to begin anew"
        if self._guard.passing:
            return f"{self._guard.closed}; a new process tries again"
        return ""

    def unready(self) -> str:
        """What is still missing before containers can start; empty if nothing is."""
        if not self._stocktaking.stock.ready:
            return "cards are not counted yet, or the API server has not been reached"
        if not self._kubelet.settled:
            return "the kubelet does not know every resource yet"
        return self._known.unknown

    # --- the loop's step -------------------------------------------------------------------------

    def _ready_to_work(self) -> bool:
        """Pods, Node and cards are known; then, once, what runs already is counted."""
        if self._synced_once:
            return True
        synced = self._pods.synced and self._node.reflector.synced.is_set() and self._slices.settled()
        document = self._node.document()
        if not synced or self._monitor.observation.scans == 0 or document is None:
            return False
        self._others.remember(self._others_before.load())
        version = document["status"].get("runtime") or ""
        self._cdi_off = runtime.cdi_off(self._settings.runtime_configs, version)
        self._stocktaking.take()
        self._recover()
        if self._suspension is not None:
            self._suspension.suspender.start()
        self._kubelet.start()
        self._synced_once = True
        return True

    def _recover(self) -> None:
        restored = self._collector.recover()
        if restored:
            log.warning("%d running containers had no record and are counted again", restored)
        self._guard.recovered()

    def _step(self) -> int:
        self._reload()
        if not self._collector.recovered:
            self._recover()
        leaving = self._collector.collect()
        if time.monotonic() - self._swept_s > SWEEP_S:  # here: the Node may not be written for days
            self._collector.sweep()
            self._swept_s = time.monotonic()
        stock = self._stocktaking.take()
        self._post_slots(stock)
        closed = self._guard.closed if stock.node_cards.mode == "shared" else ""
        disk = self._disk.problem()
        self._notices.event("disk", disk, "DiskNotWritable")
        unknown = self._known.unknown
        unfollowed = "" if self._kubelet.follows else UNFOLLOWED
        self._write(stock, unknown or closed or self._stocktaking.stock.problem or disk or unfollowed)
        self._tell(stock)
        return leaving

    def _write(self, stock: inventory.Inventory, problem: str) -> None:
        """Bring the Node up to date; ``problem``: why it takes nothing for now, though its cards are well."""
        node_cards = stock.node_cards
        if problem and not node_cards.problem:
            node_cards = node_cards.model_copy(update={"problem": problem[: inventory.PROBLEM_CHARS]})
        self._problem = node_cards.problem
        wanted = inventory.counters(stock, self._known.table, self._pods.requested())
        self._node.write(node_cards, inventory.labels(stock.node_cards), wanted)
        if self._suspension is None:
            self._node.say_suspension(None)
        self._written_s = time.monotonic()

    def _reload(self) -> None:
        if self._known.refresh():
            log.info("policy now: %s", self._known.policy)
            self._guard.policy_changed()
        self._notices.event("policy", self._known.policy_problem, "PolicyBroken")
        self._notices.event("models", self._known.models_problem, "ModelTableBroken")

    def _post_slots(self, stock: inventory.Inventory) -> None:
        """Slots of every resource that this process ever offered, or that somebody holds: the kubelet starts
        no container again whose resource nobody registers. Of what is offered no more only those in use."""
        known = {plugin.resource for plugin in self._kubelet.plugins()}
        held = {promise.resource for promise in self._allocations.all()}
        for resource in known | held | set(stock.offers):
            offer = stock.offers.get(resource, inventory.Offer())
            native = resource.startswith(names.NATIVE_PREFIX)
            per_card = 1 if native else self._known.policy.slots_per_card
            used = self._allocations.ids_in_use(resource)
            # Posted before the plugin is seen by the registration: the kubelet's first list is the true one.
            self._kubelet.plugin(resource).board.post(slots(offer, per_card, used))

    def _tell(self, stock: inventory.Inventory) -> None:
        """Events on the Node for what people must know, once each."""
        node_cards = stock.node_cards
        self._notices.event("problem", node_cards.problem, "CardsNotOffered")
        unread = self._monitor.observation.reading.problem
        self._notices.event("unread", "" if node_cards.problem else unread, "CardNotRead")
        self._notices.event("isolation", self._guard.problem, "NotIsolated")
        self._notices.event("started", self._stocktaking.stock.problem, "StartedWithoutCards")
        for card in node_cards.cards:
            trouble = "" if card.healthy and card.offered else f"card {card.uuid}: {card.reason}"
            self._notices.event(
                card.uuid, "" if node_cards.problem else trouble, "CardNotOffered", "CardOffered"
            )
        self._notices.event("cdi", self._cdi_off, "CdiOff")
        for number, sentence in enumerate(self._bypasses):
            self._notices.event(f"bypass{number}", sentence, "RuntimeBypass")

    def _view(self) -> View:
        observation = self._monitor.observation
        unsaid_s = self._suspension.unsaid_s() if self._suspension is not None else 0.0
        return View(
            node=self._settings.node_name,
            observation=observation,
            node_cards=self._stocktaking.stock.node_cards,
            problem=self._problem,
            behind_s=max(time.monotonic() - self._written_s, unsaid_s),
            grants=self._grants.all(),
            uses=self._processes.uses(observation.processes, self._pods.views()),
            slots={plugin.resource: plugin.board.slots for plugin in self._kubelet.plugins()},
            registrations=self._kubelet.registrations,
            bypasses=len(self._bypasses),
            policy_problem=self._known.policy_problem,
            models_problem=self._known.models_problem,
            isolated=self._guard.isolation is not None,
            accounts=self._guard.accounts,
            suspensions=self._suspension.pods() if self._suspension is not None else (),
            now_s=time.time(),
        )
