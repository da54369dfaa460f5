"""Pods at the door: what is completed, and a story for each ask that is refused."""

import json
from dataclasses import replace

import pytest
from unit.webhook.pod_reviews import QUEUE, asking, complete, refusal
from unit.webhook.world import (
    ALICE,
    NAMESPACE,
    Ignorant,
    Json,
    container,
    context,
    create,
    limits,
    patched,
    pod,
    update,
)
from vc_egpu.webhook.protocol.questions import Access, Unanswered
from vc_egpu.webhook.reviews.pods import review_pod

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


def test_a_pod_is_completed_and_waits_and_its_limits_per_card_become_totals() -> None:
    done = complete(asking(vgpu_h20=2, vgpu_memory="4k", vgpu_cores=30, cpu=1))
    resources = done["spec"]["containers"][0]["resources"]
    expected = {"volcano.sh/vgpu-h20-memory": "8000", "volcano.sh/vgpu-h20-cores": "60"}
    assert resources["limits"] == {"volcano.sh/vgpu-h20": 2, "volcano.sh/cpu": 1, **expected}
    assert resources["requests"] == {"volcano.sh/vgpu-h20": "2", **expected}
    assert "schedulingGates" not in done["spec"]
    assert done["metadata"]["labels"] == {"egpu.volcano.sh/managed": "true"}
    assert done["spec"]["schedulerName"] == "vc-egpu"
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


# --- queues and groups -------------------------------------------------------------------------------


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
    looked_for: list[str],
) -> None:
    """Anybody may send them, and every review of the cluster waits for this one."""
    many = {f"egpu.volcano.sh/priorit{number}": "low" for number in range(1000)}
    decision = review_pod(create(pod(container(vgpu_h20=1), annotations={**many, QUEUE: "a"})), context())
    assert decision.allowed
    assert len(decision.warnings) == 4
    assert len(looked_for) <= 4
