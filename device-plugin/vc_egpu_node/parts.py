"""The parts of the agent, put together from below: what it learns from, its books, what acts on both."""

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vc_egpu.kube import ApiConnection, EventRecorder
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.api.node import OwnNode
from vc_egpu_node.api.notices import PodEvents
from vc_egpu_node.api.pods import NodePods
from vc_egpu_node.cards.measuring import Measuring, host_look
from vc_egpu_node.cards.measuring import Sources as MeasuringSources
from vc_egpu_node.cards.monitor import Monitor, Observation
from vc_egpu_node.cards.trials import Trials
from vc_egpu_node.cards.use_window import PodLook
from vc_egpu_node.containers.allocations import AllocationStore
from vc_egpu_node.containers.cdi import Grant, GrantFolder
from vc_egpu_node.containers.cgroups import PodCgroups
from vc_egpu_node.containers.collector import Collector
from vc_egpu_node.containers.device_links import DeviceLinks
from vc_egpu_node.containers.identity import Identity, Stock
from vc_egpu_node.containers.owners import Owners
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.containers.start_checks import StartChecks
from vc_egpu_node.deviceplugin.plugin import Plugin
from vc_egpu_node.deviceplugin.registration import KubeletLink
from vc_egpu_node.disk import FILES_BYTES, PAGES_BYTES, Disk
from vc_egpu_node.guard import Guard, Protection, protection_of, timings_of
from vc_egpu_node.isolation.live_limits import LiveLimits
from vc_egpu_node.isolation.pages import USAGE
from vc_egpu_node.kubelet.podresources import Checkpoint, PodResources
from vc_egpu_node.metrics import Metrics
from vc_egpu_node.metrics.compute_time import ComputeTime
from vc_egpu_node.metrics.other_exporter import OtherExporter
from vc_egpu_node.mps.room import MpsRoom, without_servers
from vc_egpu_node.offers.other_plugins import CardSlices, OffersFile, OtherPlugins
from vc_egpu_node.offers.stocktaking import Parts as StockParts
from vc_egpu_node.offers.stocktaking import Stocktaking
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.settings.last_good import NodeSettings
from vc_egpu_node.suspension.world import Parts as SuspensionParts
from vc_egpu_node.suspension.world import away
from vc_egpu_node.swapping.both import Leaving
from vc_egpu_node.vendors.base import Vendor
from vc_egpu_node.vendors.slice_book import SliceBook
from vc_egpu_node.wall.wall import LOOK_S, SecondWall

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sources:
    """What the agent learns from: people, the driver, the API server, the kubelet, the host."""

    settings: Settings
    api: ApiConnection
    vendor: Vendor
    known: NodeSettings
    monitor: Monitor
    pods: NodePods
    node: OwnNode
    slices: CardSlices
    kubelet: PodResources
    checkpoint: Checkpoint
    hosts: ContainerOfProcess
    events: EventRecorder
    pod_events: PodEvents

    @classmethod
    def of(
        cls, settings: Settings, api: ApiConnection, vendor: Vendor, metrics: Metrics, wake: threading.Event
    ) -> "Sources":
        """Nothing runs yet. ``wake`` is set when something changes."""
        name = settings.node_name
        known = NodeSettings(settings)
        monitor = Monitor(
            vendor.readings,
            probe_interval_s=settings.probe_interval_s,
            rescan_interval_s=settings.rescan_interval_s,
            recovery_s=lambda: known.policy.recovery_s,
            on_change=wake.set,
        )
        events = EventRecorder(api, "vc-egpu-node", name, qps=1.0, burst=10)
        return cls(
            settings=settings,
            api=api,
            vendor=vendor,
            known=known,
            monitor=monitor,
            pods=NodePods(api, name, wake.set),
            node=OwnNode(api, name, wake.set),
            slices=CardSlices(api, name, wake.set),
            kubelet=PodResources(settings.pod_resources_socket, observe=metrics.observe),
            checkpoint=Checkpoint(settings.kubelet_dir),
            hosts=ContainerOfProcess(settings.proc_dir),
            events=events,
            pod_events=PodEvents(events),
        )

    def policy(self) -> Policy:
        """In force now."""
        return self.known.policy

    def observation(self) -> Observation:
        """The cards as last seen."""
        return self.monitor.observation

    def close(self) -> None:
        """End all that was started of it."""
        self.monitor.stop()
        self.pods.stop()
        self.node.stop()
        self.slices.stop()
        self.kubelet.close()
        self.events.stop()


