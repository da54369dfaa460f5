"""Health is a state with a way back."""

from vc_egpu_node.cards.monitor import WELL, Health, step


def test_a_card_falls_ill_and_recovers_after_a_quiet_time() -> None:
    ill = step(WELL, now_s=10, fault="XID 79", recovery_s=60)
    assert ill == Health("XID 79", 10)
    assert step(ill, now_s=69, fault="", recovery_s=60) == ill
    assert step(ill, now_s=70, fault="", recovery_s=60) is WELL


def test_a_new_fault_begins_the_quiet_time_anew() -> None:
    ill = step(Health("XID 79", 10), now_s=60, fault="lost", recovery_s=60)
    assert ill == Health("lost", 60)
    assert not step(ill, now_s=100, fault="", recovery_s=60).well


def test_nothing_happens_to_a_healthy_card() -> None:
    assert step(WELL, now_s=1e9, fault="", recovery_s=0) is WELL
