"""The stories that need the isolation library and suspension, on unmodified Volcano."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from localcluster import ClusterSpec, LocalCluster
from rigs.player import STORIES, expectations
from stack.install import VOLCANO_ISOLATED, Stack, stack_images
from volcano.conf import ConfName
from volcano.player import play
from volcano.processes import Volcano, VolcanoProcesses

CONFS: tuple[ConfName, ...] = ("own", "stock")

pytestmark = [pytest.mark.volcano, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Isolated:
    """Our stack on Volcano, with the library in containers."""

    stack: Stack
    volcano: VolcanoProcesses


@pytest.fixture(scope="module")
def installed(volcano: Volcano) -> Iterator[Isolated]:
    with LocalCluster.up(ClusterSpec(name="volcano-lib", images=stack_images()), print) as cluster:
        volcano.install_crds(cluster)
        processes = VolcanoProcesses.of(cluster, volcano, "own")
        processes.start()
        yield Isolated(Stack.install(cluster, overlay=VOLCANO_ISOLATED, say=print), processes)
        processes.check_alive()


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("story", [story for story in STORIES if expectations(story).get("isolation")])
def test_story(installed: Isolated, conf: ConfName, story: str) -> None:
    installed.volcano.use(conf)
    play(installed.stack, conf, story)
