"""Readers of the metrics, while others try how far they can get in their way."""

import pytest
from vc_egpu.admission.serving import http
from vc_egpu.admission.serving.http import Access
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.kube.wire.errors import KubeError, Unavailable
from vc_egpu.kube.wire.limits import TokenBucket


class Answering(Access):
    """With an API server that knows one token."""

    def __init__(self, limit: TokenBucket | None = None) -> None:
        super().__init__(ApiConnection.__new__(ApiConnection), limit)
        self.asked: list[str] = []
        self.trouble: KubeError | None = None
        self.good = {"prometheus"}

    def _ask(self, token: str, path: str) -> bool:
        self.asked.append(token)
        if self.trouble is not None:
            raise self.trouble
        return token in self.good


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(http, "time", made)
    return made


@pytest.fixture
def access() -> Answering:
    return Answering()


def scrapes(access: Access, token: str = "prometheus") -> bool:
    return access.allows("10.0.0.1", f"Bearer {token}", "/metrics")


def test_who_sends_ever_new_tokens_keeps_nobody_from_scraping(clock: Clock) -> None:
    """Metrics that are missing raise the alert that nobody leads."""
    access = Answering(TokenBucket(0.001, 10))
    assert scrapes(access)
    assert not any(scrapes(access, f"guess-{number}") for number in range(20))
    clock.now += http.REMEMBER_S + 1
    assert scrapes(access), "though there is no question left to ask"


@pytest.mark.usefixtures("clock")
def test_who_was_refused_does_not_push_out_who_was_allowed() -> None:
    access = Answering(TokenBucket(1e6, 10_000))
    assert scrapes(access)
    assert not any(scrapes(access, f"guess-{number}") for number in range(2 * http.REMEMBERED))
    assert scrapes(access)
    assert access.asked.count("prometheus") == 1


def test_while_the_api_server_is_away_who_was_allowed_still_is(access: Answering, clock: Clock) -> None:
    assert scrapes(access)
    access.trouble = Unavailable("away")
    clock.now += http.REMEMBER_S + 1
    assert scrapes(access)
    assert not scrapes(access, "another")
    clock.now += http.AT_MOST_S
    assert not scrapes(access), "not for ever"


def test_who_is_allowed_no_longer_is_refused_when_it_is_asked_again(access: Answering, clock: Clock) -> None:
    assert scrapes(access)
    access.good.clear()
    clock.now += http.REMEMBER_S + 1
    assert not scrapes(access)
    access.trouble = Unavailable("away")
    clock.now += http.REMEMBER_S + 1
    assert not scrapes(access)
