"""All that a scrape shows, as of one moment."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vc_egpu.volcano.words.annotations import NodeCards

from vc_egpu_node.cards.inventory import Slot
from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.processes import Use
from vc_egpu_node.metrics.compute_time import ShareKey
from vc_egpu_node.suspension.suspender import SuspendedPod
from vc_egpu_node.swapping.totals import Totals
from vc_egpu_node.wall.wall import Account


@dataclass(frozen=True, slots=True)
class View:
    """See the module."""

    node: str
    observation: Observation
    node_cards: NodeCards
    problem: str = ""
    """Why the node takes nothing."""
    behind_s: float = 0.0
    """Since the Node last said all that the agent knows."""
    grants: Iterable[Grant] = ()
    uses: Iterable[Use] = ()
    compute_s: Mapping[ShareKey, float] = field(default_factory=dict)
    """Card time by container and card, as the driver tells of its processes."""
    sees_processes: bool = True
    """Whether the driver tells this agent of other programs' processes."""
    slots: Mapping[str, tuple[Slot, ...]] = field(default_factory=dict)
    registrations: int = 0
    bypasses: int = 0
    policy_problem: str = ""
    models_problem: str = ""
    isolated: bool = False
    """Whether new containers get the isolation library."""
    mps_programs: int = 0
    """Programs under MPS servers."""
    accounts: Iterable[Account] = ()
    """What containers with the library say of themselves; the later one behind."""
    swaps: Totals | None = None
    """What hand-overs of cards were that are taken in turns; None: this agent makes none."""
    suspensions: Iterable[SuspendedPod] = ()
    """Pods that are or were suspended; likewise."""
    full: bool = False
    """Whether all is shown that the library counts."""
    dcgm_names: bool = True
    dcgm_host_label: str = "Hostname"
    now_s: float = 0.0
    """Unix time."""

    def later_ones(self) -> "View":
        """Keep the later one of each name. A pod that was deleted with force may still hold its cards while
        its successor of the same name starts. But a series has one value."""
        grants = sorted(self.grants, key=lambda one: one.granted_at_s)
        return replace(
            self,
            grants=tuple({(one.namespace, one.pod, one.container): one for one in grants}.values()),
            accounts=tuple(
                {(one.namespace, one.pod, one.container, one.uuid): one for one in self.accounts}.values()
            ),
            suspensions=tuple({(one.namespace, one.pod): one for one in self.suspensions}.values()),
        )

    def tells(self, uuid: str) -> bool:
        """Whether it is known who runs on that card: then who does not is known to use nothing."""
        seen = self.observation
        return self.sees_processes and uuid in seen.processes and uuid not in seen.untold
