"""Volcano Jobs at the door: the same one again, edits, and ones that are older than the webhook."""

import copy
from typing import Any

import pytest
from unit.webhook.job_reviews import PRIORITY, QUEUE, complete, reapplied, refusal, small
from unit.webhook.world import (
    JOB_CONTROLLER,
    QUEUES,
    Json,
    container,
    context,
    create,
    job,
    limits,
    queue,
    task,
    update,
)
from vc_egpu.webhook.reviews.jobs.review import review_final_job, review_job

MANIFEST = job(
    {**task("w", 2, small("a"), container("log")), "policies": []},
    task("cpu", 1, container()),
    minAvailable=2,
)


def test_applying_the_same_manifest_again_gives_the_stored_object() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    assert reapplied(copy.deepcopy(MANIFEST), stored) == stored
    assert review_final_job(update(stored, stored), context()).patch == ()


def test_the_same_ask_written_otherwise_is_the_same_ask() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"] |= {
        "volcano.sh/vgpu-h20": "1000m", "volcano.sh/vgpu-memory": "4096000m",
    }  # fmt: skip
    requests = reapplied(manifest, stored)["spec"]["tasks"][0]["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert requests["requests"]["volcano.sh/vgpu-h20-memory"] == "4096"


def as_volcano_stores_it(completed: Json) -> Json:
    """What Volcano's own webhook makes of it at creation: defaults, and quantities written its way."""
    stored = copy.deepcopy(completed)
    for index, entry in enumerate(stored["spec"]["tasks"]):
        entry.setdefault("name", f"default{index}")
        entry |= {"maxRetry": 3, "minAvailable": entry["replicas"]}
        for one in entry["template"]["spec"]["containers"]:
            resources = one.setdefault("resources", {})
            for kind in resources:
                resources[kind] = {name: str(raw) for name, raw in resources[kind].items()}
    return stored


def test_volcanos_defaults_come_back_where_the_manifest_leaves_them_out() -> None:
    manifest = copy.deepcopy(MANIFEST)
    del manifest["spec"]["tasks"][1]["name"]
    stored = as_volcano_stores_it(complete(copy.deepcopy(manifest)))
    assert reapplied(copy.deepcopy(manifest), stored) == stored


def test_what_volcano_makes_of_partitions_comes_back_too() -> None:
    """Its webhook fills in the minimum at creation alone: left out, the gang would become all replicas."""
    partitions = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 2}
    manifest = job(task("w", 8, small(), partitionPolicy=partitions))
    stored = complete(copy.deepcopy(manifest))
    stored["spec"]["tasks"][0] |= {"minAvailable": 4, "maxRetry": 3}
    assert reapplied(copy.deepcopy(manifest), stored) == stored


def test_what_a_user_really_changes_stays_changed() -> None:
    stored = as_volcano_stores_it(complete(copy.deepcopy(MANIFEST)))
    stored["spec"]["tasks"][0]["maxRetry"] = 7
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["tasks"][0] |= {"replicas": 1}
    task = reapplied(manifest, stored)["spec"]["tasks"][0]
    assert "maxRetry" not in task, "7 was no default: leaving it out is a change"
    assert "minAvailable" not in task, "2 of 1 would be refused"
    manifest["spec"]["tasks"][0] |= {"replicas": 5, "minAvailable": 4, "maxRetry": 1}
    task = reapplied(manifest, stored)["spec"]["tasks"][0]
    assert (task["replicas"], task["minAvailable"], task["maxRetry"]) == (5, 4, 1)


def test_tasks_are_found_by_name_not_by_place() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    manifest = copy.deepcopy(MANIFEST)
    manifest["spec"]["tasks"].reverse()
    again = reapplied(manifest, stored)
    assert again["spec"]["tasks"] == stored["spec"]["tasks"][::-1]


def test_totals_and_label_cannot_be_taken_out_of_a_stored_job() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    edited = copy.deepcopy(stored)
    resources = edited["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]
    resources["limits"]["volcano.sh/vgpu-h20-memory"] = "1"
    del resources["requests"]
    del edited["spec"]["tasks"][1]["template"]["metadata"]
    assert reapplied(edited, stored) == stored


def test_a_changed_ask_is_counted_anew() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    edited = copy.deepcopy(stored)
    edited["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"][
        "volcano.sh/vgpu-memory"
    ] = 8192
    resources = reapplied(edited, stored)["spec"]["tasks"][0]["template"]["spec"]["containers"][0][
        "resources"
    ]
    assert resources["limits"]["volcano.sh/vgpu-h20-memory"] == "8192"
    assert resources["requests"]["volcano.sh/vgpu-h20-memory"] == "8192"


def test_a_job_older_than_the_webhook_scales_and_gets_nothing_added() -> None:
    stored = copy.deepcopy(MANIFEST)
    scaled = copy.deepcopy(stored)
    scaled["spec"]["tasks"][0]["replicas"] = 3
    assert review_job(update(scaled, stored), context()).patch == ()
    assert review_final_job(update(scaled, stored), context()).allowed


def test_an_older_job_with_an_ask_that_is_refused_today_still_scales() -> None:
    stored = job(task("w", 2, container(vgpu_h20=1, vgpu_memory="4Gi")), queue="nowhere")
    scaled = copy.deepcopy(stored)
    scaled["spec"]["tasks"][0]["replicas"] = 3
    decision = review_job(update(scaled, stored), context())
    assert decision.allowed, decision.message
    assert decision.patch == ()


def on_its_way_out(stored: Json) -> Json:
    stored["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a.example/b"]}
    return stored


