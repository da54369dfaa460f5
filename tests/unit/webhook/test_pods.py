"""Pods at the door: what is completed, and a story for each refusal."""

import json
from dataclasses import replace
from typing import Any

import pytest
from unit.webhook.world import (
    ALICE,
    JOB_CONTROLLER,
    NAMESPACE,
    REPLICA_SETS,
    Ignorant,
    Json,
    container,
    context,
    create,
    limits,
    patched,
    pod,
    queue,
    update,
)
from vc_egpu.webhook.context import Context
from vc_egpu.webhook.pods import review_pod
from vc_egpu.webhook.questions import Access, Subject, Unanswered

QUEUE = "scheduling.volcano.sh/queue-name"
GROUP = "scheduling.k8s.io/group-name"
PRIORITY = "egpu.volcano.sh/priority"


def complete(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> Json:
    return patched(obj, review_pod(create(obj, subject), ctx or context()))


def refusal(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> str:
    decision = review_pod(create(obj, subject), ctx or context())
    assert not decision.allowed, decision
    return decision.message


def asking(**amounts: Any) -> Json:
    return pod(container(**amounts))


# --- what is written ---------------------------------------------------------------------------------


def test_memory_that_may_spill_is_part_of_the_request() -> None:
    wish = {"egpu.volcano.sh/oversubscribe": "true"}
    done = complete(pod(container(vgpu_h20=1, vgpu_memory=8000), annotations=wish))
    assert json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])["oversubscribe"] is True
    other = {"egpu.volcano.sh/oversubscribe": "false"}
    done = complete(pod(container(vgpu_h20=1, vgpu_memory=8000), annotations=other))
    assert json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])["oversubscribe"] is False
    decision = review_pod(create(pod(annotations=wish), ALICE), context())
    assert decision.allowed
    assert any("nothing of it spills" in warning for warning in decision.warnings)


def test_a_pod_is_completed_gated_and_its_limits_per_card_become_totals() -> None:
    done = complete(asking(vgpu_h20=2, vgpu_memory="4k", vgpu_cores=30, cpu=1))
    resources = done["spec"]["containers"][0]["resources"]
    expected = {"volcano.sh/vgpu-h20-memory": "8000", "volcano.sh/vgpu-h20-cores": "60"}
    assert resources["limits"] == {"volcano.sh/vgpu-h20": 2, "volcano.sh/cpu": 1, **expected}
    assert resources["requests"] == {"volcano.sh/vgpu-h20": "2", **expected}
    assert done["spec"]["schedulingGates"] == [{"name": "egpu.volcano.sh/admission"}]
    assert done["metadata"]["labels"] == {"egpu.volcano.sh/managed": "true"}
    assert done["spec"]["schedulerName"] == "default-scheduler"
    assert done["spec"]["priorityClassName"] == "egpu-standard"
    request = json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])
    assert request["containers"]["c"] == {
        "model": "h20", "cards": 2, "memoryMiB": 4000, "coresPercent": 30, "native": False, "whole": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("amounts", "memory_mib"),
    [
        ({"vgpu_v100_32g": 1, "vgpu_memory_percentage": 50}, 16384),
        ({"vgpu_a100_40g": 1, "vgpu_memory_percentage": 30}, 12288),
        ({"vgpu_h20": 1, "vgpu_memory": "4k"}, 4000),
        ({"vgpu_h20": 1, "vgpu_memory": "4096"}, 4096),
        ({"vgpu_h20": 1}, 98304),
    ],
)
def test_units(amounts: Json, memory_mib: int) -> None:
    queue = {"q": {"metadata": {"name": "q"}, "spec": {}, "status": {}}}
    ctx = context("alice use queues q", queues=queue, unnamed_model_unlimited=True)
    done = complete(pod(container(**amounts), annotations={QUEUE: "q"}), ctx)
    request = json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])
    assert request["containers"]["c"]["memoryMiB"] == memory_mib


def test_defaulted_requests_per_card_go_as_well() -> None:
    asked = limits(vgpu_h20=1, vgpu_memory=4096)
    obj = pod({"name": "c", "resources": {"limits": asked, "requests": dict(asked)}})
    resources = complete(obj)["spec"]["containers"][0]["resources"]
    assert set(resources["limits"]) == set(resources["requests"]) == {
        "volcano.sh/vgpu-h20", "volcano.sh/vgpu-h20-memory",
    }  # fmt: skip


