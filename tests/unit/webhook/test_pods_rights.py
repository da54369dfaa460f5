"""Pods at the door: who may use which class, queue and group."""

import copy
from dataclasses import replace

import pytest
from unit.webhook.job_reviews import complete as complete_job
from unit.webhook.pod_reviews import GROUP, PRIORITY, QUEUE, complete, group, of_job, refusal, waits
from unit.webhook.world import (
    ALICE,
    JOB_CONTROLLER,
    NAMESPACE,
    QUEUES,
    REPLICA_SETS,
    Json,
    caps,
    container,
    context,
    create,
    job,
    patched,
    pod,
    queue,
    task,
    update,
)
from vc_egpu.webhook.protocol.context import QueueTree
from vc_egpu.webhook.reviews.jobs.review import review_job
from vc_egpu.webhook.reviews.pods import review_pod
from vc_egpu.webhook.serving.caches import slim_job

# --- priority ----------------------------------------------------------------------------------------


def test_low_may_be_preempted_and_says_so_to_volcano() -> None:
    done = complete(pod(annotations={PRIORITY: "low"}))
    assert done["spec"]["priorityClassName"] == "egpu-low"
    assert done["metadata"]["annotations"]["volcano.sh/preemptable"] == "true"


@pytest.mark.parametrize("place", ["annotations", "labels"])
@pytest.mark.parametrize(("value", "told"), [("false", True), ("0", True), ("no", True), ("True", False)])
def test_what_a_user_told_volcano_about_preemption_stays_and_is_answered(
    place: str, value: str, told: bool
) -> None:
    said = {"volcano.sh/preemptable": value}
    obj = pod(annotations={PRIORITY: "low", **(said if place == "annotations" else {})})
    obj["metadata"]["labels"] = said if place == "labels" else {}
    decision = review_pod(create(obj), context())
    metadata = patched(obj, decision)["metadata"]
    assert metadata[place]["volcano.sh/preemptable"] == value
    assert (place == "annotations") is ("volcano.sh/preemptable" in metadata["annotations"])
    warning = (
        f'metadata.{place}["volcano.sh/preemptable"]: "{value}" stays for Volcano\'s scheduler; priority '
        '"low" wins here: pods may be suspended or evicted'
    )
    assert decision.warnings == ((warning,) if told else ())


def test_a_job_is_answered_where_it_says_so() -> None:
    said = {"volcano.sh/preemptable": "false"}
    low = {PRIORITY: "low"}
    on_job = job(task("w", 1), annotations={**low, **said})
    (warning,) = review_job(create(on_job), context()).warnings
    assert warning.startswith('metadata.annotations["volcano.sh/preemptable"]: "false" stays')
    on_task = job(task("w", 1, annotations={**low, **said}))
    (warning,) = review_job(create(on_task), context()).warnings
    assert warning.startswith('spec.tasks["w"].template.metadata.annotations["volcano.sh/preemptable"]')
    assert len(warning) < 256
    for unaffected in (job(task("w", 1), annotations=said), job(task("w", 1), annotations=low)):
        assert review_job(create(unaffected), context()).warnings == ()
    stored = complete_job(job(task("w", 1), annotations=low))
    edited = copy.deepcopy(stored)
    edited["metadata"]["annotations"] |= said
    assert len(review_job(update(edited, stored), context()).warnings) == 1


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


def test_a_queue_under_a_closed_one_is_closed_and_not_offered() -> None:
    closed = {**QUEUES, "org": queue("org", state="Closed", capability=caps(10))}
    message = refusal(pod(annotations={QUEUE: "org-1"}), context(queues=closed))
    assert "queue 'org' is Closed, and 'org-1' is under it, it takes nothing new" in message
    assert "you may use: a;" in refusal(pod(annotations={QUEUE: "nowhere"}), context(queues=closed)) + ";"


