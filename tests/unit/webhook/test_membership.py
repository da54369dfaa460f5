"""Pods of gangs that other operators make: Ray clusters, MPI jobs, leaders and their workers."""

from dataclasses import replace

import pytest
from unit.webhook.pod_reviews import GROUP, QUEUE, complete, refusal, waits
from unit.webhook.world import NAMESPACE, Ignorant, Json, Rbac, container, context, create, pod
from vc_egpu.webhook.protocol.context import Context
from vc_egpu.webhook.protocol.questions import MakerLookup, Subject, Unanswered
from vc_egpu.webhook.reviews.pods import review_pod

OPERATOR = Subject("system:serviceaccount:ray:operator")
JOBS = Subject("system:serviceaccount:kube-system:job-controller")
SETS = Subject("system:serviceaccount:kube-system:statefulset-controller")
LEAVE = "system:serviceaccount:team-a:default use queues a"
UNSEEN = "egpu.volcano.sh/group-unseen"


def ref(kind: str, uid: str, api_version: str = "ray.io/v1", name: str = "x") -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": True}


def group(owner: Json | None, queue: str = "a", *, asks: bool = True) -> Json:
    resources: Json = {
        "cpu": "8",
        **({"volcano.sh/vgpu-h20": "4", "volcano.sh/vgpu-memory": "1k"} if asks else {}),
    }
    return {
        "metadata": {"name": "g", "namespace": NAMESPACE, "ownerReferences": [owner] if owner else []},
        "spec": {"queue": queue, "minMember": 3, "minResources": resources},
    }


def member(owner: Json | None, *, asks: bool = True, annotations: Json | None = None, **spec: object) -> Json:
    """A pod that names the group; in the queue that its namespace names."""
    obj = pod(container(vgpu_h20=1) if asks else container(), annotations={GROUP: "g", **(annotations or {})})
    if QUEUE not in (annotations or {}):
        del obj["metadata"]["annotations"][QUEUE]
    obj["spec"] |= spec
    if owner:
        obj["metadata"]["ownerReferences"] = [owner]
    return obj


RAY = ref("RayCluster", "ray-1")


def test_a_head_without_cards_starts_with_its_workers_or_not_at_all() -> None:
    """A RayCluster's PodGroup counts its head: workers would wait for a member that nobody counts."""
    done = complete(
        member(RAY, asks=False, schedulerName="volcano"), context(LEAVE, groups=[group(RAY)]), OPERATOR
    )
    assert done["metadata"]["labels"] == {"egpu.volcano.sh/managed": "true"}
    assert done["spec"]["schedulingGates"] == [{"name": "egpu.volcano.sh/admission"}]
    assert done["spec"]["schedulerName"] == "default-scheduler"
    assert done["metadata"]["annotations"][QUEUE] == "a"
    assert review_pod(create(done, OPERATOR), context(LEAVE, groups=[group(RAY)])).patch == ()


@pytest.mark.parametrize(
    "obj",
    [
        member(RAY, asks=False, nodeName="n1"),
        member(ref("RayCluster", "ray-2"), asks=False),
        member(None, asks=False),
    ],
    ids=["bound already", "of another cluster", "of nobody"],
)
def test_what_asks_for_nothing_and_is_none_of_the_gang_is_left_alone(obj: Json) -> None:
    decision = review_pod(create(obj, OPERATOR), context(LEAVE, groups=[group(RAY)]))
    assert decision.allowed
    assert not decision.patch


def test_a_group_of_nobodys_takes_whoever_names_it() -> None:
    """Made by hand, for pods made by hand."""
    for owner in (None, RAY):
        done = complete(member(owner, asks=False), context(LEAVE, groups=[group(None)]), OPERATOR)
        assert waits(done)


def test_gangs_without_cards_are_left_alone() -> None:
    for groups in ([group(RAY, asks=False)], []):
        decision = review_pod(create(member(RAY, asks=False), OPERATOR), context(groups=groups))
        assert decision.allowed
        assert not decision.patch


