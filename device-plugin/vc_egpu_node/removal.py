"""Removal: nothing of ours stays on a node, neither on the Node object nor on the host.

Two ways in: ``vc-egpu node-clean`` on every node when the stack goes (`manifests/remove`), and the agent's
``--action=remove`` on one. Running containers notice nothing: a file or page that is mounted into one lives
on as long as it does. Idempotent.
"""

import argparse
import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from vc_egpu import logs
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.resources import NODES, PODS
from vc_egpu.kube.signals import when_told_to_end
from vc_egpu.kube.wire.config import ConfigError
from vc_egpu.kube.wire.errors import KubeError, NotFound

from vc_egpu_node.api.node import FIELD_MANAGER, removal_patches
from vc_egpu_node.api.node import slim as slim_node
from vc_egpu_node.api.pods import PodView, view
from vc_egpu_node.api.pods import slim as slim_pod
from vc_egpu_node.containers.cdi import FILE_PREFIX
from vc_egpu_node.deviceplugin.plugin import SOCKET_PREFIX
from vc_egpu_node.files import StateError, lock_folder
from vc_egpu_node.isolation.limits_door import SOCKET_NAME
from vc_egpu_node.isolation.pages import KINDS
from vc_egpu_node.settings.config import Settings, add_paths

log = logging.getLogger("vc_egpu_node.removal")

AGENT_GONE_S: Final = 60.0
"""How long the agent of this node may take to end."""
DONE_FILE: Final = Path("/tmp/done")  # noqa: S108 - in the container; its readiness probe looks for it
MOST_NAMED: Final = 5
"""Pods that a refusal names."""


class StillUsedError(RuntimeError):
    """Pods still hold cards; the text names them."""


def remove(settings: Settings, api: ApiConnection, *, force: bool) -> None:
    """Take back all that the agent wrote: on the Node, in the CDI folder, its state and pages, its sockets.

    Refused with :class:`StillUsedError` while pods hold cards: without their files they could not restart.
    ``force`` does it all the same, and where the Node is gone. Raises ``KubeError`` and ``OSError``.
    """
    users = [] if force else _users(settings, api)
    if users:
        named = ", ".join(f"{pod.namespace}/{pod.name}" for pod in users[:MOST_NAMED])
        more = ", ..." if len(users) > MOST_NAMED else ""
        raise StillUsedError(f"{len(users)} pods hold cards of {settings.node_name}: {named}{more}")
    # The Node first: whatever fails after that, nothing new is planned onto cards that no agent hands out.
    try:
        patched = clean_node(api, settings.node_name)
    except NotFound:
        if not force:  # perhaps a misspelt name, for which no user was found either
            raise
        patched = False
    count = clean_host(settings)
    log.info(
        "%s: %d files removed, Node %s", settings.node_name, count, "cleaned" if patched else "was clean"
    )


def clean_node(api: ApiConnection, name: str) -> bool:
    """Patch the Node; whether there was anything to take off. Raises :class:`KubeError`."""
    metadata, status = removal_patches(slim_node(api.get(NODES, name)))
    if metadata:
        api.patch(NODES, name, metadata, field_manager=FIELD_MANAGER)
    if status:
        api.patch(NODES, name, status, subresource="status", field_manager=FIELD_MANAGER)
    return bool(metadata or status)


def clean_host(settings: Settings) -> int:
    """Remove what the agent left on the host; how many files and folders that were. Raises ``OSError``.

    The folders themselves may be mounts and stay, empty of ours."""
    count = 0
    for path in _host_files(settings):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        count += 1
    return count


def _host_files(settings: Settings) -> Iterator[Path]:
    """What the agent left there. In the folder of pages only our own kinds: other programs may use that
    folder."""
    yield from sorted(settings.cdi_dir.glob(f"{FILE_PREFIX}*.json"))
    yield from sorted(settings.cdi_dir.glob(f".{FILE_PREFIX}*"))  # half written
    yield from sorted(settings.kubelet_dir.glob(f"{SOCKET_PREFIX}*.sock"))
    yield from (page for kind in KINDS if (page := settings.run_dir / kind.name).is_dir())
    yield from (path for path in (settings.run_dir / SOCKET_NAME,) if path.exists())
    yield from sorted(settings.state_dir.iterdir()) if settings.state_dir.is_dir() else ()


def _users(settings: Settings, api: ApiConnection) -> list[PodView]:
    listed = api.list(PODS, field_selector=f"spec.nodeName={settings.node_name}").items
    pods = [view(slim_pod(item)) for item in listed]
    return [pod for pod in pods if pod.cards is not None and not pod.ended]


def main(arguments: Sequence[str] | None = None) -> int:
    """Clean, then (as a DaemonSet) wait for SIGTERM; 1 where something could not be removed."""
    settings, stay = parse_flags(sys.argv[1:] if arguments is None else arguments)
    logs.begin()
    stopping = threading.Event()
    if stay:
        when_told_to_end(lambda _number: stopping.set())
    try:
        with lock_folder(settings.state_dir, AGENT_GONE_S):
            api = ApiConnection.connect(settings.kubeconfig, user_agent="vc-egpu-removal")
            remove(settings, api, force=True)
    except (StateError, ConfigError, KubeError, OSError) as error:
        log.error("%s: %s", settings.node_name, error)
        return 1
    if stay:
        DONE_FILE.touch()
        stopping.wait()
    return 0


def parse_flags(arguments: Sequence[str]) -> tuple[Settings, bool]:
    """Flags of ``vc-egpu node-clean``: where things are, under the agent's names, and whether to stay."""
    here = Settings(node_name=os.environ.get("NODE_NAME", ""))
    parser = argparse.ArgumentParser(
        prog="vc-egpu node-clean",
        description="Take everything of ours off a node whose agent does not come back.",
    )
    parser.add_argument("--node-name", default=here.node_name, required=not here.node_name)
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's service account")
    add_paths(parser, here, "cdi_dir", "kubelet_dir", "state_dir", "run_dir")
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM when done, as a DaemonSet must")
    given = vars(parser.parse_args(arguments))
    stay = bool(given.pop("stay"))
    return Settings(**given), stay


if __name__ == "__main__":
    sys.exit(main())
