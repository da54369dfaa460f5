"""Evictions that come while a look is under way: it did not decide on them, so the next look does."""

from vc_egpu.jobs.known.cluster import Known
from vc_egpu.jobs.known.pods import CachedPod, trim
from vc_egpu.jobs.rules.draft import Decision
from vc_egpu.jobs.rules.views import Eviction
from vc_egpu.jobs.workers.memory import Memory
from vc_egpu.volcano.words import names

JOB = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train", "uid": "uid-job"}


def remembering() -> Memory:
    """A memory that knows the Job ``train``; its clock stands at 100 s."""
    known = Known()
    known.jobs.put({"metadata": {"namespace": "mine", "name": "train", "uid": "uid-job"}})
    return Memory(known, lambda: 100.0)


def member(index: int) -> CachedPod:
    """A pod of the Job."""
    metadata = {
        "namespace": "mine",
        "name": f"train-w-{index}",
        "uid": f"uid-{index}",
        "annotations": {names.TASK_SPEC: "w", names.JOB_VERSION: "0"},
        "ownerReferences": [{**JOB, "controller": True}],
    }
    return CachedPod.of(trim({"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}))


def eviction(index: int) -> Eviction:
    return Eviction(f"train-w-{index}", f"uid-{index}", "w", 0, 100.0)


def test_an_eviction_that_comes_during_a_look_waits_for_the_next_one() -> None:
    memory = remembering()
    memory.pod_gone(member(0))
    seen, _ = memory.happenings("uid-job")
    memory.pod_gone(member(1))
    memory.settle("uid-job", seen, Decision())
    assert memory.happenings("uid-job")[0] == (eviction(1),)


def test_it_waits_next_to_those_that_the_look_left_to_a_delayed_action() -> None:
    memory = remembering()
    memory.pod_gone(member(0))
    memory.pod_gone(member(1))
    seen, _ = memory.happenings("uid-job")
    memory.pod_gone(member(2))
    memory.settle("uid-job", seen, Decision(evictions=(eviction(1),)))
    assert memory.happenings("uid-job")[0] == (eviction(1), eviction(2))
    seen, _ = memory.happenings("uid-job")
    memory.settle("uid-job", seen, Decision())
    assert memory.happenings("uid-job")[0] == ()
