"""Whose this node's cards are: ours, or another device plugin's or DRA driver's. One owner per node.

Another plugin's pods run on after it has gone. A kubelet that restarts shows the plugin's resource with
nothing allocatable. Neither means that its cards are free. So the cards are not ours

1. while another plugin offers them: a resource that is allocatable, or devices in ResourceSlices;
2. while pods that were given such a resource, or hold devices of such a driver, have not ended here;
3. for a while (``takeOverAfterS``) after the last offer, since an upgrade brings the plugin back;
4. for as long as the kubelet waits for the plugin: five minutes in which its devices still are a capacity.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from vc_egpu.core.model.words import few
from vc_egpu.kube import ApiConnection, Backoff, Change, ChangeKind, Reflector, Resource
from vc_egpu.kube.resources import RESOURCE_SLICES
from vc_egpu.kube.wire.errors import KubeError, NotFound
from vc_egpu.volcano.words.node_policy import Policy
from vc_egpu.volcano.words.other_plugins import devices_of_others, matches, resources_of_others, slim_slice

from vc_egpu_node.api.pods import PodView
from vc_egpu_node.files import write_atomically
from vc_egpu_node.kubelet.podresources import Holder, PodResourcesError

log = logging.getLogger(__name__)

ASK_TIMEOUT_S: Final = 5.0
AGAIN_MOST_S: Final = 30.0
ASK_AGAIN_S: Final = 300.0
"""Whether the version that is watched is still the newest is asked so often, at most."""
LISTED_S: Final = 30.0
"""A newer version may take so long for its first list, before it is asked again."""
UNSEEN_LIMIT_S: Final = 10.0
"""So long the agent waits for the first list of ResourceSlices, where there are any."""
Json = dict[str, Any]


class OffersFile:
    """A file that tells the next agent which plugins offered this node's cards a short while ago."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._names: frozenset[str] = frozenset()
        """What the file says, as far as this agent knows."""

    def load(self) -> frozenset[str]:
        """Resources and drivers; none where the file cannot be read."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return frozenset()
        except (OSError, ValueError) as error:
            log.warning("who offered cards here before this agent is not known: %s", error)
            return frozenset()
        names = found if isinstance(found, list) and all(isinstance(one, str) for one in found) else ()
        self._names = frozenset(names)
        return self._names

    def keep(self, names: frozenset[str]) -> None:
        """Written on change; tried at each look until it is."""
        if names == self._names:
            return
        try:
            write_atomically(self.path, json.dumps(sorted(names)), flush=True)
            self._names = names
        except OSError as error:
            log.debug("who offers cards here is not kept on the node yet: %s", error)


class OtherPlugins:
    """Remembers which plugins offered this node's cards, and when. One thread calls it."""

    def __init__(
        self,
        holders: Callable[[], Iterable[Holder]],
        given: Callable[[], Mapping[str, frozenset[str]] | None],
        keep: Callable[[frozenset[str]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``holders`` asks the kubelet (:meth:`PodResources.holders`), and ``given`` reads what it wrote
        down (:meth:`Checkpoint.resources`). ``keep`` is told at each look which plugins offer cards or did a
        short while ago (:class:`OffersFile`)."""
        self._holders = holders
        self._given = given
        self._keep = keep
        self._clock = clock
        self._last_s: dict[str, float] = {}
        """Resource or driver to when it was last offered."""
        self._held: dict[str, frozenset[str]] = {}
        """Drivers of the devices that pods hold, by UID, as the kubelet said it last of each."""

    def remember(self, names: Iterable[str]) -> None:
        """Whom this node's last agent saw: it may have ended while the other plugin was being replaced."""
        self._last_s |= dict.fromkeys(names, self._clock())

    def problem(self, status: Json, pods: Iterable[PodView], slices: Iterable[Json], policy: Policy) -> str:
        """Why the node's cards are not ours, or an empty text. ``status``: capacity and allocatable of the
        (slim) Node; ``slices``: ResourceSlices of this node."""
        now_s, known = self._clock(), (*policy.foreign_resources, *policy.foreign_drivers)
        offered = self._offered(status, slices, policy)
        self._last_s |= dict.fromkeys(offered, now_s)
        patience_s = policy.take_over_after_s
        lately = frozenset(name for name, last_s in self._last_s.items() if now_s - last_s < patience_s)
        self._keep(lately)
        if offered:
            said = ", ".join(f"{name}={count}" for name, count in offered.items())
            return f"another plugin offers the same cards: {said}"
        holders = self._holding([pod for pod in pods if not pod.ended], policy)
        if holders:
            return f"pods of another plugin hold cards: {few(sorted(holders))}"
        left = set(resources_of_others(status["capacity"], policy.foreign_resources))
        gone = ", ".join(sorted(name for name in left | lately if matches(name, known)))
        return f"another plugin offered the same cards less than {patience_s:g} s ago: {gone}" if gone else ""

    def _holding(self, alive: list[PodView], policy: Policy) -> set[str]:
        """Pods that hold what others offered.

        A pod may name its node itself and ask for a resource that no plugin offers. The kubelet lets it in
        and gives it nothing, and any tenant could close any node by that. So what the kubelet wrote down
        counts, and the ask only where it does not say. The kubelet knows a claim's driver as well. Where it
        does not answer or no longer lists a pod, its last answer counts: a pod gives back its devices only
        at its end.
        """
        foreign = policy.foreign_resources
        asking = [pod for pod in alive if any(matches(name, foreign) for name in pod.asks)]
        given = self._given() if asking else None
        holding = {
            f"{pod.namespace}/{pod.name}"
            for pod in asking
            if given is None or any(matches(name, foreign) for name in given.get(pod.kubelet_uid, ()))
        }
        claiming = {pod.uid: f"{pod.namespace}/{pod.name}" for pod in alive if pod.claims}
        self._held = {uid: drivers for uid, drivers in self._held.items() if uid in claiming}
        if claiming:
            try:
                told = self._drivers()
                self._held |= {uid: told[name] for uid, name in claiming.items() if name in told}
            except PodResourcesError as error:
                log.debug("whose claims these are is not known: %s", error)
        return holding | {
            claiming[uid]
            for uid, drivers in self._held.items()
            if any(matches(driver, policy.foreign_drivers) for driver in drivers)
        }

    def _drivers(self) -> dict[str, frozenset[str]]:
        """Drivers, and resources, of what each pod holds, by namespace and name. Raises
        :class:`PodResourcesError`."""
        found: dict[str, set[str]] = {}
        for one in self._holders():
            found.setdefault(f"{one.ref.namespace}/{one.ref.pod}", set()).add(one.resource)
        return {name: frozenset(drivers) for name, drivers in found.items()}

    @staticmethod
    def _offered(status: Json, slices: Iterable[Json], policy: Policy) -> Mapping[str, int]:
        """Resource or driver to how much of it is on offer now."""
        of_nodes = devices_of_others(slices, policy.foreign_drivers).values()
        by_drivers = {driver: count for found in of_nodes for driver, count in found.items()}
        return resources_of_others(status["allocatable"], policy.foreign_resources) | by_drivers


class CardSlices:
    """The ResourceSlices of this node, watched where the cluster has any."""

    def __init__(
        self,
        api: ApiConnection,
        node: str,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        ask_again_s: float = ASK_AGAIN_S,
    ) -> None:
        self._api = api
        self._node = node
        self._on_change = on_change
        self._clock = clock
        self._ask_again_s = ask_again_s
        self._waited_for_s: float | None = None
        """Since when."""
        self._none = False
        """The cluster has said that it has none."""
        self._reflector: Reflector | None = None
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._find, name="resource-slices", daemon=True)

    def start(self) -> None:
        """Find out which version the cluster has, and begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        with self._lock:
            self._stopping.set()
            reflector = self._reflector
        if reflector is not None:
            reflector.stop()

    def settled(self) -> bool:
        """Whether they are known, as far as they can be. An agent that may not list them goes on without,
        some time after it first asked this."""
        if self._none or (self._reflector is not None and self._reflector.synced.is_set()):
            return True
        now_s = self._clock()
        self._waited_for_s = now_s if self._waited_for_s is None else self._waited_for_s
        return now_s - self._waited_for_s > UNSEEN_LIMIT_S

    def _find(self) -> None:
        """Ask until there is an answer, and now and then whether it still holds. An upgrade of the control
        plane adds versions and removes others while agents run on."""
        failed, answered = Backoff(most_s=AGAIN_MOST_S), Backoff(self._ask_again_s, self._ask_again_s)
        while not self._stopping.is_set():
            wait_s = answered.next_s()
            try:
                self._found(self._served())
                failed.reset()
            except KubeError as error:
                log.warning("which ResourceSlices this cluster has is not known: %s", error)
                wait_s = failed.next_s()
            except Exception:
                log.exception("which ResourceSlices this cluster has: a fault of ours")
            self._stopping.wait(wait_s)

    def _served(self) -> Resource | None:
        try:
            group = self._api.request("GET", f"/apis/{RESOURCE_SLICES[0].group}", timeout_s=ASK_TIMEOUT_S)
        except NotFound:
            return None
        served = {str(one.get("version")) for one in group.get("versions") or ()}
        return next((one for one in RESOURCE_SLICES if one.version in served), None)

    def _found(self, resource: Resource | None) -> None:
        """This is the newest version that is served now."""
        before = self._reflector
        if resource is None and not self._none:
            log.info("this cluster has no ResourceSlices")
            self._take(None)
        elif resource is not None and (before is None or before.resource != resource):
            fresh = Reflector(
                self._api,
                resource,
                self._changed,
                field_selector=f"spec.nodeName={self._node}",
                transform=slim_slice,
            )
            if before is None:
                self._take(fresh)
                fresh.start()
            elif fresh.start().wait_synced(LISTED_S):  # what was seen in another version counts until then
                self._take(fresh)
            else:
                fresh.stop()

    def _take(self, fresh: Reflector | None) -> None:
        with self._lock:
            before, self._none, self._reflector = self._reflector, fresh is None, fresh
            stopping = self._stopping.is_set()
        if fresh is not None and stopping:
            fresh.stop()
        if before is not None:
            before.stop()
        if fresh is None or before is not None:
            self._on_change()

    def documents(self) -> list[Json]:
        """As last seen (slim)."""
        reflector = self._reflector
        return reflector.objects() if reflector is not None else []

    def _changed(self, change: Change) -> None:
        old = change.old
        if change.kind is ChangeKind.DELETED or old is None or old["spec"] != change.object["spec"]:
            self._on_change()
