"""How often the agent looks whether the containers of ended pods are gone."""

from vc_egpu_node.containers.collector import LEAVING_MOST_S, LEAVING_S, Patience

IDLE_S = 10.0


def test_soon_for_those_that_have_just_ended_and_seldom_for_one_that_does_not_end() -> None:
    patience = Patience()

    def wait_s(leaving: int, now_s: float) -> float:
        return patience.wait_s(leaving, now_s, IDLE_S)

    assert wait_s(0, 0.0) == IDLE_S
    assert [wait_s(1, now_s) for now_s in (100.0, 105.0, 110.0)] == [LEAVING_S] * 3
    assert LEAVING_S < wait_s(1, 150.0) < wait_s(1, 200.0) < LEAVING_MOST_S
    assert wait_s(1, 90_000.0) == LEAVING_MOST_S
    assert wait_s(2, 90_001.0) == LEAVING_S  # another one has just ended
    assert wait_s(1, 90_100.0) == LEAVING_S
    assert wait_s(0, 90_101.0) == IDLE_S
    assert wait_s(1, 90_102.0) == LEAVING_S


def test_what_could_not_be_told_is_told_soon_but_a_thousand_nodes_do_not_storm_the_api_server() -> None:
    patience = Patience()
    patience.wait_s(1, 0.0, IDLE_S)
    for most_s in (0.5, 1.0, 2.0, 4.0, 8.0, IDLE_S, IDLE_S):
        assert most_s * 2 / 3 <= patience.again_s(IDLE_S) <= most_s
    patience.wait_s(1, 60.0, IDLE_S)
    assert patience.again_s(IDLE_S) <= 0.5


def test_nodes_that_were_refused_at_one_moment_do_not_come_back_at_one_moment() -> None:
    assert len({Patience().again_s(IDLE_S) for _ in range(100)}) > 50
