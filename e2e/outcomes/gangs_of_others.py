"""Stories of gangs that no Volcano Job makes, as Ray's, MPI's and other operators shape them."""

from functools import partial

import yaml
from stack.kit import cards_of, is_gated, is_running
from vc_egpu.kube.resources import CONFIG_MAPS, POD_GROUPS, PODS

from outcomes import operators
from outcomes.workload import Json, Task, job, shares
from outcomes.world import World

ASK = shares(60_000, 50)
LEAST = {"cpu": "1", **{key: 2 * amount for key, amount in ASK.items()}}
OWN_LABEL = "gang"
"""On what has to be deleted at the end of a story: the garbage collector takes the rest."""


def made(here: World, name: str) -> Json:
    """The operator's own object."""
    document = operators.owner(name)
    document["metadata"]["labels"] = {OWN_LABEL: name}
    here.submit(document)
    return here.kit.api.get(CONFIG_MAPS, name, here.namespace)


def clean(here: World) -> None:
    """Delete what the stories made, or its controllers would make the pods anew."""
    kinds = "configmaps,statefulsets"
    here.kit.kubectl("delete", kinds, "-n", here.namespace, "-l", OWN_LABEL, "--wait=false")


def head_and_workers(here: World) -> dict[str, Json]:
    """As a RayCluster: its operator makes the pods, and counts the head, which needs no card, to the gang."""
    cluster = made(here, "ray")
    here.submit(operators.group("ray-pg", cluster, 3, LEAST, queue=here.queue))
    here.submit(
        operators.pod("ray-head", cluster, "ray-pg", None, "headgroup"),
        operators.pod("ray-worker-a", cluster, "ray-pg", ASK, "small-group"),
    )
    here.waits("ray-head", "WaitingForMembers", "2 of 3")
    assert all(map(is_gated, here.pods().values())), "the head takes no cpu while there are no cards"
    here.submit(operators.pod("ray-worker-b", cluster, "ray-pg", ASK, "small-group"))
    running = here.runs("", 3)
    assert sorted(len(cards_of(pod)) for pod in running.values()) == [0, 1, 1]
    return running


def launcher_and_workers(here: World) -> dict[str, Json]:
    """As an MPIJob: the operator makes the workers, Kubernetes' Job controller the launcher."""
    mpi = made(here, "mpi")
    here.submit(operators.group("mpi", mpi, 3, LEAST, queue=here.queue))
    here.submit(*(operators.pod(f"mpi-worker-{i}", mpi, "mpi", ASK, "") for i in range(2)))
    here.gated("mpi-worker", 2)
    here.submit(operators.batch_job("mpi-launcher", mpi, "mpi"))
    return here.runs("", 3)


def leader_and_workers(here: World) -> dict[str, Json]:
    """As a LeaderWorkerSet: the group belongs to the leading pod, which names it before it is there."""
    leaders = operators.stateful_set("lws", 1, "lws-0-pg", ASK, queue=here.queue)
    leaders["metadata"]["labels"] = {OWN_LABEL: "lws"}
    here.submit(leaders)
    here.gated("lws", 1)
    leader = here.kit.api.get(PODS, "lws-0", here.namespace)
    # Its maker names no queue: the pods' own counts.
    here.submit(operators.group("lws-0-pg", leader, 3, LEAST))
    here.submit(operators.stateful_set("lws-0-w", 2, "lws-0-pg", ASK, queue=here.queue, by=leader))
    running = here.runs("", 3)
    assert all(cards_of(pod) for pod in running.values())
    return running


def driver_and_executors(here: World) -> dict[str, Json]:
    """As a SparkApplication: the operator makes group and driver, and the driver makes its executors.

    The operator counts the driver alone to the gang, and sums up what all of them need.
    """
    application = operators.absent_owner("sparkoperator.k8s.io/v1beta2", "SparkApplication", "pi")
    here.submit(operators.group("spark-pi-pg", application, 1, LEAST, queue=here.queue))
    here.submit(operators.pod("pi-driver", application, "spark-pi-pg", None, ""))
    here.runs("pi-driver", 1)
    _executors(here, "pi-driver", "spark-pi-pg")
    running = here.runs("", 3)
    assert sorted(len(cards_of(pod)) for pod in running.values()) == [0, 1, 1]
    return running


def driver_of_a_job_and_executors(here: World) -> dict[str, Json]:
    """As a Job whose program makes pods of its own: they are surplus of the Job's gang."""
    here.submit(job("etl", Task(ASK, name="driver"), queue=here.queue))
    (driver,) = here.runs("etl", 1)
    _executors(here, driver, str(here.group_of("etl")["metadata"]["name"]))
    return here.runs("", 3)


def _executors(here: World, driver: str, group_name: str) -> None:
    """Two pods that the driver makes, as its account, which may make pods and nothing else."""
    account, role = f"system:serviceaccount:{here.namespace}:default", "makes-pods"
    in_namespace = ("-n", here.namespace)
    here.kit.kubectl("create", "role", role, "--verb=create", "--resource=pods", *in_namespace)
    subject = f"--serviceaccount={here.namespace}:default"
    here.kit.kubectl("create", "rolebinding", role, f"--role={role}", subject, *in_namespace)
    maker = here.kit.api.get(PODS, driver, here.namespace)
    for number in (1, 2):
        executor = operators.pod(f"executor-{number}", maker, group_name, ASK, "")
        making = ("--as", account, "create", "-f", "-", *in_namespace)
        here.eventually(partial(here.kit.kubectl, *making, text_in=yaml.safe_dump(executor)))


def intruder_of_an_early_name(here: World) -> None:
    """A pod that names a PodGroup before it is there stays out of it when it is somebody else's."""
    intruder = operators.stateful_set("intruder", 1, "mine", ASK, queue=here.queue)
    intruder["metadata"]["labels"] = {OWN_LABEL: "intruder"}
    here.submit(intruder)
    here.gated("intruder", 1)
    theirs = made(here, "theirs")
    here.submit(operators.group("mine", theirs, 1, LEAST, queue=here.queue))
    here.submit(operators.pod("member", theirs, "mine", ASK, ""))
    here.until("the member runs", "member", lambda pods: any(map(is_running, pods.values())))

    def told(pods: dict[str, Json]) -> Json | None:
        return next((p for p in pods.values() if "belongs to" in str(p["status"].get("conditions"))), None)

    assert is_gated(here.until("it is told", "intruder", told))


def waits_for_the_phase(here: World) -> dict[str, Json]:
    """As a PyTorchJob: no pod is made before the PodGroup has left the phase Pending."""
    torch = made(here, "torch")
    here.submit(operators.group("torch", torch, 1, LEAST, queue=here.queue))

    def enqueued(groups: dict[str, Json]) -> bool:
        return any((group.get("status") or {}).get("phase") == "Inqueue" for group in groups.values())

    here.kit.until("the group is enqueued", POD_GROUPS, enqueued, namespace=here.namespace)
    here.submit(operators.pod("torch-master-0", torch, "torch", ASK, "master"))
    return here.runs("", 1)
