"""The isolation library as this node can use it, and what stands around running containers."""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from vc_egpu.volcano.words.node_policy import Policy

from vc_egpu_node.cards.monitor import Observation
from vc_egpu_node.containers.cdi import GrantFolder
from vc_egpu_node.containers.cgroups import ContainerGroups
from vc_egpu_node.isolation.control import Timings
from vc_egpu_node.isolation.driver_limits import DriverLimits
from vc_egpu_node.isolation.lifecycle import LIMITER, Isolation
from vc_egpu_node.isolation.limits_door import SOCKET_NAME, LimitsDoor
from vc_egpu_node.isolation.live_limits import LiveLimits
from vc_egpu_node.isolation.pages import SharedPages
from vc_egpu_node.settings.config import Settings
from vc_egpu_node.vendors.base import LibraryError, Vendor
from vc_egpu_node.wall.wall import Account, SecondWall

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


@dataclass(frozen=True, slots=True)
class Protection:
    """The isolation library as this node can use it."""

    isolation: Isolation | None = None
    """None: containers go without the library."""
    problem: str = ""
    """What is wrong with the library that is configured."""
    closed: str = ""
    """Why no pod gets a share: what would limit it cannot be used. Empty: it can, or there is none."""
    passing: bool = False
    """A new process may find the library usable."""

    def no_driver_limits(self, cards: Collection[str]) -> str:
        """Why the drivers of these cards (UUIDs) limit no container; empty: they do."""
        if self.isolation is None or self.isolation.driver is None:
            return "this agent has no means for it"
        if self.isolation.library.limiter is None:
            return f"{LIMITER} is not next to the library"
        return self.isolation.driver.trouble(cards)


def protection_of(
    settings: Settings,
    vendor: Vendor,
    *,
    policy: Callable[[], Policy],
    observation: Callable[[], Observation],
) -> Protection:
    """Install the library of the settings."""
    if settings.library is None:
        log.warning("%s", NOT_CONFIGURED)
        return Protection()
    try:
        if vendor.isolation is None:
            raise LibraryError(f"there is none for cards of {vendor.facts.name}")
        isolation = Isolation(
            vendor.isolation(settings.library, settings.state_dir / "library"),
            settings.state_dir / "containers",
            SharedPages(settings.run_dir),
            pci_bus_ids=lambda: {card.uuid: card.pci_bus_id for card in observation().reading.cards},
            timings=lambda: timings_of(policy()),
            driver=_driver_limits(settings, vendor),
        )
    except (LibraryError, OSError) as error:
        text = f"the isolation library cannot be used, so no pod gets a share: {error}"
        passing = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
        return Protection(problem=text, closed=text, passing=passing)
    test_build = f"{settings.library} is a test build: programs can choose their own limits"
    return Protection(isolation, problem=test_build if isolation.library.test_build else "")


def _driver_limits(settings: Settings, vendor: Vendor) -> DriverLimits | None:
    if vendor.memory_limits is None:
        return None
    groups = ContainerGroups(settings.proc_dir, settings.cgroup_dir)
    return DriverLimits(vendor.memory_limits, settings.state_dir / "containers", groups)


class Guard:
    """What stands around running containers: the second wall, their pages, changes of their limits. Without a
    library there is none of it, and each call does nothing."""

    def __init__(
        self,
        isolation: Isolation | None,
        grants: GrantFolder,
        wall: SecondWall | None,
        live_limits: LiveLimits | None,
    ) -> None:
        self._isolation = isolation
        self._grants = grants
        self._wall = wall
        self._live_limits = live_limits
        self._door = _door(isolation, grants)

    @property
    def accounts(self) -> tuple[Account, ...]:
        """What containers say of themselves."""
        return self._wall.accounts if self._wall is not None else ()

    @property
    def beat_s(self) -> float | None:
        """When the second wall last turned; None: there is none."""
        return self._wall.beat_s if self._wall is not None else None

    def start(self) -> None:
        """Begin to look at containers."""
        if self._wall is not None:
            self._wall.start()
        if self._door is not None:
            try:
                self._door.start()
            except OSError as error:
                log.error("containers that the driver limits do not start: %s: %s", self._door.path, error)

    def stop(self) -> None:
        """End; pages stay as they are."""
        if self._door is not None:
            self._door.stop()
        if self._wall is not None:
            self._wall.stop()

    def recovered(self) -> None:
        """What runs here is known: compare the pages with it, and remove versions that no container uses."""
        if self._isolation is not None:
            self._isolation.refresh(self._grants.all())
            if self._isolation.driver is not None:
                self._isolation.driver.recover(self._grants.all())
            self._isolation.drop_unused_versions()

    def policy_changed(self) -> None:
        """Write the policy's settings onto the pages."""
        if self._isolation is not None:
            self._isolation.refresh(self._grants.all())

    def change_limits(self) -> None:
        """Apply what the admission layer changed for pods that run."""
        if self._live_limits is not None:
            self._live_limits.apply()

    @property
    def resizes(self) -> str | None:
        """What the Node shall say about pods that are resized; None: nothing."""
        return self._live_limits.told if self._live_limits is not None else None


def _door(isolation: Isolation | None, grants: GrantFolder) -> LimitsDoor | None:
    """Where the runtime's hook asks; None: no driver limits containers here."""
    driver = isolation.driver if isolation is not None else None
    if isolation is None or driver is None:
        return None
    path = isolation.pages.root / SOCKET_NAME
    return LimitsDoor(path, lambda name, pid: driver.started(grants.get(name), pid))