def test_a_queue_with_queues_under_it_takes_nothing_even_from_who_may_use_it() -> None:
    message = refusal(pod(annotations={QUEUE: "org"}), context("alice use queues org"))
    assert "queue 'org' has queues under it (org-1, org-2); name one of those" in message


def test_a_queue_that_names_no_model_allows_none_and_a_parent_that_names_none_has_no_say() -> None:
    obj = pod(annotations={QUEUE: "default"})
    assert "'default' does not name volcano.sh/vgpu-h20" in refusal(obj, context("alice use queues default"))
    ctx = context("alice use queues leaf")
    queues = {name: ctx.queues.get(name) or {} for name in ctx.queues.names}
    tree = {
        **queues,
        "top": queue("top", capability={"cpu": 100}),
        "leaf": queue("leaf", parent="top", capability=caps(8)),
    }
    assert complete(pod(annotations={QUEUE: "leaf"}), replace(ctx, queues=QueueTree(tree)))
    tree["top"] = queue("top", capability=caps(8, model="v100-32g"))
    message = refusal(pod(annotations={QUEUE: "leaf"}), replace(ctx, queues=QueueTree(tree)))
    assert "queue 'top' does not name volcano.sh/vgpu-h20" in message


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
    assert waits(complete(obj, context(account), REPLICA_SETS))


def replica(queue_name: str) -> Json:
    """A pod that a ReplicaSet makes in this queue."""
    made = pod(annotations={QUEUE: queue_name})
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    ]
    return made


def test_a_pod_that_a_controller_makes_waits_for_a_closed_queue() -> None:
    """Refused, it would be tried ever more seldom, at last every 17 minutes, and nobody is told."""
    account = "system:serviceaccount:team-a:default use queues closed"
    made = replica("closed")
    assert complete(made, context(account), REPLICA_SETS)["metadata"]["annotations"][QUEUE] == "closed"
    assert "'closed' is Closed" in refusal(pod(annotations={QUEUE: "closed"}), context(account), REPLICA_SETS)


def test_the_replicas_of_a_deployment_go_on_in_a_queue_that_was_divided() -> None:
    """A user who makes a queue below another one would stop the replacements of all inference in it."""
    account = "system:serviceaccount:team-a:default use queues org"
    made = replica("org")
    assert complete(made, context(account), REPLICA_SETS)["metadata"]["annotations"][QUEUE] == "org"


def test_a_cap_that_can_never_hold_the_pod_is_named() -> None:
    message = refusal(pod(container(vgpu_h20=5, vgpu_memory=90000)))
    assert "450000 volcano.sh/vgpu-h20-memory" in message
    assert "cap of queue 'a' is 400000" in message


def test_a_model_that_the_queue_does_not_name_is_not_allowed_unless_switched() -> None:
    obj = pod(container(vgpu_v100_32g=1))
    assert "does not name volcano.sh/vgpu-v100-32g" in refusal(obj)
    assert complete(obj, context(unnamed_model_unlimited=True))


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
    assert waits(done)


def test_a_group_left_in_another_queue_than_its_jobs_is_checked() -> None:
    """Volcano makes the PodGroup once: a Job that asked for no cards then may have named anybody's queue."""
    its_job = {"metadata": {"uid": "job-uid", "annotations": {}}, "spec": {"queue": "a"}}
    obj = of_job(pod(annotations={QUEUE: "org-2"}))
    ctx = replace(context(groups=[group(queue="org-2")]), jobs={(NAMESPACE, "j"): its_job})
    decision = review_pod(create(obj, JOB_CONTROLLER), ctx)
    assert not decision.allowed
    assert "may not use queue 'org-2'" in decision.message
    assert complete(of_job(pod()), replace(ctx, answers=context(groups=[group()]).answers), JOB_CONTROLLER)


