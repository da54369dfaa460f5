"""`kubectl egpu doctor`: what it finds before and after installing."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import status, tiny_api
from vc_egpu.cli.doctor import checkup, facts
from vc_egpu.cli.doctor.facts import Facts
from vc_egpu.cli.doctor.findings import Finding
from vc_egpu.cli.doctor.stack import CLASSES, CRDS, removal_findings, stack_findings
from vc_egpu.cli.views import render
from vc_egpu.cli.world import Listing
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.words import names

NOW = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


def named(name: str, **fields: object) -> docs.Json:
    return {"metadata": {"name": name, "namespace": names.SYSTEM_NAMESPACE}, **fields}


def healthy() -> Facts:
    """A cluster on which the stack is well."""
    hook = {
        "name": "pods.egpu.volcano.sh",
        "failurePolicy": "Fail",
        "clientConfig": {"caBundle": "x", "service": {"namespace": names.SYSTEM_NAMESPACE}},
    }
    members = {**hook, "name": names.MEMBERS_WEBHOOK, "failurePolicy": "Ignore"}
    established = {"conditions": [{"type": "Established", "status": "True"}]}
    lease = {"holderIdentity": "a", "renewTime": "2026-01-01T00:09:58Z", "leaseDurationSeconds": 15}
    return Facts(
        version="v1.36.3",
        installed=True,
        nodes=Listing([docs.node("n1", docs.card("GPU-a"))]),
        kubelet_configs={"n1": {}},
        runtime_classes=Listing([named("nvidia")]),
        daemon_sets=Listing(
            [named("vc-egpu-node-agent", status={"desiredNumberScheduled": 1, "numberReady": 1})]
        ),
        deployments=Listing(
            [
                named(name, spec={"replicas": 2}, status={"readyReplicas": 2})
                for name in ("vc-egpu-admission", "vc-egpu-webhook")
            ]
        ),
        crds=Listing([named(name, status=established) for name in CRDS]),
        priority_classes=Listing([named(name, preemptionPolicy="Never") for name in CLASSES]),
        webhooks=Listing([named("vc-egpu", webhooks=[hook, members])]),
        policy_bindings=Listing([named("vc-egpu-pods-create")]),
        leases=Listing([named("vc-egpu-admission", spec=lease)]),
    )


def bad(facts: Facts) -> list[Finding]:
    return [finding for finding in checkup.examine(facts, NOW) if finding.level != "ok"]


def said(found: Sequence[Finding]) -> str:
    return "\n".join(f"{f.level} {f.topic}: {f.text} {f.hint}" for f in found)


def test_a_healthy_cluster_has_nothing_to_say() -> None:
    assert bad(healthy()) == []
    assert checkup.verdict(checkup.examine(healthy(), NOW)) == "ok"


def kubelet(version: str) -> docs.Json:
    node = docs.node("n1", docs.card("GPU-a"))
    node["status"]["nodeInfo"]["kubeletVersion"] = version
    return node


def test_the_oldest_kubernetes_that_was_tried_is_as_good_as_the_newest() -> None:
    facts = replace(healthy(), version="v1.30.4", nodes=Listing([kubelet("v1.30.4-eks-a1b2c3")]))
    assert bad(facts) == []


def running(version: str, *names: str) -> Listing:
    found = [docs.node(name, docs.card(f"GPU-{name}")) for name in names]
    for node in found:
        node["status"]["nodeInfo"]["containerRuntimeVersion"] = version
    return Listing(found)


def test_runtimes_are_told_of_once_each() -> None:
    """A thousand nodes of one version are one line."""
    (told,) = bad(replace(healthy(), nodes=running("containerd://1.7.35", *(f"n{i}" for i in range(9)))))
    assert told.text == "n0, n1, n2 and 6 more run containerd 1.7.35: CDI is off there by default"
    assert "enable_cdi = true" in told.hint
    assert bad(replace(healthy(), nodes=running("cri-o://1.34.0", "n1"))) == []
    assert "n1 runs docker 28.1" in said(bad(replace(healthy(), nodes=running("docker://28.1", "n1"))))
    too_old = bad(replace(healthy(), nodes=running("containerd://1.6.36", "n1")))
    assert [finding.level for finding in too_old] == ["fail"]


def test_a_kubelet_that_keeps_its_sockets_elsewhere() -> None:
    """k0s: the agent's pods would wait for a folder that is not there, with an event on each."""
    facts = replace(healthy(), nodes=Listing([kubelet("v1.35.3+k0s.0")]))
    assert "PodResources socket below /var/lib/k0s/kubelet" in said(bad(facts))
    path = {"path": "/var/lib/k0s/kubelet/pod-resources", "type": "Directory"}
    spec = {"template": {"spec": {"volumes": [{"name": "pod-resources", "hostPath": path}, {"name": "tmp"}]}}}
    agent = named("vc-egpu-node-agent", spec=spec, status={"desiredNumberScheduled": 1, "numberReady": 1})
    assert bad(replace(facts, daemon_sets=Listing([agent]))) == []


