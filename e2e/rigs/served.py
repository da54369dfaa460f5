"""Whether a program of others that a test started serves."""

import urllib.request

from stack.hostprocess import HostProcess


def serves(process: HostProcess, name: str, address: str) -> bool:
    """By its ``/-/ready``. ``name``: for people. Raises ``AssertionError`` if it has ended."""
    if not process.alive:
        raise AssertionError(f"{name} ended:\n{process.log_tail()}")
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=5):
            return True
    except OSError:
        return False
