"""Which room stands on which: the one table of the allowed directions of imports.

A room is a folder of a package, or a module that lies directly in the package. A module may import its own
room and every room that comes before it in its package's row, and no other. A new room gets its place here.
"""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CONTROL_PLANE: Final = ROOT / "vc-egpu"
NODE: Final = ROOT / "device-plugin"
NATIVE: Final = NODE / "native"

FLOORS: Final[dict[str, tuple[str, ...]]] = {
    "vc_egpu.core": (
        "model",
        "books",
        "check",
        "queues",
        "trial",
        "placing",
        "room",
        "waiting",
        "standing",
        "admit",
        "decide",
    ),
    "vc_egpu.volcano": ("api", "words", "codec"),
    "vc_egpu.kube": (
        "backoff",
        "resources",
        "server",
        "signals",
        "wire",
        "answers",
        "workqueue",
        "connection",
        "events",
        "lease",
        "watch",
    ),
    "vc_egpu.admission": (
        "deciding",
        "garbage_collector",
        "intake",
        "leader",
        "missing_groups",
        "state",
        "execution",
        "drain",
        "inqueue",
        "telling",
        "recovery",
        "suspension",
        "making_room",
        "settings",
        "carry_out",
        "aftercare",
        "loop",
        "serving",
        "main",
    ),
    "vc_egpu.webhook": ("protocol", "reviews", "serving", "main", "policies"),
    "vc_egpu.jobs": (
        "health",
        "rules",
        "objects",
        "known",
        "work",
        "changes",
        "workers",
        "pool",
        "controller",
        "main",
    ),
    "vc_egpu.sim": ("engine", "world"),
    "vc_egpu.cli": ("main", "stop", "world", "doctor", "pause", "views", "kubectl"),
    "vc_egpu_node": (
        "files",
        "kubelet_api",
        "kubelet",
        "settings",
        "vendors",
        "cards",
        "api",
        "containers",
        "deviceplugin",
        "isolation",
        "offers",
        "disk",
        "removal",
        "wall",
        "suspension",
        "metrics",
        "guard",
        "agent",
        "main",
        "__main__",
    ),
}

BETWEEN_PACKAGES: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(),
    "volcano": frozenset({"core"}),
    "kube": frozenset({"core", "volcano"}),
    "admission": frozenset({"core", "volcano", "kube"}),
    "webhook": frozenset({"core", "volcano", "kube"}),
    "jobs": frozenset({"core", "volcano", "kube"}),
    "sim": frozenset({"core", "volcano", "kube"}),
    # The command line is the entry point of all processes.
    "cli": frozenset({"core", "volcano", "kube", "admission", "webhook", "jobs"}),
}
"""By package of ``vc_egpu``, which other packages it may import."""
OF_THE_NODE: Final = frozenset({"core", "volcano", "kube"})
"""What the node agent may import of ``vc_egpu``."""

MOST_MODULES_IN_A_FOLDER: Final = 12
MOST_LINES: Final = 600
MOST_LINES_OF_A_FUNCTION: Final = 70
GENERATED: Final = frozenset({"kubelet_api"})
"""Folders that a tool writes: no limits hold there."""
EXEMPT_C_ROOMS: Final = frozenset({"time"})
"""Rooms of the isolation library without a limit on their number of modules, until isolation is rebuilt."""
