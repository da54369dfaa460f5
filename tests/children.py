"""Programs that tests start and read from line by line."""

import subprocess
import threading


def rest_of(process: "subprocess.Popen[str]", timeout_s: float) -> tuple[int, str, str]:
    """(exit status, the rest of its output, its errors) at its end; one that takes longer is killed.

    What came together with a line that was read stands in a buffer into which ``communicate`` does not look.
    """
    assert process.stdout
    assert process.stderr
    if process.stdin:
        process.stdin.close()
    late = threading.Timer(timeout_s, process.kill)
    late.start()
    try:
        out, errors = process.stdout.read(), process.stderr.read()
        return process.wait(), out, errors
    finally:
        late.cancel()
