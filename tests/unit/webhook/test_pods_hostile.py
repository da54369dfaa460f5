"""Pods at the door: what is forged, pinned or foreign."""

import pytest
from unit.webhook.pod_reviews import asking, complete, refusal, waits
from unit.webhook.world import (
    Json,
    container,
    context,
    create,
    patched,
    pod,
    queue,
)
from vc_egpu.webhook.reviews.pods import review_pod

EMPTY_TERM: Json = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}
HOSTILE: dict[str, tuple[Json, tuple[str, ...]]] = {
    "forged cards": (pod(annotations={"egpu.volcano.sh/cards": "{}"}), ("egpu.volcano.sh/cards",)),
    "forged cards without an ask": (
        pod(container(), annotations={"egpu.volcano.sh/cards": "{}"}),
        ("egpu.volcano.sh/cards",),
    ),
    "a forged plan": (pod(annotations={"egpu.volcano.sh/plan": "x"}), ("egpu.volcano.sh/plan",)),
    "a forged order": (pod(annotations={"egpu.volcano.sh/suspend": "x"}), ("egpu.volcano.sh/suspend",)),
    "a pause from the start": (
        pod(annotations={"egpu.volcano.sh/pause": "true"}),
        ("egpu.volcano.sh/pause", "only for pods that run"),
    ),
    "a forged request": (pod(annotations={"egpu.volcano.sh/request": "{}"}), ("egpu.volcano.sh/request",)),
    "a forged request without an ask": (
        pod(container(), annotations={"egpu.volcano.sh/request": '{"version":1}'}),
        ("egpu.volcano.sh/request",),
    ),
    "our gate without an ask": (
        pod(container(), schedulingGates=[{"name": "x/y"}, {"name": "egpu.volcano.sh/admission"}]),
        ("spec.schedulingGates", "egpu.volcano.sh/admission is written by the webhook"),
    ),
    "a label that is not true": (pod(labels={"egpu.volcano.sh/managed": "no"}), ("managed", "'no'", "true")),
    "bound by hand": (pod(nodeName="node-7"), ("spec.nodeName", "node-7")),
    "in a gang of the kube-scheduler's": (
        pod(schedulingGroup={"podGroupName": "g"}),
        ("spec.schedulingGroup", "scheduling.k8s.io/group-name"),
    ),
    "in one of Kubernetes 1.35": (pod(workloadRef={"name": "w", "podGroup": "g"}), ("spec.workloadRef",)),
    "among the host's processes": (pod(hostPID=True), ("spec.hostPID", "volcano.sh/gpu-h20")),
    "a privileged container": (
        pod({**container(vgpu_h20=1), "securityContext": {"privileged": True}}),
        ('spec.containers["c"].securityContext.privileged', "whole cards"),
    ),
    "a privileged container beside the share": (
        pod(container(vgpu_h20=1), {**container("side"), "securityContext": {"privileged": True}}),
        ('spec.containers["side"].securityContext.privileged',),
    ),
    **{
        f"a volume over the library's files: {place}": (
            pod({**container(vgpu_h20=1), "volumeMounts": [{"name": "v", "mountPath": place}]}),
            ('spec.containers["c"].volumeMounts[0].mountPath', "limits of a share"),
        )
        for place in ("/etc/ld.so.preload", "/etc/egpu/control", "//run/./egpu/", "usr/local/x/../vc-egpu")
    },
    "empty node-affinity terms": (
        pod(affinity={"nodeAffinity": EMPTY_TERM}),
        ("nodeSelectorTerms[0]", "matches no node"),
    ),
    "a third scheduler": (pod(schedulerName="mine"), ("spec.schedulerName", "'mine'", "leave it out")),
    "oversubscribe, neither yes nor no": (
        pod(annotations={"egpu.volcano.sh/oversubscribe": "2"}),
        ("oversubscribe", "'2'", "true, false"),
    ),
    "oversubscribe beside whole cards": (
        pod(container(gpu_h20=2), annotations={"egpu.volcano.sh/oversubscribe": "true"}),
        ("oversubscribe", "volcano.sh/gpu-h20: 2", "cannot spill"),
    ),
    "an unknown policy": (pod(annotations={"egpu.volcano.sh/card-policy": "best"}), ("best", "binpack")),
    "a signal that ends programs": (
        pod(annotations={"egpu.volcano.sh/suspend-signal": "SIGKILL"}),
        ("suspend-signal", "'SIGKILL'", "SIGUSR1, SIGUSR2, SIGTSTP"),
    ),
    "an unknown core policy": (pod(annotations={"egpu.volcano.sh/core-policy": "x"}), ("hard, soft",)),
    "its own model ruled out": (
        pod(annotations={"egpu.volcano.sh/avoid-models": "h20"}),
        ("avoid-models", "'h20'"),
    ),
    "its own model ruled out in HAMi's words": (
        pod(annotations={"nvidia.com/use-gputype": "tesla,A100"}),
        ('annotations["nvidia.com/use-gputype"]', "'h20'"),
    ),
    "the same the other way round": (
        pod(annotations={"nvidia.com/nouse-gputype": "H20"}),
        ("nvidia.com/nouse-gputype", "'h20'"),
    ),
    "an unknown model to avoid": (pod(annotations={"egpu.volcano.sh/avoid-models": "q"}), ("'q'",)),
}


