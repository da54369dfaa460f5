"""The isolation library and all that the agent does around it, put together; or nothing, and why."""

import logging
from collections.abc import Callable
from typing import Final

from vc_egpu.kube import ApiConnection, EventRecorder
from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.api.node import OwnNode
from vc_egpu_node.api.pods import NodePods, PodView
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.identity import Identity, Stock
from vc_egpu_node.containers.processes import ContainerOfProcess
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.library import LibraryError, install
from vc_egpu_node.isolation.lifecycle import Isolation
from vc_egpu_node.isolation.live import LiveChanges
from vc_egpu_node.isolation.pages import SharedPages
from vc_egpu_node.metrics import Metrics
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.suspension.world import Parts, Suspension, away
from vc_egpu_node.wall.wall import LOOK_S, Account, SecondWall

log = logging.getLogger(__name__)

NOT_CONFIGURED: Final = (
    "no isolation library is configured (--library): containers get their cards, nothing limits them there"
)


def timings_of(policy: Policy) -> Timings:
    """The settings that go onto every control page."""
    return Timings(
        hysteresis_us=policy.hysteresis_us,
        lease_ms=policy.lease_ms,
        hang_ms=int(policy.hang_s * 1000),
        in_flight_us=policy.in_flight_us,
        low_floor_percent=policy.low_floor_percent,
        low_floor_after_ms=int(policy.low_floor_after_s * 1000),
    )


class Guard:
    """Made before the folder of grants, which needs its isolation; connected to everything else later."""

    def __init__(
        self,
        settings: Settings,
        *,
        policy: Callable[[], Policy],
        observation: Callable[[], Observation],
    ) -> None:
        self._settings = settings
        self._node = settings.node_name
        self._policy = policy
        self._observation = observation
        self._wall: SecondWall | None = None
        self._live: LiveChanges | None = None
        self._grants: GrantFolder | None = None
        self._pods: NodePods | None = None
        self._hosts: ContainerOfProcess | None = None
        self._events: EventRecorder | None = None
        self.isolation: Isolation | None = None
        """None: containers go without the library."""
        self.problem = ""
        """What is wrong with the library that is configured."""
        self.closed = ""
        """Why nobody gets a share: what would limit it cannot be used. Empty: it can, or there is none."""
        self.passing = False
        """A new process may find it usable."""
        if settings.library is None:
            log.warning("%s", NOT_CONFIGURED)
            return
        try:
            self.isolation = Isolation(
                install(settings.library, settings.state_dir / "library"),
                settings.state_dir / "containers",
                SharedPages(settings.run_dir),
                pci_bus_ids=lambda: {card.uuid: card.pci_bus_id for card in observation().reading.cards},
                timings=lambda: timings_of(policy()),
            )
        except (LibraryError, OSError) as error:
            self.problem = self.closed = (
                f"the isolation library cannot be used, so nobody gets a share: {error}"
            )
            self.passing = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
            return
        if self.isolation.library.test_build:
            self.problem = f"{settings.library} is a test build: programs can choose their own limits"

    @property
    def look_interval_s(self) -> float:
        """How often processes are to be read; 0: no more often than cards."""
        return LOOK_S if self.isolation is not None else 0.0

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What containers say of themselves."""
        return self._wall.accounts if self._wall is not None else ()

    @property
    def beat_s(self) -> float | None:
        """When the second wall last turned; None: there is none."""
        return self._wall.beat_s if self._wall is not None else None

    def connect(
        self,
        *,
        grants: GrantFolder,
        pods: NodePods,
        identity: Identity,
        hosts: ContainerOfProcess,
        events: EventRecorder,
        metrics: Metrics,
    ) -> None:
        """Everything that it works with."""
        self._events = events
        if self.isolation is None:
            return
        self._grants, self._pods, self._hosts = grants, pods, hosts
        self._live = LiveChanges(
            node=self._node,
            grants=grants,
            pods=pods,
            identity=identity,
            isolation=self.isolation,
            refuse=self._refuse,
            count=metrics.limits_changed,
        )
        self._wall = SecondWall(
            grants=grants.all,
            pods=lambda: pods.views() if pods.synced else None,
            isolation=self.isolation,
            hosts=hosts,
            observation=self._observation,
            policy=lambda: self._policy().second_wall,
            timings=lambda: timings_of(self._policy()),
            tell=self._tell,
            count=metrics.offence,
        )

    def suspension(self, api: ApiConnection, node: OwnNode, stock: Callable[[], Stock]) -> Suspension | None:
        """What suspends pods, where the settings say how; it needs the library."""
        if not self._settings.checkpoint:
            left = away(self._settings.state_dir)
            if left:
                log.error("suspended by an earlier agent, and nothing here resumes them: %s", ", ".join(left))
            return None
        parts = (self.isolation, self._wall, self._grants, self._pods, self._hosts, self._events)
        isolation, wall, grants, pods, hosts, events = parts
        if not (isolation and wall and grants and pods and hosts and events):
            log.warning("--checkpoint has no effect: pods are suspended only where the isolation library is")
            return None
        return Suspension(
            Parts(
                settings=self._settings,
                api=api,
                grants=grants,
                pods=pods,
                node=node,
                isolation=isolation,
                wall=wall,
                hosts=hosts,
                events=events,
                policy=self._policy,
                observation=self._observation,
                stock=stock,
            )
        )

    def start(self) -> None:
        """Begin to look at containers."""
        if self._wall is not None:
            self._wall.start()

    def stop(self) -> None:
        """End; pages stay as they are."""
        if self._wall is not None:
            self._wall.stop()

    def poke(self) -> None:
        """Processes were read."""
        if self._wall is not None:
            self._wall.poke()

    def recovered(self) -> None:
        """What runs here is known: pages are compared with it, versions that nobody uses go."""
        if self.isolation is not None and self._grants is not None:
            self.isolation.refresh(self._grants.all())
            self.isolation.drop_unused_versions()

    def policy_changed(self) -> None:
        """Its settings go onto the pages."""
        if self.isolation is not None and self._grants is not None:
            self.isolation.refresh(self._grants.all())

    def change_limits(self) -> None:
        """Apply what the admission layer changed for pods that run."""
        if self._live is not None:
            self._live.apply()

    def _refuse(self, pod: PodView, reason: str, text: str) -> None:
        self._tell(pod.namespace, pod.name, pod.uid, reason, text)

    def _tell(self, namespace: str, pod: str, uid: str, reason: str, text: str) -> None:
        if self._events is not None:
            about = {"apiVersion": "v1", "kind": "Pod"}
            metadata = {"namespace": namespace, "name": pod, "uid": uid}
            self._events.event({**about, "metadata": metadata}, "Warning", reason, text)
