"""FGD as its paper has it, once more: plain loops over nodes, no code of ours. Slow and easy to read."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Row = Mapping[str, str]
Class = tuple[int, int, int, str]
"""cpu in milli, thousandths of a card, cards, models."""


def class_of(pod: Row) -> Class:
    models = "|".join(sorted({*(pod.get("gpu_spec") or "").split("|")}))  # some name one twice
    return int(pod["cpu_milli"]), int(pod["gpu_milli"]), int(pod["num_gpu"]), models


def typical(pods: Sequence[Row]) -> list[tuple[Class, float]]:
    """The most frequent classes that make up 95 % of all pods, with their parts of these."""
    found: list[tuple[Class, int]] = []
    for entry in Counter(map(class_of, pods)).most_common():
        if sum(count for _, count in found) >= 0.95 * len(pods):
            break
        found.append(entry)
    total = sum(count for _, count in found)
    return [(kind, count / total) for kind, count in found]


@dataclass
class Machine:
    model: str
    cpu: int
    memory: int
    cards: list[int]


@dataclass
class Published:
    classes: list[tuple[Class, float]]
    machines: list[Machine]
    known: dict[object, float] = field(default_factory=dict)

    def fragment(self, machine: Machine, cpu: int, cards: Sequence[int]) -> float:
        key = (machine.model, cpu, tuple(sorted(cards)))
        if key not in self.known:
            total, found = sum(cards), 0.0
            for (asks_cpu, milli, count, models), part in self.classes:
                allowed = not models or machine.model in models.split("|")
                fits = allowed and cpu >= asks_cpu and sum(card >= milli for card in cards) >= count > 0
                found += part * (sum(card for card in cards if card < milli) if fits else total)
            self.known[key] = found
        return self.known[key]

    def place(self, pod: Row) -> tuple[int, tuple[int, ...]] | None:
        """The machine and the cards that the pod gets, which it then holds."""
        cpu, milli, count, models = class_of(pod)
        best: tuple[int, int, tuple[int, ...]] | None = None
        for number, machine in enumerate(self.machines):
            fits = [card for card, free in enumerate(machine.cards) if free >= milli]
            allowed = not models or machine.model in models.split("|")
            enough = machine.cpu >= cpu and machine.memory >= int(pod["memory_mib"])
            if not allowed or not enough or len(fits) < count:
                continue
            share = count == 1 and milli < 1000
            for chosen in [(card,) for card in fits] if share else [tuple(fits[:count])]:
                left = [free - milli * (card in chosen) for card, free in enumerate(machine.cards)]
                less = self.fragment(machine, machine.cpu, machine.cards)
                less -= self.fragment(machine, machine.cpu - cpu, left)
                score = int(100 / (1 + math.exp(-less / 1000)))
                if best is None or score > best[0]:
                    best = (score, number, chosen)
        if best is None:
            return None
        _, number, chosen = best
        machine = self.machines[number]
        machine.cpu -= cpu
        machine.memory -= int(pod["memory_mib"])
        for card in chosen:
            machine.cards[card] -= milli
        return number, chosen
