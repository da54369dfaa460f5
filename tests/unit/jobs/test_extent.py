"""How large a Job may be: refused before anything is built, and one that runs already is told and goes on."""

from typing import Any

import pytest
from unit.jobs.cluster import Cluster
from unit.jobs.worlds import job, task
from vc_egpu.jobs.rules import extent
from vc_egpu.jobs.rules.defaults import bounded, complete, problems
from vc_egpu.volcano.api.job import Job

RESTARTS = [{"exitCode": code, "action": "RestartJob"} for code in range(1, 200)]


def large_template(**spec: Any) -> dict[str, Any]:
    subject = task()
    subject["template"]["spec"] |= spec
    return subject


TOO_LARGE = {
    "tasks": (job(*(task(f"t{i}", 1) for i in range(257))), "spec.tasks: 257 entries, at most 256"),
    "policies": (job(policies=RESTARTS[:65]), "spec.policies: 65 entries, at most 64"),
    "policies of a task": (
        job(task("a"), task("b", policies=RESTARTS[:65])),
        "spec.tasks[1].policies: 65 entries, at most 64",
    ),
    "events": (
        job(policies=[{"events": ["PodFailed"] * 17, "action": "AbortJob"}]),
        "spec.policies[0].events: 17 entries, at most 16",
    ),
    "dependencies": (
        job(task("a"), task("b", dependsOn={"name": ["a"] * 65})),
        "spec.tasks[1].dependsOn: 65 entries, at most 64",
    ),
    "plugins": (job(plugins={f"p{i}": [] for i in range(17)}), "spec.plugins: 17 entries, at most 16"),
    "arguments": (
        job(plugins={"svc": ["--disable-network-policy"] * 65}),
        "spec.plugins['svc']: 65 entries, at most 64",
    ),
    "a long argument": (
        job(plugins={"svc": ["--" + "x" * 4095]}),
        "spec.plugins['svc']: an argument of 4097 characters, at most 4096",
    ),
    "volumes": (
        job(volumes=[{"mountPath": f"/{i}", "volumeClaimName": "c"} for i in range(65)]),
        "spec.volumes: 65 entries, at most 64",
    ),
    "containers": (
        job(large_template(containers=[{"name": "c"}] * 60, initContainers=[{"name": "i"}] * 5)),
        "spec.tasks[0].template.spec: 65 containers, at most 64",
    ),
    "bytes": (
        job(large_template(note="x" * extent.MOST_TEMPLATE_BYTES)),
        f"spec.tasks[0].template: {extent.MOST_TEMPLATE_BYTES + 210} bytes, at most 262144",
    ),
}


@pytest.mark.parametrize("story", TOO_LARGE)
def test_what_is_too_large_is_refused_by_name(story: str) -> None:
    subject, expected = TOO_LARGE[story]
    assert expected.partition(": ")[0] in problems(subject)[0]
    if story != "bytes":
        assert expected in problems(subject)


def test_the_largest_job_is_not_refused() -> None:
    first = [f"t{i}" for i in range(64)]
    tasks = [task(f"t{i}", 39, policies=RESTARTS[:64]) for i in range(255)]
    tasks.append(task("last", 55, dependsOn={"name": first}))
    volumes = [{"mountPath": f"/{i}", "volumeClaimName": f"c{i}"} for i in range(64)]
    subject = job(*tasks, policies=RESTARTS[64:128], volumes=volumes, plugins={"svc": [], "env": []})
    assert subject.total_replicas() == extent.MOST_PODS
    assert problems(subject) == []


def test_a_message_tells_few_of_many_sentences() -> None:
    said = extent.told([f"{index}{'x' * 1000}" for index in range(5000)])
    assert said.startswith("0xxx")
    assert said.endswith("; and 4992 more")
    assert len(said) < 3000
    assert extent.told(["a", "b"]) == "a; b"


