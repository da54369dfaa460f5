"""What leaves its queue anyway: pods that are told to go, on their way, or suspended.

They use nothing that a queue could give back, or could be left without.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from vc_egpu.core.model.cluster import Pod, PodUid, QueueName
from vc_egpu.core.trial.trial import Trial

Totals = dict[QueueName, dict[str, int]]
_NOTE: Final = "departures"


@dataclass(frozen=True, slots=True)
class Departures:
    """The pods, and what they count in their queues and in those above."""

    by_queue: Totals
    pods: Mapping[PodUid, None]

    def of(self, queue: QueueName) -> Mapping[str, int]:
        """What leaves this queue, by resource."""
        return self.by_queue.get(queue, {})


def moment(trial: Trial) -> int:
    """Changes when this decision tells more pods to go."""
    return len(trial.leaving) + len(trial.suspending)


def departures(trial: Trial) -> Departures:
    """They are found once per decision, and again after victims were chosen."""
    now = moment(trial)
    then, known = trial.notes.get(_NOTE, (-1, None))
    if then == now and isinstance(known, Departures):
        return known
    pods = trial.index.pods
    asleep = [uid for uid in trial.index.notable.suspended if pods[uid].suspend_ordered]
    gone = dict.fromkeys([*trial.leaving, *trial.suspending, *trial.index.notable.terminating, *asleep])
    by_queue: Totals = {}
    # What counts in no queue already is not taken off once more.
    add_use(trial, by_queue, (pods[uid] for uid in gone if trial.charge_of(uid) is not None))
    found = Departures(by_queue, gone)
    trial.notes[_NOTE] = (now, found)
    return found


def add_use(
    trial: Trial, totals: Totals, pods: Iterable[Pod], *, counted: Mapping[PodUid, None] = {}
) -> None:
    """Add what these pods count, by queue. Those ``counted`` already add zero, and still name their queue."""
    for pod in pods:
        gang = trial.index.gangs.get(pod.gang) if pod.gang is not None else None
        if gang is None:
            continue
        times = 0 if pod.uid in counted else 1
        amounts = trial.index.amounts_of(trial.index.shape_ids[pod.uid], pod.shape)
        for name in trial.chain(gang.queue):
            total = totals.setdefault(name, {})
            for resource, amount in amounts.items():
                total[resource] = total.get(resource, 0) + times * amount
