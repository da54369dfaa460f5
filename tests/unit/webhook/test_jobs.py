"""Volcano Jobs at the door: new ones, the same one again, and ones that are older than the webhook."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from unit.webhook.world import (
    ALICE,
    JOB_CONTROLLER,
    QUEUES,
    Ignorant,
    Json,
    caps,
    container,
    context,
    create,
    job,
    limits,
    patched,
    queue,
    task,
    update,
)
from vc_egpu.webhook.context import Context
from vc_egpu.webhook.jobs import review_final_job, review_job
from vc_egpu.webhook.pods import review_pod
from vc_egpu.webhook.questions import Access, Subject, Unanswered

PRIORITY = "egpu.volcano.sh/priority"
QUEUE = "scheduling.volcano.sh/queue-name"


def complete(obj: Json, ctx: Context | None = None, subject: Subject = ALICE) -> Json:
    return patched(obj, review_job(create(obj, subject), ctx or context()))


def refusal(obj: Json, ctx: Context | None = None, old: Json | None = None) -> str:
    review = update(obj, old) if old is not None else create(obj)
    decision = review_job(review, ctx or context())
    assert not decision.allowed, decision
    return decision.message


def reapplied(manifest: Json, stored: Json) -> Json:
    return patched(manifest, review_job(update(manifest, stored), context()))


def small(name: str = "c") -> Json:
    return container(name, vgpu_h20=1, vgpu_memory=4096, vgpu_cores=30)


# --- new ---------------------------------------------------------------------------------------------


def test_a_template_only_gains() -> None:
    done = complete(job(task("w", 2, small()), task("cpu", 1, container("x"))))
    worker, cpu = (entry["template"] for entry in done["spec"]["tasks"])
    totals = {"volcano.sh/vgpu-h20-memory": "4096", "volcano.sh/vgpu-h20-cores": "30"}
    resources = worker["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {**limits(vgpu_h20=1, vgpu_memory=4096, vgpu_cores=30), **totals}
    assert resources["requests"] == {"volcano.sh/vgpu-h20": "1", **totals}
    assert "schedulingGates" not in worker["spec"]
    for template in (worker, cpu):
        assert template["metadata"]["labels"] == {"egpu.volcano.sh/managed": "true"}
    assert cpu["spec"] == {"containers": [container("x")]}


def test_completing_twice_is_completing_once() -> None:
    done = complete(job(task("w", 2, small())))
    assert review_job(create(done), context()).patch == ()
    assert review_final_job(create(done), context()).allowed


def test_pods_of_a_completed_template_are_completed_in_their_turn() -> None:
    template = complete(job(task("w", 2, small("a"), container("log"))))["spec"]["tasks"][0]["template"]
    resources = template["spec"]["containers"][0]["resources"]
    # The API server copies limits into requests where a pod names none.
    resources["requests"] = {**resources["limits"], **resources["requests"]}
    obj = {"metadata": {**template["metadata"], "annotations": {QUEUE: "a"}}, "spec": template["spec"]}
    done = patched(obj, review_pod(create(obj), context()))
    expected = {"volcano.sh/vgpu-h20", "volcano.sh/vgpu-h20-memory", "volcano.sh/vgpu-h20-cores"}
    completed = done["spec"]["containers"][0]["resources"]
    assert set(completed["limits"]) == set(completed["requests"]) == expected


def test_a_job_without_cards_is_left_alone() -> None:
    assert review_job(create(job(task("w", 2, container()), queue=None)), context()).patch == ()


def test_what_another_webhook_takes_out_afterwards_is_refused() -> None:
    done = complete(job(task("w", 2, small())))
    del done["spec"]["tasks"][0]["template"]["metadata"]["labels"]
    decision = review_final_job(create(done), context())
    assert not decision.allowed
    assert "spec/tasks/0/template" in decision.message


FORGED = dict.fromkeys(
    (f"egpu.volcano.sh/{name}" for name in ("cards", "plan", "request", "suspend", "pause")), "x"
)
BAD_JOBS: dict[str, tuple[Json, tuple[str, ...]]] = {
    "a bad ask names its task": (
        job(task("w", 1, container(vgpu_h20=1, vgpu_memory="4Gi"))),
        ('spec.tasks["w"].template.spec.containers["c"]', "did you mean 4096?"),
    ),
    "a gang beyond its queue's cap": (
        job(task("w", 9), minAvailable=9),
        ("spec.queue", "minAvailable 9", "9 volcano.sh/vgpu-h20", "cap of queue 'a' is 8"),
    ),
    "all tasks count where there is no minAvailable": (
        job(task("w", 5), task("v", 4)),
        ("minAvailable 9", "is 8"),
    ),
    "a gang beyond the memory cap": (
        job(task("w", 5, container(vgpu_h20=1, vgpu_memory=90000))),
        ("450000 volcano.sh/vgpu-h20-memory", "400000"),
    ),
    "beyond the cap of an ancestor": (
        job(task("w", 8), task("v", 3), queue="org-1", minAvailable=11),
        ("11 volcano.sh/vgpu-h20", "'org-1' is 8"),
    ),
    "a gang that no plan can hold": (
        job(task("w", 3000, small()), minAvailable=1),
        ("3000 members", "2048"),
    ),
    "a gang of too many cards": (
        job(task("w", 2048, container(vgpu_h20=8)), task("v", 1), minAvailable=1),
        ("members", "2048"),
    ),
    "an unknown queue": (
        job(queue="nowhere"),
        ("spec.queue", "'nowhere' does not exist", "you may use: a, org-1"),
    ),
    "a closed queue": (job(queue="closed"), ("spec.queue", "'closed' is Closed")),
    "no queue": (job(queue=None), ("spec.queue", "no queue is named", "you may use: a, org-1")),
    "two classes in one gang": (
        job(task("w", 1, annotations={PRIORITY: "low"}), task("v", 1)),
        ('"w" is low', '"v" is unset', PRIORITY),
    ),
    "high without leave": (job(annotations={PRIORITY: "high"}), (PRIORITY, "user 'alice'", "egpu-high")),
    "a class that preempts": (job(priorityClassName="pushy"), ("spec.priorityClassName", "pushy", "Never")),
    "a third scheduler": (job(schedulerName="mine"), ("spec.schedulerName", "'mine'")),
    "oversubscribe": (
        job(task("w", 1, annotations={"egpu.volcano.sh/oversubscribe": "yes"})),
        ('spec.tasks["w"].template.metadata.annotations', "oversubscribe", "'yes'", "true, false"),
    ),
    "a template bound by hand": (
        job({**task("w", 1), "template": {"spec": {"nodeName": "n", "containers": [container(vgpu_h20=1)]}}}),
        ('spec.tasks["w"].template.spec.nodeName',),
    ),
    "a template among the host's processes": (
        job({**task("w", 1), "template": {"spec": {"hostPID": True, "containers": [container(vgpu_h20=1)]}}}),
        ('spec.tasks["w"].template.spec.hostPID',),
    ),
    "low that takes a week to give way": (
        job(
            {
                **task("w", 1),
                "template": {
                    "spec": {"terminationGracePeriodSeconds": 604800, "containers": [container(vgpu_h20=1)]}
                },
            },
            annotations={PRIORITY: "low"},
        ),
        ('spec.tasks["w"].template.spec.terminationGracePeriodSeconds: 604800', "above 3600"),
    ),
    "a volume of the Job where limits are kept": (
        job(task("w", 1, small()), volumes=[{"mountPath": "/data"}, {"mountPath": "/etc/egpu/control"}]),
        ("spec.volumes[1].mountPath", "/etc/egpu/control", "mount it elsewhere"),
    ),
    "a gang that could never come together": (
        job(task("w", 2), minAvailable=3),
        ("spec.minAvailable", "3 is more than the 2 replicas", "never start"),
    ),
    "a task that could never come together": (
        job({**task("w", 2), "minAvailable": 3}, task("v", 5)),
        ('spec.tasks["w"].minAvailable', "3 is more than its 2 replicas"),
    ),
    "two tasks of one name": (job(task("w", 1), task("w", 1)), ("spec.tasks", "'w'")),
    "high without leave, on a template": (
        job(task("w", 1), task("v", 1, annotations={PRIORITY: "high"}), annotations={PRIORITY: "high"}),
        ('spec.tasks["v"].template.metadata.annotations', "egpu-high"),
    ),
    "replicas below zero": (job(task("w", -1)), ('spec.tasks["w"].replicas', "'-1'")),
    **{f"forged {name} on the Job": (job(annotations={name: "x"}), (name,)) for name in FORGED},
    **{
        f"forged {name} on a template": (job(task("w", 1, annotations={name: "x"})), (name,))
        for name in FORGED
    },
}


@pytest.mark.parametrize("story", BAD_JOBS)
def test_bad_jobs_are_refused_with_field_number_and_limit(story: str) -> None:
    obj, words = BAD_JOBS[story]
    message = refusal(obj)
    assert all(word in message for word in words), message


def test_the_cap_is_for_the_least_that_must_start_together() -> None:
    assert complete(job(task("w", 20, small()), minAvailable=8))
    cheap, dear = task("cpu", 3, container()), task("w", 9, small())
    assert complete(job(cheap, dear, minAvailable=9))
    message = refusal(job(dict(cheap, minAvailable=0), dict(dear, minAvailable=9), minAvailable=9))
    assert "9 volcano.sh/vgpu-h20" in message


def test_the_parents_cap_counts_as_well() -> None:
    queues = {"p": queue("p", capability=caps(3)), "c": queue("c", parent="p", capability=caps(8))}
    message = refusal(job(task("w", 4), queue="c"), context("alice use queues c", queues=queues))
    assert "cap of queue 'p' is 3" in message


def test_each_template_must_be_covered_by_the_requester_or_its_own_account() -> None:
    rules = "system:serviceaccount:team-a:good use queues a"

    def of(account: str) -> Json:
        entry = task(account, 1)
        entry["template"]["spec"]["serviceAccountName"] = account
        return entry

    cron = Subject("system:serviceaccount:volcano-system:volcano-controllers")
    assert complete(job(of("good")), context(rules), cron)
    decision = review_job(create(job(of("good"), of("bad")), cron), context(rules))
    assert "team-a/bad" in decision.message


def of_accounts(count: int) -> Json:
    tasks = [task(f"t{number}", 1, container()) for number in range(count)]
    tasks[0] = task("t0", 1, small(), annotations={})
    for number, entry in enumerate(tasks):
        entry["template"]["spec"]["serviceAccountName"] = f"account-{number}"
    return job(*tasks, annotations={PRIORITY: "high"})


def test_all_accounts_of_a_job_are_asked_about_together() -> None:
    """A review that had to ask for each of them in turn would be given up."""
    asked_by = [f"system:serviceaccount:team-a:account-{number}" for number in range(20)]
    rules = [f"{who} use {what}" for who in asked_by for what in ("queues a", "priorityclasses egpu-high")]
    answers, rounds = Ignorant(rules), 0
    pipeline = Subject("system:serviceaccount:pipelines:runner")
    while True:
        try:
            decision = review_job(create(of_accounts(20), pipeline), replace(context(), answers=answers))
            break
        except Unanswered as unanswered:
            answers.told |= {question for question in unanswered.questions if isinstance(question, Access)}
            rounds += 1
    assert decision.allowed, decision.message
    assert rounds <= 4


def test_a_job_of_too_many_accounts_is_refused() -> None:
    assert "spec.tasks: 33 service accounts, the limit is 32" in refusal(of_accounts(33))


def test_volcanos_default_queue_is_for_those_who_may_use_it() -> None:
    queues = {**QUEUES, "default": queue("default", capability=caps(4))}
    assert complete(job(queue=None), context("alice use queues default", queues=queues))


def test_high_with_leave() -> None:
    obj = job(annotations={PRIORITY: "high"})
    assert complete(obj, context("alice use priorityclasses egpu-high"))


def test_volcano_on_a_cluster_without_it_is_taken_with_a_warning() -> None:
    decision = review_job(create(job(schedulerName="volcano")), context())
    assert decision.allowed
    assert "default-scheduler" in decision.warnings[0]


# --- again -------------------------------------------------------------------------------------------

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


def test_a_job_on_its_way_out_is_never_held_up() -> None:
    stored = complete(copy.deepcopy(MANIFEST))
    going = copy.deepcopy(MANIFEST)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going["spec"]["queue"] = "nowhere"
    assert review_job(update(going, stored), context()).allowed


def changed(**spec: Any) -> tuple[Json, Json]:
    stored = complete(copy.deepcopy(MANIFEST))
    edited = copy.deepcopy(stored)
    edited["spec"] |= spec
    return edited, stored


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


def test_a_misspelt_annotation_is_told_of() -> None:
    """It would be silently without effect: training meant to be low would never give way."""
    entry = task("w", 1, annotations={"egpu.volcano.sh/priorty": "low", "example.com/priorty": "x"})
    entry["template"]["metadata"]["labels"] = {PRIORITY: "low"}
    decision = review_job(create(job(entry, annotations={"egpu.volcano.sh/foo": "1"})), context())
    assert decision.allowed
    assert list(decision.warnings) == [
        'metadata.annotations["egpu.volcano.sh/foo"]: means nothing here and has no effect',
        'spec.tasks["w"].template.metadata.annotations["egpu.volcano.sh/priorty"]: means nothing here and '
        "has no effect, did you mean egpu.volcano.sh/priority?",
        f'spec.tasks["w"].template.metadata.labels["{PRIORITY}"]: has no effect, it is an annotation',
    ]


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
