"""What the door's tests share as fixtures; values: ``world.py``, ``pod_reviews.py``, ``job_reviews.py``."""

import pytest


@pytest.fixture
def looked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words for which something near was looked for; nothing is found."""
    looked: list[str] = []

    def near(word: str, *_: object, **__: object) -> list[str]:
        looked.append(word)
        return []

    monkeypatch.setattr("difflib.get_close_matches", near)
    return looked
