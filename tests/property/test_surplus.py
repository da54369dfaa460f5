"""Members above the minimum against brute force: none waits that has room and that the caps allow."""

import random
from collections import Counter
from dataclasses import replace

import pytest
import seeds
from property import brute, generate
from property import brute_search as search
from property.test_oracle import NOW, carry_out
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import Gang, Pod, PodPhase, PodUid, QueueName, ShareClass, Snapshot
from vc_egpu.core.model.policy import Policy

CASES = 150
KEY = "ns/grows"


def growing(seed: int) -> Snapshot:
    """A cluster, and a gang of several kinds of members that starts with any one; its queue may be tight."""
    rng = random.Random(f"surplus {seed}")
    snapshot = generate.case(seed).snapshot
    name = QueueName(rng.choice(["red", "blue"]))
    tight = {key: rng.randint(0, 3) for key in snapshot.queues[name].capability if "gpu-" in key}
    used = search.use(snapshot, name)
    caps = {key: used.get(key, 0) + more for key, more in tight.items() if not key.endswith("-memory")}
    queue = replace(snapshot.queues[name], capability=caps)
    gang = Gang(KEY, KEY, name, ShareClass.UNSET, 0, 1, 0.0)
    pods = dict(snapshot.pods)
    for task in "abcd":
        shape = generate.random_shape(rng, snapshot)
        for index in range(rng.randint(1, 2)):
            uid = PodUid(f"{KEY}-{task}-{index}")
            pods[uid] = Pod(uid, "ns", uid[3:], shape, PodPhase.GATED, None, KEY, task, index)
    # Cards that are taken back, or kept for queues, have stories of their own.
    queues = {
        key: replace(entry, deserved={}, guarantee={})
        for key, entry in {**snapshot.queues, name: queue}.items()
    }
    return replace(snapshot, pods=pods, gangs={**snapshot.gangs, KEY: gang}, queues=queues)


@pytest.mark.parametrize("cases", [range(CASES), seeds.fresh(CASES // 3)], ids=["same", "fresh"])
def test_no_member_above_the_minimum_waits_in_vain(cases: range) -> None:
    seen: Counter[str] = Counter()
    for seed in cases:
        snapshot = growing(seed)
        plan = decide(snapshot, Policy(), NOW, only=[KEY])
        if not plan.admissions:
            continue
        after = carry_out(snapshot, plan.admissions[0])
        second = decide(after, Policy(), NOW, only=[KEY])
        assert not second.admissions, f"seed {seed}: what one decision leaves the next one takes"
        queue = after.gangs[KEY].queue
        for pod in after.pods.values():
            if pod.gang == KEY and pod.phase is PodPhase.GATED:
                allowed = search.caps_allow(after, queue, [pod.shape])
                fits = brute.fits(brute.world(after), [pod.shape], ShareClass.UNSET)
                seen[f"allowed {allowed}, fits {fits}"] += 1
                assert not (allowed and fits), f"seed {seed}: {pod.uid}: {second.verdicts[KEY].message}"
    assert len(seen) == 3 or len(cases) < CASES, seen
