"""Volcano Jobs at the door: new ones."""

from dataclasses import replace
from typing import Any

import pytest
from unit.webhook.job_reviews import PRIORITY, QUEUE, complete, refusal, small
from unit.webhook.world import (
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
)
from vc_egpu.volcano.words.names import LAST_APPLIED
from vc_egpu.webhook.protocol.decision import MAX_WARNINGS
from vc_egpu.webhook.protocol.questions import Access, Subject, Unanswered
from vc_egpu.webhook.reviews.jobs.review import review_final_job, review_job
from vc_egpu.webhook.reviews.pods import review_pod


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


def written_by(operation: str = "Update") -> list[Json]:
    return [{"manager": "somebody", "operation": operation}]


@pytest.mark.parametrize(
    ("records", "annotations", "keep", "kept"),
    [
        (written_by(), {}, False, False),
        (written_by(), {}, True, True),
        (written_by("Apply"), {}, False, True),
        (written_by(), {LAST_APPLIED: "{}"}, False, True),
    ],
    ids=["created", "as the operator wishes", "applied by the server", "applied by kubectl"],
)
def test_who_wrote_which_field_is_noted_where_jobs_are_applied(
    records: list[Json], annotations: Json, *, keep: bool, kept: bool
) -> None:
    obj = job(task("w", 2, small()), annotations=annotations)
    obj["metadata"]["managedFields"] = records
    done = complete(obj, context(keep_managed_fields=keep))
    assert ("managedFields" in done["metadata"]) is kept


def test_records_that_an_earlier_version_left_are_no_reason_to_refuse() -> None:
    done = complete(job(task("w", 2, small())))
    done["metadata"]["managedFields"] = written_by()
    assert review_final_job(create(done), context()).allowed


def test_of_partitions_as_many_count_as_have_to_run() -> None:
    """Volcano makes that the task's minimum, after us."""
    partitions = {"totalPartitions": 8, "partitionSize": 2, "minPartitions": 4}
    obj = job(task("w", 16, small(), partitionPolicy=partitions))
    assert review_job(create(obj), context()).allowed
    partitions["minPartitions"] = 5
    assert "the gang (minAvailable 10)" in refusal(obj)
    partitions["minPartitions"] = 0
    assert "the gang (minAvailable 16)" in refusal(obj)