def test_who_may_change_the_group_makes_pods_for_it() -> None:
    """A RayJob owns the PodGroup, its RayCluster the pods: no kind of Kubernetes' own lies between."""
    known = group(ref("RayJob", "job-1"))
    message = refusal(member(RAY), context(LEAVE, groups=[known]), OPERATOR)
    assert "PodGroup 'g' belongs to RayJob 'x', this pod to RayCluster 'x'" in message
    may = "system:serviceaccount:ray:operator update podgroups g"
    assert waits(complete(member(RAY), context(LEAVE, may, groups=[known]), OPERATOR))
    assert waits(complete(member(RAY, asks=False), context(LEAVE, may, groups=[known]), OPERATOR))


def test_a_launcher_is_its_mpi_jobs_though_a_batch_job_makes_it() -> None:
    mpi, job = ref("MPIJob", "mpi-1", "kubeflow.org/v2beta1"), ref("Job", "batch-1", "batch/v1")
    for asks in (True, False):
        known = context(LEAVE, groups=[group(mpi)], makers={"batch-1": mpi})
        assert waits(complete(member(job, asks=asks), known, JOBS))
    stranger = context(LEAVE, groups=[group(mpi)], makers={"batch-1": ref("MPIJob", "mpi-2")})
    assert "this pod to Job" in refusal(member(job), stranger, JOBS)


def test_workers_of_a_leader_are_its_gangs_though_a_stateful_set_makes_them() -> None:
    leader = ref("Pod", "leader-1", "v1")
    workers = ref("StatefulSet", "set-1", "apps/v1")
    known = context(LEAVE, groups=[group(leader)], makers={"set-1": leader})
    done = complete(member(workers), known, SETS)
    assert waits(done)
    assert UNSEEN not in done["metadata"]["annotations"]


def test_nodes_of_a_train_job_are_its_gangs_though_a_job_set_and_its_jobs_lie_between() -> None:
    train, jobs = ref("TrainJob", "train-1"), ref("Job", "batch-1", "batch/v1")
    job_set = ref("JobSet", "set-1", "jobset.x-k8s.io/v1alpha2")
    known = context(LEAVE, groups=[group(train)], makers={"batch-1": job_set, "set-1": train})
    assert waits(complete(member(jobs), known, JOBS))


SPARK = ref("SparkApplication", "spark-1", "sparkoperator.k8s.io/v1beta2")
DRIVER = ref("Pod", "driver-1", "v1", "pi-driver")
DRIVERS_ACCOUNT = Subject("system:serviceaccount:team-a:default")


@pytest.mark.parametrize(
    "owner", [SPARK, ref("Job", "vc-1", "batch.volcano.sh/v1alpha1")], ids=["SparkApplication", "vcjob"]
)
@pytest.mark.parametrize("asks", [True, False])
def test_executors_are_the_gangs_though_their_driver_is_a_pod(owner: Json, *, asks: bool) -> None:
    """The driver makes them, by its own account, which may change no PodGroup."""
    known = context(LEAVE, groups=[group(owner)], makers={"driver-1": owner})
    done = complete(member(DRIVER, asks=asks), known, DRIVERS_ACCOUNT)
    assert waits(done)
    assert done["metadata"]["annotations"][QUEUE] == "a"
    assert UNSEEN not in done["metadata"]["annotations"]


def test_executors_are_the_gangs_that_their_driver_owns() -> None:
    known = context(LEAVE, groups=[group(DRIVER)])
    assert waits(complete(member(DRIVER), known, DRIVERS_ACCOUNT))


def test_a_driver_may_itself_be_made_by_a_job_of_something_else() -> None:
    """The longest chain that there is: an executor, its driver, a batch Job, a JobSet, a TrainJob."""
    train, jobs = ref("TrainJob", "train-1"), ref("Job", "batch-1", "batch/v1")
    job_set = ref("JobSet", "set-1", "jobset.x-k8s.io/v1alpha2")
    known = context(
        LEAVE,
        groups=[group(train)],
        makers={"driver-1": jobs, "batch-1": job_set, "set-1": train},
    )
    assert waits(complete(member(DRIVER), known, DRIVERS_ACCOUNT))


