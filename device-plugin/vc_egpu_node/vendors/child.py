"""A vendor's library in a process of its own: a call that hangs costs the child, never the agent.

The child reads one JSON line for each call, and answers with one. A call that does not end in time is
refused as ``no-answer``, and its child is killed. The next call gets a new child. A card that did not answer
is left alone for a while, so that it does not cost every call its whole time.
"""

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from vc_egpu_node.vendors.slices import Refusal, SliceError

log = logging.getLogger(__name__)

READ_S: Final = 5.0
"""How long a reading may take."""
CHANGE_S: Final = 18.0
"""How long making or removing a slice may take: a container's start waits for it."""
ALONE_S: Final = 60.0
"""How long a card that did not answer is left alone."""
_FAILED: Final[Refusal] = "failed"
_REFUSALS: Final[tuple[Refusal, ...]] = get_args(Refusal)


def serve(calls: Mapping[str, Callable[..., Any]]) -> None:
    """The child's whole life: answer calls on its standard input until that ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # libraries may print
        for line in sys.stdin:
            name, arguments = json.loads(line)
            try:
                answer = {"result": calls[name](*arguments)}
            except SliceError as error:
                answer = {"why": error.why, "text": str(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


class Child:
    """Calls of one module that serves (``python -m <module> <arguments>``). Thread-safe."""

    def __init__(
        self,
        module: str,
        arguments: tuple[str, ...] = (),
        *,
        environment: Mapping[str, str] | None = None,
        alone_s: float = ALONE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        # The same packages as this process has, wherever it has them from.
        found = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._environment = {**os.environ, **found, **(environment or {})}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._alone_s = alone_s
        self._clock = clock
        self._silent: dict[tuple[Any, ...], float] = {}

    def card(self, name: str, key: tuple[Any, ...], *more: Any, timeout_s: float = READ_S) -> Any:
        """A call about the card with these numbers. Raises :class:`SliceError`."""
        since = self._silent.get(key)
        if since is not None and self._clock() - since < self._alone_s:
            text = f"card {_spoken(key)} did not answer, and is left alone for {self._alone_s:g} s"
            raise SliceError("no-answer", text)
        try:
            answer = self.call(name, *key, *more, timeout_s=timeout_s)
        except SliceError as error:
            if error.why == "no-answer":
                self._silent[key] = self._clock()
                raise SliceError(
                    "no-answer", f"card {_spoken(key)} did not answer within {timeout_s:g} s"
                ) from None
            raise
        self._silent.pop(key, None)
        return answer

    def call(self, name: str, *arguments: Any, timeout_s: float = READ_S) -> Any:
        """A call about no card. Raises :class:`SliceError`."""
        with self._lock:
            line = self._asked(json.dumps([name, arguments]).encode() + b"\n", timeout_s)
        answer = json.loads(line)
        if "result" in answer:
            return answer["result"]
        why = next((one for one in _REFUSALS if one == answer["why"]), _FAILED)
        raise SliceError(why, str(answer["text"]))

    def _asked(self, question: bytes, timeout_s: float) -> bytes:
        process = self._started()
        if process.stdin is None or process.stdout is None:
            raise AssertionError("pipes were asked for")
        try:
            process.stdin.write(question)
            process.stdin.flush()
        except OSError:
            self._end()
            raise SliceError("not-ready", f"{self._command[2]} ended") from None
        end, line = time.monotonic() + timeout_s, b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                self._end()
                raise SliceError("no-answer", f"the library did not answer within {timeout_s:g} s")
            part = os.read(process.stdout.fileno(), 1 << 20)
            if not part:
                self._end()
                raise SliceError("not-ready", f"{self._command[2]} ended in the middle of a call")
            line += part
        return line

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=self._environment
            )
        return self._process

    def _end(self) -> None:
        """Kill the child. One that hangs in the kernel cannot be waited for, and is left to it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            log.warning("process %d hangs in its driver and cannot be ended", process.pid)

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()


def _spoken(key: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in key)