def test_a_gate_of_the_kubelet_that_the_agent_does_not_need_may_be_off() -> None:
    """The PodResources API's Get is off by default in 1.30, and the agent asks for the List."""
    configs = {"n1": {"featureGates": {"KubeletPodResourcesGet": False}}}
    assert bad(replace(healthy(), kubelet_configs=configs)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "v1.29.4"}, "API server v1.29.4: 1.30 is the oldest"),
        ({"nodes": Listing([kubelet("v1.29.9")])}, "n1 has kubelet v1.29.9: 1.30 is the oldest"),
        (
            {"kubelet_configs": {"n1": {"featureGates": {"DevicePluginCDIDevices": False}}}},
            "DevicePluginCDIDevices",
        ),
        ({"crds": Listing([])}, "jobs.batch.volcano.sh is missing"),
        ({"deployments": Listing([])}, "Deployment vc-egpu-admission is missing"),
        ({"daemon_sets": Listing([])}, "DaemonSet vc-egpu-node-agent is missing"),
        ({"webhooks": Listing([])}, "no webhook configuration"),
        ({"policy_bindings": Listing([])}, "admission policies are not bound"),
        ({"leases": Listing([])}, "no admission controller has ever led"),
        ({"priority_classes": Listing([])}, "PriorityClass egpu-high is missing"),
        ({"nodes": Listing([docs.node("n1", problem="NVML: driver not loaded")])}, "driver not loaded"),
        ({"nodes": Listing([docs.node("n1", docs.card("GPU-a", healthy=False, reason="XID 79"))])}, "XID 79"),
        ({"nodes": Listing([docs.node("n1", driver="470.256.02")])}, "470.256.02 on n1: 525 or later"),
        ({"crds": Listing((), "you may not list customresourcedefinitions")}, "you may not list"),
    ],
)
def test_each_fault_is_found(change: dict[str, object], words: str) -> None:
    assert words in said(bad(replace(healthy(), **change)))  # type: ignore[arg-type]


def test_a_webhook_without_which_asks_pass_is_told_of() -> None:
    (found,) = healthy().webhooks.items
    pods, members = found["webhooks"]
    opened = {**found, "webhooks": [{**pods, "failurePolicy": "Ignore"}, members]}
    (told,) = bad(replace(healthy(), webhooks=Listing([opened])))
    assert "pods.egpu.volcano.sh has failurePolicy Ignore" in told.text


