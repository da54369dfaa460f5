"""Host lists of the plugin svc: as long as they like in files, and bounded in variables and ConfigMaps."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import job, task
from vc_egpu.jobs.objects.pods import build_pod
from vc_egpu.jobs.rules.defaults import problems
from vc_egpu.jobs.rules.hosts import LONGEST_LIST, HostLists
from vc_egpu.jobs.rules.plugins import MOST_CONFIG_MAP_BYTES, MOST_VARIABLES, plugins_of
from vc_egpu.volcano.api.job import Job


def variables(subject: Job, task_index: int = 0) -> set[str]:
    pod = build_pod(subject, subject.spec.tasks[task_index], 0, plugins_of(subject), "default-scheduler")
    return {variable["name"] for variable in pod["spec"]["containers"][0].get("env", ())}


def data_of(subject: Job) -> dict[str, str]:
    data: dict[str, str] = plugins_of(subject)[0].objects()[0]["data"]
    return data


def spread(count: int, **more: Any) -> Job:
    return job(task("master", 1), task("worker", count), plugins={"svc": []}, **more)


@pytest.mark.parametrize(
    "spelled", ["--inject-hosts-env=false", "-inject-hosts-env=False", "--inject-hosts-env=0"]
)
def test_host_lists_are_no_variables_if_the_user_says_so(spelled: str) -> None:
    """Volcano's own example does."""
    subject = job(task("ps", 1), task("worker", 2), plugins={"svc": [spelled], "env": []})
    assert problems(subject) == []
    assert variables(subject) == {"VC_TASK_INDEX", "VK_TASK_INDEX"}
    data = {
        key: value
        for plugin in plugins_of(subject)
        for o in plugin.objects()
        for key, value in o.get("data", {}).items()
    }
    assert data["worker.host"] == "train-worker-0.train\ntrain-worker-1.train"
    assert data["VC_WORKER_HOSTS"] == "train-worker-0.train,train-worker-1.train", "as Volcano has it"


def test_by_default_they_are() -> None:
    for arguments in ([], ["--inject-hosts-env"], ["--inject-hosts-env=true"]):
        subject = job(task("worker", 2), plugins={"svc": arguments})
        assert variables(subject) == {"VC_WORKER_HOSTS", "VC_WORKER_NUM"}


def test_a_list_beyond_64_kib_is_left_out_of_the_variables_alone() -> None:
    subject = spread(4096)
    lists = HostLists(subject)
    (size,) = lists.too_long.values()
    assert size > LONGEST_LIST
    assert variables(subject) == {"VC_MASTER_HOSTS", "VC_MASTER_NUM", "VC_WORKER_NUM"}
    data = data_of(subject)
    assert (len(data["worker.host"]), data["worker.host"].count("\n")) == (size, 4095)
    assert data["VC_WORKER_NUM"] == "4096"
    assert data["VC_WORKER_HOSTS"] == "", "a pod from before that names it starts again"
    assert f"no variable VC_WORKER_HOSTS ({size} bytes)" in lists.left_out()
    assert HostLists(spread(2)).left_out() == ""


def test_all_lists_are_left_out_if_they_are_too_long_together() -> None:
    names = [f"pipeline-stage-no-{number}" for number in range(8)]
    tasks = [task(name, 1200) for name in names]
    subject = job(*tasks, plugins={"svc": []})
    lists = HostLists(subject)
    assert max(lists.too_long.values()) <= LONGEST_LIST
    assert len(lists.too_long) == 8
    assert variables(subject) == {f"VC_PIPELINE_STAGE_NO_{number}_NUM" for number in range(8)}


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 1001, 9999])
@pytest.mark.parametrize("named", [{}, {"hostname": "h"}, {"subdomain": "d"}])
def test_the_bytes_of_a_list_are_known_without_the_list(count: int, named: dict[str, str]) -> None:
    worker = task("worker", count)
    worker["template"]["spec"] |= named
    lists = HostLists(job(worker))
    data = lists.data()
    assert lists.size >= sum(len(value) for value in data.values())
    for name, size in lists.too_long.items():
        assert size == len(data["worker.host"]), name


def test_a_job_whose_files_fit_into_no_config_map_is_refused() -> None:
    subject = spread(9999)
    subject.metadata.name = "n" * 46
    (found,) = problems(subject)
    assert found.startswith("spec.plugins[svc]: its host lists have ")
    assert f"a ConfigMap takes {MOST_CONFIG_MAP_BYTES}" in found
    assert problems(spread(9999)) == []
    assert sum(map(len, data_of(spread(9999)).values())) <= MOST_CONFIG_MAP_BYTES


def test_a_pod_with_too_many_variables_is_refused_with_the_way_out() -> None:
    many = task("t0", 1)
    many["template"]["spec"]["containers"] *= 60
    tasks = [many, *(task(f"t{number}", 1) for number in range(1, 30))]
    (found,) = problems(job(*tasks, plugins={"svc": []}))
    assert f"3600 variables with host lists, at most {MOST_VARIABLES}" in found
    assert "--inject-hosts-env=false" in found
    assert problems(job(*tasks, plugins={"svc": ["--inject-hosts-env=false"]})) == []


def test_an_event_tells_what_is_left_out_once(cluster: Cluster) -> None:
    cluster.job("mine", tasks=[task("w", 1), task("x", 0)], plugins={"svc": []})
    cluster.look_at_job("mine")
    cluster.edit_job("mine", tasks=[task("w", 1), {**task("x", 4000), "dependsOn": {"name": ["w"]}}])
    cluster.look_at_job("mine")
    cluster.look_at_job("mine")
    told = [note for reason, note in cluster.events() if reason == "HostsLeftOut"]
    assert len(told) == 1
    assert told[0].startswith("no variable VC_X_HOSTS (")
    assert "/etc/volcano" in told[0]
    hosts = cluster.server.objects["/api/v1/namespaces/mine/configmaps/train-svc"]["data"]
    assert hosts["VC_X_HOSTS"] == ""
    assert hosts["x.host"].count("\n") == 3999