def test_a_refused_job_says_it_in_its_status_and_builds_nothing(cluster: Cluster) -> None:
    tasks = [task(f"t{i}", 1, minAvailable=2) for i in range(2000)]
    cluster.job("mine", tasks=tasks, plugins={"svc": []})
    assert cluster.look_at_job("mine")[0] == "Pending"
    state = (cluster.controller.known.jobs.get(("mine", "train")) or {})["status"]["state"]
    assert state["reason"] == "Refused"
    assert state["message"].startswith("spec.tasks: 2000 entries, at most 256; ")
    assert len(state["message"]) < 3000
    assert not [path for path in cluster.server.objects if "/pods/" in path or "/configmaps/" in path]
    assert any(reason == "Refused" for reason, _ in cluster.events())


def test_what_is_too_much_of_a_running_job_is_left_out() -> None:
    own_rules = task("a", policies=RESTARTS, dependsOn={"name": ["b"] * 99})
    events = {"events": ["PodFailed"] * 99, "action": "AbortJob"}
    subject = complete(Job.parse(job(own_rules, task("b"), policies=[events]).document()))
    goes_on = bounded(subject)
    own, depends_on = goes_on.spec.tasks[0].policies, goes_on.spec.tasks[0].depends_on
    assert [policy.exit_code for policy in own] == list(range(1, 65))
    assert depends_on is not None and len(depends_on.name) == 64
    assert len(goes_on.spec.policies[0].events) == 16
    assert len(subject.spec.tasks[0].policies) == 199, "the stored one stays"
    small = job(policies=RESTARTS[:64])
    assert bounded(small) is small


def test_a_job_that_was_stored_before_the_bounds_is_told_and_goes_on(cluster: Cluster) -> None:
    """It has its pods, and more tasks and policies than are taken by now."""
    cluster.job("mine", tasks=[task("w", 2, minAvailable=1)], policies=RESTARTS[:2])
    cluster.look_at_job("mine")
    for index in range(2):
        cluster.run_pod(f"/api/v1/namespaces/mine/pods/train-w-{index}")
    assert cluster.look_at_job("mine")[0] == "Running"
    many = [task("w", 2, minAvailable=1), *(task(f"t{i}", 0) for i in range(300))]
    cluster.edit_job("mine", tasks=many, policies=RESTARTS, minSuccess=1)
    assert cluster.look_at_job("mine")[0] == "Running"
    assert sum("/pods/" in path for path in cluster.server.objects) == 2
    cluster.run_pod("/api/v1/namespaces/mine/pods/train-w-0", "Succeeded")
    assert cluster.look_at_job("mine")[0] == "Completed"
    told = [note for reason, note in cluster.events() if reason == "Ignored"]
    assert "spec.policies: 199 entries, at most 64: those beyond are left out" in told
    assert "spec.tasks: 301 entries, at most 256: no pod is made until this is put right" in told


def test_a_job_that_was_stored_with_a_text_beyond_its_length_says_so_until_it_is_put_right(
    cluster: Cluster,
) -> None:
    late = {"event": "PodPending", "action": "RestartJob", "timeout": "0" * 40_000}
    cluster.job("mine", policies=[late])
    for _ in range(2):
        assert cluster.look_at_job("mine")[0] == "Pending"
    state = (cluster.controller.known.jobs.get(("mine", "train")) or {})["status"]["state"]
    assert state["reason"] == "Refused"
    assert state["message"].startswith("Job: spec.policies[0].timeout: ")
    assert "at most 64 characters" in state["message"]
    writes = [path for method, path, _ in cluster.server.requests if method == "PUT"]
    assert len(writes) == 1, "it is said once"
    cluster.edit_job("mine", policies=[{**late, "timeout": "1h"}])
    cluster.look_at_job("mine")
    assert sum("/pods/" in path for path in cluster.server.objects) == 1
    assert any(reason == "Malformed" for reason, _ in cluster.events())


def test_a_running_job_that_cannot_be_read_keeps_its_status(cluster: Cluster) -> None:
    cluster.job("mine")
    cluster.look_at_job("mine")
    cluster.run_pod("/api/v1/namespaces/mine/pods/train-w-0")
    assert cluster.look_at_job("mine")[0] == "Running"
    cluster.edit_job("mine", runningEstimate="0" * 40_000)
    assert cluster.look_at_job("mine")[0] == "Running"
    assert any(reason == "Malformed" and "spec.runningEstimate" in text for reason, text in cluster.events())