def test_native_cards_are_whole_and_counted_by_number_alone() -> None:
    queues = {"n": {"metadata": {"name": "n"}, "spec": {"capability": {"volcano.sh/gpu-h20": 2}}}}
    obj = pod(container(gpu_h20=2), annotations={QUEUE: "n"})
    done = complete(obj, context("alice use queues n", queues=queues))
    assert done["spec"]["containers"][0]["resources"]["requests"] == {"volcano.sh/gpu-h20": "2"}
    request = json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])
    assert request["containers"]["c"]["native"]
    assert request["containers"]["c"]["whole"]


def test_a_sidecar_may_have_cards() -> None:
    sidecar = {**container("s", vgpu_h20=1, vgpu_memory=1000), "restartPolicy": "Always"}
    done = complete(pod(container("main"), initContainers=[sidecar]))
    assert "volcano.sh/vgpu-h20-memory" in done["spec"]["initContainers"][0]["resources"]["requests"]


def test_a_member_without_cards_carries_an_empty_request() -> None:
    done = complete(pod(container(), labels={"egpu.volcano.sh/managed": "true"}))
    assert json.loads(done["metadata"]["annotations"]["egpu.volcano.sh/request"])["containers"] == {}
    assert done["spec"]["schedulingGates"]


@pytest.mark.parametrize(
    "obj",
    [
        pod(container()),
        asking(vgpu_number=1, vgpu_memory=1000, vgpu_cores=10),
        asking(vgpu_memory=1000),
        asking(gpu_number=1),
        asking(gpu_memory=100),
        pod({"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}),
    ],
)
def test_what_is_not_ours_is_left_alone(obj: Json) -> None:
    decision = review_pod(create(obj), context())
    assert decision.allowed
    assert not decision.patch


def test_completing_twice_is_completing_once() -> None:
    once = complete(asking(vgpu_h20=2, vgpu_memory=1000, vgpu_cores=10))
    assert review_pod(create(once), context()).patch == ()


def test_priority_is_what_the_server_would_fill_in_so_that_it_need_not_ask_again() -> None:
    obj = pod(container(vgpu_h20=1), priority=0, preemptionPolicy="PreemptLowerPriority")
    classes = context().priority_classes
    standard: Json = {**classes["egpu-standard"], "value": 7}
    known = replace(context(), priority_classes={**classes, "egpu-standard": standard})
    first = patched(obj, review_pod(create(obj), known))
    assert (first["spec"]["priority"], first["spec"]["preemptionPolicy"]) == (7, "Never")
    assert review_pod(create(first), known).patch == ()


def test_priority_of_a_class_that_was_not_seen_yet_is_left_to_the_server() -> None:
    obj = pod(container(vgpu_h20=1), priority=0, preemptionPolicy="PreemptLowerPriority")
    known = replace(context(), priority_classes={})
    first = patched(obj, review_pod(create(obj), known))
    assert not {"priority", "preemptionPolicy"} & set(first["spec"])
    first["spec"] |= {"priority": 0, "preemptionPolicy": "Never"}
    assert review_pod(create(first), known).patch == ()


def test_a_bare_pod_can_be_applied_again() -> None:
    manifest = asking(vgpu_h20=2, vgpu_memory=1000)
    stored = complete(manifest)
    merged = json.loads(json.dumps(stored))
    merged["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] = 1000
    assert patched(merged, review_pod(update(merged, stored), context())) == stored
    merged["spec"]["containers"][0]["resources"]["limits"]["volcano.sh/vgpu-memory"] = 2000
    assert review_pod(update(merged, stored), context()).patch == ()


# --- priority ----------------------------------------------------------------------------------------


def test_low_may_be_preempted_and_says_so_to_volcano() -> None:
    done = complete(pod(annotations={PRIORITY: "low"}))
    assert done["spec"]["priorityClassName"] == "egpu-low"
    assert done["metadata"]["annotations"]["volcano.sh/preemptable"] == "true"


def test_low_does_not_take_long_to_give_way() -> None:
    """Its cards are its own until it is gone: who takes its place would wait for a week."""
    for seconds, low, refused in ((3600, True, False), (3601, True, True), (604800, False, False)):
        obj = pod(annotations={PRIORITY: "low"} if low else {}, terminationGracePeriodSeconds=seconds)
        decision = review_pod(create(obj), context())
        assert decision.allowed is not refused, decision
        assert not refused or all(
            word in decision.message
            for word in ("spec.terminationGracePeriodSeconds: 3601", "above 3600", '"low"')
        )
    obj = pod(annotations={PRIORITY: "low"}, terminationGracePeriodSeconds=61)
    assert "above 60" in refusal(obj, context(max_low_grace_s=60))
    of_older = of_job(pod(annotations={PRIORITY: "low"}, terminationGracePeriodSeconds=9999))
    assert complete(of_older, context(groups=[group()]), JOB_CONTROLLER), "its Job was checked, or is older"


def test_high_needs_leave() -> None:
    obj = pod(annotations={PRIORITY: "high"})
    message = refusal(obj)
    assert PRIORITY in message
    assert "user 'alice'" in message
    assert "service account team-a/default" in message
    assert "egpu-high" in message
    assert (
        complete(obj, context("alice use priorityclasses egpu-high"))["spec"]["priorityClassName"]
        == "egpu-high"
    )
    account = "system:serviceaccount:team-a:default use priorityclasses egpu-high"
    assert complete(obj, context(account))["spec"]["priorityClassName"] == "egpu-high"


def test_a_global_default_class_counts_as_unnamed() -> None:
    spec: Json = {
        "priorityClassName": "cluster-default",
        "priority": 5,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    done = complete(pod(container(vgpu_h20=1), **spec))
    assert done["spec"]["priorityClassName"] == "egpu-standard"
    assert done["spec"]["priority"] == 0


def test_a_named_class_that_never_preempts_stays() -> None:
    done = complete(pod(priorityClassName="team", preemptionPolicy="Never", priority=7))
    assert (done["spec"]["priorityClassName"], done["spec"]["priority"]) == ("team", 7)


@pytest.mark.parametrize(
    ("spec", "annotations", "words"),
    [
        ({"priorityClassName": "pushy"}, {}, ("pushy", "PreemptLowerPriority", "Never")),
        ({"priorityClassName": "egpu-high"}, {}, ("egpu-high", "unset")),
        ({"priorityClassName": "egpu-low"}, {}, ("egpu-low",)),
        ({"priorityClassName": "nowhere"}, {}, ("nowhere", "does not exist")),
        ({}, {PRIORITY: "urgent"}, ("urgent", "high", "low")),
    ],
)
def test_refused_classes(spec: Json, annotations: Json, words: tuple[str, ...]) -> None:
    message = refusal(pod(container(vgpu_h20=1), annotations=annotations, **spec))
    assert all(word in message for word in words), message


# --- bad asks: field, number, limit ------------------------------------------------------------------

BAD_ASKS: dict[str, tuple[Json, tuple[str, ...]]] = {
    "an unknown model": (
        {"vgpu_zz9": 1},
        ('limits["volcano.sh/vgpu-zz9"]', "'zz9'", "a100-40g, h20, v100-32g"),
    ),
    "a model of two sizes": ({"vgpu_a100": 1}, ("'a100'", "did you mean 'a100-40g'")),
    "memory misspelt": (
        {"vgpu_h20": 1, "vgpu_mem": 1024},
        ('limits["volcano.sh/vgpu-mem"]', "'mem' is no model, did you mean volcano.sh/vgpu-memory?"),
    ),
    "cores misspelt": ({"vgpu_h20": 1, "vgpu_core": 50}, ("did you mean volcano.sh/vgpu-cores?",)),
    "a model misspelt": ({"vgpu_h200": 1}, ("'h200'", "did you mean 'h20'")),
    "memory beyond the card": ({"vgpu_h20": 1, "vgpu_memory": 98305}, ("vgpu-memory", "98305", "98304")),
    "percentage with memory": (
        {"vgpu_h20": 1, "vgpu_memory": 1000, "vgpu_memory_percentage": 50},
        ("vgpu-memory-percentage", "50", "1000"),
    ),
    "percentage 0": ({"vgpu_h20": 1, "vgpu_memory_percentage": 0}, ("0 is below 1",)),
    "percentage 101": ({"vgpu_h20": 1, "vgpu_memory_percentage": 101}, ("101 is above 100",)),
    "cores without memory": ({"vgpu_h20": 1, "vgpu_cores": 50}, ("vgpu-cores", "50", "vgpu-memory")),
    "cores 0": ({"vgpu_h20": 1, "vgpu_memory": 10, "vgpu_cores": 0}, ("vgpu-cores", "0 is below 1", "100")),
    "cores 101": ({"vgpu_h20": 1, "vgpu_memory": 10, "vgpu_cores": 101}, ("101 is above 100",)),
    "cores -1": ({"vgpu_h20": 1, "vgpu_memory": 10, "vgpu_cores": -1}, ("-1 is below 1", "1 to 100")),
    "cores 1e30": ({"vgpu_h20": 1, "vgpu_memory": 10, "vgpu_cores": "1e30"}, ("1e30", "1 to 100")),
    "cores of half a percent": ({"vgpu_h20": 1, "vgpu_memory": 10, "vgpu_cores": "500m"}, ("500m", "whole")),
    "4Gi": ({"vgpu_h20": 1, "vgpu_memory": "4Gi"}, ("4Gi", "the unit is MiB, did you mean 4096?")),
    "20G": ({"vgpu_h20": 1, "vgpu_memory": "20G"}, ("did you mean 19073?",)),
    "memory 0": ({"vgpu_h20": 1, "vgpu_memory": 0}, ("0 is below 1",)),
    "memory nonsense": ({"vgpu_h20": 1, "vgpu_memory": "lots"}, ("'lots' is not a quantity",)),
    "more cards than a node has": ({"vgpu_v100_32g": 5}, ("5 is above 4", "largest v100-32g node")),
    "no cards": ({"vgpu_h20": 0}, ("0 is below 1",)),
    "half a card": ({"vgpu_h20": "0.5"}, ("'0.5' is not a whole number", "1 to 8")),
    "2^64 cards": ({"vgpu_h20": 2**64}, ("1 to 8",)),
    "two models in one container": (
        {"vgpu_h20": 1, "vgpu_v100_32g": 1},
        ("two models", "vgpu-h20", "v100-32g"),
    ),
    "Volcano's kind beside ours": ({"vgpu_h20": 1, "vgpu_number": 1}, ("vgpu-number",)),
    "memory beside whole cards": ({"gpu_h20": 1, "vgpu_memory": 10}, ("gpu-h20", "vgpu-memory")),
    "a forged total": ({"vgpu_h20": 2, "vgpu_memory": 10, "vgpu_h20_memory": 5}, ("5", "20 (2 × 10 MiB)")),
    "a total alone": ({"vgpu_h20_memory": 5}, ("no model is named",)),
}


@pytest.mark.parametrize("story", BAD_ASKS)
def test_bad_asks_are_refused_with_field_number_and_limit(story: str) -> None:
    amounts, words = BAD_ASKS[story]
    message = refusal(asking(**amounts))
    assert 'spec.containers["c"]' in message
    assert all(word in message for word in words), message


def test_both_kinds_in_two_containers_are_refused() -> None:
    message = refusal(pod(container("a", vgpu_h20=1), container("b", vgpu_number=1)))
    assert 'spec.containers["b"]' in message
    message = refusal(pod(container("a", vgpu_h20=1), container("b", vgpu_memory=100)))
    assert 'spec.containers["b"]' in message


def test_init_containers_with_cards_are_refused_by_name() -> None:
    message = refusal(pod(container(), initContainers=[container("warm-up", vgpu_h20=1)]))
    assert 'spec.initContainers["warm-up"]' in message
    assert "sidecar" in message


def test_requests_that_differ_from_limits_are_refused() -> None:
    asked = {"limits": limits(vgpu_h20=2), "requests": limits(vgpu_h20=1)}
    message = refusal(pod({"name": "c", "resources": asked}))
    assert 'requests["volcano.sh/vgpu-h20"]: 1 differs from the limit 2' in message
    message = refusal(pod({"name": "c", "resources": {"requests": limits(vgpu_h20=1)}}))
    assert "without a limit" in message


def test_containers_that_together_exceed_a_node_are_refused() -> None:
    message = refusal(pod(container("a", vgpu_v100_32g=3), container("b", vgpu_v100_32g=2)))
    assert "163840 MiB" in message
    assert "131072" in message


def test_shares_and_whole_cards_in_one_pod_are_refused() -> None:
    assert "no node offers both" in refusal(pod(container("a", vgpu_h20=1), container("b", gpu_h20=1)))


# --- forged, pinned, foreign -------------------------------------------------------------------------

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
    "a label that is not true": (pod(labels={"egpu.volcano.sh/managed": "no"}), ("managed", "'no'", "true")),
    "bound by hand": (pod(nodeName="node-7"), ("spec.nodeName", "node-7")),
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
    "a third scheduler": (pod(schedulerName="mine"), ("spec.schedulerName", "'mine'", "default-scheduler")),
    "oversubscribe, neither yes nor no": (
        pod(annotations={"egpu.volcano.sh/oversubscribe": "2"}),
        ("oversubscribe", "'2'", "true, false"),
    ),
    "oversubscribe beside whole cards": (
        pod(container(gpu_h20=2), annotations={"egpu.volcano.sh/oversubscribe": "true"}),
        ("oversubscribe", "volcano.sh/gpu-h20: 2", "cannot spill"),
    ),
    "an unknown policy": (pod(annotations={"egpu.volcano.sh/card-policy": "best"}), ("best", "binpack")),
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
    assert complete(pod({**container(vgpu_h20=1), "volumeMounts": mounts}))["spec"]["schedulingGates"]


def test_whole_native_cards_may_go_to_privileged_pods() -> None:
    privileged = {**container(gpu_h20=1), "securityContext": {"privileged": True}}
    here = context(queues={"a": queue("a", capability={"volcano.sh/gpu-h20": 1})})
    assert complete(pod(privileged, hostPID=True), here)["spec"]["schedulingGates"]


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


def test_topology_is_accepted_with_a_warning() -> None:
    decision = review_pod(create(pod(annotations={"egpu.volcano.sh/card-policy": "topology"})), context())
    assert decision.allowed
    assert "topology" in decision.warnings[0]


def test_volcano_where_it_does_not_schedule_becomes_the_local_scheduler_with_a_warning() -> None:
    obj = pod(schedulerName="volcano")
    decision = review_pod(create(obj), context())
    assert patched(obj, decision)["spec"]["schedulerName"] == "default-scheduler"
    assert "volcano" in decision.warnings[0]
    on_volcano = context(scheduler_name="volcano")
    assert patched(obj, review_pod(create(obj), on_volcano))["spec"]["schedulerName"] == "volcano"
    assert complete(pod(schedulerName="default-scheduler"), on_volcano)["spec"]["schedulerName"] == "volcano"


def test_pods_without_a_pod_group_may_have_another_scheduler() -> None:
    mixed = context(ungrouped_scheduler_name="volcano")
    assert complete(pod(), mixed)["spec"]["schedulerName"] == "volcano", "or nobody makes its PodGroup"
    with pytest.raises(ValueError, match="mine"):
        context(ungrouped_scheduler_name="mine")


# --- queues and groups -------------------------------------------------------------------------------

QUEUE_STORIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown": ("nowhere", ("'nowhere' does not exist", "you may use: a, org-1")),
    "closed": ("closed", ("'closed' is Closed",)),
    "without leave": ("org-2", ("may not use queue 'org-2'", '"use"', "you may use: a, org-1")),
    "not a leaf": ("org", ("may not use",)),
    "the root": ("root", ("'root' takes no work",)),
    "without the model": ("default", ("may not use queue 'default'",)),
}


@pytest.mark.parametrize("story", QUEUE_STORIES)
def test_queues_that_do_not_take_it(story: str) -> None:
    name, words = QUEUE_STORIES[story]
    message = refusal(pod(annotations={QUEUE: name}))
    assert all(word in message for word in words), message


def test_no_queue_named_lists_those_that_would_do() -> None:
    obj = pod()
    del obj["metadata"]["annotations"][QUEUE]
    assert "no queue is named; you may use: a, org-1" in refusal(obj)


def test_the_namespace_names_the_queue_of_pods_that_name_none() -> None:
    obj = pod()
    del obj["metadata"]["annotations"][QUEUE]
    ctx = context()
    namespace = {"metadata": {"name": NAMESPACE, "annotations": {QUEUE: "a"}}}
    ctx = replace(ctx, namespaces={NAMESPACE: namespace})
    assert complete(obj, ctx)["metadata"]["annotations"][QUEUE] == "a"


def test_a_pod_of_a_replica_set_goes_by_its_service_account() -> None:
    obj = pod()
    message = refusal(obj, subject=REPLICA_SETS)
    assert "service account team-a/default" in message
    account = "system:serviceaccount:team-a:default use queues a"
    assert complete(obj, context(account), REPLICA_SETS)["spec"]["schedulingGates"]


def test_a_cap_that_can_never_hold_the_pod_is_named() -> None:
    message = refusal(pod(container(vgpu_h20=5, vgpu_memory=90000)))
    assert "450000 volcano.sh/vgpu-h20-memory" in message
    assert "cap of queue 'a' is 400000" in message


def test_a_model_that_the_queue_does_not_name_is_not_allowed_unless_switched() -> None:
    obj = pod(container(vgpu_v100_32g=1))
    assert "does not name volcano.sh/vgpu-v100-32g" in refusal(obj)
    assert complete(obj, context(unnamed_model_unlimited=True))


def group(owner: str | None = "job-uid", queue: str = "a", name: str = "g", **annotations: str) -> Json:
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}] if owner else []
    metadata = {"name": name, "namespace": NAMESPACE, "ownerReferences": owners, "annotations": annotations}
    return {"metadata": metadata, "spec": {"queue": queue}}


def of_job(obj: Json, uid: str = "job-uid") -> Json:
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": uid,
        "controller": True,
    }
    obj["metadata"]["ownerReferences"] = [owner]
    obj["metadata"]["annotations"][GROUP] = "g"
    return obj


