"""One request for two kinds of cards: an image for NVIDIA's H20, another one for Ascend's 910B3.

Simulated nodes, and our processes beside the cluster with the rights of their own accounts. Once with our Job
controller, and with Volcano's under both of its configurations. At the end the same document comes over HTTP,
from a tenant with a token of its own.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
from localcluster.api import wait_until
from localcluster.net import free_ports
from outcomes.workload import container, pod_spec
from rigs.choosing import NAMESPACE, UNDER_VOLCANO, Cards, Choosing, choosing, uids
from rigs.volcano_job import ONE_TRY, volcano_job
from stack.hostmode import REPOSITORY, HostOptions, answers, check_alive
from stack.hostprocess import HostProcess
from vc_egpu.jobsapi.answers import JobAnswer
from vc_egpu.jobsapi.client import JobsApiError, JobsClient
from vc_egpu.jobsapi.request import Alternative, JobRequest
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
Json = dict[str, Any]
H20: Final = "h20"
ASCEND: Final = "910b3"
IMAGE_A, IMAGE_B = "reg/qwen:cuda12.4", "reg/qwen:cann8.5"
CARDS: Final = {H20: Cards(98304, cuda="12.4"), ASCEND: Cards(65536, count=8, vendor="ascend")}
MODELS: Final = REPOSITORY / "manifests" / "base" / "config" / "models.yaml"
WAYS: Final[list[Json]] = [
    {
        "name": H20,
        "memory": 24576,
        "cores": 30,
        "image": {"main": IMAGE_A},
        "env": {"main": {"BACKEND": "nccl"}},
    },
    {
        "name": ASCEND,
        "image": {"main": IMAGE_B},
        "env": {"main": {"BACKEND": "hccl"}},
        "args": {"main": ["--device", "npu"]},
    },
]


@pytest.fixture(
    scope="module",
    params=["ours", *(pytest.param(conf, marks=pytest.mark.volcano) for conf in ("own", "stock"))],
)
def kinds(request: pytest.FixtureRequest) -> Iterator[Choosing]:
    """Under our Job controller, and under Volcano's with both of its scheduler's configurations."""
    if request.param == "ours":
        with choosing("kinds", CARDS, HostOptions(models=MODELS), None, "own") as found:
            yield found
        return
    options = HostOptions(
        processes=UNDER_VOLCANO, overlay="volcano", scheduler=names.SCHEDULER_VOLCANO, models=MODELS
    )
    with choosing("kinds", CARDS, options, request.getfixturevalue("volcano"), request.param) as found:
        yield found


def either(name: str, queue: str, needs: str = "cuda>=12.4") -> Json:
    """A Job of two members that runs on both, on an H20 first of all. ``needs``: of its program there."""
    pods = {"metadata": {}, "spec": pod_spec(container(limits={names.ANY_MODEL: 1}), restartPolicy="Never")}
    found = volcano_job(name, queue, 2, pods, **ONE_TRY)
    ways = [{**WAYS[0], "needs": needs}, WAYS[1]]
    found["metadata"]["annotations"] = {names.ALTERNATIVES: json.dumps(ways)}
    return found


def small(name: str, queue: str, model: str) -> Json:
    """A Job that runs on this model alone, and tells that a decision was made."""
    limits = {names.shared_resource(model): 1}
    pods = {"metadata": {}, "spec": pod_spec(container(limits=limits), restartPolicy="Never")}
    return volcano_job(name, queue, 1, pods, **ONE_TRY)


def is_large(pod: Json) -> bool:
    """Whether a pod is what an H20 runs, as a whole: image, environment, resources, node. Else it has to be
    what a 910B3 runs."""
    (main,) = pod["spec"]["containers"]
    env = {entry["name"]: entry["value"] for entry in main["env"]}
    asks = {key: int(value) for key, value in main["resources"]["requests"].items() if "vgpu" in key}
    if main["image"] == IMAGE_A:
        assert env == {"BACKEND": "nccl"}
        assert "args" not in main
        assert asks == counted(H20, 24576, 30)
        assert pod["spec"]["nodeName"].endswith(f"-{H20}")
        return True
    assert main["image"] == IMAGE_B
    assert env == {"BACKEND": "hccl"}
    assert main["args"] == ["--device", "npu"]
    assert asks == counted(ASCEND, 65536, 100)
    assert pod["spec"]["nodeName"].endswith(f"-{ASCEND}")
    return False


def counted(model: str, memory_mib: int, cores: int) -> dict[str, int]:
    """What queues count for one share."""
    return {
        names.shared_resource(model): 1,
        names.memory_total_resource(model): memory_mib,
        names.cores_total_resource(model): cores,
    }


def test_it_goes_where_its_queue_has_room_and_stays(kinds: Choosing) -> None:
    """With image, environment, arguments and resources of that kind. That the other kind's cap comes free
    later moves nothing."""
    kinds.queue("roomy", {H20: 4, ASCEND: 4})
    kinds.queue("narrow", {H20: 1, ASCEND: 4})
    kinds.apply(either("wished", "roomy"))
    kinds.apply(either("other", "narrow"))
    assert all(map(is_large, kinds.runs("wished", 2).values())), "its first wish has room"
    before = kinds.runs("other", 2)
    assert not any(map(is_large, before.values())), "its queue may use one H20"
    assert (kinds.choice("wished"), kinds.choice("other")) == (H20, ASCEND)
    assert (kinds.tries("wished"), kinds.tries("other")) == (0, 0)
    kinds.cap("narrow", H20, 4)
    kinds.apply(small("later", "narrow", H20))
    kinds.runs("later", 1)  # the raised cap was seen
    assert uids(kinds.runs("other", 2)) == uids(before)
    assert kinds.choice("other") == ASCEND
    kinds.check()
    kinds.delete("wished", "other", "later")


def test_the_cap_of_the_chosen_kind_holds(kinds: Choosing) -> None:
    """Three Jobs for two caps: two run, the third waits for both, and its PodGroup slips past neither."""
    kinds.queue("both", {H20: 2, ASCEND: 2})
    kinds.queue("aside", {ASCEND: 1})
    for name in ("one", "two"):
        kinds.apply(either(name, "both"))
        kinds.runs(name, 2)
    assert (kinds.choice("one"), kinds.choice("two")) == (H20, ASCEND)
    kinds.apply(either("three", "both"))
    sentence = kinds.waits("three", "WaitingForQuota")
    for model in (H20, ASCEND):
        assert f"For {model} it asks for 2 " in sentence
    kinds.apply(small("meanwhile", "aside", ASCEND))
    kinds.runs("meanwhile", 1)  # decisions were made since, and cards of both kinds are free
    pods = kinds.stack.kit.api.list(PODS, NAMESPACE).items
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith("three-")]
    assert not [pod for pod in mine if pod["spec"].get("nodeName")]
    group = kinds.group("three")
    assert names.CHOICE not in group["metadata"].get("annotations", {})
    assert (group.get("status") or {}).get("phase") in {None, "Pending", "Inqueue" if mine else "Pending"}
    kinds.check()
    kinds.delete("two")
    assert not any(map(is_large, kinds.runs("three", 2).values()))
    assert kinds.tries("three") == 0
    kinds.check()
    kinds.delete("one", "three", "meanwhile")


def test_an_alternative_whose_needs_no_node_meets_is_passed_over(kinds: Choosing) -> None:
    """The H20 has room, and a driver that is too old for that image."""
    kinds.queue("newer", {H20: 4, ASCEND: 4})
    kinds.apply(either("newer", "newer", "cuda>=13.0"))
    assert not any(map(is_large, kinds.runs("newer", 2).values()))
    assert (kinds.choice("newer"), kinds.tries("newer")) == (ASCEND, 0)
    kinds.check()
    kinds.delete("newer")


def test_a_kind_is_any_of_its_models(kinds: Choosing) -> None:
    """An NPU of whichever model: of six in the table, one has nodes here, and its queue a cap for it."""
    kinds.queue("npus", {ASCEND: 2})
    found = either("npu", "npus")
    ways = [{"name": "npu", "kind": "npu", **{key: WAYS[1][key] for key in ("image", "env", "args")}}]
    found["metadata"]["annotations"] = {names.ALTERNATIVES: json.dumps(ways)}
    kinds.apply(found)
    assert not any(map(is_large, kinds.runs("npu", 2).values()))
    assert (kinds.choice("npu"), kinds.tries("npu")) == (f"npu.{ASCEND}", 0)
    kinds.check()
    kinds.delete("npu")


def test_one_bad_alternative_refuses_the_job_and_is_named(kinds: Choosing) -> None:
    kinds.queue("bad", {H20: 2, ASCEND: 2})
    found = either("bad", "bad")
    ways = [WAYS[0], {**WAYS[1], "needs": "cann==99.9"}]
    found["metadata"]["annotations"] = {names.ALTERNATIVES: json.dumps(ways)}
    assert f"{ASCEND}.needs: no row of the table for cann 99.9" in kinds.apply(found)


# --- over HTTP -----------------------------------------------------------------------------------

TENANTS: Final = ("lab", "shop")
"""Namespaces, with a queue of the same name each and an account that may make Jobs there."""
ACCOUNT: Final = "trainer"


@dataclass(frozen=True)
class OverHttp:
    """The jobs API beside the cluster, and its callers."""

    kinds: Choosing
    url: str

    def client(self, namespace: str) -> JobsClient:
        """A caller with the token of that namespace's account."""
        token = self.kinds.stack.kit.kubectl("create", "token", ACCOUNT, "-n", namespace).stdout.strip()
        return JobsClient(self.url, token)


