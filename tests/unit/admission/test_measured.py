"""What nodes say of how busy they were, as a leader takes it in."""

import json
from typing import Any

import pytest
from unit.admission.build import TABLE, added, deleted, group, node, pod, queue, version
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.measured.use import UNKNOWN, CardUse, NodeUse
from vc_egpu.core.model.cluster import NodeName, PodUid
from vc_egpu.core.profiles.table import Wants
from vc_egpu.volcano.measured.notes import MAX_BYTES, NodeUseNote, current, told
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import AnnotationError

N1, UID = NodeName("n1"), PodUid("pod-0")
NOTE = NodeUseNote.model_validate(
    {"at": 1000, "cpu": 20, "cards": {"GPU-n1-0": {"compute": 90, "memory": 40}}, "pods": {UID: 70}}
)


def saying(text: str | None, name: str = "n1") -> Any:
    document = node(name)
    if text is not None:
        document["metadata"]["annotations"][names.NODE_USE] = text
    return added(document)


def at_rest() -> Mirror:
    """A mirror with one node of which all is known."""
    mirror = Mirror(TABLE)
    mirror.apply("queues", added(queue()))
    mirror.apply("nodes", saying(None))
    mirror.agenda.take_question()
    return mirror


def test_a_new_figure_is_known_and_asks_for_no_decision() -> None:
    mirror = at_rest()
    mirror.apply("nodes", saying(NOTE.encode()))
    expected = NodeUse(1000.0, 20, UNKNOWN, {"GPU-n1-0": CardUse(90, 40)})
    assert mirror.snapshot().measured == {N1: expected}
    assert not mirror.agenda.wants_decision
    before = mirror.snapshot()
    mirror.apply("nodes", saying(NOTE.model_copy(update={"at": 1600}).encode()))
    assert mirror.snapshot().measured[N1].at == 1600.0
    assert before.measured[N1].at == 1000.0, "a snapshot does not change"
    assert not mirror.agenda.wants_decision


def test_a_first_figure_may_come_with_the_node_and_goes_with_it() -> None:
    mirror = Mirror(TABLE)
    mirror.apply("nodes", saying(NOTE.encode(), "n2"))
    assert list(mirror.snapshot().measured) == ["n2"]
    mirror.apply("nodes", deleted(node("n2")))
    assert not mirror.snapshot().measured
    mirror.apply("nodes", saying(NOTE.encode(), "n2"))
    assert list(mirror.snapshot().measured) == ["n2"], "a new node of its name"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"at":1e999}', '{"at":-1}', '{"at":"1"}', '{"at":1,"version":2}',
        '{"at":1,"cpu":101}', '{"at":1,"cpu":"50"}', '{"at":1,"cards":{"GPU":{"compute":-1}}}',
        '{"at":1,"cards":{"../../etc":{"compute":1}}}', '{"at":1,"pods":{"' + "u" * 70 + '":1}}',
        json.dumps({"at": 1, "pods": {f"p{n}": 1 for n in range(129)}}),
        json.dumps({"at": 1, "cards": {f"c{n}": {} for n in range(65)}}), "[" * 10_000,
        '{"at":1,"more":"' + "x" * MAX_BYTES + '"}',
    ],
)  # fmt: skip
def test_what_cannot_be_read_counts_as_nothing(text: str, caplog: pytest.LogCaptureFixture) -> None:
    mirror = at_rest()
    mirror.apply("nodes", saying(NOTE.encode()))
    mirror.apply("nodes", saying(text))
    assert not mirror.snapshot().measured
    assert mirror.snapshot().nodes[N1].cards, "the node takes work as ever"
    assert not mirror.agenda.wants_decision
    assert current(text, 1.0) is None
    assert ("malformed" in caplog.text) is bool(text)
    if text:
        with pytest.raises(AnnotationError):
            told(text)


def test_what_is_read_is_in_steps() -> None:
    found = told('{"at":1,"cpu":57,"cards":{"a":{"compute":4}},"pods":{"u":96},"new":true}')
    assert (found.node.cpu_points, found.node.cards["a"].compute_points, found.pods) == (60, 0, {"u": 100})


def test_people_see_what_is_current() -> None:
    assert current(NOTE.encode(), 1500.0) is not None
    assert current(NOTE.encode(), 1000.0 + 3600) is None
    assert current(None, 1000.0) is None


def finished(phase: str) -> Any:
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train-7", "uid": "j"}
    document = pod("train-7-w-0", gang="g", uid=UID)
    document["metadata"]["resourceVersion"] = version()
    document["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    document["metadata"]["annotations"][names.CARDS] = json.dumps(
        {
            "podUid": UID,
            "node": "n1",
            "planId": "1-1",
            "containers": {"main": [{"uuid": "GPU-n1-0", "memoryMiB": 1024, "cores": 0}]},
        }
    )
    document["spec"].pop("schedulingGates", None)
    document["spec"]["nodeName"] = "n1"
    document["status"] = {"phase": phase, "startTime": "2026-01-01T00:00:00Z"}
    return added(document)


def habit(mirror: Mirror, notes: list[str | None]) -> int | None:
    """What is known of the Job once a pod of it ended, after its node said all this."""
    mirror.take_profiles(Wants(use=True))
    mirror.ends.now = 1767225660.0
    mirror.apply("pods", finished("Running"))
    for text in notes:
        mirror.apply("nodes", saying(text))
    mirror.apply("pods", finished("Succeeded"))
    made = group("g", members=1)
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "train-8", "uid": "k"}
    made["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    mirror.apply("podgroups", added(made))
    found = mirror.state.gang("default/g")
    assert found is not None
    return found.traits.uses_points


def test_the_next_run_of_a_job_is_taken_to_use_what_this_one_did() -> None:
    assert habit(at_rest(), [NOTE.encode()]) == 70
    assert habit(at_rest(), [NOTE.encode(), NodeUseNote(at=1060).encode()]) == 70, "the pod ended meanwhile"
    assert habit(at_rest(), [NOTE.encode(), *[NodeUseNote(at=at).encode() for at in (1, 2)]]) is None
    assert habit(at_rest(), [None]) is None


def test_without_the_switch_nothing_is_counted() -> None:
    mirror = at_rest()
    mirror.take_profiles(Wants())
    mirror.apply("nodes", saying(NOTE.encode()))
    mirror.apply("pods", finished("Running"))
    mirror.apply("pods", finished("Succeeded"))
    assert not mirror.around.runs.habits