@pytest.mark.parametrize("story", HOSTILE)
def test_hostile_pods_are_refused(story: str) -> None:
    obj, words = HOSTILE[story]
    message = refusal(obj)
    assert all(word in message for word in words), message


def test_volumes_elsewhere_are_the_pod_s_own_matter() -> None:
    mounts = [{"name": "v", "mountPath": place} for place in ("/etc", "/etc/egpu2", "/run", "/data")]
    assert waits(complete(pod({**container(vgpu_h20=1), "volumeMounts": mounts})))


def test_whole_native_cards_may_go_to_privileged_pods() -> None:
    privileged = {**container(gpu_h20=1), "securityContext": {"privileged": True}}
    here = context(queues={"a": queue("a", capability={"volcano.sh/gpu-h20": 1})})
    assert waits(complete(pod(privileged, hostPID=True), here))


def test_a_request_that_lies_about_its_totals_is_refused() -> None:
    once = complete(asking(vgpu_h20=1, vgpu_memory=1000, vgpu_cores=10))
    text = once["metadata"]["annotations"]["egpu.volcano.sh/request"]
    for old, new in (
        ("1000", "90000"),
        ('"coresPercent":10', '"coresPercent":90'),
        ('"cards":1', '"cards":2'),
    ):
        once["metadata"]["annotations"]["egpu.volcano.sh/request"] = text.replace(old, new)
        assert "egpu.volcano.sh/request" in refusal(once)


@pytest.mark.parametrize(
    "lies",
    [
        {'"memoryMiB":98304': '"memoryMiB":1'},
        {'"whole":true': '"whole":false'},
        {'"memoryMiB":98304': '"memoryMiB":1', '"whole":true': '"whole":false'},
    ],
)
def test_a_request_that_makes_a_share_of_whole_native_cards_is_refused(lies: dict[str, str]) -> None:
    """Its totals are cards alone: of the rest they tell nothing."""
    here = context(queues={"a": queue("a", capability={"volcano.sh/gpu-h20": 1})})
    once = complete(pod(container(gpu_h20=1)), here)
    assert complete(once, here) == once
    annotations = once["metadata"]["annotations"]
    for old, new in lies.items():
        assert old in annotations["egpu.volcano.sh/request"]
        annotations["egpu.volcano.sh/request"] = annotations["egpu.volcano.sh/request"].replace(old, new)
    assert "egpu.volcano.sh/request" in refusal(once, here)


@pytest.mark.parametrize("name", ["card-policy", "node-policy"])
def test_topology_is_accepted_without_a_warning(name: str) -> None:
    decision = review_pod(create(pod(annotations={f"egpu.volcano.sh/{name}": "topology"})), context())
    assert decision.allowed
    assert not decision.warnings


def test_volcano_where_it_does_not_schedule_becomes_the_local_scheduler_with_a_warning() -> None:
    obj = pod(schedulerName="volcano")
    decision = review_pod(create(obj), context(binder="scheduler"))
    assert patched(obj, decision)["spec"]["schedulerName"] == "default-scheduler"
    assert "volcano" in decision.warnings[0]
    on_volcano = context(scheduler_name="volcano", binder="scheduler")
    assert patched(obj, review_pod(create(obj), on_volcano))["spec"]["schedulerName"] == "volcano"
    assert complete(pod(schedulerName="default-scheduler"), on_volcano)["spec"]["schedulerName"] == "volcano"


def test_pods_without_a_pod_group_may_have_another_scheduler() -> None:
    mixed = context(ungrouped_scheduler_name="volcano")
    assert complete(pod(), mixed)["spec"]["schedulerName"] == "volcano", "or nobody makes its PodGroup"
    with pytest.raises(ValueError, match="mine"):
        context(ungrouped_scheduler_name="mine")


@pytest.mark.parametrize(
    "without", ["the label", "the gate", "our name", "totals instead of limits per card"]
)
def test_a_request_that_the_webhook_would_have_written_is_forged_without_the_rest(without: str) -> None:
    """It says what the pod is charged for. One that went through comes again unharmed: another webhook may
    have changed it since."""
    obj = asking(vgpu_h20=2, vgpu_memory=10)
    here = context(binder="scheduler") if without == "the gate" else context()
    done = complete(obj, here)
    assert review_pod(create(done), here).allowed
    if without == "the label":
        del done["metadata"]["labels"]["egpu.volcano.sh/managed"]
    elif without == "the gate":
        del done["spec"]["schedulingGates"]
    elif without == "our name":
        done["spec"]["schedulerName"] = "default-scheduler"
    else:
        done["spec"]["containers"] = obj["spec"]["containers"]
    message = refusal(done, here)
    assert "egpu.volcano.sh/request" in message
    assert "written by the webhook alone" in message
