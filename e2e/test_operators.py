"""Jobs of other operators, built and deployed as their projects do: they start whole, go, and come back.

Their programs are built once: ``python -m localcluster build --with training-operator`` and so on. A story
whose operator is not built is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from operators import jobs
from operators.install import NotBuiltError, Operator, install
from operators.known import JOB_SET, KUBERAY, KUEUE, TRAINER, TRAINING
from outcomes.workload import Task, job, shares
from outcomes.world import World, world
from stack.install import Stack
from stack.kit import cards_of, is_gated, is_running
from stack.shared import shared_stack
from vc_egpu.kube.resources import POD_GROUPS

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(600)]
Json = dict[str, Any]
CARDS: Final = 8
"""Of both nodes."""
NAME: Final = "train"
TIMEOUT_S: Final = 120.0


@pytest.fixture(scope="module")
def ours(worker_id: str) -> Iterator[Stack]:
    """A cluster of its own: operators bring webhooks that see all pods."""
    with shared_stack("operators", worker_id) as stack:
        yield stack


@pytest.fixture
def here(ours: Stack, request: pytest.FixtureRequest) -> Iterator[World]:
    """Their operators write pods that the level "restricted" refuses."""
    with world(ours, request.node.name) as found:
        label = "pod-security.kubernetes.io/enforce=baseline"
        found.kit.kubectl("label", "namespace", found.namespace, label, "--overwrite")
        yield found


def installed(ours: Stack, *operators: Operator) -> None:
    try:
        for operator in operators:
            install(ours, operator)
    except NotBuiltError as error:
        pytest.skip(str(error))


def of_theirs(pods: dict[str, Json]) -> dict[str, Json]:
    return {name: pod for name, pod in pods.items() if name.startswith(f"{NAME}-")}


def all_run(here: World, members: int) -> dict[str, Json]:
    """Exactly so many pods of the operator's Job run."""

    def check(pods: dict[str, Json]) -> dict[str, Json] | None:
        alive = {name: pod for name, pod in of_theirs(pods).items() if is_running(pod)}
        return alive if len(alive) == members else None

    found: dict[str, Json] = here.until(f"{members} members of it run", "", check, TIMEOUT_S)
    return found


def goes_and_comes_back(
    here: World, submit: Callable[[], None], members: int, end: Callable[[], None]
) -> list[int]:
    """The story of all of them. Returns how many cards each member has."""
    here.submit(job("full", Task(shares(), replicas=CARDS - 1), queue=here.queue))
    here.runs("full", CARDS - 1)
    submit()

    def waits(pods: dict[str, Json]) -> bool:
        theirs = of_theirs(pods)
        return len(theirs) == members and all(map(is_gated, theirs.values()))

    here.until("all of it waits, as there is one card for two", "", waits, TIMEOUT_S)
    here.delete("vcjob", "full", wait=False)
    running = all_run(here, members)
    groups = {pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in running.values()}
    assert len(groups) == 1, groups
    assert groups <= {one["metadata"]["name"] for one in here.kit.api.list(POD_GROUPS, here.namespace).items}
    first = {pod["metadata"]["uid"] for pod in running.values()}

    here.submit(job("urgent", Task(shares(), replicas=CARDS, priority="high"), queue=here.queue))
    here.runs("urgent", CARDS, TIMEOUT_S)
    assert not [name for name, pod in of_theirs(here.pods()).items() if cards_of(pod) and is_running(pod)]
    here.delete("vcjob", "urgent", wait=False)
    again = all_run(here, members)
    with_cards = {pod["metadata"]["uid"] for pod in again.values() if cards_of(pod)}
    assert not first & with_cards
    end()
    return sorted(len(cards_of(pod)) for pod in again.values())


def test_a_pytorch_job_of_the_training_operator(ours: Stack, here: World) -> None:
    installed(ours, TRAINING)
    document = jobs.pytorch_job(NAME, here.queue)
    cards = goes_and_comes_back(
        here, lambda: here.submit(document), 2, lambda: here.delete("pytorchjob", NAME)
    )
    assert cards == [1, 1]


def test_a_ray_cluster_of_kuberay(ours: Stack, here: World) -> None:
    """Its head needs no card and is a member: it waits with the workers."""
    installed(ours, KUBERAY)
    document = jobs.ray_cluster(NAME, here.queue)
    cards = goes_and_comes_back(
        here, lambda: here.submit(document), 3, lambda: here.delete("raycluster", NAME)
    )
    assert cards == [0, 1, 1]


def test_a_train_job_of_trainer(ours: Stack, here: World) -> None:
    installed(ours, JOB_SET, TRAINER)
    here.submit(jobs.training_runtime("plain", here.queue))
    document = jobs.train_job(NAME, "plain")
    cards = goes_and_comes_back(here, lambda: here.submit(document), 2, lambda: here.delete("trainjob", NAME))
    assert cards == [1, 1]


def test_a_batch_job_that_kueue_lets_go(ours: Stack, here: World) -> None:
    installed(ours, KUEUE)
    here.kit.apply(*jobs.kueues_queue(here.namespace))
    document = jobs.batch_job(NAME, here.queue)
    cards = goes_and_comes_back(here, lambda: here.submit(document), 2, lambda: here.delete("job", NAME))
    assert cards == [1, 1]
