"""When a Lease is free: on a clock of the test's own, against a server as slow as it says."""

from typing import Any, cast

from vc_egpu.kube import ApiConnection, Json, LeaderLease, LeaseTimes
from vc_egpu.kube.wire.errors import NotFound

TIMES = LeaseTimes(duration_s=15.0, renew_deadline_s=10.0, retry_s=2.0)


class Server:
    """One Lease, and the time; a question is ``slow_s`` on its way to it."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slow_s = 0.0
        self.lease: Json | None = None

    def unlimited(self) -> "Server":
        return self

    def get(self, *_: Any, **__: Any) -> Json:
        self.now_s += self.slow_s
        if self.lease is None:
            raise NotFound("no such Lease", status=404)
        return {**self.lease, "spec": dict(self.lease["spec"])}

    def create(self, _resource: Any, body: Json, **__: Any) -> Json:
        self.lease = body
        return body

    def update(self, _resource: Any, body: Json, **__: Any) -> Json:
        return self.create(_resource, body)

    def held_by(self, holder: str) -> None:
        spec = {"holderIdentity": holder, "renewTime": str(self.now_s), "leaseTransitions": 7}
        self.lease = {"metadata": {"name": "l", "namespace": "n"}, "spec": spec}


def candidate(server: Server) -> LeaderLease:
    api = cast("ApiConnection", server)
    return LeaderLease(api, "n", "l", "b", times=TIMES, monotonic=lambda: server.now_s)


def test_a_holder_who_renewed_while_the_question_was_on_its_way_is_waited_for() -> None:
    """Its time began when the answer was made, or shortly before: the question was asked long before that."""
    server = Server()
    lease = candidate(server)
    server.held_by("a")
    server.slow_s = 4.9
    lease.turn()
    renewed_s, server.slow_s = server.now_s, 0.0
    while not lease.is_leader():
        server.now_s += 0.5
        lease.turn()
    assert server.now_s - renewed_s >= TIMES.duration_s


def test_a_lease_that_was_deleted_is_its_holder_s_until_its_time_is_over() -> None:
    """The holder finds out at its next renewal, and writes until then."""
    server = Server()
    lease = candidate(server)
    server.held_by("a")
    lease.turn()
    deleted_s, server.lease = server.now_s, None
    while not lease.is_leader():
        server.now_s += 0.5
        lease.turn()
    assert server.now_s - deleted_s >= TIMES.duration_s
    assert lease.epoch > 7


def test_a_lease_that_there_never_was_is_made_at_once() -> None:
    lease = candidate(Server())
    lease.turn()
    assert lease.is_leader()
