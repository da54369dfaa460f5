"""The bodies of the writes: one patch per pod, narrowed terms, conditions beside those of others."""

from dataclasses import replace

import pytest
from unit.admission.build import TABLE, group, pod
from vc_egpu.admission.execution import writes
from vc_egpu.core.model.cluster import CardId, MemberPlacement, NodeName, Share, ShareClass
from vc_egpu.volcano.codec import cluster_codec, pod_codec
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import Cards

PLACE = MemberPlacement(NodeName("n1"), (("main", Share(CardId("GPU-n1-2"), 30000, 30)),))
TERM_A = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
TERM_B = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}]}


def body(**spec: object) -> writes.Json:
    decoded = pod_codec.pod(pod(spec=spec), TABLE)
    return writes.carry_patch(decoded, PLACE, plan_id="5-1", share_class=ShareClass.LOW)


def terms(patch: writes.Json) -> object:
    required = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return required["nodeSelectorTerms"]


def test_cards_pin_and_gate_go_in_one_conditional_patch() -> None:
    patch = body()
    decoded = pod_codec.pod(pod(), TABLE)
    assert patch["metadata"]["uid"] == decoded.pod.uid
    assert patch["metadata"]["resourceVersion"]
    assert patch["spec"]["schedulingGates"] is None
    cards = Cards.decode(patch["metadata"]["annotations"][names.CARDS])
    assert (cards.node, cards.plan_id, cards.share_class) == ("n1", "5-1", "low")
    assert [(s.uuid, s.memory_mib, s.cores) for s in cards.containers["main"]] == [("GPU-n1-2", 30000, 30)]
    assert terms(patch) == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]


@pytest.mark.parametrize(("wished", "told"), [("soft", "soft"), ("hard", "hard"), ("", "hard")])
def test_the_node_is_told_all_that_was_decided_of_the_cards(wished: str, told: str) -> None:
    decoded = replace(pod_codec.pod(pod(), TABLE), core_policy=wished)
    spills = Share(CardId("GPU-n1-2"), 30000, 30, physical_mib=20000)
    whole = Share(CardId("GPU-n1-3"), 98304, 0, native=True)

    def cards(*shares: Share) -> Cards:
        placement = MemberPlacement(NodeName("n1"), tuple(("main", share) for share in shares))
        patch = writes.carry_patch(decoded, placement, plan_id="5-1", share_class=ShareClass.HIGH)
        return Cards.decode(patch["metadata"]["annotations"][names.CARDS])

    shared = cards(spills)
    assert (shared.share_class, shared.core_policy, shared.native) == ("high", told, False)
    assert [share.physical_mib for share in shared.containers["main"]] == [20000]
    assert cards(whole).native


def test_terms_that_match_no_node_match_none_afterwards() -> None:
    def of(*given: writes.Json) -> object:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(given)}}
        return terms(body(affinity={"nodeAffinity": required}))

    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert of(TERM_A) == [{**TERM_A, "matchFields": [pin]}]
    assert of({}, {}) == [{}, {}]


def test_the_pin_is_appended_to_every_term_and_gates_of_others_stay() -> None:
    pin = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    patch = body(
        schedulingGates=[{"name": "someone/else"}, {"name": names.GATE}],
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM_A, {}, TERM_B]}
            }
        },
    )
    assert patch["spec"]["schedulingGates"] == [{"name": "someone/else"}]
    # The empty term matches nothing; the API server refuses to drop it, and narrowing it would widen it.
    assert terms(patch) == [
        {**TERM_A, "matchFields": [pin]},
        {},
        {"matchFields": [*TERM_B["matchFields"], pin]},
    ]


def test_a_member_without_cards_is_only_ungated() -> None:
    decoded = pod_codec.pod(pod(), TABLE)
    patch = writes.carry_patch(
        decoded, MemberPlacement(None), plan_id="5-1", share_class=ShareClass.UNSET, resource_version="77"
    )
    assert patch == {
        "metadata": {"uid": decoded.pod.uid, "resourceVersion": "77"},
        "spec": {"schedulingGates": None},
    }


def test_vc_scheduler_is_told_the_node_first_and_no_other_scheduler_is() -> None:
    for name, told in ((names.SCHEDULER_VOLCANO, True), ("default-scheduler", False)):
        decoded = pod_codec.pod(pod(spec={"schedulerName": name}), TABLE)
        assert writes.is_bound_by_volcano(decoded) is told
    assert writes.nominate_patch(decoded, PLACE) == {
        "metadata": {"uid": decoded.pod.uid},
        "status": {"nominatedNodeName": "n1"},
    }


def test_what_depends_on_what_was_read_is_refused_once_it_is_something_else() -> None:
    decoded = pod_codec.pod(pod(spec={"schedulingGates": [{"name": "a/b"}, {"name": names.GATE}]}), TABLE)
    read = {"uid": decoded.pod.uid, "resourceVersion": decoded.resource_version}
    assert writes.pod_patch(decoded, {"x": None}) == {"metadata": {**read, "annotations": {"x": None}}}
    assert writes.ungate_patch(decoded) == {
        "metadata": read,
        "spec": {"schedulingGates": [{"name": "a/b"}]},
    }


def test_a_condition_says_since_when_and_no_more_than_fits() -> None:
    told = writes.condition(admitted=True, reason="Admitted", message="x" * 2000, now=1_750_000_000.9)
    assert told["status"] == "True"
    assert told["lastTransitionTime"] == "2025-06-15T15:06:40Z"
    assert told["message"] == "x" * 1024
    fence = writes.fence_patch(pod_codec.pod(pod(), TABLE), 0.0)["status"]["conditions"][0]
    assert fence["status"] == "False", "nobody may take it for a pod that was admitted"


def test_conditions_of_others_on_a_podgroup_are_kept() -> None:
    other = {"type": "Unschedulable", "status": "True"}
    old = writes.condition(admitted=False, reason="WaitingForCards", message="0 of 2", now=0)
    decoded = cluster_codec.group(group(conditions=[other, old]))
    new = writes.condition(admitted=True, reason="Admitted", message="2 members placed", now=1)
    patch = writes.group_patch(decoded, annotations={names.PLAN: "x"}, condition=new)
    assert patch["status"]["conditions"] == [other, new]
    assert patch["metadata"]["uid"] == "group-g"
    assert patch["metadata"]["annotations"] == {names.PLAN: "x"}


def test_the_record_of_who_wrote_which_field_goes_where_nobody_applies_the_podgroup() -> None:
    document = group()
    patch = writes.group_patch(cluster_codec.group(document), phase="Inqueue")
    lighter = writes.unrecorded(patch, cluster_codec.group(document))
    assert lighter["metadata"] == {**patch["metadata"], "managedFields": [{}]}
    assert lighter["status"] == patch["status"]
    for owners in ([], [{**document["metadata"]["ownerReferences"][0], "apiVersion": "apps/v1"}]):
        document["metadata"]["ownerReferences"] = owners
        assert writes.unrecorded(patch, cluster_codec.group(document)) == patch
