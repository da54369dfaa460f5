"""What work usually comes: counted from changes of pods, kept in a ConfigMap, read by the next leader."""

from dataclasses import replace
from typing import Any

import pytest
from unit.core import make
from vc_egpu.admission.kept.keeper import AGAIN_S, Keeper
from vc_egpu.admission.kept.usual_work import (
    FORM,
    KEY,
    MOST_BYTES,
    WRITE_EVERY_S,
    UsualWork,
    decode,
    encode,
)
from vc_egpu.admission.settings import parse
from vc_egpu.core.model.cluster import NodeName, Pod, PodPhase, Requirement
from vc_egpu.core.model.policy import FULLEST, OURS
from vc_egpu.core.placing.learning import Experience, ended, placed, seen
from vc_egpu.kube.wire.errors import KubeError, NotFound

SHAPE = make.shape(8192, 10)


def gated(name: str) -> Pod:
    (pod,) = make.pods(name, 1, SHAPE)
    return pod


def lived(usual: UsualWork, name: str, began: float, over: float) -> None:
    pod = gated(name)
    running = replace(pod, phase=PodPhase.PLACED, node=NodeName("n1"), started=began)
    usual.change(None, pod, began)
    usual.change(pod, pod, began)
    usual.change(pod, running, began)
    usual.change(running, replace(running, phase=PodPhase.TERMINATING), over)
    usual.change(replace(running, phase=PodPhase.TERMINATING), None, over)


def test_a_life_counts_once_as_seen_as_placed_and_as_ended() -> None:
    usual = UsualWork(learns=True)
    lived(usual, "a", 10, 70)
    done = gated("b")
    usual.change(None, replace(done, phase=PodPhase.SUCCEEDED), 99)
    usual.change(replace(done, phase=PodPhase.SUCCEEDED), None, 99)
    experience = usual.experience
    assert (experience.pods, experience.ends) == (1, 1)
    ((kind, count),) = experience.counts.items()
    assert (kind.memory_mib, kind.cores_percent) == (8192, 10)
    assert count.held_s / experience.scale == pytest.approx(60)
    assert experience.released_mib == experience.placed_mib == 8192


def test_it_costs_nothing_where_no_policy_looks_at_it() -> None:
    usual = UsualWork()
    lived(usual, "a", 10, 70)
    assert usual.experience == Experience()


def experience_of(pods: int) -> Experience:
    now = Experience()
    for number in range(pods):
        now = placed(seen(now, [make.shape(1000 + number % 7, 3)]), [SHAPE])
    return ended(now, SHAPE, 5.0)


def test_what_is_kept_is_what_was_learned() -> None:
    before = experience_of(300)
    after = decode(encode(before))
    assert (after.pods, after.ends, after.released_mib) == (before.pods, before.ends, before.released_mib)
    parts = [sorted(round(each.frequency, 6) for each in now.mix.classes) for now in (before, after)]
    assert len(parts[1]) == 7
    assert after.mix.churn == before.mix.churn
    assert decode(encode(after)).mix == after.mix


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", "null", "[" * 100_000,
        encode(experience_of(60)).replace('"version":1', '"version":2'),
        encode(experience_of(60)).replace('"pods":60', '"pods":-1'),
        encode(experience_of(60)).replace('"pods":60', '"pods":1e300'),
        encode(experience_of(60)).replace('"cpu_milli":1000', '"cpu_milli":"x"'),
        encode(experience_of(60)).replace('"memory_mib":1001', '"memory_mib":-1001'),
    ],
)  # fmt: skip
def test_a_damaged_document_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_large_classes_do_not_make_a_large_document() -> None:
    now = Experience()
    for number in range(200):
        terms = ((Requirement("k", "In", tuple(f"{number}-{i}" * 20 for i in range(200))),),)
        now = seen(now, [replace(SHAPE, affinity_terms=terms)] * (1 + number % 3))
    text = encode(now)
    assert len(text.encode()) <= MOST_BYTES
    assert 0 < len(decode(text).counts) < 200


class Api:
    """The two calls that the keeper makes."""

    def __init__(self, *, broken: bool = False) -> None:
        self.data: dict[str, str] | None = None
        self.writes = 0
        self.broken = broken

    def get(self, *_: Any) -> dict[str, Any]:
        if self.broken:
            raise KubeError("the API server is away")
        if self.data is None:
            raise NotFound("no such ConfigMap")
        return {"data": self.data}

    def patch(self, _: Any, name: str, body: dict[str, Any], namespace: str) -> dict[str, Any]:
        assert (name, namespace) == ("vc-egpu-usual-work", "vc-egpu-system")
        if self.broken:
            raise KubeError("the API server is away")
        self.data = body["data"]
        self.writes += 1
        return body


def keeper_of(api: Api) -> Keeper[Experience]:
    return Keeper(api, "vc-egpu-system", FORM)  # type: ignore[arg-type]


def test_the_next_leader_reads_what_the_last_one_wrote() -> None:
    api = Api()
    first, experience = keeper_of(api), experience_of(300)
    assert first.read() is None
    first.tick(experience, 0.0)
    first.tick(experience, WRITE_EVERY_S)
    first.stop()
    assert api.writes == 1, "nothing was new"
    kept = keeper_of(api).read()
    assert kept is not None
    assert kept.mix.classes == decode(encode(experience)).mix.classes


def test_it_is_written_now_and_then_only() -> None:
    api = Api()
    keeper = keeper_of(api)
    keeper.tick(experience_of(60), 0.0)
    keeper.tick(experience_of(61), WRITE_EVERY_S - 1)
    keeper.stop()
    assert api.writes == 1


def test_a_write_that_failed_is_made_again() -> None:
    api = Api(broken=True)
    keeper, experience = keeper_of(api), experience_of(60)
    keeper.tick(experience, 0.0)
    while not keeper.rests():
        pass
    api.broken = False
    keeper.tick(experience, WRITE_EVERY_S)
    keeper.tick(experience, WRITE_EVERY_S + AGAIN_S - 1)
    assert api.writes == 0
    keeper.tick(experience, WRITE_EVERY_S + AGAIN_S)
    while not keeper.rests():
        pass
    keeper.stop()
    assert api.writes == 1


def test_what_cannot_be_read_or_written_stops_nobody() -> None:
    api = Api(broken=True)
    keeper = keeper_of(api)
    assert keeper.read() is None
    keeper.tick(experience_of(60), 0.0)
    keeper.stop()
    api.broken, api.data = False, {KEY: "garbage"}
    assert keeper_of(api).read() is None
    api.data = {}
    assert keeper_of(api).read() is None


def test_the_operator_says_what_binpack_means() -> None:
    assert parse([]).policy.binpack == OURS
    assert parse(["--binpack", "fullest"]).policy.binpack == FULLEST
    with pytest.raises(SystemExit):
        parse(["--binpack", "tightest"])
