"""The cluster that e2e tests share: two real nodes with four fake H20 cards each, our stack on it.

``VC_EGPU_E2E_CLUSTER=<name>`` uses a cluster that is up with the stack installed, and leaves it up.
"""

from collections.abc import Iterator

import pytest
from outcomes.world import World, world
from rigs import admission
from rigs.team import NAMESPACE, team
from rigs.webhook import Rig
from stack.install import Stack
from stack.shared import shared_stack
from vc_egpu.kube.connection import ApiConnection
from volcano.processes import NoVolcanoError, Volcano

SHARED = ("stack", "isolated", "webhook_rig")
"""Fixtures that take a cluster, which all of their tests share."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In a parallel run the tests of one cluster stay together; else those of one file."""
    for item in items:
        fixtures = item.fixturenames if isinstance(item, pytest.Function) else ()
        cluster = next((name for name in SHARED if name in fixtures), item.path.stem)
        item.add_marker(pytest.mark.xdist_group(cluster))


@pytest.fixture(scope="session")
def stack(worker_id: str) -> Iterator[Stack]:
    """The installed stack; each worker of a parallel run has its own."""
    with shared_stack("e2e", worker_id) as stack:
        yield stack


@pytest.fixture(scope="module")
def simulated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[admission.Rig]:
    """A cluster of two simulated nodes of four cards for one file, and nothing of ours on it yet."""
    name = request.path.stem.removeprefix("test_").replace("_", "-")
    with admission.rig(name, 2, 4, models=tmp_path_factory.mktemp(name) / "models.yaml") as found:
        yield found


@pytest.fixture
def managed(simulated: admission.Rig) -> Iterator[admission.Rig]:
    """That cluster, clean, with one queue and an admission controller; the invariants hold at the end."""
    with simulated.story():
        simulated.controller().start()
        yield simulated


@pytest.fixture(scope="session")
def volcano() -> Volcano:
    """The one that the environment names."""
    try:
        return Volcano.from_environment()
    except NoVolcanoError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def webhook_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """A control plane without nodes and the webhook beside it."""
    with team("webhook-e2e", tmp_path_factory.mktemp("webhook")) as started:
        yield started


@pytest.fixture
def alice(webhook_rig: Rig) -> ApiConnection:
    """Who may use what her team may, at that webhook's cluster."""
    return webhook_rig.tenant("alice", NAMESPACE)


@pytest.fixture
def here(stack: Stack, request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace and a queue of its own; at the end the invariants hold, and plan = CDI file = container."""
    with world(stack, request.node.name) as found:
        yield found
