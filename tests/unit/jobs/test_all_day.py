"""Jobs that come and go all day: what leads forgets them, what stands by never learns their names."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.jobs.running import NO_WORKERS, Clock, running
from unit.jobs.worlds import task
from unit.kept import sizes
from vc_egpu.jobs.controller import Controller
from vc_egpu.jobs.work import Look
from vc_egpu.kube import Change, ChangeKind
from vc_egpu.kube.resources import PODS, VOLCANO_JOBS
from vc_egpu.volcano.words import names

Json = dict[str, Any]
REMEMBERED = ("._gone", "._later", "._due")
"""Kept on purpose: UIDs of what is gone (20,000 at most), and looks that are due in a moment."""


class Day:
    """A controller that is told of Jobs as by its watches."""

    def __init__(self, controller: Controller, clock: Clock) -> None:
        self.controller, self.clock = controller, clock
        self._versions = itertools.count(10_000)
        self._number = 0

    def pass_by(self, jobs: int, *, job_first: bool) -> None:
        """So many Jobs of two pods each come, run, and are removed: they before their pods, or after."""
        for _ in range(jobs):
            self._number += 1
            job = self._job(f"day-{self._number}")
            pods = [self._pod(job, index) for index in range(2)]
            self.controller.hear(VOLCANO_JOBS, Change(ChangeKind.ADDED, job))
            for pod in pods:
                self.controller.hear(PODS, Change(ChangeKind.ADDED, pod))
            ends = [(PODS, pod) for pod in pods]
            ends.insert(0 if job_first else len(ends), (VOLCANO_JOBS, job))
            for resource, document in ends:
                self.controller.hear(resource, Change(ChangeKind.DELETED, self._later(document), document))

    def _job(self, name: str) -> Json:
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "metadata": self._metadata(name),
            "spec": {"tasks": [task()], "minAvailable": 2, "queue": "absent"},
        }

    def _pod(self, job: Json, index: int) -> Json:
        name = job["metadata"]["name"]
        owner = {"apiVersion": job["apiVersion"], "kind": "Job", "name": name, "controller": True}
        metadata = {
            **self._metadata(f"{name}-w-{index}"),
            "annotations": {names.TASK_SPEC: "w", names.JOB_VERSION: "0", names.GROUP_NAME: name},
            "ownerReferences": [{**owner, "uid": job["metadata"]["uid"]}],
        }
        return {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}

    def _metadata(self, name: str) -> Json:
        version = str(next(self._versions))
        return {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": version}

    def _later(self, document: Json) -> Json:
        metadata = {**document["metadata"], "resourceVersion": str(next(self._versions))}
        return {**document, "metadata": metadata}


@pytest.fixture
def day(tmp_path: Path) -> Iterator[Day]:
    clock = Clock()
    with running(Controller, tmp_path, NO_WORKERS, monotonic=clock) as controller:
        yield Day(controller, clock)


@pytest.mark.parametrize("job_first", [True, False])
@pytest.mark.parametrize("leads", [True, False])
def test_jobs_that_come_and_go_leave_nothing_behind(day: Day, leads: bool, job_first: bool) -> None:
    if leads:
        day.controller.lead()  # without workers: what is asked of them is no part of this
    day.pass_by(4, job_first=job_first)
    first = sizes(day.controller, *REMEMBERED)
    day.pass_by(12, job_first=job_first)
    after = sizes(day.controller, *REMEMBERED)
    assert {way: count for way, count in after.items() if count > first[way]} == {}
    queues = [day.controller.work.queue(look) for look in Look]
    day.clock.now += 60.0
    assert leads or [queue.get(timeout_s=0.0) for queue in queues] == [None] * len(queues)
