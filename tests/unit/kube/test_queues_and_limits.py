"""The work queue, the token bucket, the back-off and the event recorder."""

import re
import threading

import pytest
from unit.kube.tiny_api import TinyApi
from vc_egpu.kube import ApiConnection, Backoff, EventRecorder, TokenBucket, WorkQueue
from vc_egpu.volcano.api.meta import DNS_SUBDOMAIN


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, duration_s: float) -> None:
        self.now += duration_s


def test_a_key_is_given_out_once() -> None:
    queue: WorkQueue[str] = WorkQueue()
    for key in ("a", "b", "a"):
        queue.add(key)
    assert (queue.get(0), queue.get(0), queue.get(0)) == ("a", "b", None)


def test_a_key_that_changes_while_it_is_worked_on_comes_again() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add("a")
    assert queue.get(0) == "a"
    queue.add("a")
    assert queue.get(0) is None, "not twice at the same time"
    queue.done("a")
    assert queue.get(0) == "a"


def test_later_means_later_and_the_earlier_wish_wins() -> None:
    clock = Clock()
    queue: WorkQueue[str] = WorkQueue(clock=clock)
    queue.add_after("a", 10)
    queue.add_after("a", 5)
    queue.add_after("a", 7)
    assert queue.get(0) is None
    clock.now = 5
    assert queue.get(0) == "a"
    queue.done("a")
    clock.now = 20
    assert queue.get(0) is None, "one wish, given out once"


def test_whoever_waits_for_a_key_of_a_thousand_years_hence_gets_what_comes_before() -> None:
    queue: WorkQueue[str] = WorkQueue()
    queue.add_after("late", 1000 * 365 * 86400.0)
    found: list[str | None] = []
    worker = threading.Thread(target=lambda: found.append(queue.get()))
    worker.start()
    queue.add("now")
    worker.join(30)
    assert found == ["now"]


def test_failures_wait_longer_each_time_until_one_success() -> None:
    queue: WorkQueue[str] = WorkQueue(first_s=1, most_s=8, clock=Clock())
    delays = [queue.retry("a") for _ in range(6)]
    assert all(2 / 3 * full <= delay <= full for delay, full in zip(delays, (1, 2, 4, 8, 8, 8), strict=True))
    assert queue.failures("a") == 6
    queue.forget("a")
    assert queue.retry("a") <= 1


def test_closing_wakes_a_waiting_worker() -> None:
    queue: WorkQueue[str] = WorkQueue()
    got: list[str | None] = []
    worker = threading.Thread(target=lambda: got.append(queue.get()))
    worker.start()
    queue.close()
    worker.join(30)
    assert got == [None]
    queue.add("a")
    assert queue.get(0) is None


def test_tokens_come_at_their_rate_after_the_first_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(10, 3, clock=clock, sleep=clock.sleep)
    waited = [bucket.take() for _ in range(5)]
    assert waited == pytest.approx([0, 0, 0, 0.1, 0.1])
    clock.now += 100
    assert [bucket.try_take() for _ in range(4)] == [True, True, True, False], "never more than a burst"


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_rates_that_make_no_sense(qps: float, burst: int) -> None:
    with pytest.raises(ValueError, match="qps"):
        TokenBucket(qps, burst)


def test_back_off_is_bounded_for_ever() -> None:
    backoff = Backoff(0.1, 10)
    assert max(backoff.next_s() for _ in range(2000)) <= 10


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "uid": "u"}, "spec": {"secret": "x"}}


def test_the_same_event_is_sent_once(api: ApiConnection, server: TinyApi) -> None:
    recorder = EventRecorder(api, "component", "instance")
    for _ in range(5):
        recorder.event(NODE, "Warning", "Reason", "text")
    recorder.event(NODE, "Warning", "Reason", "another text")
    recorder.stop()
    sent = [body for method, _, body in server.requests if method == "POST"]
    assert [body["note"] for body in sent] == ["text", "another text"]
    assert sent[0]["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}
    assert len({body["metadata"]["name"] for body in sent}) == 2


def test_events_are_never_in_the_way(api: ApiConnection, server: TinyApi) -> None:
    server.delay_s = 0.5
    recorder = EventRecorder(api, "component", "instance", capacity=10)
    for number in range(100):
        recorder.event(NODE, "Normal", "Reason", f"text {number}")
    assert recorder.dropped >= 80, "the oldest go"
    server.delay_s = 0
    recorder.stop()


@pytest.mark.parametrize("at_200", ["-", ".", "a"])
def test_an_event_has_a_name_that_may_be(api: ApiConnection, server: TinyApi, at_200: str) -> None:
    name = f"{'x' * 199}{at_200}{'y' * 50}"
    recorder = EventRecorder(api, "component", "instance")
    recorder.event({"metadata": {"namespace": "n", "name": name, "uid": "u"}}, "Normal", "R", "note")
    recorder.stop()
    [made] = (body["metadata"]["name"] for method, _, body in server.requests if method == "POST")
    assert re.fullmatch(DNS_SUBDOMAIN, made)


def test_a_note_fits_into_an_event(api: ApiConnection, server: TinyApi) -> None:
    recorder = EventRecorder(api, "component", "instance")
    recorder.event(NODE, "Normal", "Reason", "é" * 2000)
    recorder.stop()
    assert len(server.requests[-1][2]["note"].encode()) <= 1024
