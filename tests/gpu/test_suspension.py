"""A program's memory goes to the host and comes back; it goes on where it was."""

import json
import os
import queue
import subprocess
import threading
from typing import Any

import pytest
from gpu.standalone import BUILD, Node

MEMORY_MIB = 1500
HELPER = BUILD / "egpu-checkpoint"


def checkpoint(node: Node, verb: str, pid: int) -> dict[str, Any]:
    """What the helper says that the agent runs: ``suspend`` or ``resume``."""
    done = subprocess.run(
        [HELPER, verb, str(pid)], env=node.environment(None), capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def unable(answer: dict[str, Any]) -> str:
    """Why this driver, or this machine, suspends nobody; empty: it says nothing of that."""
    error = str(answer["error"])
    marks = ("older than 570", "NOT_SUPPORTED", "NOT_PERMITTED")
    return f"not here: {error}" if not answer["ok"] and any(mark in error for mark in marks) else ""


@pytest.mark.skipif(os.geteuid() != 0, reason="the driver lets only root take memory away from others")
def test_training_goes_on_at_the_step_where_it_was(node: Node) -> None:
    node.add("a", node.context_mib + MEMORY_MIB + 100, share_class="low")
    before = node.used_mib()
    words = ("--kernels", 5, "--ns", 1_000_000, "--memory-mib", MEMORY_MIB, "--every", 1)
    train = node.start("a", "train", *words)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    stdout = train.process.stdout
    assert stdout

    def read() -> None:
        for line in stdout:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    for _ in range(10):
        lines.get(timeout=60)
    during = node.used_mib()
    assert during - before > MEMORY_MIB
    answer = checkpoint(node, "suspend", train.process.pid)
    if why := unable(answer):
        pytest.skip(why)
    assert answer["ok"], answer
    assert answer["states"] == {str(train.process.pid): "checkpointed"}, answer
    assert node.settle(before + 100) <= before + 100
    seen = []
    while True:
        try:
            seen.append(lines.get_nowait())
        except queue.Empty:
            break
    with pytest.raises(queue.Empty):
        lines.get(timeout=1)  # it stands still
    answer = checkpoint(node, "resume", train.process.pid)
    assert answer["ok"], answer
    last = int(seen[-1].split()[1]) if seen else 10
    assert int(lines.get(timeout=60).split()[1]) == last + 1
    assert node.used_mib() - before > MEMORY_MIB