@pytest.fixture(scope="module")
def over_http(kinds: Choosing) -> Iterator[OverHttp]:
    cluster = kinds.stack.cluster
    port, pages = free_ports(2, set(cluster.context.record.ports.values()))
    argv = [
        *(sys.executable, "-m", "vc_egpu.cli.main", "jobs-api", "--plain-http", "--listen", "127.0.0.1"),
        *("--port", str(port), "--metrics-port", str(pages)),
        *("--server", cluster.server, "--ca-file", str(cluster.ca_certificate)),
    ]
    process = HostProcess(cluster, "jobs-api", argv, {"PYTHONPATH": str(REPOSITORY / "vc-egpu")})
    process.start()
    try:
        wait_until("the jobs API answers", lambda: answers(pages), 60, lambda: check_alive(process))
        for tenant in TENANTS:
            kinds.queue(tenant, {H20: 1, ASCEND: 4})
            kinds.stack.kit.apply(*account(tenant))
        yield OverHttp(kinds, f"http://127.0.0.1:{port}")
    finally:
        process.stop()


def account(namespace: str) -> list[Json]:
    """A namespace, and an account that may make Jobs there and use the queue of the same name."""
    group = "rbac.authorization.k8s.io"
    named = {"name": ACCOUNT, "namespace": namespace}
    rules = [
        {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs"], "verbs": ["create", "get", "delete"]},
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups"], "verbs": ["get"]},
        {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["queues"],
            "resourceNames": [namespace],
            "verbs": [names.VERB_USE],
        },
    ]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": named, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": named,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", **named}],
        },
    ]


