"""One variable makes every wait of the local cluster longer."""

from __future__ import annotations

import pytest
from localcluster.api import wait_until
from localcluster.cluster import LocalCluster
from localcluster.errors import LocalClusterError
from localcluster.patience import VARIABLE, stretched
from localcluster.spec import ClusterSpec

SOON_S = 0.001
"""Less than the pause between two looks."""


@pytest.fixture(autouse=True)
def usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


class Slow:
    """Holds at the tenth look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> bool:
        self.looks += 1
        return self.looks == 10


def test_what_comes_too_late_is_said_with_what_waits_longer() -> None:
    with pytest.raises(LocalClusterError, match=rf"etcd ready did not happen within 0 s .*{VARIABLE}=10"):
        wait_until("etcd ready", Slow(), SOON_S)


def test_a_slow_machine_is_given_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "100000")
    slow = Slow()
    wait_until("etcd ready", slow, SOON_S)
    assert slow.looks == 10


@pytest.mark.parametrize(("said", "seconds"), [("", 20), ("1", 20), ("2.5", 50), ("10", 200)])
def test_the_variable_is_a_factor(monkeypatch: pytest.MonkeyPatch, said: str, seconds: float) -> None:
    assert stretched(20) == 20
    monkeypatch.setenv(VARIABLE, said)
    assert stretched(20) == seconds


@pytest.mark.parametrize("said", ["0.5", "0", "-1", "nan", "inf", "long"])
def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(LocalClusterError, match=f"{VARIABLE}={said}: a number from 1 on"):
        stretched(20)


def test_it_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking down what had started would stumble over the same word."""
    monkeypatch.setenv(VARIABLE, "long")
    with pytest.raises(LocalClusterError, match=f"{VARIABLE}=long"):
        LocalCluster.up(ClusterSpec(kubernetes="1.2"))
