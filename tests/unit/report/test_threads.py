"""Each request for a snapshot is answered on a thread of its own, the first ones at the same time."""

import subprocess
import sys

FIRST_ENCODES = """
import sys, threading
from vc_egpu.core.books.state import ClusterState
from vc_egpu.core.model.cluster import Queue, QueueName
from vc_egpu.report import snapshot_codec

sys.setswitchinterval(1e-6)
state = ClusterState(None)
state.put_queue(Queue(QueueName("research"), capability={"volcano.sh/vgpu-h20": 6}))
snapshot = state.snapshot(1)
gate, found = threading.Barrier(8), []

def ask() -> None:
    gate.wait()
    found.append(snapshot_codec.to_json(snapshot_codec.encode(snapshot)))

threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 8 and len(set(found)) == 1, len(found)
assert snapshot_codec.from_json(found[0]).queues == snapshot.queues
"""


def test_the_first_encodes_may_come_at_once() -> None:
    for _ in range(8):  # what is prepared once is prepared in a new process
        command = [sys.executable, "-c", FIRST_ENCODES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
