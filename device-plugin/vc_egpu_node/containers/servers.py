"""Whether a container may run under the MPS server of its node. Pure."""

from vc_egpu_node.containers.cdi import Grant


class MpsError(RuntimeError):
    """There is no MPS server for a container, or it did not do what it was to do; the text says why."""


def why_not(grant: Grant, namespace: str, asked: str) -> str:
    """Why a container may not run under the server of that namespace; empty: it may. ``asked``: what its pod
    is to be kept apart by."""
    where = f"the cards of this node are under MPS for namespace {namespace}"
    if grant.namespace != namespace:
        return f"{where}, and the pod is of {grant.namespace}"
    if asked != "mps":
        return f"{where}, and the pod did not ask for it"
    if grant.share_class != "unset":
        return f"{where}, and class {grant.share_class} is never under MPS"
    if grant.swap or any(share.most_on_card_mib < share.memory_mib for share in grant.shares):
        return f"{where}, and memory that moves to the host is never under MPS"
    if len(grant.shares) > 1:
        return f"{where}, and a program reaches the server of one card, not of {len(grant.shares)}"
    return ""
