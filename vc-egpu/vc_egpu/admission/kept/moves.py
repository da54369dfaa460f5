"""Moves of gangs that may be gone since: they count in the budget of an hour, and make others rest.

While a gang is there its PodGroup tells of its move. That goes with the gang, so the leader keeps the moves
of the last two hours here, too. A new leader enters those whose gangs it does not find.
"""

import json
from collections.abc import Mapping
from typing import Final

from vc_egpu.admission.kept.keeper import Form
from vc_egpu.core.books.index import MOST_GONE
from vc_egpu.core.model.cluster import Move
from vc_egpu.core.moving.pauses import FORGOTTEN_S
from vc_egpu.volcano.codec import gang_notes

KEPT_S: Final = FORGOTTEN_S
"""Older moves count for nothing but the gang itself."""
MOST: Final = MOST_GONE
_LONGEST_UID: Final = 253
_VERSION: Final = 1

Moves = Mapping[str, Move]
"""By UID of the PodGroup."""


def encode(moves: Moves) -> str:
    """The newest :data:`MOST` of them as text."""
    newest = sorted(moves.items(), key=lambda entry: entry[1].at)[-MOST:]
    told = {uid: json.loads(gang_notes.encode_move(move, uid, {})) for uid, move in newest}
    return json.dumps({"version": _VERSION, "moves": told}, separators=(",", ":"))


def decode(text: str) -> Moves:
    """The moves in a text, oldest first; entries that cannot be read are left out. Raises ``ValueError``."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    version = document.get("version") if isinstance(document, dict) else None
    told = document.get("moves") if isinstance(document, dict) else None
    if version != _VERSION or isinstance(version, bool) or not isinstance(told, dict):
        raise ValueError(f"it is no list of moves of version {_VERSION}")
    found = {
        uid: move.past
        for uid, value in told.items()
        if len(uid) <= _LONGEST_UID and (move := gang_notes.decode_move(json.dumps(value), uid, {}))
    }
    return dict(sorted(found.items(), key=lambda entry: entry[1].at)[-MOST:])


FORM: Final = Form[Moves](
    key="moves.json",
    encode=encode,
    decode=decode,
    every_s=5.0,
    nothing={},
    unread="moves of gangs that have ended count in no budget",
)
