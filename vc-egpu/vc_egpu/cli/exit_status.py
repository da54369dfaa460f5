"""What the command's exit status says, and the sentence that goes with a refusal of the cluster."""

from typing import Final

from vc_egpu.kube.wire.errors import Forbidden, ImpossibleName, KubeError, NotFound, Temporary, Unauthorized

EXIT_OK: Final = 0
EXIT_FOUND: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_CLUSTER: Final = 3
EXIT_INTERRUPTED: Final = 130

MEANINGS: Final = (
    "Exit status: 0 done, 1 something was found or refused (that work waits is neither), "
    "2 wrong usage, 3 no cluster, or not all of those asked, 130 interrupted."
)
"""For ``--help``."""


def explain(error: KubeError) -> tuple[str, int]:
    """A sentence for the user, and the exit status."""
    match error:
        case Unauthorized():
            return f"the cluster does not accept who you are: {error.message}", EXIT_NO_CLUSTER
        case Forbidden():
            hint = " (-n names another one)" if 'in the namespace "' in error.message else ""
            return f"you may not: {error.message}{hint}", EXIT_FOUND
        case ImpossibleName():
            return error.message, EXIT_USAGE
        case NotFound():
            hint = "is the stack installed? `kubectl egpu doctor` tells"
            return f"the cluster does not know this: {error.message} ({hint})", EXIT_FOUND
        case Temporary():
            return f"the cluster does not answer: {error.message}", EXIT_NO_CLUSTER
        case _:
            return error.message, EXIT_FOUND
