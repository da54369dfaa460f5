"""Variants of an openb trace: memory per share, and gangs. Neither is in the trace, so both are derived.

``memory``: a share asks for its part of a card's time, as the trace has it, and for memory apart from that.
The memory is the part of time times 0.5, 0.7, 1, 1.4 or 2, which the checksum of the pod's name says. It is
rounded to hundredths of a card, and a whole card is the most.

``gangs``: one in ten pods with cards leads a gang of 2, 4 or 8, which the seed says. Pods of its class that
would come later come with it: the next ones within :data:`WITHIN` arrivals, and of 32 cards in all. So the
same pods come, some of them earlier. A gang starts as a whole or is dropped as a whole.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final
from zlib import crc32

from vc_egpu.core.placing.learning import kind_of
from vc_egpu.sim.load import Work
from vc_egpu.sim.table import CARD_MILLI, PodRow

MEMORY: Final = "memory"
GANGS: Final = "gangs"
VARIANTS: Final = (MEMORY, GANGS)
FACTORS: Final = (0.5, 0.7, 1.0, 1.4, 2.0)
SIZES: Final = (2, 4, 8)
ONE_IN: Final = 10
WITHIN: Final = 500
_STEP_MILLI: Final = 10
_MOST_MILLI: Final = 32 * CARD_MILLI


def with_memory(pods: Iterable[PodRow]) -> list[PodRow]:
    """The pods, each share of them with memory of its own. Whole cards stay as they are."""
    return [_with_memory(pod) for pod in pods]


def _with_memory(pod: PodRow) -> PodRow:
    factor = FACTORS[crc32(pod.name.encode()) % len(FACTORS)]
    asks = []
    for ask in pod.shape.asks:
        if ask.whole:
            asks.append(ask)
            continue
        memory = round(ask.memory_mib * factor / _STEP_MILLI) * _STEP_MILLI
        cores = -(-ask.memory_mib // _STEP_MILLI)
        asks.append(replace(ask, memory_mib=min(CARD_MILLI, max(1, memory)), cores_percent=cores))
    return replace(pod, shape=replace(pod.shape, asks=tuple(asks)))


def in_gangs(works: Sequence[Work], seed: int) -> tuple[Work, ...]:
    """The works, each a single pod, with some of them together in gangs of alike members."""
    dice = random.Random(seed)  # noqa: S311 - a simulation
    kinds = [kind_of(work.shapes[0]) for work in works]
    later: dict[object, list[int]] = {}
    for number in reversed(range(len(works))):
        later.setdefault(kinds[number], []).append(number)
    found, gone = list[Work](), set[int]()
    for number, work in enumerate(works):
        if number in gone:
            continue
        alike = later[kinds[number]]
        while alike and alike[-1] <= number:
            alike.pop()
        if not work.gpu_milli or dice.randrange(ONE_IN):
            found.append(work)
            continue
        most = min(dice.choice(SIZES), max(1, _MOST_MILLI // work.gpu_milli))
        members = 1
        while members < most and alike and alike[-1] <= number + WITHIN:
            gone.add(alike.pop())
            members += 1
        found.append(_gang_of(work, members))
    return tuple(found)


def _gang_of(work: Work, members: int) -> Work:
    task, _, shape = work.tasks[0]
    return replace(work, tasks=((task, members, shape),), gpu_milli=work.gpu_milli * members)
