"""When the driver is asked, whatever programs on the cards do meanwhile."""

from collections.abc import Mapping

from vc_egpu_node.cards.monitor import Monitor
from vc_egpu_node.vendors.base import CardEvent, CardReading, CardSample, NodeReading, ProcessSample

CARD = CardReading("GPU-1", 0, "NVIDIA H20", 98304)
BETWEEN_S = 0.01


class Storm:
    """A driver that tells of an error again and again. Its clock goes on only while it is waited for."""

    def __init__(self, *events: CardEvent) -> None:
        self.events = events
        """Empty: they speak of programs only, of which nobody is told, but the wait is over."""
        self.now_s = 0.0
        self.looked_s: list[float] = []
        self.probed = 0

    def scan(self) -> NodeReading:
        return NodeReading((CARD,))

    def faults(self) -> Mapping[str, str]:
        self.probed += 1
        return {}

    def wait_events(self, timeout_s: float) -> tuple[CardEvent, ...]:
        self.now_s += min(timeout_s, BETWEEN_S)
        return self.events

    def sample(self, uuid: str) -> CardSample:
        return CardSample()

    def processes(self, uuid: str) -> tuple[ProcessSample, ...]:
        self.looked_s.append(self.now_s)
        return ()

    def close(self) -> None:
        pass


def watched(storm: Storm, rounds: int, look_interval_s: float = 2.0) -> Monitor:
    monitor = Monitor(
        storm,
        probe_interval_s=5.0,
        rescan_interval_s=60.0,
        recovery_s=lambda: 60.0,
        on_change=lambda: None,
        clock=lambda: storm.now_s,
    )
    monitor.read_processes(look_interval_s, lambda: None)
    for _ in range(rounds):
        monitor.turn()
    return monitor


def test_programs_that_crash_again_and_again_do_not_have_processes_read_more_often() -> None:
    """Two looks in a row prove an offence: a neighbour's crashes must not make them of one moment, nor keep
    the agent busy."""
    storm = Storm()
    watched(storm, 3)
    assert [round(at, 1) for at in storm.looked_s] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0]
    assert storm.probed == 3


def test_nor_do_errors_of_the_card() -> None:
    """Which is ill at once, and looked at for that."""
    storm = Storm(CardEvent("GPU-1", "XID 79", code=79))
    monitor = watched(storm, 300)
    assert monitor.observation.ill == {"GPU-1": "XID 79"}
    assert storm.probed == 300
    assert [round(at, 1) for at in storm.looked_s] == [0.0, 2.0]


def test_where_nobody_judges_processes_are_read_with_everything_else() -> None:
    storm = Storm()
    watched(storm, 3, look_interval_s=0.0)
    assert [round(at, 1) for at in storm.looked_s] == [0.0, 5.0, 10.0]
