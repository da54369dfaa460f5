"""What the local cluster raises."""

from __future__ import annotations


class LocalClusterError(RuntimeError):
    """Something the caller can act upon; the message is one or a few sentences, ready to print."""
