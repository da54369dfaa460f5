"""Jobs from before our time, or of an earlier version of ours: an edit is judged for what it changes.

What such a Job holds may be refused in a new one. It keeps no edit of something else out.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from unit.webhook.job_reviews import PRIORITY, QUEUE, refusal, small
from unit.webhook.world import Json, container, context, create, job, task, update
from vc_egpu.webhook.reviews.jobs.review import review_final_job, review_job

MANAGED = "egpu.volcano.sh/managed"


def spoilt(**spec: Any) -> Json:
    """A task whose pod spec is not as it should be."""
    made = task("w", 3, small())
    made["template"]["spec"] |= spec
    return made


def labelled(one: Json, value: str = "true") -> Json:
    one["template"].setdefault("metadata", {})["labels"] = {MANAGED: value}
    return one


PLAIN = task("v", 2, small())
STORED: dict[str, Json] = {
    "a label of another value": job(labelled(task("w", 3, small()), "false"), PLAIN),
    "a knob of no such value": job(
        task("w", 3, small(), annotations={"egpu.volcano.sh/card-policy": "x"}), PLAIN
    ),
    "a model that is gone from the table": job(
        task("w", 3, small(), annotations={"egpu.volcano.sh/use-models": "old"}), PLAIN
    ),
    "an ask for a model that is gone": job(task("w", 3, container(vgpu_old=1)), PLAIN),
    "a class that is none": job(task("w", 3, small()), PLAIN, annotations={PRIORITY: "medium"}),
    "a class that is none on a task": job(task("w", 3, small(), annotations={PRIORITY: "medium"}), PLAIN),
    "two classes": job(task("w", 3, small(), annotations={PRIORITY: "low"}), PLAIN),
    "a class without leave": job(task("w", 3, small()), PLAIN, annotations={PRIORITY: "high"}),
    "a PriorityClass that preempts": job(spoilt(priorityClassName="pushy"), PLAIN),
    "low that takes long to go": job(
        spoilt(terminationGracePeriodSeconds=9999), PLAIN, annotations={PRIORITY: "low"}
    ),
    "another queue": job(task("w", 3, small(), annotations={QUEUE: "org-1"}), PLAIN),
    "no such queue": job(task("w", 3, small()), PLAIN, queue="gone"),
    "a closed queue": job(task("w", 3, small()), PLAIN, queue="closed"),
    "two tasks of one name": job(task("w", 3, small()), task("w", 2, small()), minAvailable=1),
    "a task's minimum that is too large": job({**task("w", 3, small()), "minAvailable": 9}, PLAIN),
    "an order in which it never starts": job(
        {**task("w", 3, small()), "dependsOn": {"name": ["v"]}}, PLAIN, minAvailable=4
    ),
    "a forged plan": job(task("w", 3, small()), PLAIN, annotations={"egpu.volcano.sh/plan": "x"}),
    "a forged request": job(task("w", 3, small(), annotations={"egpu.volcano.sh/request": "x"}), PLAIN),
    "the host's processes": job(spoilt(hostPID=True), PLAIN),
    "a node's name": job(spoilt(nodeName="n"), PLAIN),
    "another scheduler": job(spoilt(schedulerName="mine"), PLAIN),
    "a gang that is too large": job(task("w", 3000, small()), PLAIN, minAvailable=1),
    "more tasks than are read": job(
        task("w", 3, small()), PLAIN, *(task(f"t{i}", 0) for i in range(3000)), minAvailable=1
    ),
}


def _label(edited: Json) -> None:
    edited["metadata"]["labels"] = {"a": "b"}


def _finalizer(edited: Json) -> None:
    edited["metadata"]["finalizers"] = []


def _annotation(edited: Json) -> None:
    edited["metadata"]["annotations"]["example.com/note"] = "x"


def _fewer(edited: Json) -> None:
    edited["spec"]["tasks"][0]["replicas"] -= 1


def _one_more(edited: Json) -> None:
    edited["spec"]["tasks"][1]["replicas"] += 1


def _class(edited: Json) -> None:
    edited["spec"]["priorityClassName"] = "team"


def _image(edited: Json) -> None:
    edited["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = "j"


def _template_annotation(edited: Json) -> None:
    template = edited["spec"]["tasks"][0]["template"]
    template.setdefault("metadata", {}).setdefault("annotations", {})["example.com/note"] = "x"


EDITS = [_label, _finalizer, _annotation, _fewer, _one_more, _class, _image, _template_annotation]
MEANT = {
    ("a gang that is too large", _one_more),
    *(("more tasks than are read", edit) for edit in EDITS[3:]),
}
"""Refused with reason: a gang grows beyond what can be planned, or the change itself cannot be read."""


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("story", STORED)
def test_what_is_stored_keeps_no_edit_out_that_does_not_touch_it(
    story: str, edit: Callable[[Json], None]
) -> None:
    stored = copy.deepcopy(STORED[story])
    assert not review_job(create(stored), context()).allowed, "the story is of something that is refused"
    edited = copy.deepcopy(stored)
    edit(edited)
    for review in (review_job, review_final_job):
        decision = review(update(edited, stored), context())
        assert decision.allowed is ((story, edit) not in MEANT), decision.message


def test_what_the_edit_itself_spoils_is_refused_next_to_what_was_there() -> None:
    stored = copy.deepcopy(STORED["two tasks of one name"])
    edited = copy.deepcopy(stored)
    edited["spec"]["minAvailable"] = 6
    assert "6 is more than the 5 replicas" in refusal(edited, old=stored)
    stored = copy.deepcopy(STORED["a knob of no such value"])
    edited = copy.deepcopy(stored)
    edited["spec"]["tasks"][0]["template"]["metadata"]["annotations"]["egpu.volcano.sh/card-policy"] = "y"
    assert "'y', it must be one of" in refusal(edited, old=stored)
    stored = copy.deepcopy(STORED["a PriorityClass that preempts"])
    edited = copy.deepcopy(stored)
    edited["spec"]["tasks"][1]["template"]["spec"]["priorityClassName"] = "pushy"
    assert refusal(edited, old=stored).startswith('spec.tasks["v"].template.spec.priorityClassName')
    edited = copy.deepcopy(stored)
    edited["metadata"]["annotations"][PRIORITY] = "high"
    assert "egpu-high" in refusal(edited, old=stored)
    stored = copy.deepcopy(STORED["another queue"])
    edited = copy.deepcopy(stored)
    edited["spec"]["queue"] = "org-1"
    assert review_job(update(edited, stored), context()).allowed, "now its templates name the right one"
    edited["spec"]["tasks"][1]["template"]["metadata"] = {"annotations": {QUEUE: "a"}}
    assert "'a', but the Job is in queue 'org-1'" in refusal(edited, old=stored)
    stored = copy.deepcopy(STORED["a label of another value"])
    edited = copy.deepcopy(stored)
    labelled(edited["spec"]["tasks"][1], "no")
    assert 'it must be "true" or absent' in refusal(edited, old=stored)


def test_leave_to_be_high_is_asked_of_whoever_makes_one_more_task_high() -> None:
    stored = job(task("w", 3, small(), annotations={PRIORITY: "high"}), PLAIN, annotations={PRIORITY: "low"})
    edited = copy.deepcopy(stored)
    edited["metadata"]["annotations"][PRIORITY] = "high"
    assert "egpu-high" in refusal(edited, old=stored)
