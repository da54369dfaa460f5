"""The process: ``python -m vc_egpu_node``."""

import logging
import resource
import sys
from collections.abc import Sequence

from vc_egpu import logs, threads
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.signals import when_told_to_end
from vc_egpu.kube.wire.config import ConfigError as KubeConfigError
from vc_egpu.kube.wire.errors import KubeError

from vc_egpu_node.agent import Agent
from vc_egpu_node.files import StateError, lock_folder
from vc_egpu_node.removal import StillUsedError, remove
from vc_egpu_node.settings.config import ConfigError, parse_flags
from vc_egpu_node.settings.last_good import wrong_files
from vc_egpu_node.vendors.registry import chosen

log = logging.getLogger("vc_egpu_node")


OPEN_FILES = 65_536
"""At most; the pages of all containers are kept open."""

PREDECESSOR_S = 90.0
"""How long a new agent waits for the old one on the same node to end."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; 0, or 1 with a sentence on what is wrong."""
    settings = parse_flags(sys.argv[1:] if arguments is None else arguments)
    logs.begin(settings.log_level)
    if settings.action == "check":
        wrong = list(wrong_files(settings))
        for sentence in wrong:
            log.error("%s", sentence)
        return 1 if wrong else 0
    try:
        held = lock_folder(settings.state_dir, PREDECESSOR_S)
        api = ApiConnection.connect(
            settings.kubeconfig, pool_size=16, timeout_s=10.0, user_agent="vc-egpu-node"
        )
        if settings.action != "run":
            remove(settings, api, force=settings.action == "remove-by-force")
            return 0
        agent = Agent(settings, api, chosen(settings))
    except (ConfigError, KubeConfigError, KubeError, StateError, StillUsedError, OSError) as error:
        log.critical("%s", error)
        return 1

    def end(number: int) -> None:
        log.info("ending on signal %d; running containers keep what they have", number)
        agent.stop()

    _allow_files()
    threads.take_short_turns()  # one that answers the kubelet, and one that writes the Node
    when_told_to_end(end)
    log.info("agent of node %s; metrics on port %d", settings.node_name, agent.web.port)
    try:
        agent.run()
    finally:
        agent.close()
        held.close()
    return 0


def _allow_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
