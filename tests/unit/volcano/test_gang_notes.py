"""What a PodGroup remembers, and what hostile texts make of it."""

import pytest
from unit.core import make
from vc_egpu.core.model.cluster import (
    MOST_GIVEN_UP,
    CardId,
    MemberPlacement,
    Move,
    NodeName,
    PodUid,
    Share,
)
from vc_egpu.volcano.codec import cluster_codec, gang_notes
from vc_egpu.volcano.words import names


def test_victim_times_come_back() -> None:
    assert gang_notes.decode_victim_at(gang_notes.encode_victim_at((1.5, 2.5))) == (1.5, 2.5)


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "{}", '{"at": ["x"]}', '{"at": [-1]}', '{"at": [1e300]}', '{"version": 2}']
)
def test_garbage_means_that_nothing_is_known(text: str) -> None:
    assert gang_notes.decode_victim_at(text) == ()


def test_a_pod_group_tells_when_its_gang_went() -> None:
    annotations = {names.VICTIM_AT: gang_notes.encode_victim_at((3.0, 1.0, 2.0, 4.0))}
    metadata = {"namespace": "ns", "name": "g", "uid": "u", "resourceVersion": "1"}
    decoded = cluster_codec.group({"metadata": {**metadata, "annotations": annotations}})
    assert decoded.gang.victim_at == (2.0, 3.0, 4.0)


@pytest.mark.parametrize(("text", "span_s"), [("10m", 600.0), ("0", 0.0), ("soon", None), (None, None)])
def test_a_queue_tells_its_minimum_run_time(text: str | None, span_s: float | None) -> None:
    annotations = {} if text is None else {names.MIN_RUNTIME: text}
    queue = cluster_codec.queue({"metadata": {"name": "q", "annotations": annotations}})
    assert queue.min_runtime_s == span_s


NODES = {NodeName("n1"): make.node("n1", 2)}
MOVE = Move(
    5.0,
    {"w/0": MemberPlacement(NodeName("n1"), (("main", Share(CardId("n1/1"), 100, 10)),))},
    frozenset({PodUid("11111111-2222-4333-8444-555555555555")}),
    "ns/large",
    {"volcano.sh/vgpu-h20": 1},
    2000,
)


def test_a_move_comes_back() -> None:
    text = gang_notes.encode_move(MOVE, "u", NODES)
    assert gang_notes.decode_move(text, "u", NODES) == MOVE
    assert gang_notes.claims(text)


def test_a_move_for_another_group_or_other_cards_claims_nothing_and_still_counts() -> None:
    text = gang_notes.encode_move(MOVE, "u", NODES)
    past = Move(5.0, whom="ns/large", won_milli=2000)
    assert gang_notes.decode_move(text, "other", NODES) == past
    assert gang_notes.decode_move(text, "u", {NodeName("n1"): make.node("n1", 3)}) == past
    assert gang_notes.decode_move(text, "u", {}) == past


def test_a_move_that_is_over_comes_back() -> None:
    past = Move(5.0, whom="ns/large", won_milli=2000)
    text = gang_notes.encode_move(past, "u", NODES)
    assert gang_notes.decode_move(text, "u", NODES) == past
    assert not gang_notes.claims(text)


def test_a_move_that_was_given_up_comes_back() -> None:
    stays = MOVE.give_up(9.0).give_up(60.0)
    found = gang_notes.decode_move(gang_notes.encode_move(stays, "u", NODES), "u", NODES)
    assert found == Move(60.0, whom="ns/large", given_up=2)
    assert found is not None
    assert found.stays
    many = Move(1.0, given_up=MOST_GIVEN_UP).give_up(2.0)
    assert gang_notes.decode_move(gang_notes.encode_move(many, "u", NODES), "u", NODES) == many


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "{}", '{"at": -1}', '{"at": 1, "won": "x"}', '{"version": 2}',
     '{"at": 1, "given_up": -1}', '{"at": 1, "given_up": 1e9}'],
)  # fmt: skip
def test_garbage_is_no_move(text: str) -> None:
    assert gang_notes.decode_move(text, "u", NODES) is None


@pytest.mark.parametrize("claim", ["{}", '{"version": 1}', '{"nodes": 3}'])
def test_a_claim_that_is_garbage_claims_nothing(claim: str) -> None:
    assert gang_notes.decode_move(f'{{"at": 7, "claim": {claim}}}', "u", NODES) == Move(7.0)


def test_a_pod_group_tells_that_its_gang_may_be_restarted() -> None:
    metadata = {"namespace": "ns", "name": "g", "uid": "u", "resourceVersion": "1"}
    for text, restartable in (("true", True), ("yes", False)):
        document = {"metadata": {**metadata, "annotations": {names.RESTARTABLE: text}}}
        assert cluster_codec.group(document).gang.restartable is restartable
