"""What the second wall makes of a driver that tells nothing, and of pods that are not known yet: nothing."""

from unit.node.doubtful import CARD, MIB
from unit.node.wall_stage import Wall
from vc_egpu_node.vendors.base import ProcessSample
from vc_egpu_node.wall.offences import Offence


def test_what_the_driver_did_not_tell_proves_nothing_and_clears_nobody(wall: Wall) -> None:
    wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    over = ProcessSample(501, 2100, 0)
    assert wall.look(over) == []
    assert [wall.look(over, tells=False) for _ in range(3)] == [[], [], []]
    assert wall.wall.last.untold == {CARD}
    assert wall.look(over) == [Offence.OVER_GRANT]  # the second one in a row that tells


def test_a_list_that_could_not_be_read_takes_nothing_from_who_was_lowered(wall: Wall) -> None:
    """Its ceiling comes down with its use: an empty list would end it at the next look."""
    wall.lowered(1, 1000, 400, uses_mib=900)
    used = ProcessSample(501, 900, 0)
    assert wall.look(used) == []
    assert wall.look(tells=False) == []
    assert [wall.look(used) for _ in range(3)] == [[], [], []]
    assert wall.isolation.ceilings("g1") == {CARD: 900}


def test_a_card_that_is_not_listed_is_not_empty(wall: Wall) -> None:
    """The driver was away when the agent began, or the card fell off: its programs may run on."""
    wall.lowered(1, 1000, 400, uses_mib=900)
    wall.restart()
    used = ProcessSample(501, 900, 0)
    assert wall.look(used, card="GPU-another") == []
    assert wall.wall.last.untold == {CARD}
    assert [wall.look(used) for _ in range(3)] == [[], [], []]
    assert wall.isolation.ceilings("g1") == {CARD: 900}


def test_nothing_is_learnt_of_what_the_driver_told_earlier(wall: Wall) -> None:
    """The page is as of now: what was taken since would make contexts cheap, for good."""
    wall.let_in(1, 2000)
    wall.process(501, 1)
    told = ProcessSample(501, 920, 0)
    wall.usage(1, (401, 5, 1, 500, 0))
    wall.look(told)
    wall.usage(1, (401, 5, 1, 800, 0))
    wall.look(told, tells=False)
    assert wall.isolation.context_bytes("g1", CARD) == 0
    wall.look(ProcessSample(501, 1220, 0))
    assert wall.isolation.context_bytes("g1", CARD) == 420 * MIB


def test_what_counts_beyond_the_library_stays_while_the_driver_tells_nothing(wall: Wall) -> None:
    wall.let_in(1, 2000)
    wall.process(501, 1)
    used = ProcessSample(501, 600, 0)  # past the library: all of it is beyond
    for _ in range(3):
        wall.look(used)
    page = wall.isolation.file("g1").read()
    assert page is not None
    assert page.beyond.on(0) == 600 * MIB
    for _ in range(5):
        wall.look(tells=False)
    assert wall.isolation.file("g1").read() == page


def test_until_the_pods_are_known_nothing_is_taken_for_gone(wall: Wall) -> None:
    """An agent that begins while the API server is away sees nobody on the cards: not for that reason are
    they empty."""
    wall.policy = "kill"
    before = wall.let_in(1, 1000)
    wall.process(501, 1)
    wall.usage(1, (401, 5, 1, 500, 0))
    used = ProcessSample(501, 900, 0)
    for _ in range(10):  # something changes all the time: so long until its 400 MiB beyond are believed
        wall.look(used)
    page = wall.isolation.file("g1").read()
    assert page is not None
    assert page.beyond.on(0) > 0
    wall.lower(before, 400)
    wall.pods_known = False
    wall.restart()
    assert [wall.look(used) for _ in range(3)] == [[], [], []]
    assert wall.wall.last.number == -1  # nobody takes it for a look
    assert wall.isolation.file("g1").read() == page
    assert [(one.charged_mib, one.beyond_mib) for one in wall.wall.accounts] == [
        (500, page.beyond.on(0) // MIB)
    ]
    wall.pods_known = True
    assert [wall.look(used) for _ in range(3)] == [[], [], []]
    assert (wall.isolation.ceilings("g1"), wall.hosts.killed) == ({CARD: 900}, [])
