"""Two alike nodes on a real API server, one of them busy: where shares without guaranteed cores go.

The nodes are simulated. Their agents' words on how busy they were are written by hand, as the agent writes
them; what it measures itself is seen in `tests/contract/node/test_agent.py`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rigs.admission import Rig, rig
from rigs.gangs import Gang
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.measured.notes import CardUseNote, NodeUseNote
from vc_egpu.volcano.words import names

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
CARDS = 2


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder: Path = tmp_path_factory.mktemp("measured")
    with rig("measured", 2, CARDS, models=folder / "models.yaml") as found:
        yield found


def say(found: Rig, node: str, percent: int | None, age_s: float = 0.0) -> None:
    """As the node's agent; None: it says nothing any more."""
    cards = {f"GPU-{node}-{i}": CardUseNote(compute=percent, memory=0) for i in range(CARDS)}
    note = NodeUseNote(at=int(time.time() - age_s), cpu=percent, memory=0, cards=cards)
    text = note.encode() if percent is not None else None
    found.api.patch(NODES, node, {"metadata": {"annotations": {names.NODE_USE: text}}})


def place_of(found: Rig, name: str, cores: int = 0) -> str:
    """Where a gang of one small share goes. It stays there."""
    gang = Gang(name, 1, memory_mib=8192, cores=cores)
    found.submit(gang)
    (pod,) = found.until_bound(gang, timeout_s=120).values()  # the Lease of a killed leader runs out first
    return str(pod["spec"]["nodeName"])


# No two gangs of this module have one name: a simulated kubelet may delete a pod twice, by its name.


def test_shares_without_cores_go_to_the_idle_one_of_two_alike_nodes(measured: Rig) -> None:
    """While nothing is measured, a second share goes to the first one's node: binpack."""
    with measured.story():
        measured.controller().start()
        first = place_of(measured, "first")
        assert place_of(measured, "second") == first
        (other,) = {node["metadata"]["name"] for node in measured.api.list(NODES).items} - {first}
        say(measured, first, 90)
        say(measured, other, 0)
        # A figure asks for no decision, and a gang may come before it: ask until it is known.
        deadline_s = time.monotonic() + 30
        number, place = 0, ""
        while place != other and time.monotonic() < deadline_s:
            number += 1
            place = place_of(measured, f"free-{number}")
        assert place == other
        assert place_of(measured, "guaranteed", cores=10) == first, "the fuller one, as ever"
        measured.controller().kill()
        measured.processes.clear()
        measured.controller("next").start()
        assert place_of(measured, "after") == other, "the next leader reads it from the nodes"


def test_old_words_and_the_switch(measured: Rig) -> None:
    with measured.story():
        one, other = sorted(node["metadata"]["name"] for node in measured.api.list(NODES).items)
        for node in (one, other):
            say(measured, node, None)
        measured.controller().start()
        first = place_of(measured, "begins")
        idle = one if first == other else other
        say(measured, first, 90, age_s=7200.0)
        say(measured, idle, 0, age_s=7200.0)
        assert place_of(measured, "old") == first
        measured.controller().kill()
        measured.processes.clear()
        say(measured, first, 90)
        say(measured, idle, 0)
        measured.controller("off", "--measured-use", "off").start()
        assert place_of(measured, "off") == first
