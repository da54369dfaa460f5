"""Rules between pods: what is planned is what a kube-scheduler would let in, and nothing is missed."""

import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import seeds
from property.kube_rules import Json, Kube
from rigs import random_rules
from unit.admission.build import TABLE, added, group, let_go, node, pod, queue
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.policy import Policy
from vc_egpu.volcano.words import names

WORLDS = 2000 if os.environ.get("VC_EGPU_LONG") == "1" else 150
SPACES = {"default": {"team": "a"}, "other": {"team": "b"}}
TAINT = {"key": "busy", "value": "", "effect": "NoSchedule"}


class World:
    """A small cluster, and one gang that waits, of one or two kinds of members."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.mirror = Mirror(TABLE)
        self.kube = Kube({}, SPACES)
        self.free: dict[str, int] = {}
        for name, labels in SPACES.items():
            space = {"name": name, "uid": name, "resourceVersion": "1", "labels": labels}
            self.mirror.apply("namespaces", added({"metadata": space}))
        self.mirror.apply("queues", added(queue()))
        for number in range(rng.randint(2, 5)):
            self._node(rng, f"n{number}")
        for number in range(rng.randint(0, 5)):
            self._there(rng, number)
        self.members = self._gang(rng)

    def _node(self, rng: random.Random, name: str) -> None:
        made = node(name, cards=rng.randint(1, 2))
        labels = made["metadata"]["labels"]
        for key, values in (("zone", "ab"), ("rack", "xyz")):
            if rng.random() < 0.9:
                labels[key] = rng.choice(values)
        if rng.random() < 0.1:
            made["spec"] = {"taints": [TAINT]}
        self.kube.nodes[name] = made
        self.free[name] = len(made["metadata"]["annotations"][names.NODE_CARDS].split("GPU-")) - 1
        self.mirror.apply("nodes", added(made))

    def _there(self, rng: random.Random, number: int) -> None:
        """A pod that is on a node: ours, or a foreign one that only takes room."""
        where = rng.choice(sorted(self.kube.nodes))
        ours = rng.random() < 0.5 and self.free[where] > 0
        made = pod(f"old{number}-w-0", f"old{number}", 0, spec=random_rules.rules(rng, 0.4))
        if ours:
            self.free[where] -= 1
            self.mirror.apply("podgroups", added(group(f"old{number}", 1)))
            card = f"GPU-{where}-{self.free[where]}"
            made = let_go(made, "5-1", card=card, bound=True, phase="Running")
            made["metadata"]["labels"] |= random_rules.labels(rng)
        else:
            made["metadata"] |= {"labels": random_rules.labels(rng), "annotations": {}, "ownerReferences": []}
            made["metadata"]["namespace"] = rng.choice(["default", "default", "other"])
            made["spec"] |= {"nodeName": where, "schedulingGates": [], "schedulerName": "default-scheduler"}
            made["status"] = {"phase": "Running"}
        if rng.random() < 0.15:
            made["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.kube.there.append((made, where))
        self.mirror.apply("pods", added(made))

    def _gang(self, rng: random.Random) -> list[Json]:
        kinds = [
            (random_rules.rules(rng, 0.5), random_rules.labels(rng)) for _ in range(rng.choice([1, 1, 2]))
        ]
        found = []
        for index in range(rng.randint(1, 4)):
            spec, labels = kinds[index % len(kinds)]
            spec = {**spec, "schedulerName": names.SCHEDULER_DIRECT, "schedulingGates": []}
            if rng.random() < 0.2:
                spec["tolerations"] = [{"key": "busy", "operator": "Exists"}]
            made = pod(f"g-w-{index}", "g", index, spec=spec)
            made["metadata"]["labels"] |= labels
            share = made["metadata"]["annotations"][names.REQUEST]
            made["metadata"]["annotations"][names.REQUEST] = share.replace("30000", "98304").replace(
                '"coresPercent":30', '"coresPercent":100'
            )
            found.append(made)
        self.mirror.apply("podgroups", added(group("g", len(found))))
        for made in found:
            self.mirror.apply("pods", added(made))
        return found

    def decided(self) -> dict[str, str] | None:
        """Where each member goes; None: the gang waits."""
        plan = decide(self.mirror.snapshot(), Policy(), 0.0)
        for admission in plan.admissions:
            assert not admission.evictions
            return {key: str(place.node) for key, place in admission.members.items()}
        return None

    def accepts(self, places: dict[str, str]) -> bool:
        """Whether a scheduler lets all in, in some order."""
        return any(
            self._in_order([(member, places[f"w/{self.members.index(member)}"]) for member in order])
            for order in permutations(self.members)
        )

    def _in_order(self, steps: list[tuple[Json, str]]) -> bool:
        there = list(self.kube.there)
        for member, where in steps:
            if not Kube(self.kube.nodes, SPACES, there).takes(member, where):
                return False
            there.append((member, where))
        return True

    def somewhere(self) -> dict[str, str] | None:
        """Any places for all of them that a scheduler would come to, in any order."""
        return next(self._search(self.members, list(self.kube.there), dict(self.free), {}), None)

    def _search(
        self, left: list[Json], there: list[tuple[Json, str]], free: dict[str, int], found: dict[str, str]
    ) -> Iterator[dict[str, str]]:
        if not left:
            yield found
        now = Kube(self.kube.nodes, SPACES, there)
        for member in left:
            for name in sorted(free):
                if free[name] and now.takes(member, name):
                    rest = [other for other in left if other is not member]
                    index = self.members.index(member)
                    less = {**free, name: free[name] - 1}
                    yield from self._search(
                        rest, [*there, (member, name)], less, {**found, f"w/{index}": name}
                    )


def _told(world: World) -> dict[str, Any]:
    return {
        "nodes": {name: one["metadata"]["labels"] for name, one in world.kube.nodes.items()},
        "there": [(one["metadata"]["labels"], one["spec"], where) for one, where in world.kube.there],
        "members": [(one["metadata"]["labels"], one["spec"]) for one in world.members],
        "free": world.free,
    }


def test_plans_are_what_a_scheduler_would_do() -> None:
    counts: Counter[str] = Counter()
    for seed in (*range(WORLDS // 2), *seeds.fresh(WORLDS // 2)):
        world = World(seed)
        places = world.decided()
        if places is not None:
            counts["placed"] += 1
            assert world.accepts(places), (seed, places, _told(world))
        else:
            counts["waits"] += 1
            better = world.somewhere()
            assert better is None, (seed, better, _told(world))
    assert min(counts["placed"], counts["waits"]) * 10 >= WORLDS, f"too few to prove anything: {counts}"
