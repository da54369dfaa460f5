"""vNPUs and vDCUs, from the driver's fake to the container: offered, made, given once, refused by name."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract.node.collecting import Cgroups, collector
from contract.node.cut_node import TABLE, CutNode, cut_mig
from contract.node.node_world import NODE, World, owner
from mortal import KilledError, Mortal
from vc_egpu.volcano.words.annotations import Cards, CardShare
from vc_egpu_node.api.pods import PodView
from vc_egpu_node.vendors.ascend.edits import AscendEdits
from vc_egpu_node.vendors.ascend.words import FACTS as ASCEND
from vc_egpu_node.vendors.hygon.edits import HygonEdits
from vc_egpu_node.vendors.hygon.words import FACTS as HYGON
from vendor_nodes import BUILD, AscendNode, HygonNode

LIBRARIES = ("libnvidia-ml.so.1", "libdcmi.so", "libhydmi.so", "librocm_smi64.so")


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    goals = [f"build/{name}" for name in LIBRARIES]
    subprocess.run(
        ["make", "-s", "-C", str(BUILD.parent), f"PYTHON={sys.executable}", *goals], check=True, timeout=300
    )


@pytest.fixture
def ascend(world: World, tmp_path: Path) -> Iterator[AscendNode]:
    node = AscendNode(tmp_path, cards=2, change_s=2.0, alone_s=0.0)
    yield node
    node.close()


def cut_ascend(world: World, node: AscendNode) -> CutNode:
    dev = world.root / "dev"
    dev.mkdir()
    vdavinci = [f"vdavinci{100 + 16 * card + n}" for card in (0, 1) for n in range(6)]
    for name in ("davinci_manager", "devmm_svm", "hisi_hdc", "davinci0", "davinci1", *vdavinci):
        (dev / name).touch()
    mortal = Mortal(node.slicer)
    world.slicer, world.edits = mortal, AscendEdits(dev, world.root)
    world.assemble()
    cut = CutNode(world, node.readings, ASCEND, "910b3", lambda: len(node.script.slices), mortal)
    world.serve(cut.resource)
    cut.look()
    return cut


@pytest.fixture
def npus(world: World, ascend: AscendNode) -> CutNode:
    return cut_ascend(world, ascend)


@pytest.fixture
def hygon(tmp_path: Path) -> Iterator[HygonNode]:
    node = HygonNode(tmp_path, cards=2)
    yield node
    node.close()


@pytest.fixture
def dcus(world: World, hygon: HygonNode) -> CutNode:
    dev = world.root / "dev"
    (dev / "dri").mkdir(parents=True)
    for name in ("kfd", "mkfd", "dri/card0", "dri/renderD128", "dri/card1", "dri/renderD129"):
        (dev / name).touch()
    mortal = Mortal(hygon.slicer)
    world.slicer, world.edits = mortal, HygonEdits(dev, world.root, hygon.slices)
    world.assemble()
    lying = lambda: len(list(hygon.slices.glob("*.conf")))  # noqa: E731
    cut = CutNode(world, hygon.readings, HYGON, "k100-ai", lying, mortal)
    world.serve(cut.resource)
    cut.look()
    return cut


@pytest.fixture
def migs(world: World, fake_nvml: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CutNode]:
    with cut_mig(world, tmp_path, monkeypatch) as (cut, _):
        yield cut


@pytest.fixture(params=["npus", "dcus", "migs"])
def cut(request: pytest.FixtureRequest) -> CutNode:
    """Each vendor's."""
    found: CutNode = request.getfixturevalue(request.param)
    return found


SMALL = {"910b3": "vir05_1c_16g", "k100-ai": "cu30", "h100": "2g.20gb"}
MOMENTS = ["intended", "made", "started", "ended", "released"]


def test_a_card_offers_what_its_table_says(cut: CutNode) -> None:
    first, _ = cut.look()
    assert (first.offered, first.reason, first.stack, first.model) == (True, "", False, cut.model)
    assert first.layout is not None and first.layout.made
    row = TABLE.get(cut.model)
    layout = TABLE.layout_of(row) if row is not None else None
    assert layout is not None
    assert [one.name for one in first.layout.templates] == [one.name for one in layout.templates]


def test_two_small_and_a_large_vnpu_lie_on_one_card(npus: CutNode) -> None:
    nodes = [
        npus.run(name, size)
        for name, size in (("a", "vir05_1c_16g"), ("b", "vir05_1c_16g"), ("c", "vir10_3c_32g"))
    ]
    assert nodes == [["/dev/vdavinci100"], ["/dev/vdavinci101"], ["/dev/vdavinci102"]]
    first, second = npus.look()
    assert {one.owner for one in first.slices} == {"uid-a", "uid-b", "uid-c"} and not second.slices
    npus.pod("d", "vir05_1c_16g")
    assert "16384 MiB do not fit, 65536 of 65536 MiB are held" in npus.refused("d")


def test_a_fifth_vdcu_is_refused(dcus: CutNode) -> None:
    files = [dcus.run(name, "cu15") for name in "abcd"]
    assert len({name for (name,) in files}) == 4 == dcus.lying()
    dcus.pod("e", "cu15")
    assert "has 4 of 4 vDCUs" in dcus.refused("e")
    assert dcus.run("f", "cu15", card=1)