@dataclass(frozen=True, slots=True)
class Books:
    """What was promised to the kubelet, and what was let in."""

    protection: Protection
    allocations: AllocationStore
    grants: GrantFolder
    slices: SliceBook | None
    """None: cards of this vendor are not cut."""
    disk: Disk
    mps: MpsRoom

    @classmethod
    def of(cls, sources: Sources, metrics: Metrics, wake: threading.Event) -> "Books":
        """As an earlier agent left them. ``wake`` is set when the disk fails."""
        settings = sources.settings
        protection = protection_of(
            settings, sources.vendor, policy=sources.policy, observation=sources.observation
        )
        slicer = sources.vendor.slicer
        slices = SliceBook(settings.state_dir / "slices", slicer) if slicer is not None else None
        folders = dict.fromkeys((settings.state_dir, settings.cdi_dir), FILES_BYTES)
        mps = MpsRoom(
            settings.run_dir,
            pods=sources.pods.views,
            hosts=sources.hosts,
            tell=sources.pod_events.warn,
            count=metrics.mps_fault,
            on_change=wake.set,
        )
        sources.monitor.heed(lambda: mps.faults)
        pages = {settings.run_dir / USAGE.name: PAGES_BYTES} if protection.isolation is not None else {}
        return cls(
            protection,
            AllocationStore(settings.state_dir / "allocations"),
            GrantFolder(
                settings.cdi_dir, settings.state_dir / "containers", protection.isolation, slices, mps
            ),
            slices,
            Disk(folders | pages, on_failure=wake.set),
            mps,
        )


