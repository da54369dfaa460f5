"""What newcomers ask, and one command and one look at the page that answer it on the tests' small cluster."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Answers:
    """``command``: behind `kubectl egpu`. ``view``: behind `#/` in the page's address."""

    command: str
    says: str
    view: str
    shows: str


QUESTIONS: Final = {
    "which pods have card 0 of n1": Answers("cards", "ml/train-0", "cards/n1/0", "ml/train-0"),
    "how full is that card": Answers("cards", "49152 of 98304", "cards/n1/0", "48 GiB / 96 GiB"),
    "which models are there, and how many cards": Answers("nodes", "h20        2", "cards/n1/0", "h20"),
    "which cards are broken, and why": Answers("cards", "ill: XID 79", "cards/n2/0", "XID 79"),
    "what does my queue use, what is its cap": Answers("queues", "1/4", "queues", "vgpu-h20"),
    "is my queue closed": Answers("queues", "Closed", "queues", "closed"),
    "why is my job waiting": Answers(
        "why big -n ml", "queue research uses 3 of 4", "waiting", "queue research uses 3 of 4"
    ),
    "since when": Answers("why big -n ml", "since 2026-01-01T00:00:10Z", "waiting", "ago"),
    "what waits in my namespace": Answers("why -n ml", "big", "waiting", "big"),
    "what took my cards": Answers(
        "history train -n ml", "it made room for web/chat", "decisions", "it made room for web/chat"
    ),
    "which of my pods share a card, and with whom": Answers(
        "cards -o wide", "web/chat-0", "cards/n1/0", "web/chat-0"
    ),
    "is everything well": Answers("doctor", "driver", "cards", "live"),
}
"""What idles is told by the past: ``test_the_idle_service_is_named_with_its_owner_and_since_when``."""
