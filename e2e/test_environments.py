"""What programs need of a node's software, on three real nodes whose drivers are of different ages.

The drivers are the fake library's, and agents of the stack tell of them as they would of real ones.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pytest
from localcluster import ClusterSpec, LocalCluster, RealNode, images
from localcluster.images import BUSYBOX_IMAGE
from localcluster.oci import ImageConfig, build_image
from outcomes.workload import Task, container, job, shares
from outcomes.world import World, world
from stack.fakes import Driver, nvml_state
from stack.install import NAMESPACE, REPOSITORY, Stack, stack_images
from stack.kit import Json, StoryError, is_gated
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import NodeCards

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
NAME: Final = "environments"
CARDS: Final = 2
OLD, MIDDLE, NEW = NODE_NAMES = tuple(f"{NAME}-node-{index}" for index in range(3))
DRIVERS: Final = {
    OLD: Driver("535.104.05", 12020),
    MIDDLE: Driver("550.54.14", 12040),
    NEW: Driver("570.124.06", 12080),
}
MISSING: Final = "3 nodes have cuda 12.2, 12.4, 12.8, cuda>=13.0 is needed"
NEWEST: Final = Driver("580.65.06", 13000)
SEEN_S: Final = 150.0
"""An agent counts its cards each minute, and reads the driver's version then."""
IMAGE: Final = "vc-egpu.local/cuda-program:1"
IN_THE_IMAGE: Final = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.4,driver<560 brand=tesla,driver>=540,driver<545"}
"""Its variables, which nobody repeats on a pod."""


@pytest.fixture(scope="module")
def image() -> Path:
    """The archive of an image that says in its variables what it needs."""
    return build_image(images.busybox(), IMAGE, config=ImageConfig(env=IN_THE_IMAGE))


@pytest.fixture(scope="module")
def stack(image: Path) -> Iterator[Stack]:
    """The stack on these nodes; the operator's table has a row for that image."""
    spec = ClusterSpec(name=NAME, real_nodes=len(NODE_NAMES), images=(*stack_images(), str(image)))
    with LocalCluster.up(spec, print) as cluster:
        table = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "vc-egpu-environments", "namespace": NAMESPACE},
            "data": {"environments.yaml": f"shipped: true\n{row_of(image)}"},
        }
        Stack.of(cluster).kit.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}, table
        )
        yield Stack.install(cluster, cards_per_node=CARDS, drivers=DRIVERS, say=print)


