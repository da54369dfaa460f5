"""The steps (a) to (l). Each acts as a user would and raises :class:`stack.kit.StoryError` if the
cluster does not do what the step says."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from isolation.driver import PROGRAMS, FakeDriver
from stack.figures import Figures
from stack.kit import Json, Kit, StoryError, condition, phase, running
from stack.suspension import until_suspendable
from vc_egpu.kube.resources import POD_GROUPS, PODS, VOLCANO_JOBS
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu.volcano.words.names import CARDS, CONDITION_ADMITTED, JOB_NAME

from demo.screen import Screen
from demo.sharing import Sharing
from demo.spilling import Spilling
from demo.suspending import Suspending

YAML = Path(__file__).parent / "yaml"
NAMESPACE = "demo"
LIMITS_FILE = "/etc/egpu/limits.json"
ADMISSION_TIMEOUT_S = 60.0
CARD_MIB = 98304
OUT_OF_MEMORY_STATUS = 3
"""With which the test programs end."""


@dataclass(frozen=True)
class Story:
    """The cluster, the screen, and the steps in order."""

    kit: Kit
    screen: Screen
    egpu: Callable[..., str]
    """``kubectl egpu ...``; what it prints."""
    driver_of: Callable[[str], FakeDriver] | None = None
    """The fake CUDA driver of the node of that name; None: containers have neither driver nor library."""

    def tell(self) -> None:
        """All steps."""
        self.tenants()
        self.training()
        self.over_the_cap()
        self.all_or_nothing()
        self.colocation()
        self.preemption()
        self.comeback()
        self.inside()
        if self.driver_of is not None:
            self.sharing(self.driver_of)
            self.spilling()
            self.suspension()

    # --- the steps -----------------------------------------------------------------------------------

    def tenants(self) -> None:
        """(a) Two tenants with caps."""
        self.screen.step("a", "two tenants: research may hold 6 shares of h20, serving 4")
        self.kit.apply(YAML / "tenants.yaml")
        self.screen.fact("queues demo-research (cap 6) and demo-serving (cap 4) are open")

    def training(self) -> None:
        """(b) Low-priority training shares cards."""
        self.screen.step("b", "research trains: gangs of 4 and 2, low priority, 60 GiB of a card per member")
        self._submit("train-a")
        self._all_run("train-a", 4)
        self._submit("train-b")
        self._all_run("train-b", 2)
        self.screen.fact("all 4 members of train-a and both of train-b run, each on a card of its own")
        self._show()

    def over_the_cap(self) -> None:
        """(c) Fits the cap, not what is left of it."""
        self.screen.step("c", "research submits train-c, a gang of 3: below its cap of 6, nothing is left")
        self._submit("train-c")
        self.screen.fact(f"train-c waits: {self._waits('train-c', 'WaitingForQuota')}")

    def all_or_nothing(self) -> None:
        """(d) Only some members would find cards, so none starts."""
        self.screen.step("d", "serving submits render, a gang of 3 whole cards; only 2 cards are free")
        self._submit("render")
        self.screen.fact(f"render waits: {self._waits('render', 'WaitingForCards')}")
        pods = self._pods("render")
        if len(pods) != 3 or any(pod["spec"].get("nodeName") for pod in pods.values()):
            raise StoryError(f"render has {len(pods)} pods, of which some have a node")
        self.screen.fact("none of its 3 members has a node")
        self.kit.kubectl("delete", "vcjob", "render", "-n", NAMESPACE, "--wait=true")

    def colocation(self) -> None:
        """(e) High-priority inference joins training on its cards."""
        self.screen.step("e", "notebooks take the last cards; high-priority inference needs 30 GiB")
        self._submit("notebooks")
        self._all_run("notebooks", 2)
        self.screen.fact("two notebooks (a Deployment, no priority named) run on a whole card each")
        before = self._uids("train-a") | self._uids("train-b")
        self._submit("infer-a")
        self._all_run("infer-a", 1)
        shared = self._cards_of("infer-a") & (self._cards_of("train-a") | self._cards_of("train-b"))
        if not shared:
            raise StoryError("no card is shared by inference and training")
        self._unharmed(before, "train-a", "train-b")
        self.screen.fact(f"infer-a runs beside training on {', '.join(sorted(shared))}; nobody died")
        self._show()

    def preemption(self) -> None:
        """(f) Inference that needs memory evicts one gang whole, and only that one."""
        self.screen.step("f", "serving starts infer-b: 80 GiB, more than any card has left; a gang must go")
        before = self._uids("train-a") | self._uids("infer-a")
        old = self._uids("train-b")
        self._submit("infer-b")
        self._all_run("infer-b", 1)
        pods = self._pods("train-b")
        left = [name for name in running(pods) if pods[name]["metadata"]["uid"] in old]
        if left:
            raise StoryError(f"train-b should have gone as a whole, still running: {left}")
        self._unharmed(before, "train-a", "infer-a")
        self.screen.fact("train-b was evicted, both members; train-a and infer-a run on untouched")
        why = self._waits("train-b", "WaitingForCards", "WaitingForQuota")
        self.screen.fact(f"train-b waits again: {why}")
        self._show()

    def comeback(self) -> None:
        """(g) Training comes back by itself, without having used up a try."""
        self.screen.step("g", "infer-b ends; train-b comes back by itself")
        self.kit.kubectl("exec", "-n", NAMESPACE, "infer-b-worker-0", "--", "touch", "/tmp/done")
        self._all_run("train-b", 2)
        job = self.kit.api.get(VOLCANO_JOBS, "train-b", NAMESPACE)
        retries = int((job.get("status") or {}).get("retryCount") or 0)
        if retries:
            raise StoryError(f"the eviction was counted as a failed try: retryCount {retries}")
        self.screen.fact("both members of train-b run again; retryCount is 0")
        self._show()

    def inside(self) -> None:
        """(h) What each container sees of its cards."""
        self.screen.step("h", "what the containers themselves see")
        for name, document in sorted(self._pods().items()):
            if phase(document) != "Running":
                continue
            seen = self._inside(name, "EGPU_CARDS")
            granted = Cards.decode(document["metadata"]["annotations"][CARDS]).containers["main"]
            wanted = [share.model_dump(by_alias=True, exclude_none=True) for share in granted]
            if json.loads(seen) != wanted:
                raise StoryError(f"{name} sees {seen}, but was granted {wanted}")
            self.screen.plain(f"{name:<18} EGPU_CARDS={seen}")
        void = self._inside("train-a-worker-0", "NVIDIA_VISIBLE_DEVICES")
        if void != "void":
            raise StoryError(f"NVIDIA_VISIBLE_DEVICES is {void!r}, should be 'void'")
        self.screen.fact("every container reports exactly the cards it was granted")
        pod = "infer-a-worker-0"
        limits = self.kit.kubectl("exec", "-n", NAMESPACE, pod, "--", "cat", LIMITS_FILE).stdout
        if json.loads(limits)["class"] != "high":
            raise StoryError(f"{LIMITS_FILE} of {pod} says {limits}")
        self.screen.plain(f"{pod}   {LIMITS_FILE}: {json.dumps(json.loads(limits))}")
        keeper = "nothing enforces them here" if self.driver_of is None else "the library in it enforces them"
        self.screen.fact(f"its limits lie in a read-only file; {keeper}")
        if self.driver_of is not None:
            self._memory_cap("train-a-worker-0", 61440)

    def _memory_cap(self, pod: str, granted_mib: int) -> None:
        """Programs in the pod get what was granted, and not more."""
        exec_in = ("exec", "-n", NAMESPACE, pod, "--")
        said = self.kit.kubectl(*exec_in, f"{PROGRAMS}/allocate", "--style", "vllm").stdout
        told = json.loads(said)
        if told["total"] >> 20 != granted_mib or told["code"] or told["got"] != told["free"]:
            raise StoryError(f"{pod} was granted {granted_mib} MiB, a program in it says {said}")
        more_mib = granted_mib + 2
        refused = self.kit.kubectl(
            *exec_in, f"{PROGRAMS}/train", "--memory-mib", str(more_mib), "--steps", "1", check=False
        )
        if refused.returncode != OUT_OF_MEMORY_STATUS:
            said = refused.stdout + refused.stderr
            raise StoryError(f"{pod}, granted {granted_mib} MiB, asked for {more_mib}: {said}")
        self.screen.fact(
            f"a program in {pod} sees a card of {granted_mib} MiB and gets all that is free; "
            f"{more_mib} MiB are out of memory, on a card of {CARD_MIB}"
        )

    def sharing(self, driver_of: Callable[[str], FakeDriver]) -> None:
        """(i) Programs on one card: training of a single pod yields to inference.

        A gang of several pods would not be held: its other members would wait for the held one.
        """
        self.screen.step("i", "one card over time: training has it alone, inference comes, training yields")
        (card,) = self._cards_of("infer-a")
        gang = next((job for job in ("train-a", "train-b") if card in self._cards_of(job)), None)
        if gang is None:
            raise StoryError(f"no training shares card {card} with infer-a")
        members = len(self._pods(gang))
        self.kit.kubectl("delete", "vcjob", gang, "-n", NAMESPACE, "--wait=true")
        self.kit.apply((YAML / "finetune.yaml").read_text().replace("CARD", card))
        self._all_run("finetune", 1)
        self.screen.fact(f"{gang} has ended; finetune, training of a single pod, runs on {card}")
        ((pod, document),) = self._pods("finetune").items()
        before = self._uids("finetune")

        def run(name: str, *command: str) -> str:
            return str(self.kit.kubectl("exec", "-n", NAMESPACE, name, "--", *command).stdout)

        driver = driver_of(document["spec"]["nodeName"])
        share = next(one for one in self._shares("infer-a") if one.uuid == card)
        Sharing(run, self.screen, driver, card, pod, "infer-a-worker-0", share.cores / 100).tell()
        self._unharmed(before, "finetune")
        self.kit.kubectl("delete", "vcjob", "finetune", "-n", NAMESPACE, "--wait=true")
        self._submit(gang)
        self._all_run(gang, members)

    def spilling(self) -> None:
        """(j) Programs that each want the whole card."""
        self.screen.step("j", "two programs on one card that each want 96000 of its 98304 MiB")
        self.kit.kubectl("delete", "deployment", "notebooks", "-n", NAMESPACE, "--wait=true")
        self._submit("pair")
        self._all_run("pair", 2)
        shares = {name: shares_of(pod)[0] for name, pod in self._pods("pair").items()}
        (node,) = {pod["spec"]["nodeName"] for pod in self._pods("pair").values()}
        Spilling(
            self.screen, shares, CARD_MIB, lambda pod: self.kit.api.pod_log(pod, NAMESPACE),
            lambda: Figures.read(self.kit, node),
        ).tell()  # fmt: skip
        self._show()
        self.kit.kubectl("delete", "vcjob", "pair", "-n", NAMESPACE, "--wait=true")

    def suspension(self) -> None:
        """(k) Training leaves its cards by a user's wish and goes on; (l) the same for inference."""
        self.screen.step("k", "training leaves its cards for a while and goes on where it was: a user's wish")
        self._submit("tune")
        self._all_run("tune", 2)
        before = self._uids("tune")
        pods = self._pods("tune")
        (node,) = {pod["spec"]["nodeName"] for pod in pods.values()}
        tune = Suspending(
            self.screen, sorted(pods), [shares_of(pods[name])[0].uuid for name in sorted(pods)],
            lambda pod: self.kit.api.pod_log(pod, NAMESPACE), lambda: Figures.read(self.kit, node),
        )  # fmt: skip
        tune.runs()
        until_suspendable(self.kit, pods.values())
        self._egpu("suspend", "tune-worker-0", "-n", NAMESPACE)
        stopped = tune.rests(empty=True)
        self._show()
        self._egpu("resume", "tune-worker-0", "-n", NAMESPACE)
        tune.went_on(stopped)
        until_suspendable(self.kit, pods.values())
        self.screen.step("l", "inference needs a card of theirs: training is suspended, not evicted")
        self._submit("infer-c")
        self._all_run("infer-c", 1)
        (card,) = self._cards_of("infer-c")
        if card not in tune.cards:
            raise StoryError(f"infer-c is on {card}, where tune was not")
        self.screen.fact(f"infer-c runs on {card}; tune has left both of its cards, a gang goes as a whole")
        stopped = tune.rests(empty=False)
        self._show()
        self.kit.kubectl("exec", "-n", NAMESPACE, "infer-c-worker-0", "--", "touch", "/tmp/done")
        tune.went_on(stopped)
        self._unharmed(before, "tune")
        self.screen.fact("the pods are the ones they were, nothing was restarted")

    def _egpu(self, *arguments: str) -> None:
        self.screen.plain(f"$ kubectl egpu {' '.join(arguments)}")
        self.screen.plain(self.egpu(*arguments))

    # --- what the steps are made of ------------------------------------------------------------------

    def _submit(self, job: str) -> None:
        self.kit.apply(YAML / f"{job}.yaml")

    def _show(self) -> None:
        self.screen.plain(self.egpu("cards"))

    def _pods(self, job: str | None = None) -> dict[str, Json]:
        listed = self.kit.api.list(PODS, NAMESPACE, label_selector=f"{JOB_NAME}={job}" if job else None)
        return {pod["metadata"]["name"]: pod for pod in listed.items}

    def _inside(self, pod: str, variable: str) -> str:
        """A variable as the container itself sees it."""
        done = self.kit.kubectl("exec", "-n", NAMESPACE, pod, "--", "sh", "-c", f'printf %s "${variable}"')
        return str(done.stdout).strip()

    def _uids(self, job: str) -> set[str]:
        return {pod["metadata"]["uid"] for pod in self._pods(job).values()}

    def _unharmed(self, before: set[str], *jobs: str) -> None:
        pods = [pod for job in jobs for pod in self._pods(job).values()]
        now = {pod["metadata"]["uid"] for pod in pods if phase(pod) == "Running"}
        if before - now:
            raise StoryError(f"pods of {', '.join(jobs)} died: {sorted(before - now)}")

    def _all_run(self, job: str, members: int) -> None:
        def check(pods: dict[str, Json]) -> bool:
            return len(running(pods, f"{job}-")) == members

        self.kit.pods_until(
            f"{members} members of {job} run", NAMESPACE, check, timeout_s=ADMISSION_TIMEOUT_S
        )

    def _waits(self, job: str, *reasons: str) -> str:
        """The sentence with which ``job`` waits; its PodGroup must give one of these reasons."""

        def check(groups: dict[str, Json]) -> str | None:
            for name, group in groups.items():
                admitted = condition(group, CONDITION_ADMITTED)
                if name.startswith(f"{job}-") and admitted and admitted["status"] != "True":
                    return _sentence(admitted, reasons)
            return None

        return self.kit.until(
            f"{job} waits for one of {', '.join(reasons)}", POD_GROUPS, check, namespace=NAMESPACE
        )

    def _cards_of(self, job: str) -> set[str]:
        return {share.uuid for share in self._shares(job)}

    def _shares(self, job: str) -> list[CardShare]:
        return [share for pod in self._pods(job).values() for share in shares_of(pod)]


def shares_of(pod: Json) -> list[CardShare]:
    """What a pod was granted."""
    granted = Cards.decode(pod["metadata"]["annotations"][CARDS])
    return [share for shares in granted.containers.values() for share in shares]


def _sentence(admitted: Json, reasons: Sequence[str]) -> str | None:
    if admitted["reason"] not in reasons:
        return None
    return f"{admitted['reason']}: {admitted['message']}"
