"""Cards are tried as programs would use them: seldom, and only where nobody is."""

import logging

import pytest
from vc_egpu_node.cards.trials import AGAIN_S, Outcome, Trials
from vc_egpu_node.settings.config import parse_flags
from vc_egpu_node.vendors.base import UntoldError
from vc_egpu_node.vendors.nvidia.words import trial_fault

HOUR_S = 3600.0


class Stage:
    """Cards that answer as the test says, and a clock that it moves."""

    def __init__(self, **cards: bool) -> None:
        self.cards = dict(cards)
        """By UUID: nobody is on it."""
        self.answers: dict[str, str | UntoldError] = {}
        self.tried: list[str] = []
        self.counted: list[Outcome] = []
        self.now_s = 0.0
        self.trials = Trials(
            self._try,
            interval_s=HOUR_S,
            cards=lambda: dict(self.cards),
            count=self.counted.append,
            clock=lambda: self.now_s,
        )

    def _try(self, uuid: str) -> str:
        self.tried.append(uuid)
        answer = self.answers.get(uuid, "")
        if isinstance(answer, UntoldError):
            raise answer
        return answer

    def turn_at(self, now_s: float) -> list[str]:
        """What is tried then."""
        self.now_s = now_s
        self.tried.clear()
        self.trials.turn()
        return list(self.tried)


def test_each_card_is_tried_at_the_start_and_then_once_an_hour() -> None:
    stage = Stage(a=True, b=True)
    assert stage.turn_at(0) == ["a", "b"]
    assert stage.turn_at(HOUR_S - 1) == []
    assert stage.turn_at(HOUR_S) == ["a", "b"]
    assert stage.counted == ["well"] * 4


def test_a_card_that_somebody_is_on_is_left_alone_until_nobody_is() -> None:
    stage = Stage(a=False, b=True)
    assert stage.turn_at(0) == ["b"]
    stage.cards["a"] = True
    assert stage.turn_at(5) == ["a"]


def test_one_that_somebody_came_to_during_another_trial_is_left_alone() -> None:
    stage = Stage(a=True, b=True)

    def arrives(uuid: str) -> str:
        stage.tried.append(uuid)
        stage.cards["b"] = False
        return ""

    trials = Trials(
        arrives, interval_s=HOUR_S, cards=lambda: dict(stage.cards), count=lambda _: None, clock=lambda: 0.0
    )
    trials.turn()
    assert stage.tried == ["a"]


def test_a_card_that_fails_is_tried_again_soon_and_comes_back() -> None:
    stage = Stage(a=True, b=True)
    stage.answers["a"] = "broken"
    stage.turn_at(0)
    assert stage.trials.faults == {"a": "broken"}
    assert stage.turn_at(AGAIN_S) == ["a"]
    del stage.answers["a"]
    assert stage.turn_at(2 * AGAIN_S) == ["a"]
    assert stage.trials.faults == {}
    assert stage.turn_at(3 * AGAIN_S) == []
    assert stage.counted == ["fault", "well", "fault", "well"]


def test_a_trial_that_cannot_tell_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(a=True, b=True)
    stage.answers = {"a": "broken", "b": UntoldError("no driver")}
    with caplog.at_level(logging.WARNING):
        stage.turn_at(0)
        stage.answers["a"] = UntoldError("no driver")
        stage.turn_at(AGAIN_S)
        stage.turn_at(HOUR_S)
    assert stage.trials.faults == {"a": "broken"}
    assert caplog.text.count("no driver") == 1, "said once"


def test_a_card_that_is_gone_is_forgotten() -> None:
    stage = Stage(a=True)
    stage.answers["a"] = "broken"
    stage.turn_at(0)
    del stage.cards["a"]
    stage.turn_at(1)
    assert stage.trials.faults == {}


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (3, "CUDA_ERROR_NOT_INITIALIZED"),
        (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
        (100, "CUDA_ERROR_NO_DEVICE"),
        (101, "CUDA_ERROR_INVALID_DEVICE"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
    ],
)
def test_what_a_broken_driver_answers_is_a_fault(code: int, name: str) -> None:
    assert trial_fault(code, "cuInit") == f"programs cannot use it: cuInit answers {name} ({code})"


def test_what_may_be_the_trial_s_own_fault_is_none_of_the_card() -> None:
    assert trial_fault(0, "cuDevicePrimaryCtxRelease") == ""
    with pytest.raises(UntoldError, match="cuDevicePrimaryCtxRetain answers 2"):
        trial_fault(2, "cuDevicePrimaryCtxRetain")
    with pytest.raises(UntoldError, match="has no CUDA driver"):
        trial_fault(-1, "libcuda.so.1: not found")


def test_it_is_off_unless_it_is_asked_for() -> None:
    assert parse_flags([]).probe_cuda_interval_s == 0.0
    assert parse_flags(["--probe-cuda-interval-s=3600"]).probe_cuda_interval_s == 3600.0


@pytest.mark.parametrize("wrong", ["-1", "nan", "inf", "often"])
def test_a_wrong_interval_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_flags([f"--probe-cuda-interval-s={wrong}"])
    assert "--probe-cuda-interval-s" in capsys.readouterr().err
