"""All boards, and their files."""

import json
from typing import Final

from boards import card, cluster, job, tenant
from boards.panels import Board, document

BOARDS: Final[tuple[Board, ...]] = (cluster.BOARD, tenant.BOARD, card.BOARD, job.BOARD)


def texts() -> dict[str, str]:
    """File name to content."""
    return {
        f"{board.uid.removeprefix('vc-egpu-')}.json": json.dumps(document(board), indent=1) + "\n"
        for board in BOARDS
    }
