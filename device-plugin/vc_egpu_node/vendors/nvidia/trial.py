"""Whether programs can use a card: one makes a CUDA context there, in a process of its own, and is gone."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from vc_egpu_node.vendors.base import UntoldError
from vc_egpu_node.vendors.nvidia.words import trial_fault

PROGRAM: Final = (sys.executable, "-I", str(Path(__file__).with_name("context.py")))
ANSWER_S: Final = 30.0
"""A healthy card takes one to three seconds; the first program on a node with eight takes longer."""
REAP_S: Final = 2.0
"""How long a process that was killed is waited for. In a driver that hangs it does not end at all."""


class ContextTrial:
    """One thread calls it."""

    def __init__(
        self,
        program: Sequence[str] = PROGRAM,
        answer_s: float = ANSWER_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._program, self._answer_s = tuple(program), answer_s
        self._environment = os.environ if environment is None else environment
        self._stuck: dict[str, subprocess.Popen[str]] = {}
        """By card: was killed, and is still there."""

    def __call__(self, uuid: str) -> str:
        """See :attr:`vc_egpu_node.vendors.base.Vendor.trial`. Returns after ``answer_s`` and two seconds at
        the latest."""
        hangs = f"making a CUDA context on it did not end within {self._answer_s:g} s"
        if uuid in self._stuck:
            if self._stuck[uuid].poll() is None:
                return hangs
            del self._stuck[uuid]
        try:
            process = subprocess.Popen(
                self._program,
                env={**self._environment, "CUDA_VISIBLE_DEVICES": uuid},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            raise UntoldError(f"no process can be started: {error}") from error
        try:
            said, _ = process.communicate(timeout=self._answer_s)
        except subprocess.TimeoutExpired:
            self._kill(uuid, process)
            return hangs
        if process.returncode < 0:
            return f"making a CUDA context on it ends the program with signal {-process.returncode}"
        code, _, call = said.strip().partition(" ")
        if not code.lstrip("-").isdecimal():
            raise UntoldError(f"the program that makes a context ended with {process.returncode}")
        return trial_fault(int(code), call)

    def _kill(self, uuid: str, process: subprocess.Popen[str]) -> None:
        process.kill()
        try:
            process.communicate(timeout=REAP_S)
        except subprocess.TimeoutExpired:
            self._stuck[uuid] = process
