"""One leads; it may write only as long as nobody else can; its number never falls."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from unit.kube.tiny_api import TinyApi
from vc_egpu.kube import ApiConnection, LeaderLease, LeaseTimes
from vc_egpu.kube.resources import LEASES

PATH = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
CALM = LeaseTimes(duration_s=300, renew_deadline_s=200, retry_s=0.05)
"""Nobody loses it because the machine is slow."""
SHORT = LeaseTimes(duration_s=0.9, renew_deadline_s=0.6, retry_s=0.1)
"""Where it has to run out. On a slow machine it may do so at any time."""


class Candidate:
    def __init__(self, api: ApiConnection, name: str, times: LeaseTimes) -> None:
        self.epochs: list[int] = []
        self.started, self.stopped = threading.Event(), threading.Event()
        self.slept_s = 0.0
        self.lease = LeaderLease(
            api,
            "n",
            "l",
            name,
            times=times,
            on_started=self._start,
            on_stopped=self.stopped.set,
            monotonic=lambda: time.monotonic() + self.slept_s,
        )

    def doze(self, seconds: float) -> None:
        """Its process was stopped for so long: all its threads find out only now."""
        self.slept_s += seconds

    def _start(self, epoch: int) -> None:
        self.epochs.append(epoch)
        self.started.set()

    def wait_for_epoch(self, above: int) -> int:
        """The first of its epochs that is larger."""
        until(lambda: any(epoch > above for epoch in self.epochs))
        return next(epoch for epoch in self.epochs if epoch > above)


def until(reached: Callable[[], bool]) -> None:
    """Waits for it."""
    end = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.01)


def requests(server: TinyApi, wanted: str) -> int:
    return sum((m, path.partition("?")[0]) == (wanted, PATH) for m, path, _ in list(server.requests))


def renewals(server: TinyApi) -> int:
    return requests(server, "PUT")


def wait_for_another(server: TinyApi, method: str) -> None:
    sent = requests(server, method)
    until(lambda: requests(server, method) > sent)


Make = Callable[..., Candidate]


@pytest.fixture
def make(api: ApiConnection) -> Iterator[Make]:
    made: list[Candidate] = []

    def one(name: str, times: LeaseTimes = CALM) -> Candidate:
        made.append(Candidate(api, name, times))
        made[-1].lease.start()
        return made[-1]

    yield one
    for candidate in made:
        candidate.lease.stop()


def test_the_first_leads_and_the_second_waits(make: Make, server: TinyApi) -> None:
    first = make("a", SHORT)
    assert first.started.wait(30)
    second = make("b", SHORT)
    enough = renewals(server) + 15  # more than one duration
    while renewals(server) < enough:
        if second.lease.is_leader():
            assert not first.lease.is_leader()
        time.sleep(0.01)
    if not first.stopped.is_set():  # else it was not woken in time, and the second had to take over
        assert not second.started.is_set()
        assert second.lease.holder == "a"


def test_a_lease_that_is_given_back_is_taken_at_once(make: Make) -> None:
    first = make("a")
    assert first.started.wait(30)
    second = make("b")
    first.lease.stop()
    assert first.stopped.is_set()
    assert second.started.wait(30), "long before it would have run out"
    assert second.epochs == [first.epochs[0] + 1]


def test_a_bound_on_requests_is_none_on_renewals(server: TinyApi, tmp_path: Path) -> None:
    """In a storm all others stand in line before them, for longer than a leader has to renew."""
    api = ApiConnection.connect(server.kubeconfig(tmp_path), qps=0.01, burst=1)
    api.list(LEASES, "n")
    candidate = Candidate(api, "a", CALM)
    candidate.lease.start()
    assert candidate.started.wait(30)
    candidate.lease.stop()
    api.close()


def test_a_leader_that_cannot_renew_stops_before_another_may_start(make: Make, server: TinyApi) -> None:
    first = make("a", SHORT)
    assert first.started.wait(30)
    until = first.lease.may_write_until()
    server.script += [(503, {}, {})] * 1000
    assert first.stopped.wait(30)
    assert time.monotonic() >= until
    assert first.lease.remaining_s() < 0
    server.script.clear()


def test_a_gateway_that_answers_in_its_stand_ends_no_leadership(make: Make, server: TinyApi) -> None:
    """Its answer does not say that the Lease has no holder."""
    first = make("a")
    assert first.started.wait(30)
    with server.lock:
        server.script.append((200, {"message": "no backend"}, {}))
    until(lambda: not server.script)
    wait_for_another(server, "PUT")
    assert not first.stopped.is_set()


def test_the_fence_counts_from_the_sending_of_the_renewal(make: Make, server: TinyApi) -> None:
    """An answer that comes late must not lengthen the leadership."""
    first = make("a", SHORT)
    assert first.started.wait(30)
    server.delay_s = 0.25
    sent = time.monotonic()
    deadline = sent + 3
    while first.lease.may_write_until() < sent + SHORT.renew_deadline_s and time.monotonic() < deadline:
        time.sleep(0.01)
    answered = time.monotonic()
    assert first.lease.may_write_until() <= answered - server.delay_s + SHORT.renew_deadline_s + 0.02


def test_another_one_in_the_lease_ends_the_leadership(make: Make, server: TinyApi) -> None:
    first = make("a", SHORT)
    assert first.started.wait(30)
    with server.lock:
        lease = server.objects[PATH]
        lease["spec"] = {**lease["spec"], "holderIdentity": "thief", "leaseTransitions": 9_000_000}
        server.put(PATH, lease)
    assert first.stopped.wait(30)
    # The thief does not renew: the lease is free again after its time, and the number goes on from there.
    assert first.wait_for_epoch(above=9_000_000) == 9_000_001


def test_the_number_rises_even_if_somebody_deletes_the_lease(make: Make, server: TinyApi) -> None:
    first = make("a")
    assert first.started.wait(30)
    server.remove(PATH)
    first.wait_for_epoch(above=first.epochs[0])
    assert first.stopped.is_set()


def test_a_leadership_that_ran_out_unnoticed_is_not_renewed(make: Make) -> None:
    """A process that was stopped for a while: whoever saw its time run out must not see it lead again."""
    first = make("a")
    assert first.started.wait(30)
    first.doze(CALM.renew_deadline_s + 1)
    assert first.wait_for_epoch(above=first.epochs[0]) == first.epochs[0] + 1
    assert first.stopped.is_set()


def test_nor_by_an_answer_that_was_on_its_way_meanwhile(make: Make, server: TinyApi) -> None:
    """Sent in time, and in time for one more period: but in between nobody was allowed to write."""
    first = make("a")
    assert first.started.wait(30)
    server.delay_s = 0.3
    while not first.stopped.is_set():  # once, unless this machine is too slow to doze between the two
        for method in ("GET", "PUT"):
            wait_for_another(server, method)
            first.doze(0.6 * CALM.renew_deadline_s)
    server.delay_s = 0.0
    assert first.wait_for_epoch(above=first.epochs[0]) == first.epochs[0] + 1
    assert first.stopped.is_set()


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 10, 10), (15, 10, 0), (10, 15, 2)])
def test_times_that_cannot_work(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="needed"):
        LeaseTimes(*times)


def test_a_leadership_that_starts_anew_has_the_epoch_that_was_asked_for(make: Make, server: TinyApi) -> None:
    first = make("a")
    assert first.started.wait(30)
    first.lease.start_anew(above=3_000_000_000)
    assert not first.lease.is_leader() or first.lease.epoch > 3_000_000_000, "at once"
    assert first.wait_for_epoch(above=3_000_000_000) == 3_000_000_001
    assert first.stopped.is_set()
    assert first.lease.epoch == 3_000_000_001
    assert server.objects[PATH]["spec"]["leaseTransitions"] == 3_000_000_001


def test_a_leadership_that_is_another_one_already_goes_on(make: Make) -> None:
    """A caller that ends an expired leadership need not know that the lease was taken again meanwhile."""
    first = make("a")
    assert first.started.wait(30)
    epoch = first.lease.epoch
    first.lease.start_anew(above=epoch - 1)
    assert first.lease.led_epoch() == epoch
    first.lease.start_anew(above=epoch)
    assert first.lease.led_epoch() != epoch


def test_a_lease_made_anew_in_the_same_minute_has_a_larger_epoch(make: Make, server: TinyApi) -> None:
    later = 3_000_000_000  # more minutes than have passed
    spec = {"holderIdentity": "a", "leaseTransitions": later, "leaseDurationSeconds": 60}
    server.put(PATH, {"metadata": {"name": "l", "namespace": "n"}, "spec": spec})
    second = make("b")
    until(lambda: second.lease.holder == "a")
    server.remove(PATH)
    second.doze(CALM.duration_s)
    assert second.started.wait(30)
    assert second.epochs == [later + 1]