@dataclass(frozen=True, slots=True)
class NodeNow:
    """See :class:`vc_egpu_node.containers.identity.Surroundings`."""

    stocktaking: Stocktaking
    books: Books
    suspension: Leaving | None
    changes: threading.Event

    @property
    def stock(self) -> Stock:
        """As last taken."""
        return self.stocktaking.stock

    @property
    def closed(self) -> str:
        """Why no shares may start."""
        return self.books.protection.closed

    def suspended(self) -> Collection[str]:
        """UIDs of pods that have left their cards."""
        return self.suspension.suspended() if self.suspension is not None else ()

    @property
    def takes_turns(self) -> bool:
        """Whether pods may have a card one after the other here."""
        return self.suspension is not None

    def wake(self) -> None:
        """Have the agent's loop look."""
        self.changes.set()

    def disk_failed(self, error: OSError) -> None:
        """Have the disk tried."""
        self.books.disk.failed(error)


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts but the loop."""

    sources: Sources
    books: Books
    others: OtherPlugins
    offers_file: OffersFile
    stocktaking: Stocktaking
    guard: Guard
    suspension: Leaving | None
    trials: Trials | None
    collector: Collector
    link: KubeletLink
    compute_time: ComputeTime
    measuring: Measuring
    exporter: OtherExporter


def assemble(
    settings: Settings, api: ApiConnection, vendor: Vendor, metrics: Metrics, wake: threading.Event
) -> Parts:
    """Each part is made of those above it. Nothing runs yet."""
    sources = Sources.of(settings, api, vendor, metrics, wake)
    books = Books.of(sources, metrics, wake)
    pods, kubelet, checkpoint = sources.pods, sources.kubelet, sources.checkpoint

    # What the node has to give.
    offers_file = OffersFile(settings.state_dir / "others.json")
    others = OtherPlugins(kubelet.holders, checkpoint.resources, offers_file.keep)
    stocktaking = _stocktaking(sources, books, others)

    # What holds running containers to what they were granted.
    compute_time = ComputeTime(
        lambda: sources.hosts.uses(sources.observation().processes, pods.views()),
        lambda: [
            (grant.namespace, grant.pod, grant.container, share.uuid)
            for grant in books.grants.all()
            for share in grant.shares
        ],
    )
    sources.monitor.read_processes(0.0, compute_time.look)
    wall = _second_wall(sources, books, metrics, compute_time)
    suspension = _suspension(sources, books, wall, stocktaking)

    # What lets containers in, changes what they have, and lets go of them.
    identity = Identity(
        settings.node_name,
        NodeNow(stocktaking, books, suspension, wake),
        allocations=books.allocations,
        grants=books.grants,
        owners=Owners(kubelet, checkpoint, pods, books.grants),
        pods=pods,
        edits=vendor.edits,
        slices=books.slices,
    )
    live_limits = _live_limits(sources, books, identity, metrics)
    collector = Collector(
        allocations=books.allocations,
        grants=books.grants,
        pods=pods,
        pod_resources=kubelet,
        checkpoint=checkpoint,
        cgroups=PodCgroups(settings.cgroup_dir),
        identity=identity,
        slices=books.slices,
    )
    return Parts(
        sources=sources,
        books=books,
        others=others,
        offers_file=offers_file,
        stocktaking=stocktaking,
        guard=Guard(books.protection.isolation, books.grants, wall, live_limits),
        suspension=suspension,
        trials=_trials(sources, stocktaking, metrics),
        collector=collector,
        link=KubeletLink(
            settings.kubelet_dir,
            lambda resource: Plugin(resource, settings.kubelet_dir, identity, metrics.observe),
            on_change=wake.set,
        ),
        compute_time=compute_time,
        measuring=_measuring(sources, books, compute_time),
        exporter=OtherExporter(settings.host_address if settings.dcgm_names == "auto" else ""),
    )


def _stocktaking(sources: Sources, books: Books, others: OtherPlugins) -> Stocktaking:
    settings = sources.settings
    return Stocktaking(
        StockParts(
            node_name=settings.node_name,
            vendor=sources.vendor,
            book=books.slices,
            known=sources.known,
            node=sources.node,
            pods=sources.pods,
            slices=sources.slices,
            grants=books.grants,
            others=others,
            start_checks=StartChecks(sources.hosts, sources.pod_events, settings.runtime_configs),
            device_links=DeviceLinks(
                settings.dev_char_dir, PodCgroups(settings.cgroup_dir), sources.vendor.facts.shared_devices
            ),
            observation=sources.observation,
            isolated=books.protection.isolation is not None,
            no_driver_limits=books.protection.no_driver_limits,
            no_mps=lambda: books.mps.trouble,
        )
    )


def _measuring(sources: Sources, books: Books, compute_time: ComputeTime) -> Measuring:
    def pods() -> Mapping[str, PodLook]:
        """Those with shares; none while the driver tells of no process of a container."""
        if not compute_time.seen_any:
            return {}
        seconds, found = compute_time.seconds(), dict[str, PodLook]()
        for grant in books.grants.all():
            before = found.get(grant.pod_uid, PodLook(0.0, 0))
            used_s = sum(
                seconds.get((grant.namespace, grant.pod, grant.container, share.uuid), 0.0)
                for share in grant.shares
            )
            found[grant.pod_uid] = PodLook(before.compute_s + used_s, before.cards + len(grant.shares))
        return found

    return Measuring(
        MeasuringSources(
            observation=sources.observation,
            pods=pods,
            host=lambda: host_look(sources.settings.proc_dir),
            say=sources.node.say_use,
            wanted=lambda: sources.policy().measured_use,
        )
    )


def _trials(sources: Sources, stocktaking: Stocktaking, metrics: Metrics) -> Trials | None:
    """Where the settings ask for them and the vendor has one."""
    interval_s, trial = sources.settings.probe_cuda_interval_s, sources.vendor.trial
    if not interval_s or trial is None:
        return None

    def cards() -> Mapping[str, bool]:
        """A card that is ill for another reason is left alone."""
        seen, stock = sources.observation(), stocktaking.stock
        return {
            card.uuid: card.offered
            and not card.held
            and not seen.processes.get(card.uuid)
            and card.uuid not in seen.untold
            and (card.uuid not in seen.ill or card.uuid in trials.faults)
            for card in (stock.node_cards.cards if stock.ready else ())
        }

    trials = Trials(trial, interval_s=interval_s, cards=cards, count=metrics.tried)
    sources.monitor.heed(lambda: trials.faults)
    return trials


def _second_wall(
    sources: Sources, books: Books, metrics: Metrics, compute_time: ComputeTime
) -> SecondWall | None:
    """It looks each time that processes were read, which is more often from then on."""
    isolation, pods = books.protection.isolation, sources.pods
    if isolation is None:
        return None
    wall = SecondWall(
        grants=books.grants.all,
        pods=lambda: pods.views() if pods.synced else None,
        isolation=isolation,
        hosts=sources.hosts,
        observation=lambda: without_servers(sources.observation(), books.mps.daemons),
        policy=lambda: sources.policy().second_wall,
        timings=lambda: timings_of(sources.policy()),
        tell=sources.pod_events.warn,
        count=metrics.offence,
    )

    def looked() -> None:
        wall.poke()
        compute_time.look()

    sources.monitor.read_processes(LOOK_S, looked)
    return wall


def _suspension(
    sources: Sources, books: Books, wall: SecondWall | None, stocktaking: Stocktaking
) -> Leaving | None:
    """Where the settings say how pods are suspended; it needs the library."""
    settings, isolation = sources.settings, books.protection.isolation
    if not settings.checkpoint:
        left = away(settings.state_dir)
        if left:
            log.error("suspended by an earlier agent, and nothing here resumes them: %s", ", ".join(left))
        return None
    if isolation is None or wall is None:
        log.warning("--checkpoint has no effect: pods are suspended only where the isolation library is")
        return None
    return Leaving(
        SuspensionParts(
            settings=settings,
            api=sources.api,
            grants=books.grants,
            pods=sources.pods,
            node=sources.node,
            isolation=isolation,
            wall=wall,
            hosts=sources.hosts,
            events=sources.pod_events,
            policy=sources.policy,
            observation=sources.observation,
            stock=lambda: stocktaking.stock,
        )
    )


def _live_limits(sources: Sources, books: Books, identity: Identity, metrics: Metrics) -> LiveLimits | None:
    isolation = books.protection.isolation
    if isolation is None:
        return None

    def used_mib(grant: Grant) -> dict[str, int]:
        """As the driver was last seen to tell."""
        uses = sources.hosts.uses(sources.observation().processes, sources.pods.views())
        place = (grant.namespace, grant.pod, grant.container)
        return {one.uuid: one.memory_mib for one in uses if (one.namespace, one.pod, one.container) == place}

    return LiveLimits(
        node=sources.settings.node_name,
        grants=books.grants,
        pods=sources.pods,
        identity=identity,
        isolation=isolation,
        tell=sources.pod_events.warn,
        count=metrics.limits_changed,
        used_mib=used_mib,
    )
