"""Plays the stories of ``manifests/examples``: each step of ``expect.yaml``, and what must be seen then."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from localcluster.api import wait_until
from stack.install import Stack
from stack.kit import Json, StoryError, cards_of, condition, is_gated, phase
from stack.suspension import until_suspendable
from vc_egpu.kube.resources import NODES, POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.volcano.words.annotations import Cards
from vc_egpu.volcano.words.names import (
    CARDS,
    CONDITION_ADMITTED,
    CONDITION_SUSPENDED,
    GROUP_NAME,
    JOB_NAME,
    TASK_SPEC,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "manifests" / "examples"
STORIES = sorted(path.parent.name for path in EXAMPLES.glob("*/expect.yaml"))
STEP_LABEL = "egpu-example/step"
TIMEOUT_S = 90.0


def expectations(story: str) -> Json:
    """Steps and what must be seen after them."""
    document: Json = yaml.safe_load((EXAMPLES / story / "expect.yaml").read_text())
    return document


def method_of(word: str) -> str:
    """Of the :class:`Player`, for a word of ``expect.yaml``: ``check_pods_exactly`` for ``podsExactly``."""
    return "check_" + re.sub(r"[A-Z]", lambda letter: f"_{letter[0].lower()}", word)


@dataclass
class Player:
    """One story on one cluster; remembers which pods there were at the end of the step before."""

    stack: Stack
    story: str
    expect: Json
    before: dict[str, set[str]] = field(default_factory=dict)
    labelled: list[tuple[str, str]] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    """By pod: the step that its program had reached when it was last looked at."""

    @property
    def namespace(self) -> str:
        return str(self.expect["namespace"])

    @property
    def folder(self) -> str:
        return str(EXAMPLES / self.story)

    def play(self) -> None:
        for place, labels in self.expect.get("nodeLabels", {}).items():
            self._label(self._node(place), labels)
        for step in self.expect["steps"]:
            self._act(step)
            for line in step["expect"]:
                ((check, arguments),) = line.items()
                getattr(self, method_of(check))(arguments)
            self.before = self._uids_by_job()

    def clean(self) -> None:
        self.stack.kit.kubectl(
            "delete", "-k", self.folder, "--ignore-not-found", "--wait=true", "--timeout=90s", check=False
        )
        for node, label in self.labelled:
            self.stack.kit.kubectl("label", "node", node, f"{label}-")
        for node, _ in self.labelled:
            self._node_offers(node, lambda names: "volcano.sh/vgpu-h20" in names)

    # --- acting ----------------------------------------------------------------------------------

    def _act(self, step: Json) -> None:
        kubectl = self.stack.kit.kubectl
        for target in step.get("delete", ()):
            kubectl("delete", target["kind"], target["name"], "-n", self.namespace, "--wait=true")
        if "scale" in step:
            name, replicas = step["scale"]["deployment"], step["scale"]["replicas"]
            kubectl("scale", "deployment", name, "-n", self.namespace, f"--replicas={replicas}")
        if "egpu" in step:
            self.stack.egpu(*step["egpu"], "-n", self.namespace)
        if not any(key in step for key in ("delete", "scale", "egpu")):
            kubectl("apply", "-k", self.folder, "-l", f"{STEP_LABEL}={step['step']}")

    def _label(self, node: str, labels: Mapping[str, str]) -> None:
        for key, value in labels.items():
            self.stack.kit.kubectl("label", "node", node, f"{key}={value}", "--overwrite")
            self.labelled.append((node, key))
        self._node_offers(node, lambda names: "volcano.sh/gpu-h20" in names)

    def _node_offers(self, node: str, check: Callable[[set[str]], bool]) -> None:
        def offers(nodes: dict[str, Json]) -> bool:
            allocatable = nodes[node]["status"].get("allocatable") or {}
            return check({name for name, amount in allocatable.items() if str(amount) != "0"})

        self.stack.kit.until(f"{node} offers what its label says", NODES, offers, timeout_s=TIMEOUT_S)

    def _node(self, place: str) -> str:
        names = sorted(node.name for node in self.stack.cluster.nodes)
        return names[-1] if place == "last" else names[0]

    # --- looking ---------------------------------------------------------------------------------

    def _pods(self, of: Mapping[str, Any], pods: dict[str, Json] | None = None) -> dict[str, Json]:
        """Pods of a Job (and task) or of a label selector."""
        if pods is None:
            pods = {p["metadata"]["name"]: p for p in self.stack.kit.api.list(PODS, self.namespace).items}
        wanted = dict(pair.split("=", 1) for pair in of["selector"].split(",")) if "selector" in of else {}
        wanted |= {JOB_NAME: of["job"]} if "job" in of else {}
        wanted |= {TASK_SPEC: of["task"]} if "task" in of else {}
        return {
            name: pod
            for name, pod in pods.items()
            if all((pod["metadata"].get("labels") or {}).get(key) == value for key, value in wanted.items())
        }

    def _some(self, of: Mapping[str, Any]) -> dict[str, Json]:
        """:meth:`_pods`, of which there has to be one: of none everything is true."""
        pods = self._pods(of)
        if not pods:
            raise StoryError(f"{self.story}: there are no pods of {of}")
        return pods

    def _until(self, what: str, of: Mapping[str, Any], check: Callable[[dict[str, Json]], bool]) -> None:
        self.stack.kit.pods_until(
            f"{self.story}: {what}", self.namespace, lambda pods: check(self._pods(of, pods)), TIMEOUT_S
        )

    def _uids_by_job(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for pod in self.stack.kit.api.list(PODS, self.namespace).items:
            job = (pod["metadata"].get("labels") or {}).get(JOB_NAME)
            if job:
                found.setdefault(job, set()).add(pod["metadata"]["uid"])
        return found

    def _cards_of(self, job: str) -> set[str]:
        return {card for pod in self._pods({"job": job}).values() for card in cards_of(pod)}

    # --- expectations: one method per word of expect.yaml ------------------------------------------

    def check_runs(self, of: Json) -> None:
        def enough(pods: dict[str, Json]) -> bool:
            alive = [p for p in pods.values() if not p["metadata"].get("deletionTimestamp")]
            return sum(phase(pod) == "Running" for pod in alive) == int(of["members"])

        self._until(f"{of['members']} members run ({of})", of, enough)

    def check_pods_exactly(self, of: Json) -> None:
        self._until(f"exactly {of['members']} pods ({of})", of, lambda pods: len(pods) == of["members"])

    def check_nothing_waits(self, _of: Json) -> None:
        """Every gang of the namespace is told that it has its place."""

        def told(groups: dict[str, Json]) -> bool:
            said = [condition(group, CONDITION_ADMITTED) or {} for group in groups.values()]
            return bool(said) and all(verdict.get("status") == "True" for verdict in said)

        self.stack.kit.until("nothing waits", POD_GROUPS, told, namespace=self.namespace, timeout_s=TIMEOUT_S)

    def check_unbound(self, of: Json) -> None:
        """All members are there, gated, and none has a node."""

        def waiting(pods: dict[str, Json]) -> bool:
            gated = [pod for pod in pods.values() if is_gated(pod)]
            return len(pods) == len(gated) == of["members"] and not any(
                p["spec"].get("nodeName") for p in gated
            )

        self._until(f"all {of['members']} wait at the gate ({of})", of, waiting)

    def check_waits(self, of: Json) -> None:
        """The PodGroup says why, every waiting pod says the same, and `kubectl egpu why` too."""

        def groups_of() -> set[str]:
            return {
                (pod["metadata"].get("annotations") or {}).get(GROUP_NAME, "")
                for pod in self._pods(of).values()
            }

        def check(groups: dict[str, Json]) -> str | None:
            wanted = groups_of()
            for name, group in groups.items():
                verdict = condition(group, CONDITION_ADMITTED)
                surplus = "members" in of  # a gang of which some run says so in its waiting pods
                waits = verdict is not None and (verdict["status"] != "True" or surplus)
                if verdict and waits and name in wanted and verdict["reason"] == of["reason"]:
                    return str(verdict["message"])
            return None

        message = self.stack.kit.until(
            f"{self.story}: waits with {of['reason']} ({of})",
            POD_GROUPS,
            check,
            namespace=self.namespace,
            timeout_s=TIMEOUT_S,
        )
        if "says" in of and not re.search(of["says"], message):
            raise StoryError(f"{self.story}: the reason should say {of['says']!r}, it says {message!r}")
        if "job" in of:
            told = json.loads(self.stack.egpu("why", of["job"], "-n", self.namespace, "-o", "json"))
            assert of["reason"] in {story["reason"] for story in told}

    def check_unharmed(self, of: Json) -> None:
        now = self._uids_by_job()
        for job in of["jobs"]:
            if now.get(job) != self.before[job]:
                raise StoryError(f"{self.story}: pods of {job} are not the ones they were")

    def check_replaced(self, of: Json) -> None:
        for job in of["jobs"]:
            old = self.before[job]
            self._until(
                f"all former pods of {job} are gone",
                {"job": job},
                lambda pods, old=old: not old & {pod["metadata"]["uid"] for pod in pods.values()},  # type: ignore[misc]
            )

    def check_distinct_cards(self, of: Json) -> None:
        cards = set().union(*(self._cards_of(job) for job in of["jobs"]))
        if len(cards) != of["cards"]:
            raise StoryError(
                f"{self.story}: {of['jobs']} should be on {of['cards']} cards, they are on {len(cards)}"
            )

    def check_share_a_card(self, of: Json) -> None:
        first, second = (self._cards_of(job) for job in of["jobs"])
        if not first & second:
            raise StoryError(f"{self.story}: {of['jobs']} share no card")

    def check_cards_per_pod(self, of: Json) -> None:
        pods = self._pods(of)
        counts = {name: len(cards_of(pod)) for name, pod in pods.items()}
        if not counts or set(counts.values()) != {of["cards"]}:
            raise StoryError(f"{self.story}: each pod should have {of['cards']} cards, they have {counts}")

    def check_on_node(self, of: Json) -> None:
        nodes = {pod["spec"].get("nodeName") for pod in self._pods(of).values()}
        if nodes != {self._node(of["node"])}:
            raise StoryError(f"{self.story}: {of['job']} runs on {nodes}, not on {self._node(of['node'])}")

    def check_inside(self, of: Json) -> None:
        """Each container reports the cards of its pod's annotation."""
        running = {name: pod for name, pod in self._some(of).items() if phase(pod) == "Running"}
        if not running:
            raise StoryError(f"{self.story}: no pod of {of} runs")
        for name, pod in running.items():
            command = ("sh", "-c", 'printf %s "$EGPU_CARDS"')
            seen = self.stack.kit.kubectl("exec", "-n", self.namespace, name, "--", *command)
            granted = Cards.decode(pod["metadata"]["annotations"][CARDS]).containers["main"]
            wanted = [share.model_dump(by_alias=True, exclude_none=True) for share in granted]
            if json.loads(seen.stdout) != wanted:
                raise StoryError(f"{self.story}: {name} sees {seen.stdout}, was granted {wanted}")

    def check_on_card(self, of: Json) -> None:
        """What each share is granted, and how much of it may lie on the card."""
        wanted = (of["memoryMiB"], of["physicalMiB"])
        for name, pod in self._some(of).items():
            granted = Cards.decode(pod["metadata"]["annotations"][CARDS]).containers["main"]
            found = {(share.memory_mib, share.on_card_mib) for share in granted}
            if found != {wanted}:
                raise StoryError(f"{self.story}: {name} was granted {found}, should be {wanted}")

    def check_says(self, of: Json) -> None:
        """Each pod's program has said such a line."""
        for name in self._some(of):

            def said(name: str = name) -> bool:
                log = self.stack.kit.api.pod_log(name, self.namespace)
                return any(re.search(of["line"], line) for line in log.splitlines())

            wait_until(f"{self.story}: {name} says {of['line']}", said, TIMEOUT_S)

    def check_suspendable(self, of: Json) -> None:
        """The members' nodes say that they can be suspended."""
        until_suspendable(self.stack.kit, self._some(of).values())

    def check_suspended(self, of: Json) -> None:
        """All members have left their cards and stand still; none is gone."""

        def away(pods: dict[str, Json]) -> bool:
            found = [condition(pod, CONDITION_SUSPENDED) for pod in pods.values()]
            return len(found) == of["members"] and all(c and c["reason"] == "Suspended" for c in found)

        self._until(f"{of['job']} is suspended", of, away)
        self.steps = {name: self._counted(name)[-1] for name in self._pods(of)}

    def check_goes_on(self, of: Json) -> None:
        """Each member counts beyond where it was: no step left out, none done twice."""
        for name in self._some(of):

            def counts(name: str = name) -> bool:
                return max(self._counted(name), default=0) > self.steps.get(name, 0)

            wait_until(f"{self.story}: {name} counts on", counts, TIMEOUT_S)
            steps = self._counted(name)
            if steps != list(range(steps[0], steps[0] * len(steps) + 1, steps[0])):
                raise StoryError(f"{self.story}: {name} did not go on where it was: {steps}")

    def _counted(self, pod: str) -> list[int]:
        log = self.stack.kit.api.pod_log(pod, self.namespace)
        return [int(number) for number in re.findall(r"^step (\d+)$", log, re.MULTILINE)]

    def check_retry_count(self, of: Json) -> None:
        job = self.stack.kit.api.get(VOLCANO_JOBS, of["job"], self.namespace)
        found = int((job.get("status") or {}).get("retryCount") or 0)
        if found != of["count"]:
            raise StoryError(f"{self.story}: retryCount of {of['job']} is {found}, should be {of['count']}")
