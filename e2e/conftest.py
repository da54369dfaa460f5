"""The cluster that e2e tests share: two real nodes with four fake H20 cards each, our stack on it.

``VC_EGPU_E2E_CLUSTER=<name>`` uses a cluster that is up with the stack installed, and leaves it up.
"""

from collections.abc import Iterator

import pytest
from outcomes.world import World, world
from rigs import admission
from rigs.team import NAMESPACE, team
from rigs.webhook import Rig
from slices import choice
from slices.durations import recorder
from stack.install import Stack
from stack.shared import shared_stack
from vc_egpu.kube.connection import ApiConnection
from volcano.processes import NoVolcanoError, Volcano
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SHARING = {
    "test_main_job.py": "stack",
    "test_cli.py": "stack",
    "test_bad_input.py": "stack",
    "test_webhook.py": "webhook_rig",
    "test_policies.py": "webhook_rig",
    "test_policies_pods.py": "webhook_rig",
    "test_policies_nodes.py": "webhook_rig",
    "test_tenants.py": "webhook_rig",
    "test_attacks.py": "webhook_rig",
}
"""Of these files: the fixture whose cluster they share."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--slice``: a part of the stories, see :mod:`slices`."""
    parser.addoption("--slice", metavar="NUMBER", help="a tenth of the stories: a number, or 'commit'")


def pytest_configure(config: pytest.Config) -> None:
    """Record how long stories take, where the environment asks for it."""
    plugin = recorder()
    if plugin is not None:
        config.pluginmanager.register(plugin, "vc-egpu-durations")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which slice runs."""
    return choice.header(config)


@pytest.hookimpl(trylast=True)  # after the markers have had their say
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the stories of the slice."""
    choice.keep(config, items)


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]
    """The tests that share a cluster stay on one worker, so that it comes up once; else those of one file."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0].rpartition("/")[2]
        return SHARING.get(file, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """For ``--dist loadscope``. (The plugin's own groups need names of tests that pytest 9.2 does not let it
    change.)"""
    return ByCluster(config, log) if config.getoption("dist") == "loadscope" else None


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
