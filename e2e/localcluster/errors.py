"""What the local cluster raises."""

from __future__ import annotations


class LocalClusterError(RuntimeError):
    """Something the caller can act upon; the message is one or a few sentences, ready to print."""


def in_words(error: OSError) -> str:
    """What this machine refused, as a sentence: a folder that is another user's, a disk that is full."""
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)
