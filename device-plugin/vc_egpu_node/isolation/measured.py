"""Device time of containers by the driver's own count. Libraries hold it against what they charged. Pure."""

from collections.abc import Collection, Iterable
from typing import Final

from vc_egpu_node.containers.cdi import Grant

MOST_GAP_NS: Final = 3_000_000_000
"""After a longer pause it is not known what was used meanwhile."""


def measured(
    grants: Iterable[Grant],
    percents: Iterable[tuple[str, str, int]],
    untold: Collection[str],
    passed_ns: int,
) -> dict[str, dict[int, int]]:
    """Device time of the last ``passed_ns``, by container and index of its card.

    ``percents``: (container, card UUID, percent of the time in which a kernel of one process ran), a row for
    each process. Rows of a card that add up to more than 100 are scaled down. Cards in ``untold`` are left
    out.
    """
    on_card: dict[str, int] = {}
    of_container: dict[tuple[str, str], int] = {}
    for name, uuid, percent in percents:
        on_card[uuid] = on_card.get(uuid, 0) + percent
        of_container[name, uuid] = of_container.get((name, uuid), 0) + percent

    def of(name: str, uuid: str) -> int:
        return of_container.get((name, uuid), 0) * passed_ns // max(100, on_card.get(uuid, 0))

    return {
        grant.name: {
            index: of(grant.name, share.uuid)
            for index, share in enumerate(grant.shares)
            if share.uuid not in untold
        }
        for grant in grants
        if any(share.cores for share in grant.shares)
    }
