"""The pods of a Job: names, labels, annotations, volumes, plugins, and what is refused by name."""

from typing import Any

import pytest
from unit.jobs.worlds import UID, job, task
from vc_egpu.jobs.objects.pods import build_claims, build_pod
from vc_egpu.jobs.rules.defaults import complete, problems
from vc_egpu.jobs.rules.plugins import plugins_of
from vc_egpu.volcano.api.job import Job


def build(of: Job, task_name: str = "w", index: int = 0, local_scheduler: str = "default-scheduler") -> Any:
    chosen = next(t for t in of.spec.tasks if t.name == task_name)
    return build_pod(of, chosen, index, plugins_of(of), local_scheduler)


def env(pod: Any, container: int = 0) -> dict[str, Any]:
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in pod["spec"]["containers"][container].get("env", [])
    }


def test_names_labels_and_annotations_are_volcanos() -> None:
    subject = job(task("w"), queue="team-a", status={"version": 2, "retryCount": 1})
    pod = build(subject, index=1)
    assert pod["metadata"]["name"] == "train-w-1"
    assert pod["metadata"]["labels"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/job-name": "train",
        "volcano.sh/task-spec": "w",
        "volcano.sh/job-namespace": "team",
        "volcano.sh/queue-name": "team-a",
    }
    assert pod["metadata"]["annotations"] == {
        "volcano.sh/task-index": "1",
        "volcano.sh/task-spec": "w",
        "volcano.sh/job-name": "train",
        "volcano.sh/queue-name": "team-a",
        "volcano.sh/job-version": "2",
        "volcano.sh/template-uid": "train-w",
        "volcano.sh/job-retry-count": "1",
        "scheduling.k8s.io/group-name": f"train-{UID}",
    }
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["uid"], owner["controller"]) == (
        "batch.volcano.sh/v1alpha1",
        UID,
        True,
    )


def test_the_template_is_copied_never_shared() -> None:
    subject = job(plugins={"env": []})
    first, second = build(subject), build(subject, index=1)
    assert env(first)["VC_TASK_INDEX"] == "0"
    assert env(second)["VC_TASK_INDEX"] == "1"
    assert "env" not in subject.spec.tasks[0].template.spec["containers"][0]


@pytest.mark.parametrize(
    ("of_job", "of_pod", "local", "expected"),
    [
        ("volcano", None, "default-scheduler", "default-scheduler"),
        ("", None, "default-scheduler", "default-scheduler"),
        ("mine", None, "default-scheduler", "mine"),
        ("volcano", "other", "default-scheduler", "other"),
        ("volcano", None, "", "volcano"),
    ],
)
def test_scheduler(of_job: str, of_pod: str | None, local: str, expected: str) -> None:
    subject = job(schedulerName=of_job)
    if of_pod:
        subject.spec.tasks[0].template.spec["schedulerName"] = of_pod
    assert build(subject, local_scheduler=local)["spec"]["schedulerName"] == expected


def test_the_pods_own_priority_class_wins() -> None:
    subject = job(task("a"), task("b"), priorityClassName="of-job")
    subject.spec.tasks[1].template.spec["priorityClassName"] = "of-task"
    assert build(subject, "a")["spec"]["priorityClassName"] == "of-job"
    assert build(subject, "b")["spec"]["priorityClassName"] == "of-task"


