"""However long the stream of newcomers is: a suspended gang comes back when inference has ended."""

import os
import random

import pytest
import seeds
from scenario.script import Script
from vc_egpu.core.model.cluster import SuspensionState
from vc_egpu.core.model.policy import Policy

LIVES = 400 if os.environ.get("VC_EGPU_LONG") == "1" else 25
CARD_GIB = 96
STEPS = 20
HOLD_S = Policy().suspended_hold_s


def _suspended(rng: random.Random) -> Script:
    """Training that left its cards for inference more than a minute ago."""
    cards, memory_gib, cores = rng.randint(1, 3), rng.randint(30, 90), rng.choice([0, 30, 60, 100])
    ratio = rng.choice([1, 1, 1.5, 2])
    spill = " spill" if rng.random() < 0.4 else ""
    infer_gib = rng.randint(CARD_GIB - int(memory_gib / ratio if spill else memory_gib) + 1, CARD_GIB)
    script = Script()
    script.run(
        [
            f"node n1 h20={cards} host=4000Gi memory-ratio={ratio}",
            "queue research vgpu-h20=900",
            "queue serving vgpu-h20=900",
            f"submit train queue=research class=low members={cards} h20=1 memory={memory_gib}Gi cores={cores}"
            + spill,
            "settle",
            "suspendable train",
            f"submit infer queue=serving class=high members={cards} h20=1 memory={infer_gib}Gi cores=50",
            "settle",
            "tick 61",
        ]
    )
    states = {pod.suspension for pod in script.world.pods_of("train")}
    assert states == {SuspensionState.SUSPENDED}, "nothing is to be seen where nobody left"
    return script


@pytest.mark.parametrize("seed", seeds.fresh(LIVES))
def test_a_suspended_gang_comes_back_whatever_newcomers_there_were(seed: int) -> None:
    rng = random.Random(seed)
    script = _suspended(rng)
    high = ["infer"]
    for number in range(STEPS):
        share_class, queue = rng.choice([("low", "research"), ("unset", "research"), ("high", "serving")])
        if share_class == "high":
            high.append(f"g{number}")
        words = f"submit g{number} queue={queue} class={share_class} members={rng.randint(1, 2)} h20=1"
        ask = f"memory={rng.choice([1, 2, 5, 10, 20, 40])}Gi cores={rng.choice([0, 0, 5, 20, 50])}"
        script.run([f"{words} {ask}{rng.choice(['', ' spill'])}", "settle", f"tick {rng.randint(1, 40)}"])
        if rng.random() < 0.2:
            script.run([f"finish {high.pop(rng.randrange(len(high)))}"] if high else ["tick 1"])
    # Inference ends, and so does what was let in before it was suspended (again) for long. The others stay.
    long_since = max(pod.suspended_since for pod in script.world.pods_of("train")) + HOLD_S
    pods = [pod for pod in script.world.snapshot().pods.values() if pod.gang != "train"]
    early = {str(pod.gang) for pod in pods if pod.started is not None and pod.started < long_since}
    script.run([*(f"finish {key}" for key in sorted({*high, *early})), "settle"])
    states = {pod.suspension for pod in script.world.pods_of("train")}
    assert states == {SuspensionState.RUNNING}
