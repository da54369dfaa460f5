"""Which wall refused a request, by what the API server says."""

from collections.abc import Mapping
from typing import Final

from vc_egpu.kube.wire.errors import KubeError

NAMES: Final[Mapping[str, str]] = {
    "W": "webhook",
    "F": "webhook is away, so nothing comes in (`failurePolicy: Fail`)",
    "P": "admission policy",
    "R": "RBAC",
    "S": "Pod Security",
    "Q": "quota",
    "K": "Kubernetes' own checks",
    "C": "queue's cap and the ledger",
    "N": "network policies",
    "A": "node agent",
    "=": "let in, and without effect",
}
"""By letter."""
LET_IN: Final = "-"
_SAID: Final = (
    ("failed calling webhook", "F"),
    ("denied the request: ValidatingAdmissionPolicy", "P"),
    ("violates PodSecurity", "S"),
    ("exceeded quota", "Q"),
    ('.egpu.volcano.sh" denied the request', "W"),
)
_FORBIDDEN: Final = 403


def wall_of(error: KubeError) -> str:
    """The letter of the wall; ``?`` for an answer that is no refusal (an outage, say)."""
    for text, letter in _SAID:
        if text in error.message:
            return letter
    if "ValidatingAdmissionPolicy" in error.message:
        return "P"
    if error.status == _FORBIDDEN and " cannot " in error.message:
        return "R"
    return "K" if error.status in {400, 403, 404, 405, 409, 413, 422} else "?"
