"""What the Job controller keeps of a Job between two looks."""

import tracemalloc
from typing import Any

import orjson
from unit.jobs.worlds import task
from vc_egpu.jobs.known.jobs import Jobs, pack, unpack
from vc_egpu.kube import Change, ChangeKind
from vc_egpu.volcano.words import names

MANY_VARIABLES = [{"name": f"VARIABLE_{number}", "value": str(number)} for number in range(2000)]


def document(name: str = "train", queue: str = "mine", **metadata: Any) -> dict[str, Any]:
    large = task()
    large["template"]["spec"]["containers"][0]["env"] = MANY_VARIABLES
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "n",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            **metadata,
        },
        "spec": {"tasks": [large], "queue": queue},
        "status": {"state": {"phase": "Running"}},
    }


def test_a_job_comes_out_as_it_went_in_but_for_what_nothing_reads() -> None:
    annotations = {"mine": "x", names.LAST_APPLIED: "a second copy"}
    told = document(annotations=annotations, managedFields=[{"manager": "kubectl"}])
    packed = pack(told)
    assert pack(packed) is packed
    assert unpack(packed) == document(annotations={"mine": "x"})
    assert told["metadata"]["annotations"] == annotations, "the watch's own document stays"


def test_what_is_kept_of_a_job_is_not_larger_than_its_json() -> None:
    jobs, size = Jobs(), len(orjson.dumps(document()))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(20):
            told = orjson.loads(orjson.dumps(document(f"job-{number}")))
            jobs.watch(Change(ChangeKind.ADDED, told))
        del told
        kept = (tracemalloc.get_traced_memory()[0] - before) / 20
    finally:
        tracemalloc.stop()
    assert kept < size + 4096, f"{kept:.0f} bytes for a Job of {size}"


def test_jobs_are_found_by_name_and_by_queue() -> None:
    jobs = Jobs()
    jobs.put(document())
    jobs.put(document("other", queue="theirs"))
    jobs.put({**document("third"), "spec": {"tasks": []}})
    assert (jobs.uid(("n", "train")), jobs.uid(("n", "gone"))) == ("uid-train", None)
    assert jobs.of_queue("theirs") == [("n", "other")]
    assert jobs.of_queue("default") == [("n", "third")]
    assert len(jobs.all_keys()) == 3
