"""`kubectl egpu why CRONJOB`: its Jobs that are not over, or the last one, of which it keeps several."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from unit.cli import documents as docs
from unit.kube.tiny_api import tiny_api
from vc_egpu.cli import exit_status, kubectl
from vc_egpu.cli.views import why

WAITS = docs.verdict("WaitingForQuota", "the queue research has 0 of 2 left")


def job(name: str, at: int, *, over: str = "", cron: str = "nightly") -> docs.Json:
    owner = {"kind": "CronJob", "name": cron, "uid": f"uid-{cron}", "controller": True}
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-0{at}T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {"parallelism": 1},
        "status": {"conditions": [{"type": over, "status": "True"}] if over else []},
    }


def gang(name: str) -> docs.Json:
    group = docs.group(f"podgroup-uid-{name}", "research", job=name, said=WAITS)
    group["metadata"]["ownerReferences"][0] |= {"apiVersion": "batch/v1", "uid": f"uid-{name}"}
    return group


def cron_job(*, suspend: bool = False, last: str = "") -> docs.Json:
    return {
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": "ml", "uid": "uid-nightly"},
        "spec": {"schedule": "0 3 * * *", "suspend": suspend},
        "status": {"lastScheduleTime": last} if last else {},
    }


def jobs_told(makers: Sequence[docs.Json], *groups: docs.Json, name: str = "nightly") -> list[str]:
    told = why.stories(name, "ml", groups=groups, pods=[], queues={}, makers=makers)
    return [story.job for story in told]


OVER = [job("nightly-1", 1, over="Failed"), job("nightly-2", 2, over="Complete")]
GANGS = [gang("nightly-1"), gang("nightly-2")]


def test_the_last_of_those_that_are_over() -> None:
    assert jobs_told(OVER, *GANGS) == ["nightly-2"]
    assert jobs_told(OVER[::-1], *GANGS, name="cj/nightly") == ["nightly-2"]


def test_all_that_are_not_over() -> None:
    """One that never ends may overlap the next."""
    makers = [job("nightly-0", 1), *OVER, job("nightly-3", 3)]
    assert jobs_told(makers, gang("nightly-0"), *GANGS, gang("nightly-3")) == ["nightly-0", "nightly-3"]


def test_another_cron_jobs_are_not() -> None:
    with pytest.raises(why.UnknownJobError, match="did you mean nightly"):
        jobs_told([job("other-1", 1, cron="other"), *OVER], gang("other-1"), *GANGS, name="nightlyy")


def test_the_last_one_has_no_gang_since_its_pods_are_refused() -> None:
    """What an earlier one met is not what the user asks for."""
    makers = [*OVER, job("nightly-3", 3)]
    about = {"kind": "Job", "name": "nightly-3", "namespace": "ml", "uid": "uid-nightly-3"}
    event = {"involvedObject": about, "reason": "FailedCreate", "message": "may not use queue x"}
    with pytest.raises(why.UnknownJobError, match="Job nightly-3 cannot make a pod: may not use"):
        why.stories("nightly", "ml", groups=GANGS, pods=[], queues={}, makers=makers, events=[event])


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (cron_job(), "CronJob nightly has no Job now; it makes them at 0 3 * * *, and has made none yet"),
        (cron_job(last="2026-01-01T03:00:00Z"), "at 0 3 * * *, the last one at 2026-01-01T03:00:00Z"),
        (cron_job(suspend=True), "nightly asks for no pods (suspend: true)"),
    ],
)
def test_one_without_jobs(there: docs.Json, words: str) -> None:
    with pytest.raises(why.UnknownJobError) as told:
        jobs_told([there])
    assert words in str(told.value)


@pytest.mark.parametrize("name", ["nightly", "cronjob/nightly", "ml/nightly"])
def test_why_takes_its_name(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_api() as server:
        for group in GANGS:
            where = "/apis/scheduling.volcano.sh/v1beta1/namespaces/ml/podgroups"
            server.put(f"{where}/{group['metadata']['name']}", group)
        for one in OVER:
            server.put(f"/apis/batch/v1/namespaces/ml/jobs/{one['metadata']['name']}", one)
        argv = ["why", name, "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(argv) == exit_status.EXIT_OK
        assert not any("cronjobs" in path for _, path, _ in server.requests), "its Jobs tell of it"
    shown = capsys.readouterr().out
    assert "nightly-2" in shown
    assert "nightly-1" not in shown


def test_why_asks_for_one_that_has_made_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tiny_api() as server:
        server.put("/apis/batch/v1/namespaces/ml/cronjobs/nightly", cron_job(suspend=True))
        argv = ["why", "nightly", "-n", "ml", "--kubeconfig", str(server.kubeconfig(tmp_path))]
        assert kubectl.main(argv) == exit_status.EXIT_FOUND
    assert "suspend: true" in capsys.readouterr().err
