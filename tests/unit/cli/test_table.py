"""Columns for people: aligned, whole, and nothing after the last word of a line."""

from rich.text import Text
from vc_egpu.cli.views import render
from vc_egpu.cli.views.table import Table


def printed(table: Table) -> list[str]:
    console = render.console()
    with console.capture() as captured:
        console.print(table)
    return captured.get().split("\n")


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_with_their_last_word() -> None:
    table = Table("NAME", "COUNT", "WHY", right=["COUNT"])
    table.add_row("a", "7", "x" * 300)
    table.add_row("much-longer", "12345", "")
    table.add_row("", "1", Text("low", style="cyan"))
    assert printed(table) == [
        "NAME         COUNT  WHY",
        "a                7  " + "x" * 300,
        "much-longer  12345",
        "                 1  low",
        "",
    ]


def test_cells_of_several_lines_keep_their_columns() -> None:
    table = Table("POD", "CARDS", "MESSAGE")
    table.add_row("a", "GPU-1\nGPU-2", "why")
    table.add_row("b", [Text("one", style="bold"), Text("→ two", style="dim")], "")
    assert printed(table) == [
        "POD  CARDS  MESSAGE",
        "a    GPU-1  why",
        "     GPU-2",
        "b    one",
        "     → two",
        "",
    ]


def test_wide_characters_count_twice() -> None:
    table = Table("A", "B")
    table.add_row("夢", "x")
    table.add_row("ab", "y")
    assert printed(table) == ["A   B", "夢  x", "ab  y", ""]


def test_without_names_of_columns_there_is_no_header() -> None:
    table = Table()
    table.add_row("ok", "webhook")
    assert printed(table) == ["ok  webhook", ""]
    assert printed(Table()) == [""]


def test_one_cell_that_somebody_made_endless_widens_no_other_row() -> None:
    """A tenant's PodGroup may name a queue of a megabyte: an admin's list of all that wait was gigabytes."""
    table = Table("GANG", "QUEUE", "REASON")
    table.add_row("ml/train", "q" * 100_000, "waits")
    for number in range(100):
        table.add_row(f"ml/{number}", "research", "waits")
    text = "\n".join(printed(table))
    assert "q" * 100_000 + "  waits" in text, "nothing is cut off"
    assert len(text) < 200_000
