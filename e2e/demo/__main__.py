"""Start a cluster of two real nodes with four fake H20 cards each, install the stack, tell the story."""

import argparse
import os
import sys

from isolation.driver import FakeDriver
from localcluster import ClusterSpec, LocalCluster, LocalClusterError, surroundings
from localcluster.errors import in_words
from stack.install import ISOLATED, Stack, stack_images
from stack.kit import StoryError
from vc_egpu.kube.wire.errors import KubeError

from demo.screen import Screen
from demo.story import Story

CLUSTER = "demo"
CARDS_PER_NODE = 4


def main() -> int:
    """0 if everything of the story happened."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up and say what to try next")
    arguments = parser.parse_args()
    surroundings.interruptible()
    screen = Screen()
    screen.progress("starting Kubernetes: two real nodes on this machine")
    try:
        spec = ClusterSpec(name=CLUSTER, real_nodes=2, images=stack_images())
        cluster = LocalCluster.up(spec, say=screen.progress)
    except LocalClusterError as error:
        screen.failure(str(error))
        return 1
    except OSError as error:
        screen.failure(in_words(error))
        return 1
    if not arguments.keep:
        cluster.claim()
    told = False
    try:
        stack = Stack.install(cluster, cards_per_node=CARDS_PER_NODE, overlay=ISOLATED, say=screen.progress)

        def driver_of(node: str) -> FakeDriver:
            return stack.driver_of(cluster.node(node), CARDS_PER_NODE)

        Story(stack.kit, screen, stack.egpu, driver_of).tell()
        stack.check_invariants()
        screen.fact("all invariants of the design hold, checked from the API objects")
        told = True
    except (StoryError, LocalClusterError, KubeError) as error:
        screen.failure(str(error))
        screen.plain(f"logs: {cluster.state_dir}/log; run again with KEEP=1 to look around")
    finally:
        if arguments.keep:
            _next_steps(screen, cluster)
        else:
            cluster.down(say=screen.progress)
    if told:
        screen.end("the whole story happened")
    return 0 if told else 1


def _next_steps(screen: Screen, cluster: LocalCluster) -> None:
    screen.step("next", "the cluster stays up; try")
    past_proxy = surroundings.without_proxy(cluster.context.all_addresses, os.environ)
    screen.plain(
        f"export KUBECONFIG={cluster.kubeconfig}\n"
        + (f"export NO_PROXY={past_proxy['NO_PROXY']}\n" if past_proxy else "")
        + f"export PATH={cluster.bin('kubectl').parent}:$PWD/.venv/bin:$PATH\n"
        "kubectl egpu cards\n"
        "kubectl egpu why train-c -n demo\n"
        "kubectl egpu suspend tune-worker-0 -n demo; kubectl egpu resume tune-worker-0 -n demo\n"
        "kubectl egpu queues\n"
        "kubectl get vcjob,podgroups,pods -n demo -o wide\n"
        "make down NAME=demo"
    )


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