@pytest.mark.parametrize(
    ("makers", "looks"),
    [
        ({}, 1),
        ({"driver-1": ref("SparkApplication", "spark-2", "sparkoperator.k8s.io/v1beta2")}, 1),
        ({"driver-1": DRIVER}, 1),
        ({"driver-1": ref("Pod", "p-2", "v1"), "p-2": DRIVER}, 2),
        (
            {f"p-{i}": ref("Pod", f"p-{i + 1}", "v1") for i in range(20)}
            | {"driver-1": ref("Pod", "p-0", "v1")},
            4,
        ),
    ],
    ids=["gone, or another of its name", "of another application", "itself", "a circle", "a long chain"],
)
def test_chains_of_owners_that_do_not_lead_to_the_gang_end(makers: dict[str, Json], looks: int) -> None:
    """Refused, and the API server was asked a few times at most."""
    known = context(LEAVE, groups=[group(SPARK)], makers=makers)
    message = refusal(member(DRIVER), known, DRIVERS_ACCOUNT)
    assert "belongs to SparkApplication 'x', this pod to Pod 'pi-driver'; and service account" in message
    assert "service account team-a/default may not update that PodGroup" in message
    assert isinstance(known.answers, Rbac)
    asked = known.answers.makers_asked
    assert len(asked) == looks
    assert {question.namespace for question in asked} == {NAMESPACE}, "no reference leads elsewhere"


def test_claiming_an_owner_gives_nobody_a_queue() -> None:
    """References are claims that Kubernetes does not check: the queue's own right keeps tenants apart."""
    known = context(groups=[group(SPARK)], makers={"driver-1": SPARK})
    for claimed in (DRIVER, SPARK):
        message = refusal(member(claimed), known, Subject("mallory"))
        assert "user 'mallory' and service account team-a/default may not use queue 'a'" in message
        other = member(claimed, annotations={QUEUE: "org-1"})
        assert "its PodGroup is in queue 'a'" in refusal(other, known, Subject("mallory"))


@pytest.mark.parametrize("claimed", [{"name": "x" * 5000}, {"name": ["x"]}, {"uid": None}, {"kind": 3}])
def test_a_reference_that_names_no_object_is_not_looked_for(claimed: Json) -> None:
    known = context(LEAVE, groups=[group(SPARK)], makers={"driver-1": SPARK, "None": SPARK})
    assert "belongs to SparkApplication 'x'" in refusal(member(DRIVER | claimed), known, DRIVERS_ACCOUNT)
    assert isinstance(known.answers, Rbac)
    assert known.answers.makers_asked == []


def with_namespace_queue(ctx: Context) -> Context:
    namespace = {"metadata": {"name": NAMESPACE, "annotations": {QUEUE: "a"}}}
    return replace(ctx, namespaces={NAMESPACE: namespace})


def test_a_leader_comes_before_its_group_and_says_so() -> None:
    obj = member(ref("StatefulSet", "set-0", "apps/v1"))
    done = complete(obj, with_namespace_queue(context(LEAVE)), SETS)
    assert waits(done)
    assert done["metadata"]["annotations"][UNSEEN] == "true"
    assert done["metadata"]["annotations"][QUEUE] == "a"
    assert review_pod(create(done, SETS), with_namespace_queue(context(LEAVE))).patch == ()
    assert "does not exist" in refusal(member(None), with_namespace_queue(context(LEAVE)), SETS)


def test_where_the_group_names_no_queue_the_namespaces_counts() -> None:
    """Its maker named none, and Volcano wrote ``default``."""
    for queue in ("", "default"):
        ctx = with_namespace_queue(context(LEAVE, groups=[group(RAY, queue)]))
        assert complete(member(RAY), ctx, OPERATOR)["metadata"]["annotations"][QUEUE] == "a"
        own = member(RAY, annotations={QUEUE: "org-2"})
        assert "may not use queue 'org-2'" in refusal(own, ctx, OPERATOR)
    assert "'default'" in refusal(member(RAY), context(LEAVE, groups=[group(RAY, "")]), OPERATOR)


def test_what_made_the_maker_is_asked_for_once() -> None:
    class Asking(Ignorant):
        def maker(self, question: MakerLookup) -> tuple[bool, Json]:
            return False, {}

    mpi = ref("MPIJob", "mpi-1")
    answers = Asking([])
    answers.groups = {(NAMESPACE, "g"): group(mpi)}
    ctx = replace(context(), answers=answers)
    with pytest.raises(Unanswered) as asked:
        review_pod(create(member(ref("Job", "batch-1", "batch/v1")), JOBS), ctx)
    assert asked.value.questions == (MakerLookup(NAMESPACE, "batch/v1", "Job", "x", "batch-1"),)
