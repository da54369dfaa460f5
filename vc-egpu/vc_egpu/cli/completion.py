"""Completion of the command line in shells: which words may come next, and the scripts that ask for them.

The words come from the parser itself, so a new flag needs nothing here. kubectl asks plugins too, by a
program ``kubectl_complete-egpu`` on the PATH; an installation has it.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from vc_egpu.cli.parser import parser

ASKED: Final = "__complete"
"""The word before a line that is to be completed."""
NO_FILES: Final = ":4"
"""What kubectl reads as: these words and no names of files."""
FILES: Final = ":0"
"""Names of files will do as well."""
_TAKES_FILES: Final = frozenset(
    {"--clusters", "--file", "--into", "--kubeconfig", "--models", "--save", "--snapshot", "--token-file"}
)

SCRIPTS: Final = {
    "bash": """\
# kubectl egpu: source this, or put it into /etc/bash_completion.d. kubectl's own completion asks by itself.
_kubectl_egpu() {
    local IFS=$'\\n'
    COMPREPLY=($(kubectl-egpu __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | grep -v '^:'))
}
complete -o default -F _kubectl_egpu kubectl-egpu
""",
    "zsh": """\
#compdef kubectl-egpu
# kubectl egpu: put this as _kubectl-egpu into a folder of $fpath. kubectl's own completion asks by itself.
_kubectl_egpu() {
    local -a found
    found=(${(f)"$(kubectl-egpu __complete "${words[@]:1:$CURRENT-1}" 2>/dev/null | grep -v '^:')"})
    compadd -a found || _files
}
compdef _kubectl_egpu kubectl-egpu
""",
    "fish": """\
# kubectl egpu: put this as kubectl-egpu.fish into ~/.config/fish/completions.
function __kubectl_egpu
    set -l line (commandline -opc) (commandline -ct)
    kubectl-egpu __complete $line[2..-1] 2>/dev/null | string match -v ':*'
end
complete -c kubectl-egpu -f -a '(__kubectl_egpu)'
""",
}
"""By shell."""


def words(line: Sequence[str]) -> tuple[list[str], bool]:
    """What the last word of the line may become, and whether a name of a file will do. ``line`` is what
    stands behind ``kubectl egpu``, with an empty word at its end where a new one begins."""
    *before, begun = line or [""]
    place, waiting = parser(), None
    for word in before:
        if waiting is not None:
            waiting = None
        elif word.startswith("-"):
            waiting = _taking_a_value(place, word)
        else:
            place = _commands(place).get(word, place)
    if waiting is not None:
        choices = [str(choice) for choice in waiting.choices or ()]
        takes_file = not _TAKES_FILES.isdisjoint(waiting.option_strings)
        return [choice for choice in choices if choice.startswith(begun)], takes_file
    found = _flags(place) if begun.startswith("-") else [*_commands(place), *_fixed(place)]
    return sorted({word for word in found if word.startswith(begun)}), False


def main(argv: Sequence[str] | None = None) -> int:
    """As kubectl asks: a word on each line, then what else will do."""
    found, takes_file = words(list(sys.argv[1:] if argv is None else argv))
    print("\n".join([*found, FILES if takes_file else NO_FILES]))
    return 0


# argparse tells nobody what it knows but by these attributes.


def _actions(place: argparse.ArgumentParser) -> list[argparse.Action]:
    return list(place._actions)


def _commands(place: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The commands of a parser; empty for one that has none."""
    for action in _actions(place):
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _flags(place: argparse.ArgumentParser) -> Iterator[str]:
    for action in _actions(place):
        if action.help != argparse.SUPPRESS:
            yield from action.option_strings


def _fixed(place: argparse.ArgumentParser) -> Iterator[str]:
    """Words of which an argument must be one."""
    for action in _actions(place):
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction):
            yield from (str(choice) for choice in action.choices or ())


def _taking_a_value(place: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The flag, if its value is the next word."""
    for action in _actions(place):
        if word in action.option_strings and action.nargs != 0:
            return action
    return None
