"""A process that is told to end does, whatever its main thread is at."""

import signal
import subprocess
import sys

import pytest

WAITING = """
import threading
{imports}
stopping = threading.Event()
{hearing}
print("ready", flush=True)
while not stopping.wait(0):
    pass
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_though_it_is_just_looking_whether_to(number: signal.Signals) -> None:
    """Set by a handler, the Event on which the main thread waits is locked against itself now and then."""
    program = WAITING.format(
        imports="from vc_egpu.kube.signals import when_told_to_end",
        hearing="when_told_to_end(lambda number: stopping.set())",
    )
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == b"ready\n"
                process.send_signal(number)
                assert process.wait(30) == 0
            finally:
                process.kill()