def test_a_job_on_its_way_out_is_never_held_up() -> None:
    unreadable = job(task("w", 2, container(vgpu_h20=1, vgpu_memory="4Gi")), queue="nowhere")
    for each in (complete(copy.deepcopy(MANIFEST)), unreadable):
        stored = on_its_way_out(each)
        going = copy.deepcopy(stored)
        going["metadata"]["finalizers"] = []
        decision = review_job(update(going, stored), context())
        assert decision.allowed, decision.message
        assert decision.patch == ()


def test_a_job_that_a_finalizer_keeps_is_judged_by_its_edits() -> None:
    """Anybody adds one to a Job; the admission layer made room for what it had become since."""
    stored = on_its_way_out(complete(copy.deepcopy(MANIFEST)))
    edited = copy.deepcopy(stored)
    edited["spec"]["queue"] = "org-2"
    assert "may not use queue 'org-2'" in refusal(edited, old=stored)
    for annotated in ("metadata", "template"):
        edited = copy.deepcopy(stored)
        tasks = edited["spec"]["tasks"]
        for each in [edited] if annotated == "metadata" else [entry["template"] for entry in tasks]:
            each["metadata"].setdefault("annotations", {})[PRIORITY] = "high"
        assert "egpu-high" in refusal(edited, old=stored)


def changed(**spec: Any) -> tuple[Json, Json]:
    stored = complete(copy.deepcopy(MANIFEST))
    edited = copy.deepcopy(stored)
    edited["spec"] |= spec
    return edited, stored


def test_a_job_that_is_moved_to_another_queue_leaves_its_pods_behind() -> None:
    """It went on waiting for room in the queue that it had been taken out of."""
    edited, stored = changed(queue="org-1")
    (warning,) = review_job(update(edited, stored), context()).warnings
    assert warning.startswith("spec.queue: pods that are there stay in queue 'a', also those that wait")
    scaled, stored = changed(minAvailable=1)
    assert review_job(update(scaled, stored), context()).warnings == ()
    plain = job(task("cpu", 1, container()), queue="a")
    moved = {**plain, "spec": plain["spec"] | {"queue": "org-1"}}
    assert review_job(update(moved, plain), context()).warnings == ()


def test_a_job_is_not_moved_where_it_could_never_run() -> None:
    """As none is made there: it would wait for a cap that it is above."""
    stored = complete(job(task("w", 3, small()), annotations={PRIORITY: "low"}))
    edited = copy.deepcopy(stored)
    edited["spec"]["queue"] = "org-2"
    words = refusal(edited, context("alice use queues org-2"), old=stored)
    assert "needs 3 volcano.sh/vgpu-h20 at once, the cap of queue 'org-2' is 2" in words


def test_edits_are_judged_by_what_they_change() -> None:
    edited, stored = changed(queue="closed")
    assert "'closed' is Closed" in refusal(edited, old=stored)
    edited, stored = changed(minAvailable=9)
    edited["spec"]["tasks"][0]["replicas"] = 9
    edited["spec"]["tasks"][1]["replicas"] = 0
    assert "cap of queue 'a' is 8" in refusal(edited, old=stored)
    edited, stored = changed()
    edited["metadata"]["annotations"][PRIORITY] = "high"
    assert "egpu-high" in refusal(edited, old=stored)
    edited["metadata"]["annotations"] = {"egpu.volcano.sh/plan": "x"}
    assert "egpu.volcano.sh/plan" in refusal(edited, old=stored)
    edited, stored = changed()
    edited["spec"]["tasks"][0]["template"]["metadata"]["annotations"] = {"egpu.volcano.sh/cards": "x"}
    assert "egpu.volcano.sh/cards" in refusal(edited, old=stored)


