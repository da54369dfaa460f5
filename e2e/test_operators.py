"""Jobs of other operators, built and deployed as their projects do: they start whole, go, and come back.

Their programs are built once: ``make toolchain-operators``. A story whose operator is not built is left out.
"""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from operators.install import NotBuiltError, Operator, install
from operators.jobs import BATCH_JOB, PYTORCH_JOB, RAY_CLUSTER, TRAIN_JOB, Kind
from operators.known import JOB_SET, KUBERAY, KUEUE, TRAINER, TRAINING
from outcomes.workload import Task, job, shares
from outcomes.world import World, capability, world
from stack.install import Stack
from stack.kit import cards_of, is_gated, is_running
from stack.shared import shared_stack
from vc_egpu.kube.resources import POD_GROUPS

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
Json = dict[str, Any]
CARDS: Final = 8
"""Of both nodes."""
TIMEOUT_S: Final = 120.0
OPERATORS: Final[dict[str, tuple[Kind, tuple[Operator, ...]]]] = {
    "training-operator": (PYTORCH_JOB, (TRAINING,)),
    "kuberay": (RAY_CLUSTER, (KUBERAY,)),
    "trainer": (TRAIN_JOB, (JOB_SET, TRAINER)),
    "kueue": (BATCH_JOB, (KUEUE,)),
}


@pytest.fixture(scope="module")
def ours(worker_id: str) -> Iterator[Stack]:
    """A cluster of its own: operators bring webhooks that see all pods."""
    with shared_stack("operators", worker_id) as stack:
        yield stack


@pytest.fixture(scope="module", params=OPERATORS)
def kind(ours: Stack, request: pytest.FixtureRequest) -> Kind:
    """A kind of work whose operator is installed."""
    found, operators = OPERATORS[request.param]
    try:
        for operator in operators:
            install(ours, operator)
    except NotBuiltError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture
def here(ours: Stack, kind: Kind, request: pytest.FixtureRequest) -> Iterator[World]:
    """Their operators write pods that the level "restricted" refuses."""
    with world(ours, request.node.name) as found:
        label = "pod-security.kubernetes.io/enforce=baseline"
        found.kit.kubectl("label", "namespace", found.namespace, label, "--overwrite")
        try:
            yield found
        finally:
            # A story that broke off leaves a maker of pods behind.
            found.kit.kubectl("delete", kind.name, "--all", "-n", found.namespace)


def prepared(here: World, kind: Kind, queue: str) -> None:
    """What the platform team makes for the queue, where the kind needs any."""
    documents = kind.before(queue)
    if documents:
        here.submit(*documents)


def members_of(pods: dict[str, Json], name: str) -> dict[str, Json]:
    return {key: pod for key, pod in pods.items() if key.startswith(f"{name}-")}


def all_run(here: World, kind: Kind, name: str) -> dict[str, Json]:
    """Until exactly as many pods run as the kind has members, each with its cards."""

    def check(pods: dict[str, Json]) -> dict[str, Json] | None:
        alive = {key: pod for key, pod in members_of(pods, name).items() if is_running(pod)}
        return alive if len(alive) == kind.members else None

    found: dict[str, Json] = here.until(f"{kind.members} members of {name} run", "", check, TIMEOUT_S)
    assert tuple(sorted(len(cards_of(pod)) for pod in found.values())) == kind.cards
    return found


def all_wait(here: World, kind: Kind, name: str) -> None:
    """Until all members are there and none is let go, a head without cards neither."""

    def waits(pods: dict[str, Json]) -> bool:
        theirs = members_of(pods, name)
        return len(theirs) == kind.members and all(map(is_gated, theirs.values()))

    here.until(f"all of {name} waits", "", waits, TIMEOUT_S)


def uids(pods: dict[str, Json], *, with_cards: bool = False) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods.values() if cards_of(pod) or not with_cards}


def test_it_starts_whole_makes_way_for_urgent_work_and_comes_back(here: World, kind: Kind) -> None:
    prepared(here, kind, here.queue)
    here.submit(job("full", Task(shares(), replicas=CARDS - 1), queue=here.queue))
    here.runs("full", CARDS - 1)
    here.submit(kind.document("train", here.queue))
    all_wait(here, kind, "train")  # there is one card for two
    here.delete("vcjob", "full", wait=False)
    running = all_run(here, kind, "train")
    groups = {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in running.values()}
    assert len(groups) == 1, groups
    assert groups <= {one["metadata"]["name"] for one in here.kit.api.list(POD_GROUPS, here.namespace).items}

    here.submit(job("urgent", Task(shares(), replicas=CARDS, priority="high"), queue=here.queue))
    here.runs("urgent", CARDS, TIMEOUT_S)
    left = members_of(here.pods(), "train").values()
    assert not [pod["metadata"]["name"] for pod in left if cards_of(pod) and is_running(pod)]
    here.delete("vcjob", "urgent", wait=False)
    again = all_run(here, kind, "train")
    assert not uids(running) & uids(again, with_cards=True)


def test_a_second_one_above_the_queues_cap_waits_with_a_reason(here: World, kind: Kind) -> None:
    """And nothing is left of both in the end."""
    queue = here.add_queue("small", capability=capability(shares=sum(kind.cards)))
    prepared(here, kind, queue)
    here.submit(kind.document("first", queue))
    first = all_run(here, kind, "first")
    here.submit(kind.document("second", queue))
    all_wait(here, kind, "second")
    sentence = here.waits("second", "WaitingForQuota", "0 of 2 left")
    said = here.why("second")
    assert sentence in " ".join(said.split()), said
    assert members_of(here.pods(), "first").keys() == first.keys(), "the first one runs on"

    here.delete(kind.name, "first")
    all_run(here, kind, "second")
    here.check()
    here.delete(kind.name, "second")
    here.until("no pod is left", "", lambda pods: not pods, TIMEOUT_S)
    here.kit.until(
        "no PodGroup is left",
        POD_GROUPS,
        lambda groups: not groups,
        namespace=here.namespace,
        timeout_s=TIMEOUT_S,
    )