def test_volumes() -> None:
    volumes: list[dict[str, Any]] = [
        {"mountPath": "/data", "volumeClaimName": "mine"},
        {"mountPath": "/out", "volumeClaim": {"resources": {"requests": {"storage": "1Gi"}}}},
    ]
    subject = job(volumes=volumes)
    spec = build(subject)["spec"]
    assert [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"]] == ["mine", "train-volume-1"]
    assert [m["mountPath"] for m in spec["containers"][0]["volumeMounts"]] == ["/data", "/out"]
    (claim,) = build_claims(subject)
    assert (claim["metadata"]["name"], claim["spec"]) == ("train-volume-1", volumes[1]["volumeClaim"])


def test_svc_gives_names_host_lists_and_a_policy() -> None:
    subject = job(task("ps", 1), task("wor-ker", 2), plugins={"svc": []})
    pod = build(subject, "wor-ker", 1)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-wor-ker-1", "train")
    assert env(pod)["VC_WOR_KER_HOSTS"] == {
        "configMapKeyRef": {"name": "train-svc", "key": "VC_WOR_KER_HOSTS"}
    }
    assert pod["spec"]["containers"][0]["volumeMounts"] == [
        {"name": "train-svc", "mountPath": "/etc/volcano"}
    ]
    config_map, service, policy = plugins_of(subject)[0].objects()
    assert config_map["data"] == {
        "ps.host": "train-ps-0.train",
        "VC_PS_HOSTS": "train-ps-0.train",
        "VC_PS_NUM": "1",
        "wor_ker.host": "train-wor-ker-0.train\ntrain-wor-ker-1.train",
        "VC_WOR_KER_HOSTS": "train-wor-ker-0.train,train-wor-ker-1.train",
        "VC_WOR_KER_NUM": "2",
    }
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("train", "None")
    assert policy["spec"]["podSelector"]["matchLabels"] == service["spec"]["selector"]


@pytest.mark.parametrize("argument", ["--disable-network-policy", "--disable-network-policy=true"])
def test_svc_without_a_policy(argument: str) -> None:
    objects = plugins_of(job(plugins={"svc": [argument]}))[0].objects()
    assert [thing["kind"] for thing in objects] == ["ConfigMap", "Service"]


def test_pytorch_brings_svc_along() -> None:
    subject = job(task("master", 1), task("worker", 2), task("other", 1), plugins={"pytorch": []})
    assert set(subject.spec.plugins) == {"pytorch", "svc"}
    master, worker = env(build(subject, "master")), env(build(subject, "worker", 1))
    expected = {"MASTER_ADDR": "train-master-0.train", "MASTER_PORT": "23456", "WORLD_SIZE": "3"}
    assert master | {**expected, "RANK": "0"} == master
    assert worker | {**expected, "RANK": "2"} == worker
    assert "RANK" not in env(build(subject, "other"))
    ports = build(subject, "worker")["spec"]["containers"][0]["ports"]
    assert [port["containerPort"] for port in ports] == [23456]


@pytest.mark.parametrize("named_by", [None, "sidecar", "init"])
def test_pytorch_opens_its_port_on_one_container_alone(named_by: str | None) -> None:
    """In the host's network the API server refuses a pod that has a port twice."""
    spec = {
        "hostNetwork": True,
        "containers": [{"name": "main", "ports": None}, {"name": "sidecar"}],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}],
    }
    for container in (*spec["containers"], *spec["initContainers"]):  # type: ignore[misc]
        if container["name"] == named_by:
            container["ports"] = [{"containerPort": 23456}]
    pod = build(job(task("master", 1, template={"spec": spec}), plugins={"pytorch": []}), "master")
    every = [*pod["spec"]["containers"], *pod["spec"]["initContainers"]]
    opened = {one["name"]: [port["containerPort"] for port in one.get("ports") or ()] for one in every}
    assert {name: ports for name, ports in opened.items() if ports} == {named_by or "main": [23456]}


def test_pytorch_with_go_style_arguments() -> None:
    subject = job(
        task("m", 1), task("w", 1), plugins={"pytorch": ["-master=m", "--worker=w", "--port", "29500"]}
    )
    assert env(build(subject, "w"))["MASTER_PORT"] == "29500"
    assert env(build(subject, "w"))["RANK"] == "1"


def test_ranks_of_pytorch_are_each_there_once() -> None:
    """With more masters than one Volcano gives two pods the same, and both wait for ever."""
    subject = job(task("master", 2), task("worker", 2), plugins={"pytorch": []})
    ranks = [env(build(subject, name, i))["RANK"] for name in ("master", "worker") for i in range(2)]
    assert ranks == ["0", "1", "2", "3"]


def test_the_order_of_plugins_does_not_matter() -> None:
    tasks = task("master", 1), task("worker", 2)
    one = build(job(*tasks, plugins={"svc": [], "env": [], "pytorch": []}), "worker")
    other = build(job(*tasks, plugins={"pytorch": [], "svc": [], "env": []}), "worker")
    assert one == other


def test_defaults() -> None:
    subject = complete(
        Job.parse(
            {
                "metadata": {"name": "j", "namespace": "n"},
                "spec": {"tasks": [{"replicas": 2}, {"replicas": 3}]},
            }
        )
    )
    assert [t.name for t in subject.spec.tasks] == ["default0", "default1"]
    assert [t.min_available for t in subject.spec.tasks] == [2, 3]
    assert subject.spec.min_available == 5
    assert (subject.spec.queue, subject.spec.max_retry) == ("default", 3)


