"""What the soak of the decision counts, and how it is told."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Tally:
    """What is reported."""

    decisions: int = 0
    reviews: int = 0
    violations: list[str] = field(default_factory=list)
    wait_ratios: list[float] = field(default_factory=list)
    evictions: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    choices: Counter[str] = field(default_factory=Counter)
    """Gangs that take any of both models: how many started with each."""
    nodes: Counter[str] = field(default_factory=Counter)
    """Nodes that were tainted, opened again, removed by the autoscaler, and brought back."""
    most_evictions: int = 0


def jain(shares: list[float]) -> float:
    """1 where all are equal, 1/n where one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def figures(lives: list[dict[str, Any]], took_s: float) -> dict[str, Any]:
    """What is printed. Of shares the worst life counts, of all else the lives together."""
    tallies: list[Tally] = [life["tally"] for life in lives]
    violations = [violation for tally in tallies for violation in tally.violations]
    ratios = sorted(ratio for tally in tallies for ratio in tally.wait_ratios) or [0.0]
    decisions = sum(tally.decisions for tally in tallies)
    evictions = sum((tally.evictions for tally in tallies), Counter[str]())
    return {
        "decisions": decisions,
        "reviews": sum(tally.reviews for tally in tallies),
        "violations": len(violations),
        "first_violations": violations[:5],
        "jain_dominant_share": round(min(life["jain"] for life in lives), 4),
        "longest_wait_ratio": round(ratios[int(0.99 * (len(ratios) - 1))], 2),
        "evictions_by_cause": dict(sorted(evictions.items())),
        "moves": dict(sum((tally.moves for tally in tallies), Counter[str]())),
        "nodes": dict(+sum((tally.nodes for tally in tallies), Counter[str]())),
        "choices": dict(sum((tally.choices for tally in tallies), Counter[str]())),
        "evictions_per_gang_max": max(tally.most_evictions for tally in tallies),
        "gangs": sum(life["gangs"] for life in lives),
        "virtual_hours": round(sum(life["virtual_hours"] for life in lives), 1),
        "seconds": round(took_s, 1),
        "decisions_per_s": round(decisions / took_s, 1),
        "decisions_per_cpu_s": round(decisions / sum(life["cpu_s"] for life in lives), 1),
    }
