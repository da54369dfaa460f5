"""How many requests are under way at once: few at a server that is full, many at one that is not."""

import heapq
import threading
from contextlib import ExitStack

import pytest
from vc_egpu.kube.pace import WINDOW_S, Pace

SERVICE_S = 0.004


class Server:
    """Answers so many at the same time; the others wait. In virtual time, and never idle."""

    def __init__(self, side_by_side: int) -> None:
        self.side_by_side, self.now, self.others = side_by_side, 0.0, 0

    def clock(self) -> float:
        return self.now

    def works(self, pace: Pace, requests: int) -> None:
        """Our requests: as many as ``pace`` lets pass are under way at any moment."""
        under_way: list[tuple[float, int]] = []
        turns: dict[int, ExitStack] = {}
        for number in range(requests):
            while len(under_way) >= pace.bound:
                self.now, done = heapq.heappop(under_way)
                turns.pop(done).close()
            turns[number] = ExitStack()
            turns[number].enter_context(pace.turn())
            at_once = max(1.0, (len(under_way) + 1 + self.others) / self.side_by_side)
            heapq.heappush(under_way, (self.now + SERVICE_S * at_once, number))
        while under_way:
            self.now, done = heapq.heappop(under_way)
            turns.pop(done).close()


def paced(server: Server) -> Pace:
    return Pace(4, 32, server.clock)


def test_a_server_that_is_not_full_gets_all_that_there_is() -> None:
    server = Server(200)
    pace = paced(server)
    server.works(pace, 2000)
    assert pace.bound == 32


@pytest.mark.parametrize("side_by_side", [2, 4, 8])
def test_at_a_full_server_few_requests_wait(side_by_side: int) -> None:
    server = Server(side_by_side)
    pace = paced(server)
    with pace.turn():
        server.now += SERVICE_S  # nothing else was under way
    server.works(pace, 5000)
    assert side_by_side + 2 <= pace.bound <= side_by_side + 10


def test_others_that_fill_it_leave_us_our_least() -> None:
    server = Server(2)
    pace = paced(server)
    with pace.turn():
        server.now += SERVICE_S
    server.others = 60
    server.works(pace, 5000)
    assert pace.bound <= 8
    server.others = 0
    server.side_by_side = 200
    server.works(pace, 5000)
    assert pace.bound == 32, "once it is not full any more"


def test_a_failure_teaches_nothing_and_gives_its_turn_back() -> None:
    pace = Pace(1, 1)
    with pytest.raises(ValueError, match="no"), pace.turn():
        raise ValueError("no")
    with pace.turn():
        pass


def test_a_turn_in_which_nothing_is_sent_teaches_nothing() -> None:
    server = Server(200)
    pace = paced(server)
    for _ in range(100):
        with pace.turn() as turn:
            turn.is_sent = False
            server.now += SERVICE_S / 1000
    server.works(pace, 2000)
    assert pace.bound == 32


def test_a_turn_waits_for_another_to_end() -> None:
    pace, entered = Pace(1, 1), threading.Event()

    def second() -> None:
        with pace.turn():
            entered.set()

    thread = threading.Thread(target=second)
    with pace.turn():
        thread.start()
        assert not entered.wait(0.05)
    assert entered.wait(10)
    thread.join()


def test_the_shortest_answer_is_forgotten_in_time() -> None:
    """A server may be moved further away: what was short once is not short for ever."""
    server = Server(200)
    pace = paced(server)
    with pace.turn():
        server.now += SERVICE_S / 100
    server.works(pace, 3000)
    assert pace.bound < 32
    for _ in range(40):
        server.now += WINDOW_S
        server.works(pace, 300)
    assert pace.bound == 32


def test_nobody_is_left_waiting() -> None:
    """Each end of a request wakes as many as may go on, and no more."""
    pace, done = Pace(1, 3), []

    def work() -> None:
        for _ in range(200):
            with pace.turn():
                pass
            done.append(None)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(done) == 16 * 200


@pytest.mark.parametrize(("least", "most"), [(0, 4), (5, 4)])
def test_bounds_that_make_no_sense_are_refused(least: int, most: int) -> None:
    with pytest.raises(ValueError, match="1 <= least <= most"):
        Pace(least, most)