def test_defaults_leave_the_stored_job_alone() -> None:
    stored = Job.parse({"spec": {"tasks": [{"replicas": 2}], "plugins": {"pytorch": []}}})
    before = stored.document()
    complete(stored)
    assert stored.document() == before


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (job(plugins={"mpi": []}), "spec.plugins: 'mpi'"),
        (job(plugins={"env": ["--what"]}), "spec.plugins[env]: env has no argument '--what'"),
        (job(plugins={"svc": ["--disable-network-policy=maybe"]}), "spec.plugins[svc]:"),
        (job(plugins={"pytorch": []}), "there is no task 'master'"),
        (job(task("master"), plugins={"pytorch": ["--port=0"]}), "'0' is no port"),
        (job(task("master"), plugins={"pytorch": ["--wait-master-enabled=true"]}), "--wait-master-enabled"),
        (
            job(task(partitionPolicy={"totalPartitions": 1, "partitionSize": 2})),
            "spec.tasks[0].partitionPolicy",
        ),
        (job(task("a"), task("a")), "the name 'a' is used 2 times"),
        (job(task(minAvailable=3)), "spec.tasks[0].minAvailable: 3 is more than its 2 replicas"),
        (job(minAvailable=3), "spec.minAvailable: 3 is more than the 2 replicas"),
        (job(minSuccess=3), "spec.minSuccess: 3 is more"),
        (job(task("x" * 60)), "at most 63"),
        (job(policies=[{"event": "PodFailed", "exitCode": 1, "action": "AbortJob"}]), "exactly one of"),
        (job(policies=[{"action": "AbortJob"}]), "exactly one of"),
        (job(policies=[{"exitCode": 0, "action": "AbortJob"}]), "spec.policies[0].exitCode: 0"),
        (job(policies=[{"event": "PodFailed"}]), "spec.policies[0].action"),
        (job(policies=[{"event": "PodFailed", "action": "SyncJob"}]), "SyncJob cannot be asked for"),
        (
            job(policies=[{"event": "PodFailed", "action": "RestartPartition"}]),
            "RestartPartition needs Volcano",
        ),
        (job(policies=[{"event": "PodPending", "action": "AbortJob"}]), "spec.policies[0].timeout"),
        (job(policies=[{"event": "OutOfSync", "action": "AbortJob"}]), "OutOfSync is internal"),
        (
            job(
                policies=[{"event": "*", "action": "AbortJob"}, {"event": "PodFailed", "action": "AbortJob"}]
            ),
            "'*' answers every event",
        ),
        (job(policies=[{"exitCode": 3, "action": "AbortJob"}] * 2), "3 is answered 2 times"),
        (job(task("a", dependsOn={"name": ["b"]})), "there is no task 'b'"),
        (
            job(task("a", dependsOn={"name": ["b"]}), task("b", dependsOn={"name": ["a"]})),
            "dependsOn goes in a circle: a -> b -> a",
        ),
        (
            job(*(task(f"t{i}", 1, dependsOn={"name": [f"t{(i + 1) % 3000}"]}) for i in range(3000))),
            "dependsOn goes in a circle: t0 -> t1 -> t2",
        ),
        (job(task("a", 2_000_000_000)), "2000000000 replicas of all tasks, the largest Job has 10000"),
        (job(*(task(f"t{i}", 6000) for i in range(2))), "12000 replicas of all tasks"),
        (job(volumes=[{"mountPath": "/x"}]), "spec.volumes[0]: neither"),
        (job(volumes=[{"mountPath": "/x", "volumeClaimName": "a"}] * 2), "'/x' is named 2 times"),
    ],
)
def test_refused_by_name(subject: Job, expected: str) -> None:
    found = problems(subject)
    assert any(expected in text for text in found), found


def test_a_name_with_a_dot_is_refused_where_it_would_be_a_hosts() -> None:
    subject = job()
    subject.metadata.name = "train.v2"
    assert problems(subject) == []
    dotted = job(plugins={"svc": []})
    dotted.metadata.name = "train.v2"
    (found,) = problems(dotted)
    assert found.startswith("spec.plugins[svc]: the Job's name 'train.v2'"), found
    assert "no dot" in found


def test_an_ordinary_job_is_not_refused() -> None:
    policies = [
        {"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"},
        {"exitCode": 3, "action": "AbortJob"},
    ]
    subject = job(
        task("a", 2), task("b", 1, dependsOn={"name": ["a"]}), policies=policies, plugins={"svc": []}
    )
    assert problems(subject) == []


@pytest.mark.parametrize(
    ("said", "policy"),
    [
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
        ({"hostNetwork": False}, None),
        ({}, None),
    ],
)
def test_pods_on_the_nodes_network_find_each_other_by_name(said: dict[str, Any], policy: str | None) -> None:
    """As Volcano's webhook has it: the node's own DNS does not know the master's name. Training on RDMA
    waited for it without end."""
    with_network = task("master", 1)
    with_network["template"]["spec"] |= said
    pod = build(job(with_network, plugins={"pytorch": []}), "master")
    assert pod["spec"].get("dnsPolicy") == policy


def test_a_job_whose_name_has_dots_mounts_its_volumes() -> None:
    """A volume's name is a label, which has none: its pods were refused, for a name that nobody wrote."""
    subject = job(volumes=[{"mountPath": "/data", "volumeClaimName": "d"}])
    subject.metadata.name = "llm.v2"
    spec = build(subject)["spec"]
    assert [volume["name"] for volume in spec["volumes"]] == ["llm-v2-vol-0"]
    assert spec["containers"][0]["volumeMounts"] == [{"name": "llm-v2-vol-0", "mountPath": "/data"}]
