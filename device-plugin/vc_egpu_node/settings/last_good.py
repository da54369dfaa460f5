"""Settings that people edit: node policy and model table, of which the last good text holds.

A file that turns bad must cost no node its agent. With one typo a roll-out would end agent after agent, and
a node without an agent starts nothing. Nor may a bad file weaken a policy. ``secondWall: kill`` must not
become ``report``, and a ratio below 1 must not become 1. So defaults never stand in for a file that cannot
be read. The last good text lies on the node as well, for the next agent. A node that never saw a good file
takes nothing new until it does. Its agent is not ready, so a roll-out stops there.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Generic, TypeVar

from vc_egpu.volcano.words.model_table import ModelTable
from vc_egpu.volcano.words.node_policy import Policy, check_policy, parse_policy

from vc_egpu_node.files import write_atomically
from vc_egpu_node.settings.config import Settings

log = logging.getLogger(__name__)
T = TypeVar("T")

FOLDER: Final = "last-good"
"""In the agent's state."""
MOST_CHARS: Final = 300
"""The longest sentence on what is wrong with a file: it stands in events and on the Node."""


class LastGood(Generic[T]):
    """One file, read again when it changes. One thread calls it; ``value`` and ``problem`` any may read."""

    def __init__(self, path: Path, kept: Path, parse: Callable[[str], T]) -> None:
        """``kept``: where the text lies on the node that was good last; ``parse`` raises ``ValueError``."""
        self.path = path
        self._kept = kept
        self._parse = parse
        self._text: str | None = None
        """As last judged, good or bad."""
        self._is_kept = False
        self.value: T | None = None
        """None: no good text was ever seen here."""
        self.problem = ""
        """What is wrong with the file as it is now; empty: it is in force."""
        self.refresh()
        if self.value is None:
            self._recall()

    def judge_again(self) -> None:
        """Something else that it depends on has changed: :meth:`refresh` judges the same text again."""
        self._text = None

    def refresh(self) -> bool:
        """Read the file again; whether something else is in force now."""
        before = self.value
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            self._text, self.problem = None, _short(error)
            return False
        if text != self._text:
            self._text, self._is_kept = text, False
            try:
                self.value, self.problem = self._parse(text), ""
            except (ValueError, RecursionError) as error:
                self.problem = _short(error)
        if not self.problem:
            self._keep(text)
        return self.value != before

    def _recall(self) -> None:
        """What the agent before this one kept."""
        try:
            self.value = self._parse(self._kept.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:  # another version's, perhaps
            log.error("%s, which was good once, is of no use either: %s", self._kept, _short(error))

    def _keep(self, text: str) -> None:
        """Tried at each look until it is written: a disk that is full now is not later."""
        if self._is_kept:
            return
        try:
            self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._kept.exists() or self._kept.read_bytes() != text.encode():
                write_atomically(self._kept, text, flush=True)
            self._is_kept = True
        except OSError as error:
            log.debug("%s is not kept on the node yet: %s", self.path, error)


class NodeSettings:
    """How this node offers its cards, and what cards there are."""

    def __init__(self, settings: Settings) -> None:
        folder, node = settings.state_dir / FOLDER, settings.node_name
        self._labels_kept = folder / "labels.json"
        self._labels = _labels_in(self._labels_kept)
        """As last heard of this node: they choose its pools. None: never heard."""
        self._models = LastGood(settings.models, folder / "models.yaml", ModelTable.from_yaml)
        self._policy = (
            LastGood(
                settings.policy, folder / "policy.yaml", lambda text: parse_policy(text, node, self._labels)
            )
            if settings.policy is not None
            else None
        )

    @property
    def policy(self) -> Policy:
        """In force. Where none is known the defaults, for what runs here already: see :attr:`unknown`."""
        known = self._policy.value if self._policy is not None else None
        return known or Policy()

    @property
    def table(self) -> ModelTable:
        """In force; where none is known an empty one."""
        return self._models.value or ModelTable()

    @property
    def policy_problem(self) -> str:
        """What is wrong with the policy file, and what holds instead; empty: it is in force."""
        return _said("policy file", self._policy) if self._policy is not None else ""

    @property
    def models_problem(self) -> str:
        """The same of the model table."""
        return _said("model table", self._models)

    @property
    def unknown(self) -> str:
        """Why this node may take nothing new: what it would go by was never good here."""
        return "; ".join(self._unknown())

    def _unknown(self) -> Iterator[str]:
        if self._policy is not None and self._policy.value is None:
            yield self.policy_problem
        if self._models.value is None:
            yield self.models_problem

    def refresh(self, labels: Mapping[str, str] | None = None) -> bool:
        """Read both again; whether the policy is another one now. ``labels``: of this node; None: not known
        now, and then those that were known last count."""
        self._models.refresh()
        if labels is not None and labels != self._labels:
            self._labels = dict(labels)
            self._keep_labels()
            if self._policy is not None:
                self._policy.judge_again()
        return self._policy is not None and self._policy.refresh()

    def _keep_labels(self) -> None:
        """For the next agent, which reads the policy before it hears of its node."""
        try:
            self._labels_kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._labels_kept, json.dumps(self._labels, sort_keys=True))
        except OSError as error:
            log.debug("the node's labels are not kept on the node: %s", error)


def _labels_in(path: Path) -> dict[str, str] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else None


def wrong_files(settings: Settings) -> Iterator[str]:
    """What is wrong with the files of all nodes: before they are brought to a cluster."""
    for path, parse in ((settings.models, ModelTable.from_yaml), (settings.policy, check_policy)):
        try:
            if path is not None:
                parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            yield f"{path}: {_short(error)}"


def _said(what: str, file: LastGood[T]) -> str:
    if not file.problem:
        return ""
    instead = (
        "nothing good is known on this node, which takes nothing new"
        if file.value is None
        else "the last good one holds"
    )
    return f"{what} {file.path}: {file.problem}; {instead}"


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."