@pytest.mark.parametrize(
    ("owned", "keep", "kept"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_who_wrote_which_field_is_noted_where_pods_are_applied(owned: bool, keep: bool, kept: bool) -> None:
    obj = of_job(pod()) if owned else pod()
    obj["metadata"]["managedFields"] = [{"manager": "vc-controllers", "operation": "Update"}]
    ctx = context(groups=[group()], keep_managed_fields=keep)
    done = complete(obj, ctx, JOB_CONTROLLER if owned else ALICE)
    assert ("managedFields" in done["metadata"]) is kept


def test_pods_of_a_job_were_checked_with_it_and_come_even_when_the_queue_has_closed() -> None:
    obj = of_job(pod(annotations={QUEUE: "closed"}))
    done = complete(obj, context(groups=[group(queue="closed")]), JOB_CONTROLLER)
    assert done["spec"]["schedulingGates"]


def test_a_group_left_in_another_queue_than_its_jobs_is_checked() -> None:
    """Volcano makes the PodGroup once: a Job that asked for no cards then may have named anybody's queue."""
    job = {"metadata": {"uid": "job-uid", "annotations": {}}, "spec": {"queue": "a"}}
    obj = of_job(pod(annotations={QUEUE: "org-2"}))
    ctx = replace(context(groups=[group(queue="org-2")]), jobs={(NAMESPACE, "j"): job})
    decision = review_pod(create(obj, JOB_CONTROLLER), ctx)
    assert not decision.allowed
    assert "may not use queue 'org-2'" in decision.message
    assert complete(of_job(pod()), replace(ctx, answers=context(groups=[group()]).answers), JOB_CONTROLLER)


def test_whoever_pretends_to_be_a_job_is_checked_like_everybody() -> None:
    obj = of_job(pod(annotations={QUEUE: "org-2"}))
    assert "may not use queue 'org-2'" in refusal(obj, context(groups=[group(queue="org-2")]))


def test_a_pod_group_of_another_owner_is_refused() -> None:
    message = refusal(pod(annotations={GROUP: "g"}), context(groups=[group()]))
    assert "PodGroup 'g' belongs to Job 'j', this pod to nobody" in message
    message = refusal(of_job(pod(), uid="other"), context(groups=[group()]), JOB_CONTROLLER)
    assert "belongs to Job 'j', this pod to Job 'j'" in message


def test_a_pod_group_that_does_not_exist_is_refused() -> None:
    assert "PodGroup 'g' does not exist" in refusal(pod(annotations={GROUP: "g"}))


def test_the_groups_queue_counts_and_another_on_the_pod_is_refused() -> None:
    message = refusal(pod(annotations={GROUP: "g"}), context(groups=[group(owner=None, queue="org-1")]))
    assert "'a', but its PodGroup is in queue 'org-1'" in message


def test_the_queue_that_was_checked_is_noted_on_the_pod() -> None:
    """A group that is made anew under it may name another: then it can be told."""
    obj = pod(annotations={GROUP: "g"})
    del obj["metadata"]["annotations"][QUEUE]
    done = complete(obj, context(groups=[group(owner=None, queue="org-1")]))
    assert done["metadata"]["annotations"][QUEUE] == "org-1"
    of_volcano = of_job(pod())
    del of_volcano["metadata"]["annotations"][QUEUE]
    done = complete(of_volcano, context(groups=[group()]), JOB_CONTROLLER)
    assert QUEUE not in done["metadata"]["annotations"], "a Job's pods follow their Job"


def test_class_comes_from_the_template_then_the_job_then_the_group() -> None:
    job = {"metadata": {"uid": "job-uid", "annotations": {PRIORITY: "low"}}, "spec": {"queue": "a"}}
    ctx = context(groups=[group(**{PRIORITY: "high"})])
    ctx = replace(ctx, jobs={(NAMESPACE, "j"): job})
    assert complete(of_job(pod()), ctx, JOB_CONTROLLER)["spec"]["priorityClassName"] == "egpu-low"
    own = of_job(pod(annotations={PRIORITY: "high"}))
    assert complete(own, ctx, JOB_CONTROLLER)["spec"]["priorityClassName"] == "egpu-high"


def test_high_written_on_a_group_alone_needs_leave() -> None:
    ctx = context(groups=[group(**{PRIORITY: "high"})])
    assert 'priority "high"' in refusal(of_job(pod()), ctx, JOB_CONTROLLER)


def test_a_review_says_what_it_needs_to_know() -> None:
    ctx = context()
    rbac = Ignorant(["alice use queues a"])
    ctx = replace(ctx, answers=rbac)
    with pytest.raises(Unanswered) as unanswered:
        review_pod(create(pod()), ctx)
    asked = [question for question in unanswered.value.questions if isinstance(question, Access)]
    assert {(q.subject.user, q.name, q.namespace) for q in asked} == {
        ("alice", "a", NAMESPACE),
        ("system:serviceaccount:team-a:default", "a", NAMESPACE),
    }
    rbac.told |= set(asked)
    assert review_pod(create(pod()), ctx).allowed


def test_a_misspelt_annotation_of_a_pod_is_told_of() -> None:
    obj = pod(container(vgpu_h20=1), annotations={"egpu.volcano.sh/Priority": "low", QUEUE: "a"})
    decision = review_pod(create(obj), context())
    assert decision.allowed, decision.message
    assert any("did you mean egpu.volcano.sh/priority?" in warning for warning in decision.warnings)


def test_thousands_of_misspelt_annotations_cost_no_more_than_the_few_that_are_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Anybody may send them, and every review of the cluster waits for this one."""
    looked: list[str] = []

    def near(word: str, *_: object, **__: object) -> list[str]:
        looked.append(word)
        return []

    monkeypatch.setattr("difflib.get_close_matches", near)
    many = {f"egpu.volcano.sh/priorit{number}": "low" for number in range(1000)}
    decision = review_pod(create(pod(container(vgpu_h20=1), annotations={**many, QUEUE: "a"})), context())
    assert decision.allowed
    assert len(decision.warnings) == 4
    assert len(looked) <= 4