def test_a_slice_of_another_tool_closes_its_card_alone(npus: CutNode, ascend: AscendNode) -> None:
    npus.run("a", "vir05_1c_16g")
    ascend.script.slices = [*ascend.script.slices, "0 140 vir10_3c_32g 10 32768 0"]
    first, second = npus.look()
    assert first.reason == ("slices that this agent did not make lie on it: 140 (vir10_3c_32g); remove them")
    assert second.offered


def test_a_driver_that_counts_less_than_the_table_offers_nothing(npus: CutNode, ascend: AscendNode) -> None:
    ascend.script.say(0, aicore=18)
    first, second = npus.look()
    assert first.reason == ("its layout in the model table does not fit: it has 18 aicore, the table says 20")
    assert second.offered


def test_what_a_driver_keeps_takes_room_until_it_is_gone(npus: CutNode, ascend: AscendNode) -> None:
    npus.run("a", "vir05_1c_16g")
    ascend.script.say(0, destroy=-8020)
    npus.gone("a")
    collecting = collector(npus.world, Cgroups())
    collecting.collect()
    assert npus.lying() == 1 and [one.pod for one in npus.world.grants.all()] == ["a"]
    npus.restart()
    first, _ = npus.look()
    assert [(one.template, one.owner) for one in first.slices] == [("vir05_1c_16g", "")]
    ascend.script.say(0, destroy=0)
    npus.restart()
    assert npus.lying() == 0 and not npus.look()[0].slices


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("stays", [True, False], ids=["its pod stays", "its pod goes"])
def test_an_agent_that_dies_leaks_nothing_and_gives_no_slice_twice(
    cut: CutNode, moment: str, *, stays: bool
) -> None:
    small = SMALL[cut.model]
    cut.run("kept", small)
    cut.pod("a", small)
    grant_of = {one.pod: one.name for one in cut.world.grants.all()}
    cut.mortal.dies = moment
    try:
        cut.world.identity.admit(cut.resource, frozenset({"s-a"}))
        grant_of = {one.pod: one.name for one in cut.world.grants.all()}
        if moment in ("ended", "released"):
            cut.world.grants.release(grant_of["a"])
    except KilledError:
        pass
    cut.mortal.dies = ""
    if not stays:
        cut.gone("a")
    cut.restart()
    if stays:
        again, other = cut.start("a"), cut.run("b", small)
        assert not {*again} & {*other} and cut.lying() == 3
        for name in ("a", "b"):
            cut.gone(name)
        cut.restart()
    assert cut.lying() == 1
    assert [one.pod for one in cut.world.grants.all()] == ["kept"]
    assert cut.world.slices is not None and len(cut.world.slices.entries()) == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"create_hang_s": 60}, "NotNow: card 0.0 did not answer within 2 s (no-answer)"),
        ({"create": -8020}, "NotNow: dcmi_create_vdevice answers -8020"),
        ({"create": -8012}, "NotNow: dcmi_create_vdevice answers -8012"),
        ({"create": -8002}, "Slice: dcmi_create_vdevice answers -8002"),
        ({"made_mib": 8192}, "gave vir05_1c_16g of 8192 MiB, and vir05_1c_16g of 16384 MiB was asked for"),
    ],
)
def test_a_driver_that_refuses_says_so_in_the_event_and_the_node_goes_on(
    npus: CutNode, ascend: AscendNode, said: dict[str, int], told: str
) -> None:
    npus.pod("a", "vir05_1c_16g")
    ascend.script.say(0, **said)
    assert told in npus.refused("a")
    assert npus.run("b", "vir05_1c_16g", card=1) == ["/dev/vdavinci116"]
    ascend.script.cards[0] = {}
    ascend.script.write()
    assert npus.start("a") and npus.lying() == 2


def test_a_driver_that_is_not_ready_at_first_is_asked_again(npus: CutNode, ascend: AscendNode) -> None:
    npus.pod("a", "vir05_1c_16g")
    ascend.script.node["not_ready"] = 2
    ascend.script.write()
    assert npus.start("a")


def test_a_vdcu_on_a_card_that_hangs_is_refused(dcus: CutNode, hygon: HygonNode) -> None:
    dcus.pod("a", "cu30")
    hygon.script.say(0, hang_s=60)
    assert "NotNow:" in dcus.refused("a") and not dcus.lying()
    assert dcus.run("b", "cu30", card=1)


def test_a_whole_card_starts_without_the_library_and_closes_no_other(npus: CutNode) -> None:
    uuid = npus.world.stock.node_cards.cards[0].uuid
    share = CardShare(uuid=uuid, memory_mib=65536, cores=100)
    plan = Cards(pod_uid="uid-w", node=NODE, plan_id="1-1", containers={"main": (share,)})
    npus.world.pods.put(PodView("uid-w", "ns", "w", NODE, "Pending", plan.encode()))
    npus.world.closed = "the isolation library cannot be used"
    npus.world.kubelet.allocate(owner("w"), npus.resource, ("s-w",), "uid-w")
    npus.world.kubelet.pre_start(npus.resource, ("s-w",))
    (grant,) = npus.world.grants.all()
    assert grant.without_library and not grant.limited
    npus.restart()
    assert npus.world.grants.all() == [grant]
