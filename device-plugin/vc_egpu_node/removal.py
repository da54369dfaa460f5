"""``vc-egpu node-clean``: take everything of ours off a node once its agent is gone for good.

The Node loses the inventory, our labels and counters; the host loses CDI specs, sockets and the state folder.
Running containers notice nothing: a file that is mounted into one lives on as long as it does. Idempotent.
"""

import argparse
import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from vc_egpu.kube import ApiConnection
from vc_egpu.kube.config import ConfigError
from vc_egpu.kube.errors import KubeError, NotFound
from vc_egpu.kube.resources import NODES
from vc_egpu.volcano.annotations import NodeCards

from vc_egpu_node.cdi import FILE_PREFIX
from vc_egpu_node.node import FIELD_MANAGER, WRITTEN, metadata_patch, slim, status_patch
from vc_egpu_node.plugin import SOCKET_PREFIX
from vc_egpu_node.state import StateError, lock_folder

log = logging.getLogger("vc_egpu_node.removal")

AGENT_GONE_S: Final = 60.0
"""How long the agent of this node may take to end."""
DONE_FILE: Final = Path("/tmp/done")  # noqa: S108 - in the container; its readiness probe looks for it


def node_patches(document: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge patches of metadata and of status that take off what the agent wrote."""
    lean = slim(document)
    metadata = metadata_patch(lean, NodeCards(), {})
    changed = metadata.get("metadata", {})
    changed.pop("annotations", None)
    written = [name for name in WRITTEN if name in lean["metadata"]["annotations"]]
    if written:
        changed["annotations"] = dict.fromkeys(written)
    return ({"metadata": changed} if changed else {}), status_patch(lean, {})


def host_files(cdi_dir: Path, kubelet_dir: Path, state_dir: Path) -> Iterator[Path]:
    """What the agent left on the host, the state folder's content last."""
    yield from sorted(cdi_dir.glob(f"{FILE_PREFIX}*.json"))
    yield from sorted(cdi_dir.glob(f".{FILE_PREFIX}*"))
    yield from sorted(kubelet_dir.glob(f"{SOCKET_PREFIX}*.sock"))
    yield from sorted(state_dir.iterdir()) if state_dir.is_dir() else ()


def clean_host(cdi_dir: Path, kubelet_dir: Path, state_dir: Path) -> int:
    """Remove them; how many there were. The state folder itself may be a mount and stays, empty."""
    count = 0
    for path in host_files(cdi_dir, kubelet_dir, state_dir):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        count += 1
    return count


def clean_node(api: ApiConnection, name: str) -> bool:
    """Patch the Node; whether there was anything to take off. Raises :class:`KubeError`."""
    try:
        metadata, status = node_patches(api.get(NODES, name))
    except NotFound:
        return False
    if metadata:
        api.patch(NODES, name, metadata, field_manager=FIELD_MANAGER)
    if status:
        api.patch(NODES, name, status, subresource="status", field_manager=FIELD_MANAGER)
    return bool(metadata or status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Clean, then (as a DaemonSet) wait for SIGTERM; 1 where something could not be removed."""
    parser = argparse.ArgumentParser(prog="vc-egpu node-clean", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--node-name", default=os.environ.get("NODE_NAME", ""), required="NODE_NAME" not in os.environ
    )
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--cdi-dir", type=Path, default=Path("/var/run/cdi"))
    parser.add_argument("--kubelet-dir", type=Path, default=Path("/var/lib/kubelet/device-plugins"))
    parser.add_argument("--state-dir", type=Path, default=Path("/var/lib/vc-egpu"))
    parser.add_argument("--stay", action="store_true", help="wait for SIGTERM when done, as a DaemonSet must")
    flags = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        lock_folder(flags.state_dir, AGENT_GONE_S).close()
        files = clean_host(flags.cdi_dir, flags.kubelet_dir, flags.state_dir)
        patched = clean_node(
            ApiConnection.connect(flags.kubeconfig, user_agent="vc-egpu-removal"), flags.node_name
        )
    except (StateError, ConfigError, KubeError, OSError) as error:
        log.error("%s: %s", flags.node_name, error)
        return 1
    log.info("%s: %d files removed, Node %s", flags.node_name, files, "cleaned" if patched else "was clean")
    if flags.stay:
        DONE_FILE.touch()
        stopping.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