def test_low_is_not_edited_into_what_takes_long_to_give_way() -> None:
    """Pods that a controller makes of a Job are not asked for it again."""

    def graceful(seconds: int, cls: str = "low") -> Json:
        made = job(task("w", 2, small()), annotations={PRIORITY: cls})
        made["spec"]["tasks"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
        return made

    stored = complete(graceful(30))
    assert "9999 is above 3600" in refusal(graceful(9999), old=stored)
    assert review_job(update(graceful(60), stored), context()).allowed
    older = complete(graceful(9999), context(max_low_grace_s=99999))
    assert review_job(update(graceful(9999), older), context()).allowed, "as it was"
    high = complete(graceful(30, "high"), context("alice use priorityclasses egpu-high"))
    assert review_job(update(graceful(9999, "high"), high), context()).allowed, "its class stays as it was"


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (job(task("w", 1, container()), annotations={PRIORITY: "high"}), "egpu-high"),
        (job(task("w", 1, container(), annotations={PRIORITY: "high"})), "egpu-high"),
        (job(task("w", 1, container()), priorityClassName="pushy"), "would evict single members"),
        (job(task("w", 2049, container()), minAvailable=1), "2049 members in all"),
        (job(task("w", 2, container()), minAvailable=3), "3 is more than the 2 replicas"),
        (job(task("w", 1, container()), task("w", 1, container())), "two tasks are called 'w'"),
    ],
)
def test_a_job_that_begins_to_ask_for_cards_is_judged_as_a_new_one(plain: Json, words: str) -> None:
    """Nobody looked at it while it asked for none: neither at its class nor at its size."""
    assert review_job(create(plain), context()).patch == ()
    edited = copy.deepcopy(plain)
    for entry in edited["spec"]["tasks"]:
        entry["template"]["spec"]["containers"] = [small()]
    assert words in refusal(edited, old=plain)


def test_a_template_is_not_edited_to_name_another_queue() -> None:
    """Every pod made of it would be refused, where nobody looks."""
    edited, stored = changed()
    metadata = edited["spec"]["tasks"][0]["template"]["metadata"]
    metadata["annotations"] = {QUEUE: "org-1"}
    path = 'spec.tasks["w"].template.metadata.annotations["scheduling.volcano.sh/queue-name"]'
    assert refusal(edited, old=stored).startswith(f"{path}: 'org-1', but the Job is in queue 'a'")
    metadata["annotations"] = {QUEUE: "a"}
    assert review_job(update(edited, stored), context()).allowed
    older = copy.deepcopy(edited)
    older["spec"]["tasks"][0]["template"]["metadata"]["annotations"] = {QUEUE: "org-1"}
    scaled = copy.deepcopy(older)
    scaled["spec"]["minAvailable"] = 1
    assert review_job(update(scaled, older), context()).allowed, "as it was"


def test_an_edit_after_the_queue_was_closed_or_lowered_goes_through() -> None:
    edited, stored = changed(ttlSecondsAfterFinished=5)
    closed = {**QUEUES, "a": queue("a", state="Closed", capability={"volcano.sh/vgpu-h20": 1})}
    assert review_job(update(edited, stored, JOB_CONTROLLER), context(queues=closed)).allowed


def test_a_new_task_is_checked_and_completed() -> None:
    edited, stored = changed()
    edited["spec"]["tasks"].append(task("more", 1, container("c", vgpu_h20=1, vgpu_memory="4Gi")))
    assert 'spec.tasks["more"]' in refusal(edited, old=stored)
    edited["spec"]["tasks"][2] = task("more", 1, small())
    added = reapplied(edited, stored)["spec"]["tasks"][2]["template"]
    assert added["metadata"]["labels"] == {"egpu.volcano.sh/managed": "true"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, False),
        ({"replicas": 3}, False),
        ({"limits": limits(vgpu_h20=1, vgpu_memory=2048, vgpu_cores=10)}, True),
        ({"annotations": {PRIORITY: "low"}}, True),
    ],
)
def test_who_changes_what_pods_ask_for_is_told_that_running_ones_keep_theirs(
    change: Json, told: bool
) -> None:
    stored = complete(job(task("w", 2, small())))
    new = copy.deepcopy(stored)
    entry = new["spec"]["tasks"][0]
    entry["replicas"] = change.get("replicas", 2)
    if "limits" in change:
        entry["template"]["spec"]["containers"] = [container("c")]
        entry["template"]["spec"]["containers"][0]["resources"] = {"limits": change["limits"]}
    entry["template"]["metadata"]["annotations"] = change.get("annotations", {})
    decision = review_job(update(new, stored), context())
    assert decision.allowed, decision.message
    assert any("keep what they were made with" in warning for warning in decision.warnings) == told


def test_scaling_below_the_minimum_is_refused() -> None:
    stored = complete(job(task("w", 4, small()), minAvailable=4))
    new = copy.deepcopy(stored)
    new["spec"]["tasks"][0]["replicas"] = 2
    decision = review_job(update(new, stored), context())
    assert not decision.allowed
    assert "spec.minAvailable: 4 is more than the 2 replicas" in decision.message