@pytest.mark.parametrize(
    ("template", "checked"),
    [
        (task("w", 1, container()), False),
        (task("w", 1, container(vgpu_memory=4)), False),
        (task("w", 1, container("c", **{"vgpu-" + "x" * 999: 1})), False),
        (task("w", 1), True),
        ({"template": {"metadata": {"labels": {"egpu.volcano.sh/managed": "true"}}}}, True),
    ],
    ids=["asks for nothing", "names no model", "names nothing", "older than the webhook", "with the label"],
)
def test_pods_whose_ask_their_job_does_not_have_were_not_checked_with_it(
    template: Json, *, checked: bool
) -> None:
    """A LimitRange gives it to them, say: their Job, which nobody looked at, may name anybody's queue."""
    kept = slim_job(job(template, queue="org-2"))
    ctx = replace(context(groups=[group(queue="org-2")]), jobs={(NAMESPACE, "j"): kept})
    decision = review_pod(create(of_job(pod(annotations={QUEUE: "org-2"})), JOB_CONTROLLER), ctx)
    assert decision.allowed is checked
    assert checked or "may not use queue 'org-2'" in decision.message


def test_whoever_pretends_to_be_a_job_is_checked_like_everybody() -> None:
    obj = of_job(pod(annotations={QUEUE: "org-2"}))
    assert "may not use queue 'org-2'" in refusal(obj, context(groups=[group(queue="org-2")]))


@pytest.mark.parametrize(
    "other", [{"apiVersion": "batch/v1"}, {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "JobFlow"}]
)
def test_only_pods_of_a_volcano_job_were_checked_with_it(other: dict[str, str]) -> None:
    """The maker does not matter: for other kinds of pods no review checked who may use the queue."""
    obj = of_job(pod(annotations={QUEUE: "org-2"}))
    obj["metadata"]["ownerReferences"][0].update(other)
    ctx = context(groups=[group(queue="org-2")])
    assert "may not use queue 'org-2'" in refusal(obj, ctx, JOB_CONTROLLER)


def test_the_class_of_a_job_that_had_the_name_before_counts_no_more() -> None:
    its_job = {"metadata": {"uid": "old-uid", "annotations": {PRIORITY: "low"}}, "spec": {"queue": "a"}}
    ctx = replace(context(groups=[group()]), jobs={(NAMESPACE, "j"): its_job})
    assert complete(of_job(pod()), ctx, JOB_CONTROLLER)["spec"]["priorityClassName"] == "egpu-standard"


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
    """A new group of the same name may name another queue. The note shows the difference."""
    obj = pod(annotations={GROUP: "g"})
    del obj["metadata"]["annotations"][QUEUE]
    done = complete(obj, context(groups=[group(owner=None, queue="org-1")]))
    assert done["metadata"]["annotations"][QUEUE] == "org-1"
    of_volcano = of_job(pod())
    del of_volcano["metadata"]["annotations"][QUEUE]
    done = complete(of_volcano, context(groups=[group()]), JOB_CONTROLLER)
    assert QUEUE not in done["metadata"]["annotations"], "a Job's pods follow their Job"


def test_class_comes_from_the_template_then_the_job_then_the_group() -> None:
    its_job = {"metadata": {"uid": "job-uid", "annotations": {PRIORITY: "low"}}, "spec": {"queue": "a"}}
    ctx = context(groups=[group(**{PRIORITY: "high"})])
    ctx = replace(ctx, jobs={(NAMESPACE, "j"): its_job})
    assert complete(of_job(pod()), ctx, JOB_CONTROLLER)["spec"]["priorityClassName"] == "egpu-low"
    own = of_job(pod(annotations={PRIORITY: "high"}))
    assert complete(own, ctx, JOB_CONTROLLER)["spec"]["priorityClassName"] == "egpu-high"


def test_high_written_on_a_group_alone_needs_leave() -> None:
    ctx = context(groups=[group(**{PRIORITY: "high"})])
    assert 'priority "high"' in refusal(of_job(pod()), ctx, JOB_CONTROLLER)
