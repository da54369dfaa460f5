"""How long to wait before trying again: doubling, bounded, with jitter against marching in step."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Delays of ``first_s``, doubled up to ``most_s``, each shortened by up to a third at random."""

    first_s: float = 0.2
    most_s: float = 10.0
    failures: int = 0
    _random: random.Random = field(default_factory=random.Random, repr=False)

    def next_s(self) -> float:
        """Count a failure and say how long to wait, in seconds."""
        delay_s = min(self.most_s, self.first_s * float(1 << min(self.failures, 30)))
        self.failures += 1
        return delay_s * (1.0 - self._random.random() / 3.0)

    def reset(self) -> None:
        """A success: the next delay is the first one again."""
        self.failures = 0
