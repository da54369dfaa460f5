"""DuckDB: one database in a folder of its own, bounded in memory, and rows of Python put into it.

DuckDB comes with the extra ``report``. It is imported here alone, and late: nothing else needs it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vc_egpu.usage.table.columns import Column

if TYPE_CHECKING:
    import duckdb

MEMORY_MIB: Final = 600
THREADS: Final = 2
_KINDS: Final = ("TABLE", "VIEW")
_MISSING: Final = "reports need DuckDB: pip install 'vc-egpu[report]'"


class DatabaseMissing(Exception):  # noqa: N818 - says what is missing
    """The extra ``report`` is not installed."""


@dataclass(frozen=True, slots=True)
class Database:
    """A connection to DuckDB. Names of tables and columns are ours; values go in as parameters only."""

    connection: "duckdb.DuckDBPyConnection"

    def run(self, sql: str, values: Sequence[object] | Mapping[str, object] = ()) -> None:
        """Run one statement."""
        self.connection.execute(sql, values)

    def script(self, name: str) -> None:
        """Make the tables and views of a file of ``vc_egpu/usage/sql``."""
        for kind, table, query in queries(name):
            self.run(f"CREATE OR REPLACE {kind} {table} AS {query}")

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[dict[str, Any]]:
        """What a query answers, by column."""
        cursor = self.connection.execute(sql, values)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def one(self, sql: str, values: Sequence[object] = ()) -> dict[str, Any]:
        """The only row of a query."""
        (row,) = self.rows(sql, values)
        return row

    def fill(self, table: str, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> None:
        """Make a table of these rows. A column that a row lacks is empty."""
        shape = ", ".join(f'"{column.name}" {column.type}' for column in columns)
        self.run(f"CREATE OR REPLACE TABLE {table} ({shape})")
        if not rows:
            return
        arrays = {column.name: _array(column, [row.get(column.name) for row in rows]) for column in columns}
        names = ", ".join(f'"{column.name}"' for column in columns)
        self.connection.register("rows_of_python", arrays)
        self.run(f"INSERT INTO {table} SELECT {names} FROM rows_of_python")  # noqa: S608 - names of ours
        self.connection.unregister("rows_of_python")

    def write_parquet(self, query: str, path: Path) -> None:
        """Write what a query answers to a file of Parquet."""
        self.run(f"COPY ({query}) TO {quoted(str(path))} (FORMAT parquet, COMPRESSION snappy)")

    def write_csv(self, query: str, path: Path) -> None:
        """Write what a query answers to a file of CSV with a head line."""
        self.run(f"COPY ({query}) TO {quoted(str(path))} (FORMAT csv, HEADER)")


@contextmanager
def database(memory_mib: int = MEMORY_MIB, threads: int = THREADS) -> Iterator[Database]:
    """An empty database. What does not fit into memory goes to a folder that is removed at the end."""
    try:
        import duckdb
    except ImportError:
        raise DatabaseMissing(_MISSING) from None
    with TemporaryDirectory(prefix="vc-egpu-report-") as folder:
        settings: dict[str, Any] = {
            "memory_limit": f"{memory_mib}MiB",
            "threads": threads,
            "temp_directory": folder,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        connection = duckdb.connect(str(Path(folder) / "report.duckdb"), config=settings)
        try:
            yield Database(connection)
        finally:
            connection.close()


def queries(name: str) -> list[tuple[str, str, str]]:
    """The blocks of a file of ``vc_egpu/usage/sql``: ``TABLE`` or ``VIEW``, what it is called, its query.

    A view is what one other block reads: it is not written anywhere.
    """
    text = resources.files("vc_egpu.usage").joinpath("sql", name).read_text()
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        kind, _, rest = line.removeprefix("-- ").partition(" ")
        if line.startswith("-- ") and kind in _KINDS:
            found.append((kind, rest.partition(":")[0].strip(), []))
        elif found and not line.lstrip().startswith("--"):
            found[-1][2].append(line)
    return [(kind, called, "\n".join(lines).strip().removesuffix(";")) for kind, called, lines in found]


def quoted(text: str) -> str:
    """A text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _array(column: Column, values: Iterable[Any]) -> Any:
    listed = list(values)
    match column.type:
        case "VARCHAR":
            return np.array([None if value is None else str(value) for value in listed], dtype=object)
        case "TIMESTAMP":
            return np.array([_moment(value) for value in listed], dtype="datetime64[us]")
        case "BIGINT":
            return np.array([0 if value is None else int(value) for value in listed], dtype=np.int64)
        case _:
            holes = [value is None for value in listed]
            numbers = [0.0 if value is None else float(value) for value in listed]
            return np.ma.masked_array(np.array(numbers, dtype=np.float64), mask=holes)


def _moment(value: datetime) -> np.datetime64:
    return np.datetime64(value.replace(tzinfo=None), "us")