def test_a_job_without_cards_is_left_alone() -> None:
    obj = job(task("w", 2, container()), queue=None)
    obj["metadata"]["managedFields"] = written_by()
    assert review_job(create(obj), context()).patch == ()


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
    "a misspelt queue": (
        job(queue="orgg-1"),
        ("spec.queue", "'orgg-1' does not exist, did you mean 'org-1'? you may use: a, org-1"),
    ),
    "a closed queue": (job(queue="closed"), ("spec.queue", "'closed' is Closed")),
    "a template that names another queue": (
        job(task("w", 1), task("v", 1, annotations={QUEUE: "org-1"})),
        ('spec.tasks["v"].template.metadata.annotations', "'org-1'", "the Job is in queue 'a'"),
    ),
    "no queue": (job(queue=None), ("spec.queue", "no queue is named", "you may use: a, org-1")),
    "two classes in one gang": (
        job(task("w", 1, annotations={PRIORITY: "low"}), task("v", 1)),
        ('"w" is low', '"v" is unset', PRIORITY),
    ),
    "high without leave": (job(annotations={PRIORITY: "high"}), (PRIORITY, "user 'alice'", "egpu-high")),
    "a class that preempts": (job(priorityClassName="pushy"), ("spec.priorityClassName", "pushy", "Never")),
    "a third scheduler": (job(schedulerName="mine"), ("spec.schedulerName", "'mine'")),
    "oversubscribe without quotes": (
        job(task("w", 1, annotations={"egpu.volcano.sh/oversubscribe": True})),
        ('spec.tasks["w"].template.metadata.annotations', "oversubscribe", "true, false, swap, in quotes"),
    ),
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
    "members that are made only once others run": (
        job(task("m", 1), {**task("w", 4), "dependsOn": {"name": ["m"]}}),
        ("spec.minAvailable", "5 members", "4 of task 'w'", "once 'm' runs", "never start", "at most 1"),
    ),
    "members that are made once any of two others runs": (
        job(
            task("m", 2),
            task("n", 1),
            {**task("w", 2), "minAvailable": 1, "dependsOn": {"name": ["m", "n"], "iteration": "any"}},
        ),
        ("spec.minAvailable", "4 members", "once 'm' or 'n' runs", "at most 3"),
    ),
    "a minimum of members that are made only once others run": (
        job(
            {**task("m", 4), "minAvailable": 2},
            {**task("w", 2), "minAvailable": 1, "dependsOn": {"name": ["m"]}},
            minAvailable=3,
        ),
        ('spec.tasks["w"].minAvailable', "1 of task 'w'", "once 'm' runs", "set it to 0", "at most 2"),
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


@pytest.mark.parametrize(
    ("spec", "depends_on"),
    [
        ({"minAvailable": 1}, {"name": ["m"]}),
        ({"minAvailable": 3}, {"name": ["n", "m"], "iteration": "any"}),
        ({}, {"name": []}),
        ({}, {"name": ["n"]}),
        ({}, {"name": "m"}),
        ({}, "m"),
    ],
)
def test_a_gang_whose_first_members_can_start_is_taken(spec: Json, depends_on: Any) -> None:
    """A task of which none has to run keeps nobody waiting; what makes no sense the API server refuses."""
    first = [task("m", 1), {**task("n", 1), "minAvailable": 0}]
    assert complete(job(*first, {**task("w", 1), "dependsOn": depends_on}, **spec))


def test_only_queues_that_one_may_use_are_guessed() -> None:
    """The name of another's queue would help nobody: the next refusal would say that it is another's."""
    for named in ("org-22", "closd", "dfault"):
        message = refusal(job(queue=named))
        assert "you may use: a, org-1" in message
        assert "did you mean" not in message


def test_a_near_queue_is_found_among_many() -> None:
    """Refusals list the first 32 queues: the one that was meant may be another."""
    many = {name: queue(name, capability=caps(8)) for name in [f"b-{i}" for i in range(500)] + ["vision"]}
    leave = ("alice use queues vision", "alice use queues b-0")
    message = refusal(job(queue="visoin"), context(*leave, queues=many))
    assert "did you mean 'vision'? you may use: b-0, vision" in message


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


@pytest.mark.parametrize("named", ["a", "nowhere"])
def test_what_a_refused_job_may_use_is_asked_for_one_account(named: str) -> None:
    """One Job must not cost a thousand questions: everybody's reviews wait behind them."""
    queues = {**QUEUES, **{f"q{number}": queue(f"q{number}", capability=caps(8)) for number in range(40)}}
    obj = of_accounts(32)
    obj["spec"]["queue"] = named
    answers = Ignorant([])
    while True:
        try:
            decision = review_job(
                create(obj, Subject("mallory")), replace(context(queues=queues), answers=answers)
            )
            break
        except Unanswered as unanswered:
            answers.told |= {question for question in unanswered.questions if isinstance(question, Access)}
    assert "there is no queue of the first 32 that you may use" in decision.message
    assert len(answers.told) < 100


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


class Counted(dict[str, Any]):
    """Annotations that know how often their keys were looked through."""

    looks = 0

    def keys(self) -> Any:
        type(self).looks += 1
        return super().keys()


def test_slips_are_looked_for_until_there_are_enough_of_them() -> None:
    """To find what is near takes time, and all reviews wait for this one: of 3,000 tasks it was a second."""
    Counted.looks = 0
    annotations = [Counted({f"egpu.volcano.sh/priorty-{i}": "low"}) for i in range(2000)]
    tasks = [task(f"t{i}", 0, small()) for i in range(2000)]
    for each, of in zip(tasks, annotations, strict=True):
        each["template"]["metadata"] = {"annotations": of}
    decision = review_job(create(job(task("w", 1), *tasks)), context())
    assert len(decision.warnings) == MAX_WARNINGS
    assert Counted.looks <= 2 * MAX_WARNINGS
