"""Gangs that no Volcano Job makes, as Ray's, MPI's and other operators shape them, on real kubelets."""

from collections.abc import Iterator

import pytest
from outcomes import operators
from outcomes.workload import Json, shares
from outcomes.world import World
from stack.kit import cards_of, is_gated, is_running
from vc_egpu.kube.resources import CONFIG_MAPS, POD_GROUPS, PODS
from vc_egpu.volcano.names import SCHEDULER_DEFAULT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
ASK = shares(60_000, 50)
LEAST = {"cpu": "1", **{key: 2 * amount for key, amount in ASK.items()}}


@pytest.fixture
def others(here: World) -> Iterator[World]:
    yield here
    here.kit.kubectl(
        "delete", "configmaps,statefulsets", "-n", here.namespace, "-l", "gang!=", "--wait=false"
    )


def made(here: World, name: str) -> Json:
    """The operator's own object."""
    document = operators.owner(name)
    document["metadata"]["labels"] = {"gang": name}
    here.submit(document)
    return {**document, **here.kit.api.get(CONFIG_MAPS, name, here.namespace)}


def all_run(here: World, members: int) -> dict[str, Json]:
    return here.runs("", members)


def test_a_head_without_cards_and_its_workers_start_together_or_not_at_all(others: World) -> None:
    """As a RayCluster: its operator makes the pods, and counts the head to the gang."""
    here, cluster = others, made(others, "ray")
    here.submit(operators.group("ray-pg", cluster, 3, LEAST, queue=here.queue))
    here.submit(
        operators.pod("ray-head", cluster, "ray-pg", None, "headgroup"),
        operators.pod("ray-worker-a", cluster, "ray-pg", ASK, "small-group"),
    )
    here.waits("ray-head", "WaitingForMembers", "2 of 3")
    assert all(map(is_gated, here.pods().values())), "the head takes no cpu while there are no cards"
    here.submit(operators.pod("ray-worker-b", cluster, "ray-pg", ASK, "small-group"))
    running = all_run(here, 3)
    assert {len(cards_of(pod)) for pod in running.values()} == {0, 1}
    assert {pod["spec"]["schedulerName"] for pod in running.values()} == {SCHEDULER_DEFAULT}


def test_a_launcher_that_a_batch_job_makes_is_of_the_gang(others: World) -> None:
    """As an MPIJob: the operator makes the workers, Kubernetes' Job controller the launcher."""
    here, mpi = others, made(others, "mpi")
    here.submit(operators.group("mpi", mpi, 3, LEAST, queue=here.queue))
    here.submit(
        operators.pod("mpi-worker-0", mpi, "mpi", ASK, ""), operators.pod("mpi-worker-1", mpi, "mpi", ASK, "")
    )
    here.gated("mpi-worker", 2)
    here.submit(operators.batch_job("mpi-launcher", mpi, "mpi"))
    all_run(here, 3)


def test_a_leader_comes_before_its_group_and_its_workers_after(others: World) -> None:
    """As a LeaderWorkerSet: the group belongs to the leading pod, its name is known before it is there."""
    here = others
    leaders = operators.stateful_set("lws", 1, "lws-0-pg", ASK, queue=here.queue)
    leaders["metadata"]["labels"] = {"gang": "lws"}
    here.submit(leaders)
    here.gated("lws", 1)
    leader = here.kit.api.get(PODS, "lws-0", here.namespace)
    # Its maker names no queue: the pods' own counts.
    here.submit(operators.group("lws-0-pg", leader, 3, LEAST))
    here.submit(operators.stateful_set("lws-0-w", 2, "lws-0-pg", ASK, queue=here.queue, by=leader))
    running = all_run(here, 3)
    assert all(cards_of(pod) for pod in running.values())


def test_a_pod_that_came_before_the_group_of_another_stays_out_of_it(others: World) -> None:
    here = others
    intruder = operators.stateful_set("intruder", 1, "mine", ASK, queue=here.queue)
    intruder["metadata"]["labels"] = {"gang": "intruder"}
    here.submit(intruder)
    here.gated("intruder", 1)
    theirs = made(here, "theirs")
    here.submit(operators.group("mine", theirs, 1, LEAST, queue=here.queue))
    here.submit(operators.pod("member", theirs, "mine", ASK, ""))
    here.until("the member runs", "member", lambda pods: any(map(is_running, pods.values())))
    left = here.until(
        "it is told",
        "intruder",
        lambda pods: next(
            (p for p in pods.values() if "belongs to" in str(p["status"].get("conditions"))), None
        ),
    )
    assert is_gated(left)


def test_who_waits_for_the_phase_of_its_group_is_let_go_on(others: World) -> None:
    """As a PyTorchJob: no pod is made before the PodGroup has left the phase Pending."""
    here, torch = others, made(others, "torch")
    here.submit(operators.group("torch", torch, 1, LEAST, queue=here.queue))
    here.kit.until(
        "the group is enqueued",
        POD_GROUPS,
        lambda found: any((g.get("status") or {}).get("phase") == "Inqueue" for g in found.values()),
        namespace=here.namespace,
    )
    here.submit(operators.pod("torch-master-0", torch, "torch", ASK, "master"))
    all_run(here, 1)
