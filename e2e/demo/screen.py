"""What the demo prints: headings, facts with a tick, and the table of cards after each step."""

import sys
import time

from rich.console import Console

_WIDTH = 118


class Screen:
    """Prints the story; ``fact`` is only called for what was checked."""

    def __init__(self) -> None:
        self._console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
        self._started = time.monotonic()

    def step(self, letter: str, text: str) -> None:
        """Begin a step."""
        at_s = time.monotonic() - self._started
        self._console.print(f"\n[bold]({letter}) {text}[/bold]  [dim]{at_s:.0f} s[/dim]")

    def progress(self, text: str) -> None:
        """Something long is under way."""
        self._console.print(f"[dim]{time.monotonic() - self._started:5.1f} s[/dim]  {text}")

    def fact(self, text: str) -> None:
        """Something that was seen to be so."""
        self._console.print("  [green]✓[/green] ", end="")
        self._console.print(text, markup=False, soft_wrap=True)

    def plain(self, text: str) -> None:
        """Text as it is, indented."""
        for line in text.rstrip().splitlines():
            self._console.print(f"    {line}", markup=False, soft_wrap=True)

    def end(self, text: str) -> None:
        """The last word."""
        self._console.print(f"\n[bold green]{text}[/bold green] ({time.monotonic() - self._started:.0f} s)")

    def failure(self, text: str) -> None:
        """What did not happen."""
        self._console.print("\n[bold red]✗ the demo failed[/bold red]")
        self._console.print(text, markup=False, soft_wrap=True)
