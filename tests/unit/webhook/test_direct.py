"""Which pods the door sends the direct way: under our own name, and without a gate."""

import pytest
from unit.webhook.pod_reviews import asking, complete, group, of_job, refusal
from unit.webhook.world import ALICE, Json, container, context, create, pod
from vc_egpu.admission.state import backoffs
from vc_egpu.admission.state.backoffs import RolledBack
from vc_egpu.core.model.cluster import NodeName
from vc_egpu.volcano.words import names
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.serving.caches import slim_group

CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
GATE = {"name": names.GATE}


def way(done: Json) -> tuple[str, list[Json]]:
    return done["spec"]["schedulerName"], done["spec"].get("schedulingGates") or []


def test_a_pod_that_the_decision_sees_whole_is_ours_to_bind() -> None:
    assert way(complete(asking(vgpu_h20=1), context())) == (names.SCHEDULER_DIRECT, [])


@pytest.mark.parametrize("named", ["default-scheduler", "volcano", names.SCHEDULER_DIRECT])
def test_whichever_known_scheduler_it_names(named: str) -> None:
    obj = pod(container(vgpu_h20=1), schedulerName=named)
    assert way(complete(obj, context())) == (names.SCHEDULER_DIRECT, [])
    assert review_pod(create(obj, ALICE), context()).warnings == ()


def test_a_third_scheduler_is_refused_either_way() -> None:
    assert "'mine' cannot bind" in refusal(pod(container(vgpu_h20=1), schedulerName="mine"), context())


def test_what_a_scheduler_has_to_look_at_is_gated() -> None:
    obj = pod(container(vgpu_h20=1), volumes=[CLAIM])
    assert way(complete(obj, context())) == ("default-scheduler", [GATE])


def test_our_name_on_what_a_scheduler_binds_is_answered() -> None:
    obj = pod(container(vgpu_h20=1), volumes=[CLAIM], schedulerName=names.SCHEDULER_DIRECT)
    decision = review_pod(create(obj, ALICE), context())
    assert decision.warnings == (
        "spec.schedulerName: 'vc-egpu' becomes 'default-scheduler', which binds managed pods here",
    )


def test_with_the_setting_scheduler_all_are_gated() -> None:
    assert way(complete(asking(vgpu_h20=1), context(binder="scheduler"))) == ("default-scheduler", [GATE])


def test_a_member_without_cards_goes_where_a_scheduler_finds_room() -> None:
    obj = of_job(pod(container(), labels={names.MANAGED_LABEL: "true"}))
    done = complete(obj, context(groups=[group()]))
    assert way(done) == ("default-scheduler", [GATE])


def test_after_a_refusal_new_pods_go_by_a_scheduler() -> None:
    obj = of_job(asking(vgpu_h20=1))
    assert way(complete(obj, context(groups=[group()])))[0] == names.SCHEDULER_DIRECT
    note = backoffs.encode(RolledBack().again(1e9, frozenset(map(NodeName, "ab")), "refused " * 60))
    refused = slim_group(group(**{names.ROLLED_BACK: note}))
    assert way(complete(obj, context(groups=[refused]))) == ("default-scheduler", [GATE])


def test_on_volcano_a_pod_without_a_group_names_its_scheduler() -> None:
    """Its controllers make PodGroups only for pods that do."""
    settings = context(ungrouped_scheduler_name="volcano")
    assert way(complete(asking(vgpu_h20=1), settings)) == ("volcano", [GATE])


def test_on_volcano_we_bind_it_where_we_make_its_group() -> None:
    settings = context(ungrouped_scheduler_name="volcano", direct_without_group=True)
    assert way(complete(asking(vgpu_h20=1), settings)) == (names.SCHEDULER_DIRECT, [])
    assert way(complete(pod(container(vgpu_h20=1), volumes=[CLAIM]), settings)) == ("volcano", [GATE])


def test_a_pod_that_comes_again_stays_on_its_way() -> None:
    """Another webhook changed it since: the API server asks us once more."""
    done = complete(asking(vgpu_h20=1), context())
    assert way(complete(done, context())) == (names.SCHEDULER_DIRECT, [])
    gated = complete(asking(vgpu_h20=1), context(binder="scheduler"))
    assert way(complete(gated, context())) == ("default-scheduler", [GATE]), "a gate stays"


def test_a_pod_to_which_a_volume_was_added_since_is_gated() -> None:
    done = complete(asking(vgpu_h20=1), context())
    done["spec"]["volumes"] = [CLAIM]
    assert way(complete(done, context())) == ("default-scheduler", [GATE])


def test_our_name_alone_is_refused() -> None:
    """The admission layer answers for whatever has it; a pod without an ask would wait without end."""
    text = refusal(pod(container(), schedulerName=names.SCHEDULER_DIRECT), context())
    assert text == "spec.schedulerName: vc-egpu is written by the webhook; leave it out"
