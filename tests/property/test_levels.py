"""Levels of the network in random worlds: the fewest racks by brute force, and HyperNodes as labels."""

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import seeds
from unit.admission.build import TABLE, added, group, node, pod, queue
from unit.core import make
from unit.core.asked import ask
from vc_egpu.admission.state.mirror import Mirror
from vc_egpu.core.decide import decide
from vc_egpu.core.model.cluster import CardAsk, Gang, Node, Pod, PodShape
from vc_egpu.core.model.plan import Plan
from vc_egpu.core.model.policy import Policy
from vc_egpu.core.topology.network import Bound, Domain
from vc_egpu.volcano.words import names
from vc_egpu.volcano.words.annotations import ContainerRequest, Request

Json = dict[str, Any]
WORLDS = 1500 if os.environ.get("VC_EGPU_LONG") == "1" else 120
LEVELS = ("rack", "block", "zone")
WHOLE = PodShape(asks=(CardAsk("main", "h20", 1, make.H20_MIB, 100, whole=True),))
HALF = PodShape(asks=(CardAsk("main", "h20", 1, make.H20_MIB // 2, 50),))
PAIR = PodShape(asks=(CardAsk("main", "h20", 2, make.H20_MIB, 100, whole=True),))
CARD = Request(
    containers={"main": ContainerRequest(model="h20", cards=1, memory_mib=98304, cores_percent=100)}
).encode()


# --- the fewest racks ----------------------------------------------------------------------------


def _racks(rng: random.Random) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for rack in range(rng.randint(2, 4)):
        network = (Domain(1, f"rack {rack}"), Domain(2, "block"))
        sizes = [rng.randint(1, 3) for _ in range(rng.randint(1, 3))]
        found[f"rack {rack}"] = [
            replace(make.node(f"r{rack}-{number}", cards), network=network)
            for number, cards in enumerate(sizes)
        ]
    return found


def _members(rng: random.Random) -> list[Pod]:
    pods: list[Pod] = []
    for task, what in zip("abc", rng.sample((WHOLE, HALF, PAIR), rng.randint(1, 3)), strict=False):
        pods += make.pods("g", rng.randint(1, 4), what, task=task)
    return pods


def _fits(nodes: Sequence[Node], gang: Gang, members: Sequence[Pod]) -> bool:
    """Whether the gang starts where there are these nodes alone, which tell nothing of the network."""
    bare = [replace(each, network=()) for each in nodes]
    return bool(ask(make.snapshot(bare, [replace(gang, bound=None)], members)).admissions)


def test_a_gang_takes_as_few_racks_as_any_choice_of_racks_allows() -> None:
    counts: Counter[int] = Counter()
    for seed in (*range(WORLDS // 2), *seeds.fresh(WORLDS // 2)):
        rng = random.Random(seed)
        racks, members = _racks(rng), _members(rng)
        if len(members) < 2:
            continue
        gang = make.gang("g", least=len(members))
        fewest = next(
            (
                size
                for size in range(1, len(racks) + 1)
                if any(
                    _fits([each for name in chosen for each in racks[name]], gang, members)
                    for chosen in combinations(racks, size)
                )
            ),
            0,
        )
        nodes = [each for listed in racks.values() for each in listed]
        assert len(_used(nodes, ask(make.snapshot(nodes, [gang], members)))) == fewest, seed
        hard = ask(make.snapshot(nodes, [replace(gang, bound=Bound(1))], members))
        assert len(_used(nodes, hard)) == (1 if fewest == 1 else 0), seed
        counts[fewest] += 1
    assert min(counts[number] for number in (0, 1, 2)) * 20 >= WORLDS, f"too few to prove anything: {counts}"


def _used(nodes: Sequence[Node], plan: Plan) -> set[str]:
    of = {each.name: each.network[0].name for each in nodes}
    places = [place.node for admission in plan.admissions for place in admission.members.values()]
    return {of[name] for name in places if name is not None}


def test_subgroups_are_each_in_one_rack_or_none_starts() -> None:
    """Found places are right; a gang of equal subgroups is refused only where counting refuses it."""
    counts: Counter[bool] = Counter()
    for seed in (*range(WORLDS // 2), *seeds.fresh(WORLDS // 2)):
        rng = random.Random(seed)
        racks, size, groups = _racks(rng), rng.randint(1, 3), rng.randint(1, 4)
        nodes = [each for listed in racks.values() for each in listed]
        pods = [
            replace(one, subgroup=("p", str(at // size)))
            for at, one in enumerate(make.pods("g", size * groups, WHOLE))
        ]
        gang = make.gang("g", least=len(pods), subgroups={"p": Bound(1)})
        plan = ask(make.snapshot(nodes, [gang], pods))
        room = sum(sum(len(each.cards) for each in listed) // size for listed in racks.values())
        assert bool(plan.admissions) is (room >= groups), seed
        counts[bool(plan.admissions)] += 1
        of = {each.name: each.network[0].name for each in nodes}
        for admission in plan.admissions:
            where = {
                (int(key[2:]) // size, of[place.node])
                for key, place in admission.members.items()
                if place.node
            }
            assert len(where) == groups, seed
    assert min(counts.values()) * 20 >= WORLDS, f"too few to prove anything: {counts}"


# --- HyperNodes and labels -----------------------------------------------------------------------


class Labelled:
    """Nodes with labels of some levels, and the HyperNodes that say the same."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.nodes = [node(f"n{at}", cards=rng.randint(1, 3)) for at in range(rng.randint(3, 7))]
        for each in self.nodes:
            for key, values in zip(LEVELS, ("xyz", "pq", "ab"), strict=True):
                if rng.random() < 0.9:
                    each["metadata"]["labels"][key] = rng.choice(values)

    def hypernodes(self) -> Iterator[Json]:
        """In any order: members by name, by pattern or by labels; racks below blocks below zones."""
        below: dict[str, dict[str, Json]] = {}
        tiers: dict[str, int] = {}
        for each in self.nodes:
            path, child = self._path(each["metadata"]["labels"]), ""
            for tier, name in path:
                tiers[name] = tier
                member = self._node(each) if not child else _hyper(child)
                below.setdefault(name, {})[child or str(each["metadata"]["name"])] = member
                child = name
        listed = [*below.items()]
        self.rng.shuffle(listed)
        for name, members in listed:
            spec = {"tier": tiers[name], "tierName": LEVELS[tiers[name] - 1], "members": [*members.values()]}
            yield {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec}

    @staticmethod
    def _path(labels: Json) -> list[tuple[int, str]]:
        """The domains of a node, the nearest first; a name has all that are above it."""
        found: list[tuple[int, str]] = []
        above = "h"
        for tier, key in reversed([*enumerate(LEVELS, 1)]):
            if labels.get(key):
                above += f"-{key}{labels[key]}"
                found.append((tier, above))
        return found[::-1]

    def _node(self, each: Json) -> Json:
        name = str(each["metadata"]["name"])
        selector: Json = self.rng.choice(
            (
                {"exactMatch": {"name": name}},
                {"regexMatch": {"pattern": f"^{name}$"}},
                {"labelMatch": {"matchLabels": {"kubernetes.io/hostname": name}}},
            )
        )
        return {"type": "Node", "selector": selector}


def _hyper(name: str) -> Json:
    return {"type": "HyperNode", "selector": {"exactMatch": {"name": name}}}


def test_hypernodes_and_labels_give_equal_plans() -> None:
    counts: Counter[str] = Counter()
    for seed in (*range(WORLDS), *seeds.fresh(WORLDS)):
        rng = random.Random(seed)
        world = Labelled(rng)
        topology = rng.choice(
            (
                None,
                {"mode": "soft"},
                *({"mode": "hard", "highestTierAllowed": tier} for tier in (1, 2, 3)),
                *({"highestTierName": name} for name in LEVELS),
            )
        )
        members = rng.randint(2, 6)
        by_labels = _decided(world, topology, members, Mirror(TABLE, LEVELS), [])
        by_hypernodes = _decided(world, topology, members, Mirror(TABLE), [*world.hypernodes()])
        assert by_labels == by_hypernodes, (seed, topology)
        counts["placed" if by_labels else "waits"] += 1
    assert min(counts["placed"], counts["waits"]) * 10 >= WORLDS, f"too few to prove anything: {counts}"


def _decided(
    world: Labelled, topology: Json | None, members: int, mirror: Mirror, hypernodes: Sequence[Json]
) -> dict[str, str]:
    """Where each member goes; empty: the gang waits."""
    for one in hypernodes:
        mirror.apply("hypernodes", added(one))
    for each in world.nodes:
        mirror.apply("nodes", added(each))
    mirror.apply("queues", added(queue()))
    made = group(members=members)
    if topology is not None:
        made["spec"]["networkTopology"] = topology
    mirror.apply("podgroups", added(made))
    for index in range(members):
        mirror.apply("pods", added(pod(f"g-w-{index}", index=index, annotations={names.REQUEST: CARD})))
    mirror.settle_all()
    assert not mirror.inventory.network.problems
    plan = decide(mirror.snapshot(), Policy(), 0.0)
    return {
        key: f"{place.node} {[share.card for _, share in place.shares]}"
        for admission in plan.admissions
        for key, place in admission.members.items()
    }