def row_of(image: Path) -> str:
    """What the operator's command makes of an image."""
    words = [sys.executable, "-m", "vc_egpu.cli.main", "environments", "image", str(image)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "vc-egpu")}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def here(stack: Stack, request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace and a queue; at the end the invariants hold, and plan = CDI file = container."""
    with world(stack, request.node.name) as found:
        yield found


def program(
    here: World,
    name: str,
    members: int = 1,
    *,
    needs: str | None = None,
    image: str = BUSYBOX_IMAGE,
    env: Mapping[str, str] = MappingProxyType({}),
) -> Json:
    """A Job that runs until it is told to end. ``needs``: its user's word; ``env``: of its container."""
    main = {**container(limits=shares(4096, 10)), "image": image}
    if env:
        main["env"] = [{"name": key, "value": value} for key, value in env.items()]
    document = job(name, Task(replicas=members, more={"containers": [main]}), queue=here.queue)
    (task,) = document["spec"]["tasks"]
    if needs is not None:
        task["template"]["metadata"]["annotations"] = {names.NEEDS: needs}
    return document


def node_of(stack: Stack, name: str) -> RealNode:
    return next(node for node in stack.cluster.nodes if node.name == name)


def told(nodes: dict[str, Json], name: str) -> str:
    """The driver of a node, as its agent tells it."""
    return NodeCards.decode(nodes[name]["metadata"]["annotations"][names.NODE_CARDS]).driver_version


@contextlib.contextmanager
def another_driver(stack: Stack, name: str, driver: Driver) -> Iterator[None]:
    """Meanwhile a node has this driver. It has its own again at the end, and its agent has told so."""
    node = node_of(stack, name)
    stack.set_cards(node, nvml_state(name, CARDS, driver=driver))
    try:
        yield
    finally:
        stack.set_cards(node, nvml_state(name, CARDS, driver=DRIVERS[name]))
        stack.kit.until(
            f"the agent of {name} tells of {DRIVERS[name].version}",
            NODES,
            lambda nodes: told(nodes, name) == DRIVERS[name].version,
            timeout_s=SEEN_S,
        )


def test_agents_tell_what_their_nodes_have(stack: Stack) -> None:
    rows: list[dict[str, Any]] = json.loads(stack.egpu("nodes", "-o", "json"))["nodes"]
    said = {row["node"]: (row["driver"], row["cuda"], row["capability"]) for row in rows}
    assert said == {
        OLD: ("535.104.05", "12.2", "9.0"),
        MIDDLE: ("550.54.14", "12.4", "9.0"),
        NEW: ("570.124.06", "12.8", "9.0"),
    }
    labelled = {
        node["metadata"]["name"]: node["metadata"]["labels"] for node in stack.kit.api.list(NODES).items
    }
    for name, (driver, cuda, capability) in said.items():
        own = {key.partition("/")[2]: labelled[name].get(key) for key in names.AGENT_LABELS}
        known = {key: value for key, value in own.items() if value is not None}
        assert known == {"vendor": "nvidia", "driver": driver, "cuda": cuda, "capability": capability}


@pytest.mark.parametrize(
    ("needs", "node"),
    [
        ("driver<550", OLD),
        ("cuda==12.4", MIDDLE),
        ("torch==2.6+cu124,driver>=560", NEW),
    ],
    ids=["old", "middle", "new"],
)
def test_a_gang_goes_to_the_node_that_has_what_it_needs(here: World, needs: str, node: str) -> None:
    here.submit(program(here, "fits", 3, needs=needs))
    here.runs("fits", 3, on=node)


def test_what_no_node_has_is_waited_for_and_named(here: World) -> None:
    """And what no table knows is refused at the door. Others of the queue go on meanwhile."""
    with pytest.raises(StoryError, match=r"no row of the table for torch 2\.99; ask your operator"):
        here.apply(program(here, "refused", needs="torch==2.99"))
    with pytest.raises(StoryError, match=r"'cudda' is unknown; .* did you mean cuda"):
        here.apply(program(here, "misspelt", needs="cudda>=12"))
    said = here.apply(program(here, "tomorrow", 2, needs="cuda>=13.0"))
    assert "the program needs cuda>=13.0, which no node with its cards has" in said
    sentence = here.waits("tomorrow", "WaitingForEnvironment")
    assert "needs cuda>=13.0, which no node with its cards has" in sentence
    assert MISSING in sentence
    assert MISSING in here.why("tomorrow")
    here.submit(program(here, "today", 2, needs="cuda>=12.8"))
    here.runs("today", 2, on=NEW)
    assert all(map(is_gated, here.pods("tomorrow").values()))


def test_a_driver_that_comes_while_it_waits_lets_it_in(here: World) -> None:
    """Nobody touches the Job: its pods are those that waited. A driver that goes again ends none of them."""
    here.submit(program(here, "waits", 2, needs="driver>=580"))
    here.waits("waits", "WaitingForEnvironment", "570.124.06, driver>=580 is needed")
    waiting = here.uids("waits")
    with another_driver(here.stack, OLD, NEWEST):
        here.runs("waits", 2, SEEN_S, on=OLD)
    assert here.uids("waits") == waiting
    here.runs("waits", 2, on=OLD)
    assert set(here.restarts("waits").values()) == {0}


def test_a_users_word_beats_the_pods_variables_and_these_those_of_the_image(here: World) -> None:
    """Each of the three alone sends the program to another node."""
    require = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.8 brand=tesla,driver>=565"}
    said = here.apply(program(here, "image", image=IMAGE))
    assert f"image {IMAGE}: taken for what the program needs (cuda>=12.4,driver<560 or " in said
    said = here.apply(program(here, "variables", image=IMAGE, env=require))
    assert "NVIDIA_REQUIRE_CUDA: taken for what the program needs" in said
    said = here.apply(program(here, "user", needs="cuda<12.4", image=IMAGE, env=require))
    assert "taken for" not in said
    here.runs("image", 1, on=MIDDLE)
    here.runs("variables", 1, on=NEW)
    here.runs("user", 1, on=OLD)


def test_variables_that_no_node_meets_are_named_while_it_waits(here: World) -> None:
    """An old image says no more than its CUDA version."""
    here.submit(program(here, "old-image", env={"CUDA_VERSION": "13.0.1"}))
    assert MISSING in here.waits("old-image", "WaitingForEnvironment")
