"""One test's corner of the shared cluster: a namespace, a queue, and what is submitted there."""

import contextlib
import json
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from stack.install import MODELS, Stack
from stack.kit import Json, Kit, StoryError, cards_of, condition, is_gated, is_running
from stack.verify import check_containers, check_invariants, gated_without_reason
from vc_egpu.kube.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    QUEUES,
    STATEFUL_SETS,
    VOLCANO_JOBS,
)
from vc_egpu.kube.wire.errors import KubeError, NotFound, Temporary
from vc_egpu.volcano.api.containers import statuses_of
from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.names import CONDITION_ADMITTED, GROUP_NAME, JOB_NAME

from outcomes.workload import H20_MIB

TIMEOUT_S: Final = 90.0
"""Generous: the machine may be busy. Everything waits for events, so a quiet one does not take as long."""
_CLEAN_TIMEOUT_S: Final = 120.0
_TEMPORARY: Final = re.compile(
    "context deadline exceeded|connection refused|no endpoints available|EOF|failed calling webhook|no route"
)

_ENDED: Final = re.compile(
    r"in a completed pod|container not found|is not running|not found in pod|pods \S+ not found"
)
"""What kubectl says of a container or a pod that ended before it was entered."""


@dataclass
class World:
    """What a test acts in. Names of Jobs are those of its namespace."""

    stack: Stack
    namespace: str
    queue: str
    models: Path = MODELS
    """The model table of the stack."""
    queues: list[str] = field(default_factory=list)
    lowered: list[str] = field(default_factory=list)
    """Queues whose cap the test lowered below their use."""
    over: bool = False
    """The stack is removed: there is nothing of ours left to check or to clean."""

    @property
    def kit(self) -> Kit:
        """The cluster's kit."""
        return self.stack.kit

    # --- acting ----------------------------------------------------------------------------------

    def add_queue(self, name: str, **spec: Any) -> str:
        """A queue of the test's own; without a capability it may use all cards of h20."""
        full = f"{self.namespace}-{name}" if name else self.namespace
        body = {
            "apiVersion": QUEUES.api_version,
            "kind": "Queue",
            "metadata": {"name": full},
            "spec": {"reclaimable": True, "weight": 1, "capability": capability(shares=64), **spec},
        }
        self.eventually(lambda: self.kit.apply(body))
        self.queues.append(full)
        return full

    def submit(self, *documents: Json, timeout_s: float = TIMEOUT_S) -> None:
        """``kubectl apply`` into the test's namespace; a webhook that is not reached is waited for."""
        self.eventually(lambda: self.apply(*documents), timeout_s)

    def apply(self, *documents: Json) -> str:
        """``kubectl apply`` into the test's namespace, once."""
        text = yaml.safe_dump_all(documents)
        done = self.kit.kubectl("apply", "-n", self.namespace, "-f", "-", text_in=text, check=False)
        if done.returncode != 0:
            raise StoryError(done.stderr.strip())
        return str(done.stdout) + str(done.stderr)

    def eventually(self, action: Callable[[], object], timeout_s: float = TIMEOUT_S) -> None:
        """Do it again while what fails is the way to a webhook, and nothing that we refused."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                action()
            except (StoryError, KubeError, RuntimeError) as error:
                passing = isinstance(error, Temporary) or _TEMPORARY.search(str(error))
                if not passing or time.monotonic() > deadline:
                    raise
            else:
                return

    def delete(self, kind: str, name: str, *, wait: bool = True) -> None:
        """``kubectl delete``."""
        self.kit.kubectl("delete", kind, name, "-n", self.namespace, f"--wait={str(wait).lower()}")

    def inside(self, pod: str, script: str, container: str = "main") -> str:
        """What a shell in a container prints."""
        arguments = ("exec", "-n", self.namespace, pod, "-c", container, "--", "sh", "-c", script)
        return str(self.kit.kubectl(*arguments).stdout)

    def touch(self, pod: str, file: str, *, container: str = "main") -> None:
        """Make a file at whose sight a program ends.

        The container may end first, by itself or by an earlier call. Then ``touch`` is killed with it,
        or there is nothing left to enter. Both are what the caller wanted.
        """
        arguments = ("exec", "-n", self.namespace, pod, "-c", container, "--", "touch", file)
        done = self.kit.kubectl(*arguments, check=False)
        assert done.returncode in {0, 128 + signal.SIGKILL} or _ENDED.search(done.stderr), done.stderr

    def scale(self, deployment: str, replicas: int) -> None:
        """Change a Deployment's size."""
        self.kit.kubectl("scale", "deployment", deployment, "-n", self.namespace, f"--replicas={replicas}")

    # --- looking ---------------------------------------------------------------------------------

    def pods(self, of: str = "") -> dict[str, Json]:
        """Pods of a Job, of a Deployment (label ``app``), a bare pod by name, or all; by name."""
        found = self.kit.api.list(PODS, self.namespace).items
        return _of(of, {str(pod["metadata"]["name"]): pod for pod in found})

    def uids(self, of: str) -> set[str]:
        """UIDs of its pods now."""
        return {pod["metadata"]["uid"] for pod in self.pods(of).values()}

    def restarts(self, of: str = "") -> dict[str, int]:
        """By UID: how often a pod's containers were started again."""
        return {
            pod["metadata"]["uid"]: sum(status["restartCount"] for status in statuses_of(pod["status"]))
            for pod in self.pods(of).values()
        }

    def cards(self, of: str) -> dict[str, list[str]]:
        """Cards by pod name, from the annotations."""
        return {name: cards_of(pod) for name, pod in self.pods(of).items()}

    def group_of(self, of: str) -> Json:
        """The PodGroup of its pods."""
        for pod in self.pods(of).values():
            name = (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)
            if name:
                return self.kit.api.get(POD_GROUPS, name, self.namespace)
        raise StoryError(f"{of}: no pod names a PodGroup")

    def until(
        self, what: str, of: str, check: Callable[[dict[str, Json]], Any], timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Until ``check`` of its pods returns something true."""
        return self.kit.pods_until(what, self.namespace, lambda pods: check(_of(of, pods)), timeout_s)

    def runs(self, of: str, members: int, timeout_s: float = TIMEOUT_S, *, on: str = "") -> dict[str, Json]:
        """Until exactly so many members run (on node ``on`` where it is named); returns them."""

        def check(pods: dict[str, Json]) -> dict[str, Json] | None:
            alive = {
                name: pod
                for name, pod in pods.items()
                if is_running(pod) and (not on or pod["spec"].get("nodeName") == on)
            }
            return alive if len(alive) == members else None

        try:
            found: dict[str, Json] = self.until(f"{members} members of {of} run", of, check, timeout_s)
        except StoryError as error:
            raise StoryError(f"{error}\n{self.why(of)}") from None
        return found

    def gated(self, of: str, members: int, timeout_s: float = TIMEOUT_S) -> dict[str, Json]:
        """Until it has so many pods and all of them are gated."""

        def check(pods: dict[str, Json]) -> dict[str, Json] | None:
            return pods if len(pods) == members and all(map(is_gated, pods.values())) else None

        found: dict[str, Json] = self.until(f"{members} members of {of} are gated", of, check, timeout_s)
        return found

    def gone(self, of: str, uids: set[str], timeout_s: float = TIMEOUT_S) -> None:
        """Until none of these pods is there."""
        self.until(
            f"former pods of {of} are gone",
            "",
            lambda pods: not uids & {pod["metadata"]["uid"] for pod in pods.values()},
            timeout_s,
        )

    def waits(self, of: str, reason: str, says: str = "", timeout_s: float = TIMEOUT_S) -> str:
        """Until its PodGroup waits for ``reason``, in words that match ``says``; returns the sentence."""

        def check(groups: dict[str, Json]) -> str | None:
            for group in groups.values():
                verdict = condition(group, CONDITION_ADMITTED)
                if self._belongs(group, of) and verdict is not None and verdict["reason"] == reason:
                    message = str(verdict["message"])
                    return message if re.search(says, message) else None
            return None

        try:
            return self.kit.until(
                f"{of} waits: {reason} {says}",
                POD_GROUPS,
                check,
                namespace=self.namespace,
                timeout_s=timeout_s,
            )
        except StoryError as error:
            raise StoryError(f"{error}\n{self.why(of)}") from None

    def _belongs(self, group: Json, of: str) -> bool:
        if any(owner["name"] == of for owner in group["metadata"].get("ownerReferences") or ()):
            return True
        names = {(pod["metadata"].get("annotations") or {}).get(GROUP_NAME) for pod in self.pods(of).values()}
        return group["metadata"]["name"] in names

    def why(self, of: str) -> str:
        """``kubectl egpu why``; what it said instead where it failed."""
        try:
            return self.stack.egpu("why", of, "-n", self.namespace)
        except StoryError as error:
            return str(error)

    def card_rows(self) -> dict[str, Json]:
        """``kubectl egpu cards -o json``, by UUID."""
        return {row["uuid"]: row for row in json.loads(self.stack.egpu("cards", "-o", "json"))["cards"]}

    def warnings(self, text: str) -> list[str]:
        """Events of type Warning in the namespace whose note matches."""
        items = json.loads(self.kit.kubectl("get", "events", "-n", self.namespace, "-o", "json").stdout)[
            "items"
        ]
        return [
            item["message"]
            for item in items
            if item.get("type") == "Warning" and re.search(text, item.get("message") or "")
        ]

    def reader_token(self) -> str:
        """A token of an account of the namespace that may read metrics."""
        rule = {"nonResourceURLs": ["/metrics", "/metrics/*"], "verbs": ["get"]}
        patch = json.dumps([{"op": "add", "path": "/rules/-", "value": rule}])
        self.kit.kubectl("patch", "clusterrole", self.namespace, "--type=json", "-p", patch)
        return str(self.kit.kubectl("create", "token", "default", "-n", self.namespace).stdout).strip()

    # --- the end ---------------------------------------------------------------------------------

    def check(self, *, containers: bool = True) -> None:
        """The invariants hold (a moment is given to reasons, which trail decisions), and each container of
        the namespace sees what was planned for it."""
        self._settle()
        check_invariants(self.kit, ModelTable.from_yaml(self.models.read_text()), self.lowered)
        if containers:
            check_containers(self.stack.cluster, self.kit, self.namespace)

    def _settle(self) -> None:
        def all_say_why(_: object) -> bool:
            return not gated_without_reason(self.kit)

        self.kit.until("every gated pod says why", PODS, all_say_why, timeout_s=TIMEOUT_S)

    def clean(self) -> None:
        """Remove everything of the test, and wait until nothing of it holds a card."""
        makers = (DEPLOYMENTS, STATEFUL_SETS)
        for resource in (*makers, PODS) if self.over else (VOLCANO_JOBS, *makers, PODS):
            for item in self.kit.api.list(resource, self.namespace).items:
                with contextlib.suppress(NotFound):
                    self.kit.api.delete(
                        resource, item["metadata"]["name"], self.namespace, propagation="Background"
                    )
        self.until("the test's pods are gone", "", lambda pods: not pods, _CLEAN_TIMEOUT_S)
        with contextlib.suppress(NotFound):
            self.kit.api.delete(NAMESPACES, self.namespace)
        gone = ("--ignore-not-found", "--wait=false")
        self.kit.kubectl("delete", "clusterrole,clusterrolebinding", self.namespace, *gone)
        if self.queues and not self.over:
            self.eventually(lambda: self.kit.kubectl("delete", "queues", *self.queues, *gone))


@contextlib.contextmanager
def world(stack: Stack, story: str, models: Path = MODELS) -> Iterator[World]:
    """A namespace and a queue (all cards allowed) for one test; checked and cleaned at the end."""
    slug = re.sub(r"[^a-z0-9]+", "-", story.removeprefix("test_").lower()).strip("-")[:24].strip("-")
    name = f"{slug}-{uuid.uuid4().hex[:4]}"
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
    stack.kit.api.create(NAMESPACES, body)
    found = World(stack, name, name, models)
    try:
        _let_use(found)
        found.add_queue("")
        yield found
        if not found.over:
            found.check()
    finally:
        found.clean()


def _let_use(found: World) -> None:
    """The namespace's accounts may use queues and classes: controllers ask in nobody's name."""
    rbac = "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": ["use"]},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["use"]},
    ]
    metadata = {"name": found.namespace}
    accounts = {"apiGroup": rbac, "kind": "Group", "name": f"system:serviceaccounts:{found.namespace}"}
    found.kit.apply(
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": found.namespace},
            "subjects": [accounts],
        },
    )


def capability(
    shares: int,
    *,
    memory_mib: int | None = None,
    cores: int | None = None,
    model: str = "h20",
    native: int = 0,
) -> Json:
    """A queue's cap on one model; memory and compute of so many whole cards where they are not named."""
    found: Json = {
        f"volcano.sh/vgpu-{model}": shares,
        f"volcano.sh/vgpu-{model}-memory": shares * H20_MIB if memory_mib is None else memory_mib,
        f"volcano.sh/vgpu-{model}-cores": shares * 100 if cores is None else cores,
    }
    return found | ({f"volcano.sh/gpu-{model}": native} if native else {})


def _of(name: str, pods: Mapping[str, Json]) -> dict[str, Json]:
    def belongs(key: str, pod: Json) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return name in {"", key, labels.get(JOB_NAME), labels.get("app")}

    return {key: pod for key, pod in pods.items() if belongs(key, pod)}
