"""What holds a container's memory follows from its card when it starts, and stays its own."""

import json
from pathlib import Path

import pytest
from contract.node.node_world import RES, World
from contract.node.test_live_limits import Isolated
from contract.node.test_live_resizes import Resizing
from vc_egpu.volcano.resizing.notes import Stage
from vc_egpu_node.containers.cdi import Grant
from vc_egpu_node.containers.cgroups import GroupError
from vc_egpu_node.isolation.driver_limits import DriverLimits
from vc_egpu_node.vendors.nvidia.preload import LIMITER_NAME
from vc_egpu_node.vendors.slices import SliceError


class Driver:
    """The card's driver: what it has, and whether it takes anything now."""

    def __init__(self) -> None:
        self.mib: dict[str, int] = {}
        self.refuses = ""

    def limit(self, uuid: str, group: Path, mib: int) -> None:
        if self.refuses:
            raise SliceError("failed", self.refuses)
        self.mib[uuid] = mib

    def clear(self, uuid: str, group: Path) -> None:
        self.mib.pop(uuid, None)


class Tree:
    """One control group for all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def trouble(self) -> str:
        return ""

    def of_process(self, pid: int, pod_uid: str) -> Path:
        if pid != 1:
            raise GroupError("no such process")
        return self.folder

    def own(self) -> Path | None:
        return None


def with_driver(node: Isolated) -> Driver:
    """The cards have a driver that limits from now on."""
    driver, tree = Driver(), node.world.root / "group"
    tree.mkdir()
    node.isolation.driver = DriverLimits(driver, node.world.root / "containers", Tree(tree))
    return driver


def granted(world: World, pod: str) -> Grant:
    return next(one for one in world.grants.all() if one.pod == pod)


def hooks(world: World, grant: Grant) -> list[str]:
    edits = json.loads(world.grants.path(grant.name).read_text())["devices"][0]["containerEdits"]
    return [hook["hookName"] for hook in edits.get("hooks", ())]


@pytest.fixture
def node(world: World) -> Resizing:
    """With the program by which the runtime asks."""
    (world.root / LIMITER_NAME).write_bytes(b"limiter")
    return Resizing(world)


def test_the_word_of_the_card_decides_and_an_agent_after_this_one_knows_it(node: Isolated) -> None:
    with_driver(node)
    node.start("by-library", 1000, "s1")
    node.world.change_card("GPU-1", isolation="driver")
    node.start("by-driver", 1000, "s2")
    node.world.change_card("GPU-1", isolation="none")
    node.start("by-nothing", 1000, "s3")

    def seen() -> dict[str, tuple[str, bool, bool]]:
        return {
            one.pod: (
                one.backend,
                "createRuntime" in hooks(node.world, one),
                one.name in node.isolation.paged,
            )
            for one in node.world.grants.all()
        }

    wanted = {
        "by-library": ("library", False, True),
        "by-driver": ("driver", True, True),
        "by-nothing": ("none", False, False),
    }
    assert seen() == wanted
    node.restart()
    assert seen() == wanted
    assert not granted(node.world, "by-nothing").limited
    assert granted(node.world, "by-nothing").of_shares, "no hook of the tenant's may set limits there"


def test_a_container_that_starts_again_keeps_what_it_had(node: Isolated) -> None:
    with_driver(node)
    node.world.change_card("GPU-1", isolation="driver")
    node.start("p", 1000, "s1")
    node.world.change_card("GPU-1", isolation="none")
    node.world.kubelet.pre_start(RES, ("s1",))
    assert granted(node.world, "p").backend == "driver"
    assert "createRuntime" in hooks(node.world, granted(node.world, "p"))


def test_no_container_starts_without_the_program_that_sets_its_limit(world: World) -> None:
    node = Isolated(world)
    node.world.change_card("GPU-1", isolation="driver")
    node.allocate("p", 1000, "s1")
    with pytest.raises(Exception, match="egpu-limits is not next to the library"):
        node.world.kubelet.pre_start(RES, ("s1",))


def started(node: Isolated, driver: Driver, pod: str) -> None:
    assert node.isolation.driver is not None
    assert node.isolation.driver.started(granted(node.world, pod), 1) == ""
    assert driver.mib["GPU-1"] == granted(node.world, pod).shares[0].memory_mib


def test_a_resize_reaches_the_driver(node: Resizing) -> None:
    driver = with_driver(node)
    node.world.change_card("GPU-1", isolation="driver")
    pod = node.start("p", 4000, "s1")
    started(node, driver, "p")
    node.says(pod, Stage.APPLYING, 9000, now=9000)
    assert node.live.apply() == 1
    assert driver.mib == {"GPU-1": 9000}
    node.says(pod, Stage.LOWERING, 2000, now=9000, number="1-10")
    assert node.live.apply() == 1
    assert driver.mib == {"GPU-1": 2000}


def test_less_that_the_driver_does_not_take_is_refused(node: Resizing) -> None:
    driver = with_driver(node)
    node.world.change_card("GPU-1", isolation="driver")
    pod = node.start("p", 4000, "s1")
    started(node, driver, "p")
    driver.refuses = "busy with other things"
    node.says(pod, Stage.LOWERING, 2000, now=4000)
    node.live.apply()
    answer = node.answer("p")
    assert answer is not None
    assert (answer.state, "busy with other things" in answer.reason) == ("refused", True)
    assert node.limit_mib("p") == 4000
    driver.refuses = ""
    node.live.apply()
    assert driver.mib == {"GPU-1": 4000}


def test_the_end_of_a_container_is_the_end_of_its_limit(node: Isolated) -> None:
    driver = with_driver(node)
    node.world.change_card("GPU-1", isolation="driver")
    node.start("p", 4000, "s1")
    started(node, driver, "p")
    node.world.grants.release(granted(node.world, "p").name)
    assert driver.mib == {}