def request(name: str, **more: Any) -> JobRequest:
    """The same two ways."""
    ways = (
        Alternative(name=H20, memory=24576, cores=30, image=IMAGE_A, env={"BACKEND": "nccl"}),
        Alternative(name=ASCEND, image=IMAGE_B, env={"BACKEND": "hccl"}, args=("--device", "npu")),
    )
    return JobRequest(**{"name": name, "queue": "lab", "members": 2, "alternatives": ways, **more})


def refusal(client: JobsClient, wanted: JobRequest) -> tuple[int, str, str]:
    """Status, field and message."""
    with pytest.raises(JobsApiError) as caught:
        client.submit(wanted)
    return caught.value.status, caught.value.refusal.field, caught.value.refusal.message


def test_a_tenants_token_submits_reads_and_deletes(over_http: OverHttp) -> None:
    kinds = over_http.kinds
    with over_http.client("lab") as client:
        asked = client.submit(request("tune"), dry_run=True)
        assert (asked.namespace, asked.state) == ("lab", "waiting")
        made = client.submit(request("tune"))
        assert (made.namespace, made.queue, made.members) == ("lab", "lab", 2)
        assert not any(map(is_large, kinds.runs("tune", 2, "lab").values()))

        def as_told(_: object) -> JobAnswer | None:
            found = client.read("lab", "tune")
            return found if found.state == "running" else None

        told = kinds.stack.kit.until("it is told to run", VOLCANO_JOBS, as_told, namespace="lab")
        assert (told.alternative, told.reason, told.pods) == (ASCEND, "Admitted", {"running": 2})
        assert refusal(client, request("tune"))[:2] == (409, "name")
        kinds.check()
        client.delete("lab", "tune")
    kinds.stack.kit.pods_until("its pods are gone", "lab", lambda pods: not pods)


def test_a_job_over_http_says_why_it_waits(over_http: OverHttp) -> None:
    with over_http.client("lab") as client:
        client.submit(request("wide", members=4))

        def has_its_cards(_: object) -> bool | None:
            return client.read("lab", "wide").reason == "Admitted" or None

        # Volcano makes the pods of both again after the choice: the second could be first.
        over_http.kinds.stack.kit.until("the first one starts", VOLCANO_JOBS, has_its_cards, namespace="lab")
        client.submit(request("late"))

        def why(_: object) -> str | None:
            found = client.read("lab", "late")
            return found.why if found.reason == "WaitingForQuota" else None

        sentence = over_http.kinds.stack.kit.until("it waits", VOLCANO_JOBS, why, namespace="lab")
        assert f"For {ASCEND} it asks for 2 " in sentence
        for name in ("wide", "late"):
            client.delete("lab", name)
    over_http.kinds.stack.kit.pods_until("the pods are gone", "lab", lambda pods: not pods)


def test_a_tenant_cannot_submit_into_anothers_namespace_or_queue(over_http: OverHttp) -> None:
    with over_http.client("lab") as client:
        status, field, message = refusal(client, request("theirs", namespace="shop"))
        assert (status, field) == (403, "namespace"), message
        status, field, message = refusal(client, request("theirs", queue="shop"))
        assert (status, field) == (403, "queue"), message
        for trial in (lambda: client.read("shop", "theirs"), lambda: client.delete("shop", "theirs")):
            with pytest.raises(JobsApiError) as caught:
                trial()
            assert caught.value.status == 403
    with JobsClient(over_http.url, "no-such-token") as stranger:
        assert refusal(stranger, request("theirs", namespace="lab"))[0] == 401
    for tenant in TENANTS:
        assert not over_http.kinds.stack.kit.api.list(VOLCANO_JOBS, tenant).items
