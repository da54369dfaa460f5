"""How the threads of one of our processes share the interpreter, which runs one of them at a time."""

import sys
from typing import Final

SWITCH_INTERVAL_S: Final = 0.0005
"""A thread that waits for the interpreter has it after so long. Python's default is ten times that."""


def take_short_turns() -> None:
    """For processes in which some threads answer, or decide, and others compute for long."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
