"""What goes wrong at random while users go on."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from outcomes import disturb
from stack.install import Stack

from soak.ground import Ground

ADMISSION, JOBS, WEBHOOK = "vc-egpu-admission", "vc-egpu-jobs", "vc-egpu-webhook"
_ADMISSION_WORDS: Final = ("/usr/local/bin/vc-egpu", "admission")


@dataclass(frozen=True, slots=True)
class Troubles:
    """Each lasts as long as its context, and is over soon after."""

    rng: random.Random
    ground: Ground

    @property
    def stack(self) -> Stack:
        """Ours."""
        return self.ground.stack

    def pick(self) -> tuple[str, Callable[[], AbstractContextManager[None]]]:
        """One of them, and what it is called."""
        kinds: dict[Callable[[], AbstractContextManager[None]], int] = {
            self.nothing: 6,
            self.leader_dies: 3,
            self.leader_freezes: 2,
            self.all_admission_dies: 1,
            self.jobs_leader_dies: 0 if self.ground.volcano else 2,
            self.volcano_dies: 3 if self.ground.volcano else 0,
            self.webhooks_die: 1,
            self.agent_dies: 3,
            self.agent_restarts: 1,
            self.api_server_dies: 2,
            self.api_server_hangs: 1,
            self.etcd_dies: 1,
            self.scheduler_dies: 1,
            self.controllers_die: 1,
            self.kubelet_dies: 2,
            self.containerd_dies: 1,
            self.card_falls_ill: 2,
            self.node_is_cordoned: 1,
        }
        found = self.rng.choices(list(kinds), list(kinds.values()))[0]
        return found.__name__.replace("_", " "), found

    @contextlib.contextmanager
    def nothing(self) -> Iterator[None]:
        """Nothing goes wrong."""
        yield

    # --- our own ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def leader_dies(self) -> Iterator[None]:
        """The admission controller that leads, without warning."""
        self._kill_leader(ADMISSION)
        yield

    @contextlib.contextmanager
    def leader_freezes(self) -> Iterator[None]:
        """Long enough for another to lead; then it goes on, in the belief that it leads."""
        frozen = [disturb.processes_of(node, *_ADMISSION_WORDS) for node in self.stack.cluster.nodes[:1]]
        for process in frozen:
            process.freeze()
        try:
            yield
            self._while(self.rng.choice([5, 25]))
        finally:
            for process in frozen:
                process.thaw()

    @contextlib.contextmanager
    def all_admission_dies(self) -> Iterator[None]:
        """Both at once."""
        for node in self.stack.cluster.nodes:
            disturb.processes_of(node, *_ADMISSION_WORDS).kill()
        yield

    @contextlib.contextmanager
    def jobs_leader_dies(self) -> Iterator[None]:
        """The Job controller that leads."""
        self._kill_leader(JOBS)
        yield

    @contextlib.contextmanager
    def webhooks_die(self) -> Iterator[None]:
        """All of them: for a while nothing of ours can be made."""
        for pod in disturb.own_pods(self.stack, WEBHOOK):
            disturb.kill_pod(self.stack, pod["metadata"]["name"])
        yield

    @contextlib.contextmanager
    def agent_dies(self) -> Iterator[None]:
        """One node's, and again soon after it came back."""
        node = self.rng.choice(self.stack.cluster.nodes)
        for _ in range(self.rng.randint(1, 2)):
            disturb.agent_processes(node).kill()
            self._while(self.rng.uniform(0, 3))
        yield

    @contextlib.contextmanager
    def agent_restarts(self) -> Iterator[None]:
        """Another pod of the DaemonSet."""
        disturb.restart_agent(self.stack, self.rng.choice(self.stack.cluster.nodes), timeout_s=300)
        yield

    # --- Kubernetes -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def api_server_dies(self) -> Iterator[None]:
        """For some seconds."""
        with disturb.api_server_away(self.stack):
            self._while(self.rng.uniform(1, 12))
        yield

    @contextlib.contextmanager
    def api_server_hangs(self) -> Iterator[None]:
        """It takes connections and says nothing."""
        with disturb.api_server_away(self.stack, frozen=True):
            self._while(self.rng.uniform(5, 20))
        yield

    def etcd_dies(self) -> AbstractContextManager[None]:
        """It comes back with all that was written."""
        return self._component("etcd")

    def scheduler_dies(self) -> AbstractContextManager[None]:
        """Nothing is bound."""
        return self._component("kube-scheduler")

    def controllers_die(self) -> AbstractContextManager[None]:
        """No replicas, no garbage collection."""
        return self._component("kube-controller-manager")

    @contextlib.contextmanager
    def volcano_dies(self) -> Iterator[None]:
        """Its controllers or its scheduler."""
        volcano = self.ground.volcano
        if volcano is None:
            raise RuntimeError("there is no Volcano")
        process = self.rng.choice([volcano.controllers, volcano.scheduler])
        process.kill()
        try:
            yield
            self._while(self.rng.uniform(1, 8))
        finally:
            process.start()

    @contextlib.contextmanager
    def kubelet_dies(self) -> Iterator[None]:
        """Containers go on; no pod starts or ends there."""
        node = self.rng.choice(self.stack.cluster.nodes)
        node.kill_kubelet()
        try:
            yield
            self._while(self.rng.choice([2, 20]))
        finally:
            node.start_kubelet()

    @contextlib.contextmanager
    def containerd_dies(self) -> Iterator[None]:
        """Containers go on."""
        node = self.rng.choice(self.stack.cluster.nodes)
        node.kill_containerd()
        try:
            yield
        finally:
            node.start_containerd()

    @contextlib.contextmanager
    def card_falls_ill(self) -> Iterator[None]:
        """And recovers."""
        node = self.rng.choice(self.stack.cluster.nodes)
        before = disturb.read_cards(node)
        uuid = f"GPU-{node.name}-{self.rng.randrange(4)}"
        self.stack.set_cards(node, disturb.with_fault(before, uuid))
        try:
            yield
            self._while(self.rng.uniform(2, 12))
        finally:
            self.stack.set_cards(node, before)

    @contextlib.contextmanager
    def node_is_cordoned(self) -> Iterator[None]:
        """Half the cards take nobody new."""
        node = self.rng.choice(self.stack.cluster.nodes)
        self.stack.kit.kubectl("cordon", node.name)
        try:
            yield
            self._while(5)
        finally:
            self.stack.kit.kubectl("uncordon", node.name)

    # --- how --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _component(self, name: str) -> Iterator[None]:
        part = self.stack.cluster.component(name)
        part.kill()
        try:
            self._while(self.rng.uniform(1, 8))
        finally:
            part.start()
        yield

    def _kill_leader(self, name: str) -> None:
        leader = disturb.leader(self.stack, name)
        if leader:
            disturb.kill_pod(self.stack, leader)

    def _while(self, seconds: float) -> None:
        """How long it lasts is what is tried."""
        threading.Event().wait(seconds)
