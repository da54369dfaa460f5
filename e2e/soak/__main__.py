"""A cluster of two real nodes, random users and troubles on it, for some time.

    python -m soak [--minutes 10] [--seed 1] [--isolated] [--volcano own] [--keep]

Ends with 0 where every round came to rest and nothing was wrong with it. The log says who did what; the
same seed does the same things, though not at the same moments. ``VC_EGPU_E2E_CLUSTER`` names a cluster that
is up with the stack installed, to use and to leave.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

import yaml
from localcluster import ClusterSpec, LocalCluster, LocalClusterError, surroundings
from localcluster.api import wait_until
from outcomes import disturb
from outcomes.world import World, world
from stack.install import NAMESPACE, Stack, stack_images
from stack.kit import StoryError
from vc_egpu.kube.resources import CONFIG_MAPS
from vc_egpu.kube.wire.errors import KubeError
from vc_egpu.volcano.words.names import CDI_KIND, POLICY_CONFIG_MAP

from soak.figures import sizes
from soak.ground import Ground
from soak.rest import wait_for_rest
from soak.troubles import Troubles
from soak.users import Users

ROUNDS_BEFORE_EMPTY = 8


def main() -> int:
    """0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random (default: 1)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up after a failure")
    parser.add_argument("--isolated", action="store_true", help="with the library, and with suspension")
    parser.add_argument("--volcano", choices=["own", "stock"], help="on Volcano, with this configuration")
    arguments = parser.parse_args()
    surroundings.interruptible()
    running = os.environ.get("VC_EGPU_E2E_CLUSTER")
    if running:
        cluster = LocalCluster.attach(running)
    else:
        cluster = LocalCluster.up(ClusterSpec(name="soak", real_nodes=2, images=stack_images()), say=say)
        if not arguments.keep:
            cluster.claim()
    wrong = True
    try:
        ground = Ground.lay(cluster, isolated=arguments.isolated, conf=arguments.volcano, say=say)
        live(ground, random.Random(arguments.seed), arguments.minutes * 60)
        wrong = False
    except (StoryError, KubeError, LocalClusterError) as error:
        say(f"WRONG: {error}")
    finally:
        if running or (wrong and arguments.keep):
            say(f"the cluster stays up: export KUBECONFIG={cluster.kubeconfig}")
        else:
            cluster.down(say=say)
    return int(wrong)


def live(ground: Ground, rng: random.Random, length_s: float) -> None:
    """Rounds until the time is over, then everybody leaves."""
    stack = ground.stack
    policy = yaml.safe_load(
        stack.kit.api.get(CONFIG_MAPS, POLICY_CONFIG_MAP, NAMESPACE)["data"]["policy.yaml"]
    )
    policy.setdefault("defaults", {})["recoveryS"] = 1  # cards that fell ill keep nobody waiting for long
    with disturb.node_policy(stack, yaml.safe_dump(policy)):
        _live(ground, rng, length_s)


def _live(ground: Ground, rng: random.Random, length_s: float) -> None:
    stack, end = ground.stack, time.monotonic() + length_s
    rounds = 0
    show_sizes(stack)
    while time.monotonic() < end:
        with world(stack, "soak") as here:
            users, troubles = Users(rng, here, ground, say), Troubles(rng, ground)
            for _ in range(ROUNDS_BEFORE_EMPTY):
                rounds += 1
                say(f"--- round {rounds}")
                try:
                    one_round(here, users, troubles)
                except StoryError:
                    say(f"all objects as they were: {keep_objects(here)}")
                    raise
                if time.monotonic() > end:
                    break
        show_sizes(stack)
        wait_until("nobody has a card any more, and no CDI file is left", lambda: not cdi_files(stack), 60)
    say(f"{rounds} rounds, and nothing was wrong")


def one_round(here: World, users: Users, troubles: Troubles) -> None:
    """Users act, something goes wrong, users act; then all comes to rest and is judged."""
    for _ in range(users.rng.randint(1, 4)):
        users.act()
    name, trouble = troubles.pick()
    say(f"*** {name}")
    with trouble():
        for _ in range(users.rng.randint(0, 4)):
            users.act()

    def supervise() -> None:
        for program in troubles.ground.revive():
            say(f"{program} had ended by itself")

    supervise()
    disturb.wait_all_well(here.stack, timeout_s=300)
    wait_for_rest(here, supervise)
    here.check()


def keep_objects(here: World) -> Path:
    """A file with everything of the namespace, before it is cleaned away."""
    kinds = "vcjobs,deployments,replicasets,statefulsets,podgroups,pods,events,queues,nodes"
    file = here.stack.cluster.state_dir / "log" / f"{here.namespace}.yaml"
    file.write_text(here.kit.kubectl("get", kinds, "-n", here.namespace, "-o", "yaml", check=False).stdout)
    return file


def cdi_files(stack: Stack) -> list[Path]:
    """What containers of ours were given, on all nodes."""
    ours = f"{CDI_KIND.replace('/', '-')}-*.json"
    return [path for node in stack.cluster.nodes for path in node.cdi_dir.glob(ours)]


def show_sizes(stack: Stack) -> None:
    """One line for each of our processes."""
    for node in stack.cluster.nodes:
        for size in sizes(node):
            say(f"    {size}")


def say(line: str) -> None:
    """With the time: what the logs of the cluster's programs say can be put beside it."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
