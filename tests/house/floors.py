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
        "layouts",
        "environments",
        "topology",
        "model",
        "books",
        "check",
        "queues",
        "trial",
        "placing",
        "room",
        "waiting",
        "standing",
        "moving",
        "admit",
        "choice",
        "decide",
    ),
    "vc_egpu.volcano": ("api", "words", "room", "podspec", "needs", "codec"),
    "vc_egpu.kube": (
        "backoff",
        "pace",
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
        "garbage_collector",
        "leader",
        "intake",
        "usual_work",
        "state",
        "figures",
        "execution",
        "telling",
        "recovery",
        "suspension",
        "inqueue",
        "settings",
        "decision",
        "carry_out",
        "aftercare",
        "drain",
        "view",
        "parts",
        "loop",
        "serving",
        "growing",
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
    "vc_egpu.report": ("shares", "cards", "gangs", "queues", "values_codec", "snapshot_codec"),
    "vc_egpu.metrics": ("family", "text", "vocabulary", "page"),
    "vc_egpu.tenants": (
        "document",
        "grants",
        "walls",
        "rights",
        "render",
        "drift",
        "live",
        "occupants",
        "writing",
        "removal",
    ),
    "vc_egpu.usage": ("table", "sources", "reports", "output", "flags", "main"),
    "vc_egpu.sim": (
        "engine",
        "world",
        "table",
        "load",
        "replay",
        "curves",
        "openb",
        "churn",
        "output",
        "main",
    ),
    "vc_egpu.whatif": ("hypothesis", "changes", "answers", "moves"),
    "vc_egpu.cli": (
        "main",
        "exit_status",
        "stop",
        "world",
        "doctor",
        "pause",
        "partial_snapshot",
        "views",
        "live",
        "tenant",
        "sites",
        "foresight",
        "submit",
        "parser",
        "completion",
        "commands",
        "kubectl",
    ),
    "vc_egpu.page": ("settings", "cluster", "serving", "main"),
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
        "parts",
        "agent",
        "main",
        "__main__",
    ),
}

BETWEEN_PACKAGES: Final[dict[str, frozenset[str]]] = {
    "core": frozenset(),
    "metrics": frozenset(),
    "volcano": frozenset({"core"}),
    "kube": frozenset({"core", "metrics", "volcano"}),
    "report": frozenset({"core", "volcano"}),
    "admission": frozenset({"core", "metrics", "volcano", "kube", "report", "whatif"}),
    "webhook": frozenset({"core", "metrics", "volcano", "kube"}),
    "jobs": frozenset({"core", "metrics", "volcano", "kube", "report"}),
    "tenants": frozenset({"core", "volcano", "kube"}),
    "sim": frozenset({"core", "volcano", "kube", "report"}),
    "whatif": frozenset({"core"}),
    "usage": frozenset(),
    # The command line is the entry point of all processes.
    "cli": frozenset(
        {
            "core",
            "metrics",
            "volcano",
            "kube",
            "report",
            "admission",
            "webhook",
            "jobs",
            "sim",
            "whatif",
            "tenants",
            "usage",
        }
    ),
    # The page shows what the commands show. The command line starts it by its name, as all processes.
    "page": frozenset({"core", "volcano", "kube", "report", "cli"}),
}
"""By package of ``vc_egpu``, which other packages it may import."""
OF_THE_NODE: Final = frozenset({"core", "metrics", "volcano", "kube"})
"""What the node agent may import of ``vc_egpu``."""

MOST_MODULES_IN_A_FOLDER: Final = 12
MOST_LINES: Final = 600
MOST_LINES_OF_A_FUNCTION: Final = 70
GENERATED: Final = frozenset({"kubelet_api"})
"""Folders that a tool writes: no limits hold there."""