def test_a_lease_that_nobody_renews() -> None:
    lease = {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00Z", "leaseDurationSeconds": 15}
    facts = replace(healthy(), leases=Listing([named("vc-egpu-admission", spec=lease)]))
    assert "has not renewed it for 600 s" in said(bad(facts))


def test_half_of_the_replicas_is_a_warning_none_a_failure() -> None:
    def ready(count: int) -> str:
        deployments = [
            named(name, spec={"replicas": 2}, status={"readyReplicas": count})
            for name in ("vc-egpu-admission", "vc-egpu-webhook")
        ]
        return checkup.verdict(checkup.examine(replace(healthy(), deployments=Listing(deployments)), NOW))

    assert (ready(1), ready(0)) == ("warn", "fail")


def test_the_agent_s_runtime_class_must_exist() -> None:
    agent = named(
        "vc-egpu-node-agent",
        spec={"template": {"spec": {"runtimeClassName": "nvidia"}}},
        status={"desiredNumberScheduled": 1, "numberReady": 1},
    )
    facts = replace(healthy(), daemon_sets=Listing([agent]), runtime_classes=Listing([]))
    assert "RuntimeClass nvidia, which does not exist" in said(bad(facts))


def test_two_job_controllers() -> None:
    container = {"image": "volcanosh/vc-controller-manager:v1.15.0"}
    both = [
        *healthy().deployments.items,
        named("vc-egpu-jobs", spec={"replicas": 2}, status={"readyReplicas": 2}),
        named("volcano-controllers", spec={"replicas": 1, "template": {"spec": {"containers": [container]}}},
              status={"readyReplicas": 1}),
    ]  # fmt: skip
    assert "fight over the same Jobs" in said(bad(replace(healthy(), deployments=Listing(both))))


STOCK = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: overcommit}, {name: proportion}, {name: deviceshare}]
"""


def test_volcano_s_scheduler_configuration() -> None:
    found = said(bad(replace(healthy(), scheduler_configs=(STOCK, "actions: [", "actions: !!int ''"))))
    assert found.count("cannot be read") == 2
    for word in ("deviceshare", "lacks plugin capacity", "predicateErrorCacheEnable"):
        assert word in found
    shipped = (docs.MANIFESTS / "overlays/volcano/scheduler/volcano-scheduler.conf").read_text()
    assert bad(replace(healthy(), scheduler_configs=(shipped,))) == []


def test_before_installing_the_stack_is_not_missed() -> None:
    facts = replace(
        healthy(), installed=False, deployments=Listing([]), daemon_sets=Listing([]), leases=Listing([])
    )
    assert bad(facts) == []


def test_a_gated_pod_without_a_reason_is_reported() -> None:
    pod = docs.pod("lost", gated=True, phase="Pending")
    assert "ml/lost" in said(bad(replace(healthy(), pods=Listing([pod]))))


def test_removal_names_who_would_be_stuck() -> None:
    gated = docs.pod("waits", gated=True, phase="Pending")
    running = docs.pod("runs", cards={"GPU-a": (1, 1)})
    found = removal_findings([gated, running, docs.pod("done", cards={"GPU-a": (1, 1)}, phase="Succeeded")])
    assert [finding.level for finding in found] == ["fail", "warn"]
    assert removal_findings([])[0].level == "ok"


def test_who_is_suspended_would_never_come_back_after_a_removal() -> None:
    pod = docs.pod("away", cards={"GPU-a": (1024, 25)}, share_class="low")
    said = {"type": names.CONDITION_SUSPENDED, "status": "True", "reason": "Suspended"}
    pod["status"]["conditions"] = [said]
    (found,) = removal_findings([pod])
    assert (found.level, found.text.partition(":")[0]) == ("fail", "ml/away is suspended")


def test_hints_are_shown_below_their_finding() -> None:
    console = render.console()
    with console.capture() as captured:
        console.print(render.findings([Finding("fail", "CRDs", "one is missing", "apply it")]))
    assert "→ apply it" in captured.get()


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("models: [{name: h20, memoryMiB: 9O304}]", "models.0.memoryMiB: Input should be a valid integer"),
        ("models: [", "not YAML"),
        ("models: []", "names no model"),
    ],
)
def test_a_model_table_that_cannot_be_read_is_told_of(models: str, words: str) -> None:
    found = said(bad(replace(healthy(), models=models)))
    assert words in found
    assert "pydantic" not in found
    assert "no model" in found or "a webhook or admission controller that starts now ends" in found


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("defaults: {slotsPerCard: seven}", "vc-egpu-node-policy: slotsPerCard: Input should be a"),
        ("nodes: {gpu-7: {coreRatio: 100}}", "coreRatio: Input should be less than or equal to 10"),
        ("defaults: [", "not YAML"),
    ],
)
def test_a_node_policy_that_cannot_be_read_is_told_of(policy: str, words: str) -> None:
    assert words in said(bad(replace(healthy(), policy=policy)))


@pytest.mark.parametrize("policy", [None, "", "defaults: {coreRatio: 1.5}"])
def test_a_node_policy_that_is_right_has_nothing_to_say(policy: str | None) -> None:
    assert bad(replace(healthy(), policy=policy)) == []


NO_WAY = (
    'failed calling webhook "queues.egpu.volcano.sh": failed to call webhook: Post '
    '"https://vc-egpu-webhook.vc-egpu-system.svc:443/validate/queues?timeout=10s": context deadline exceeded'
)


@pytest.mark.parametrize(
    ("answer", "level"),
    [
        ((500, status(500, "InternalError", f"Internal error occurred: {NO_WAY}"), {}), "fail"),
        ((500, status(500, "InternalError", "etcdserver: no leader"), {}), "ok"),
        ((403, status(403, "Forbidden", "admission webhook denied the request"), {}), "ok"),
        ((201, {"metadata": {"name": "vc-egpu-doctor"}}, {}), "ok"),
    ],
)
def test_a_firewall_before_the_webhook_is_told_of(answer: Any, level: str, tmp_path: Path) -> None:
    """As with private clusters of GKE: every Job and Queue was refused, and the doctor found all well."""
    with tiny_api() as server:
        server.put("/version", {"metadata": {}, "gitVersion": "v1.36.3"})
        server.put(f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}", {"metadata": {}})
        server.script_for, server.script = '"Queue"', [answer]
        with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
            unreached = facts.read(api).unreached
        tried = [path for method, path, _ in server.requests if method == "POST"]
        assert [path.rpartition("/")[2] for path in tried] == ["queues?dryRun=All"]
    found = bad(replace(healthy(), unreached=unreached))
    assert checkup.verdict(found) == level
    assert ("9443" in said(found)) is (level == "fail")


def test_a_roll_out_that_does_not_come_up_is_told_of() -> None:
    """The old replicas are ready meanwhile; the next crash would find nobody."""
    stuck = named(
        "vc-egpu-admission", spec={"replicas": 2}, status={"readyReplicas": 2, "unavailableReplicas": 1}
    )
    webhook = named("vc-egpu-webhook", spec={"replicas": 2}, status={"readyReplicas": 2})
    found = said(bad(replace(healthy(), deployments=Listing([stuck, webhook]))))
    assert "vc-egpu-admission: a replica of a new version does not become ready" in found


def test_who_may_not_see_runtime_classes_is_not_told_that_there_are_none() -> None:
    hidden = Listing((), "you may not list them")
    facts = replace(healthy(), runtime_classes=hidden, daemon_sets=hidden)
    assert "RuntimeClass" not in said(bad(facts))


def test_who_may_see_nothing_is_told_nothing_but_that() -> None:
    """Neither that all is well nor that something is wrong."""
    kinds = ("nodes", "daemon_sets", "deployments", "crds", "priority_classes", "webhooks", "leases", "pods")
    hidden: dict[str, Any] = {
        kind: Listing((), f"you may not list {kind}")
        for kind in (*kinds, "policy_bindings", "runtime_classes")
    }
    found = checkup.examine(replace(healthy(), **hidden), NOW)
    assert {finding.topic for finding in found if finding.level != "warn"} == {"kubernetes"}
    assert checkup.verdict(found) == "warn"
    told = said(found)
    assert [kind for kind in kinds if f"may not list {kind}" not in told] == []


def test_admitting_that_was_stopped_is_not_forgotten() -> None:
    (finding,) = bad(replace(healthy(), stopped=True))
    assert (finding.level, finding.text) == ("warn", "stopped by the operator: nothing new begins anywhere")
    assert finding.hint == "kubectl egpu stop-admitting --all --undo"


@pytest.mark.parametrize(("written", "stopped"), [("true", True), ("false", False), (None, False)])
def test_the_switch_is_read(written: str | None, stopped: bool, tmp_path: Path) -> None:
    with tiny_api() as server:
        if written is not None:
            place = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps/{names.SWITCHES_CONFIG_MAP}"
            server.put(place, {"metadata": {"name": "x"}, "data": {"stopAdmitting": written}})
        server.put("/version", {"metadata": {}, "gitVersion": "v1.36.3"})
        api = ApiConnection.connect(server.kubeconfig(tmp_path))
        assert facts.read(api).stopped is stopped
        api.close()


def test_a_cordon_that_is_misspelt_keeps_nothing_off() -> None:
    """Work went on to the card that its operator meant, and nothing told of it."""
    node = docs.node("n1", docs.card("GPU-a"), annotations={names.CORDONED_CARDS: "GPU-a, GPU-A,1"})
    (finding,) = bad(replace(healthy(), nodes=Listing([node])))
    assert finding.text.startswith("n1 cordons 1, GPU-A, which it has not")
    assert finding.hint == "its cards are GPU-a"


@pytest.mark.parametrize(
    ("ahead_s", "age_s", "level"),
    [(3600, 2, "warn"), (-600, 2, "warn"), (-600, 590, "fail"), (0, 100, "fail")],
)
def test_how_old_a_lease_is_the_clusters_clock_tells(
    ahead_s: float, age_s: float, level: str, tmp_path: Path
) -> None:
    """A laptop's clock that is off made a controller that leads look dead, or a dead one alive."""
    there = datetime.now(UTC) - timedelta(seconds=ahead_s)
    lease = {
        "holderIdentity": "a",
        "renewTime": (there - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "leaseDurationSeconds": 15,
    }
    with tiny_api() as server:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/vc-egpu-admission"
        server.put(path, named("vc-egpu-admission", spec=lease))
        server.put("/version", {"metadata": {}, "gitVersion": "v1.36.3"})
        server.script_for = "SelfSubjectReview"
        server.script = [(201, {"metadata": {"creationTimestamp": there.strftime("%Y-%m-%dT%H:%M:%SZ")}}, {})]
        with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
            seen = facts.read(api)
    found = checkup.examine(replace(healthy(), leases=seen.leases, clock_ahead_s=seen.clock_ahead_s))
    about = [f for f in found if f.topic in {"clock", "leader"} and f.level != "ok"]
    assert checkup.verdict(about) == level, said(about)
    assert any(f"s {'ahead of' if ahead_s > 0 else 'behind'} the cluster's" in f.text for f in about) is bool(
        ahead_s
    )


def test_a_clock_that_nobody_tells_is_ones_own(tmp_path: Path) -> None:
    stale = named("vc-egpu-admission", spec={"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00Z"})
    with tiny_api() as server:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/vc-egpu-admission"
        server.put(path, stale)
        server.put("/version", {"metadata": {}, "gitVersion": "v1.36.3"})
        server.script_for = "SelfSubjectReview"
        server.script = [(403, status(403, "Forbidden"), {})]
        with closing(ApiConnection.connect(server.kubeconfig(tmp_path))) as api:
            assert facts.read(api).clock_ahead_s == 0


def test_nodes_whose_cards_a_reload_of_systemd_takes_are_named_with_what_to_do() -> None:
    """The cards are offered all the same: it is a warning, and one for all nodes that say the same."""
    lost = "systemctl daemon-reload takes the cards from running containers: /dev/char has no link to nvidia0"
    nodes = [docs.node(f"n{i}", docs.card(f"GPU-{i}"), warning=lost if i else "") for i in range(3)]
    (found,) = [
        one for one in checkup.examine(replace(healthy(), nodes=Listing(nodes)), NOW) if one.level != "ok"
    ]
    assert (found.level, found.topic, found.text) == ("warn", "devices", f"n1, n2: {lost}")
    assert "nvidia-ctk system create-dev-char-symlinks --create-all" in found.hint
    assert "docs/operator.md" in found.hint


@pytest.mark.parametrize(
    ("host_pid", "words"),
    [
        (True, "ok metrics: the agents tell what each container uses of its cards"),
        (False, "do not tell what each container uses of its cards: components/container-use"),
    ],
)
def test_it_says_whether_use_by_container_is_known(host_pid: bool, words: str) -> None:
    spec = {"template": {"spec": {"hostPID": host_pid}}}
    agent = named("vc-egpu-node-agent", spec=spec, status={"desiredNumberScheduled": 1, "numberReady": 1})
    found = checkup.examine(replace(healthy(), daemon_sets=Listing([agent])))
    assert words in said(found)
    assert bad(replace(healthy(), daemon_sets=Listing([agent]))) == []


def test_it_says_what_shares_time_where_that_is_not_the_library() -> None:
    nodes = [
        docs.node("n1", docs.card("GPU-1"), compute="mps", mps_namespace="a"),
        docs.node("n2", docs.card("GPU-2", stack=False), compute="timeslice"),
        docs.node("n3", docs.card("GPU-3")),
    ]
    known = replace(healthy(), nodes=Listing(nodes))
    told = [one.text for one in stack_findings(known, NOW) if one.topic == "isolation"]
    assert told[1:] == [
        "time is shared by an MPS server for the programs of one namespace (mps) on 1 node",
        "time is shared by the driver's time slice (timeslice) on 1 node",
    ]


def test_it_says_what_holds_the_memory_on_how_many_nodes() -> None:
    words = ("library", "library", "driver", "none")
    nodes = [docs.node(f"n{at}", docs.card(f"GPU-{at}", isolation=word)) for at, word in enumerate(words)]
    whole = docs.card("NPU-1", isolation="none", stack=False)  # nobody else is on it
    known = replace(healthy(), nodes=Listing([*nodes, docs.node("npu", whole)]))
    told = [(one.level, one.text) for one in stack_findings(known, NOW) if one.topic == "isolation"]
    assert told == [
        (
            "ok",
            "memory is held by the card's own driver (driver) on 1 node, the isolation library in the "
            "program (library) on 2 nodes",
        ),
        ("warn", "nothing keeps containers to their memory on n3"),
    ]
