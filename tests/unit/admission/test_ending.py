"""A leader that is told to end."""

import threading
import time
from pathlib import Path

from unit.admission.build import TABLE, pod
from unit.kube.tiny_api import TinyApi, tiny_api
from vc_egpu.admission.execution.evictions import EvictionOrder
from vc_egpu.admission.leader import SoleLeader
from vc_egpu.admission.loop import Loop
from vc_egpu.admission.parts import Parts
from vc_egpu.admission.settings import Settings
from vc_egpu.core.model.causes import Cause
from vc_egpu.kube.connection import ApiConnection
from vc_egpu.volcano.codec import pod_codec


def asked(server: TinyApi) -> int:
    return sum(method == "POST" and "/eviction" in path for method, path, _ in list(server.requests))


def test_a_large_gang_that_is_being_evicted_does_not_hold_the_end_up(tmp_path: Path) -> None:
    """It would be killed after its grace period, with its Lease, and nobody leads until that has run out."""
    stopping = threading.Event()
    with tiny_api() as server:
        api = ApiConnection.connect(server.kubeconfig(tmp_path), pool_size=20, timeout_s=30)
        settings = Settings(models=Path("/none"), namespace="n", identity="me", port=-1)
        leadership = SoleLeader()
        parts = Parts.of(api, TABLE, settings, leadership)
        loop = Loop(parts, settings, leadership, stopping)
        leading = threading.Thread(target=loop.run)
        leading.start()
        while loop.view() is None:
            time.sleep(0.01)
        pods = tuple(pod_codec.pod(pod(f"p-{i}", uid=f"p-{i}"), TABLE) for i in range(1000))
        server.delay_s = 0.1
        work = parts.conductor.work
        work.evictions.start(work.executor, work.api, EvictionOrder("g", "", pods, Cause.ROLLBACK), 0.0)
        while not asked(server):
            time.sleep(0.01)
        stopping.set()
        leading.join(30)
        assert not leading.is_alive()
        api.close()
