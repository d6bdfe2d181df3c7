"""Where node and edge tables come from: files, databases, queries and data frames.

Everything becomes a :class:`Table` of one DuckDB connection, with columns ``c0``, ``c1``, ... in
place of the user's names, so that no name of a file ever becomes SQL.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hoplite.errors import ConfigError, DatasetError, nearest_hint, some_of
from hoplite.files import open_regular

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

STEMS = ("nodes", "edges")
TEXT_SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
EXCEL_SUFFIXES = (".xlsx", ".xls", ".xlsb", ".ods")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", *JSON_SUFFIXES, *EXCEL_SUFFIXES)
SEPARATORS = ",;\t|"
MAX_COLUMNS = 10_000
MAX_LINE = 16 << 20  # bytes of a row of CSV, and of one where memory is limited
LIMITED_LINE = 2 << 20
VECTOR, MAX_GROUP, GROUP_SHARE = 2048, 122_880, 12  # rows; share of the memory for a group
PIECE = 1 << 20
MIN_MEMORY, THREAD_MEMORY = 64 * 10**6, 125 * 10**6  # bytes for DuckDB, in all and per thread
_QUERY = re.compile(r"\s*(select|with|from|values)\b", re.IGNORECASE)
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_POSTGRES = re.compile(r"postgres(ql)?://")


@dataclass(frozen=True)
class Table:
    """A relation with the columns ``c0``, ``c1``, ...

    Attributes
    ----------
    label : str
        What messages call it: a path, or a table of a database.
    sql : str
        What stands behind FROM.
    names, types : tuple of str
        The user's names of the columns, and DuckDB's types.
    spelled : bool
        Whether numbers and dates are written as text, as in CSV.
    comma : bool
        Whether such numbers may have a decimal comma.
    """

    label: str
    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    spelled: bool = False
    comma: bool = False

    def __post_init__(self) -> None:
        if len(self.names) > MAX_COLUMNS:
            raise DatasetError(
                f"{self.label} has {len(self.names):,} columns and at most {MAX_COLUMNS:,} are "
                "read; give so many numbers as one column of lists, in Parquet."
            )
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise DatasetError(
                f"{self.label} has several columns {min(repeated)!r}; rename all but one."
            )
        if any(not name.strip() for name in self.names):
            raise DatasetError(
                f"{self.label} has a column without a name; name it, or remove it if it only "
                "numbers rows."
            )

    def column(self, name: str) -> str:
        """The column's name in SQL."""
        return f"c{self.names.index(name)}"

    def type(self, name: str) -> str:
        """The column's type in DuckDB."""
        return self.types[self.names.index(name)]


class Workspace:
    """A DuckDB connection that holds the tables of one graph, within a memory limit.

    Parameters
    ----------
    scratch : path
        A folder for what does not fit into memory. The caller removes it.
    memory : int, optional
        Bytes that DuckDB may hold; most of the machine's memory if not given.
    """

    def __init__(self, scratch: str | os.PathLike[str], memory: int | None = None) -> None:
        import duckdb  # only now: most graphs are not tables

        self.scratch, self.Error = Path(scratch).resolve(), duckdb.Error
        config: dict[str, Any] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": str(self.scratch / "spilled"),
        }
        self.max_line = MAX_LINE if memory is None else LIMITED_LINE
        self._memory = None if memory is None else max(memory, MIN_MEMORY)
        if memory is not None:
            memory = max(memory, MIN_MEMORY)
            threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            config["memory_limit"] = f"{memory // 1000}KB"
            config["threads"] = max(1, min(threads, memory // THREAD_MEMORY))
        self.con: DuckDBPyConnection = duckdb.connect(":memory:", config=config)
        self.con.execute("SET TimeZone = 'UTC'")
        with contextlib.suppress(duckdb.Error):  # in a notebook without widgets there is none
            self.con.execute("SET enable_progress_bar = false")  # which goes to standard output
        self._count = 0

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, *_: object) -> None:
        self.con.close()

    def keep_on_disk(self, width: int) -> None:
        """Put tables from here on into a file; the widest of them has ``width`` columns.

        DuckDB collects groups of rows in memory, for each thread, before it writes them.
        """
        if self._memory is not None:
            rows = self._memory // GROUP_SHARE // (16 * max(width, 1))
            rows = max(1, min(rows // VECTOR, MAX_GROUP // VECTOR)) * VECTOR
            place = literal(str(self.scratch / "tables.duckdb"))
            self.rows(f"ATTACH {place} AS kept (ROW_GROUP_SIZE {rows})")
            self.rows("USE kept")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query; of a statement, nothing that matters."""
        return self.con.execute(sql, list(parameters)).fetchall()

    def one(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The only row of a query."""
        return self.rows(sql, parameters)[0]

    def arrays(self, sql: str) -> dict[str, Any]:
        """The columns of a query as NumPy arrays, masked where they have gaps."""
        return self.con.execute(sql).fetchnumpy()

    def name(self, stem: str) -> str:
        """A new name for a table, a view or a type."""
        self._count += 1
        return f"{stem}_{self._count}"

    def insert(self, table: str, columns: dict[str, Any]) -> None:
        """Add rows, given as NumPy arrays, to a table."""
        self.con.register("piece", columns)
        self.rows(f"INSERT INTO {table} ({', '.join(columns)}) SELECT * FROM piece")
        self.con.unregister("piece")

    def restrict(self, *folders: Path) -> None:
        """Allow no file but those in ``folders`` and the scratch folder from here on."""
        for folder in (*folders, self.scratch):
            allowed = str(folder.resolve()) + os.sep
            self.rows(
                "SET allowed_directories = list_append("
                f"current_setting('allowed_directories'), {literal(allowed)})"
            )
        self.rows("SET enable_external_access = false")

    def table(self, label: str, sql: str, **facts: Any) -> Table:
        """A :class:`Table` of the columns of ``sql``, what stands behind FROM."""
        names = facts.pop("names", None)
        found = self.rows(f"DESCRIBE SELECT * FROM {sql}")
        names = [row[0] for row in found] if names is None else list(names)
        kept = [i for i, name in enumerate(names) if not _PANDAS_INDEX.fullmatch(name)]
        every = ", ".join(f"c{i}" for i in range(len(found)))
        chosen = ", ".join(f"c{i} AS c{j}" for j, i in enumerate(kept))
        return Table(
            label,
            f"(SELECT {chosen or 'NULL'} FROM {sql} AS t({every}))",
            tuple(names[i] for i in kept),
            tuple(str(found[i][1]) for i in kept),
            **facts,
        )

    @contextlib.contextmanager
    def clear_errors(self, label: str) -> Iterator[None]:
        """Within the block, what DuckDB cannot read is a DatasetError of one sentence."""
        try:
            yield
        except self.Error as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            reason = "; ".join(lines[:3] if "CSV Error" in lines[0] else lines[:1])
            raise DatasetError(f"{label} cannot be read: {reason[:400].rstrip('.')}.") from error
        except (OSError, EOFError, UnicodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise DatasetError(f"{label} cannot be read: {reason.rstrip('.')}.") from error


def literal(text: str) -> str:
    """A text in SQL."""
    return "'" + text.replace("'", "''") + "'"


def quoted(name: str) -> str:
    """An identifier in SQL.

    >>> quoted('a"b; DROP TABLE x')
    '"a""b; DROP TABLE x"'
    """
    return '"' + name.replace('"', '""') + '"'


def is_query(text: str) -> bool:
    """Whether a user's text is a query, and not the name of a table or a file."""
    return _QUERY.match(text) is not None


# ---------------------------------------------------------------------------------- files


def suffix_of(path: Path) -> str:
    """The ending of a table's file, with ``.gz``; "" if it is none.

    >>> suffix_of(Path("a.b/nodes.csv.gz")), suffix_of(Path("notes.txt"))
    ('.csv.gz', '')
    """
    name = path.name.lower()
    return max((one for one in SUFFIXES if name.endswith(one)), key=len, default="")


def table_files(folder: Path, stem: str) -> list[Path]:
    """The files of ``folder`` that may be its table ``stem``."""
    found = [folder / f"{stem}{suffix}" for suffix in SUFFIXES]
    return [path for path in found if path.is_file()]


def other_tables(folder: Path) -> list[str]:
    """The names of the tables in ``folder`` that are neither nodes nor edges."""
    files = sorted(path for path in folder.iterdir() if suffix_of(path) and path.is_file())
    return [path.name for path in files if path.name.split(".")[0] not in STEMS]


def find_table(folder: Path, stem: str) -> Path:
    """The file of ``folder`` that is its table ``stem``; DatasetError unless there is one."""
    found = table_files(folder, stem)
    if not found:
        others = other_tables(folder) if folder.is_dir() else []
        rename = f", or name another (--{stem}): it has {some_of(others)}" if others else ""
        raise DatasetError(f"{folder} has no {stem}.csv or {stem}.parquet; add one{rename}.")
    if len(found) > 1:
        raise DatasetError(
            f"{folder} has both {found[0].name} and {found[1].name}; remove one, or name one "
            f"(--{stem}, {stem}= in Python)."
        )
    return found[0]


def csv_table(
    work: Workspace, path: Path, *, names: Sequence[str] = (), skip: int = 0, separator: str = ""
) -> Table:
    """A CSV file in any dialect: all cells are text, and what they mean is decided later.

    Commas, semicolons, tabs or bars separate, whichever the first line has most of; ``.gz`` is
    unpacked; bytes that are not UTF-8 are taken as Windows-1252 or Latin-1. With ``names`` the
    file has no header behind the ``skip`` lines at its top.
    """
    packed = path.name.lower().endswith(".gz")

    def opened() -> Any:
        return gzip.open(path, "rb") if packed else open_regular(path)

    place, encoding = path, _encoding(opened)
    if encoding != "utf-8":
        place, packed = work.scratch / f"{work.name('utf8')}.csv", False
        with opened() as raw, place.open("wb") as out:
            for text in codecs.iterdecode(iter(lambda: raw.read(PIECE), b""), encoding):
                out.write(text.encode())
    header = not names
    if header:
        with (
            gzip.open(place) if packed else place.open("rb") as raw,
            io.TextIOWrapper(raw, "utf-8-sig", newline="") as file,  # pyright: ignore[reportArgumentType]
        ):
            first = file.readline(MAX_LINE)
            bare = re.sub(r'"[^"]*("|$)', "", first)
            separator = separator or max(SEPARATORS, key=bare.count)
            csv.field_size_limit(MAX_LINE)
            lines = itertools.chain([first], file)
            names = next(csv.reader(lines, delimiter=separator), [])
    if not names:
        raise DatasetError(f"{path} cannot be read: it is empty.")
    columns = ", ".join(f"'c{i}': 'VARCHAR'" for i in range(len(names)))
    sql = (
        f"read_csv({literal(str(place.resolve()))}, columns = {{{columns}}}, auto_detect = false, "
        f"header = {str(header).lower()}, skip = {skip}, delim = {literal(separator)}, "
        "quote = '\"', escape = '\"', null_padding = false, "
        f"compression = '{'gzip' if packed else 'none'}', "
        f"max_line_size = {work.max_line}, buffer_size = {2 * work.max_line})"
    )
    types = ("VARCHAR",) * len(names)
    comma = separator in ";\t"
    return Table(str(path), sql, tuple(names), types, spelled=True, comma=comma)


def _encoding(opened: Callable[[], Any]) -> str:
    """UTF-8 if all bytes are, UTF-16 if the file says so, and otherwise Windows-1252 or Latin-1."""
    with opened() as file:
        if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
    for encoding in ("utf-8", "cp1252"):
        with opened() as file, contextlib.suppress(UnicodeDecodeError):
            for _ in codecs.iterdecode(iter(lambda: file.read(PIECE), b""), encoding):
                pass
            return encoding
    return "latin-1"


# ------------------------------------------------------------------------------ databases


def is_duckdb(path: Path) -> bool:
    """Whether a file is a DuckDB database, by its first bytes."""
    return _starts(path, b"DUCK", 8)


def is_sqlite(path: Path) -> bool:
    """Whether a file is a SQLite database, by its first bytes."""
    return _starts(path, b"SQLite format 3\0", 0)


def _starts(path: Path, magic: bytes, at: int) -> bool:
    try:
        with open_regular(path) as file:
            return file.read(at + len(magic))[at:] == magic
    except (OSError, ValueError):
        return False


def is_postgres(source: Any) -> bool:
    """Whether ``source`` is the address of a Postgres server, ``postgresql://...``."""
    return isinstance(source, str) and _POSTGRES.match(source) is not None


def is_database(source: Any) -> bool:
    """Whether ``source`` names a database or a workbook: tables, but no folder of files."""
    if not isinstance(source, str | os.PathLike):
        return False
    path = Path(source)
    book = suffix_of(path) in EXCEL_SUFFIXES and path.is_file()
    return is_postgres(source) or book or is_duckdb(path) or is_sqlite(path)


def is_tables(source: Any) -> bool:
    """Whether ``source`` names node and edge tables: a folder of files, or a database."""
    if is_database(source):
        return True
    if not isinstance(source, str | os.PathLike) or source == "":
        return False
    return any(table_files(Path(source), stem) for stem in STEMS)


def table_bytes(source: Any, names: Sequence[str] = ()) -> int:
    """About how many bytes the tables have as text; of a server's, more than any memory.

    ``names`` are files of a folder that are its tables instead.
    """
    if is_postgres(source):
        return 1 << 62
    path = Path(source)
    if path.is_file():
        return 3 * path.stat().st_size
    files = [file for stem in STEMS for file in table_files(path, stem)]
    files += [path / name for name in names if not is_query(name) and (path / name).is_file()]
    share = {".csv": 1, ".tsv": 1, ".jsonl": 1, ".ndjson": 1, ".json": 1}
    return sum(file.stat().st_size * share.get(suffix_of(file), 6) for file in files)


def find_name(
    label: str, option: str, name: str, listed: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """The schema and the name of a table that a user calls ``name`` or ``schema.name``."""
    for schema, table in listed:
        if name in (table, f"{schema}.{table}"):
            return schema, table
    there = [table for _, table in listed]
    raise DatasetError(
        f"{label} has no table {name!r} (it has {some_of(there) or 'none'}); name one, or give a "
        f"query (--{option}, {option}= in Python).{nearest_hint(name, there)}"
    )


def query_table(work: Workspace, label: str, query: str) -> Table:
    """What a user's query gives, held as a table: it is asked once."""
    with work.clear_errors(label):
        statements = work.con.extract_statements(query)
        if len(statements) != 1 or not str(statements[0].type).endswith("SELECT"):
            raise ConfigError(f"{label} is no single query; give one SELECT.")
        name = work.name("query")
        place = f"memory.main.{name}"
        work.rows(f"CREATE TABLE {place} AS {query.strip().rstrip(';')}")
        return work.table(label, place)


# --------------------------------------------------------------------------------- frames


def empty_table(label: str, columns: dict[str, str]) -> Table:
    """A table without rows, of columns with these names and types."""
    cells = ", ".join(f"NULL::{kind} AS c{i}" for i, kind in enumerate(columns.values()))
    sql = f"(SELECT {cells} WHERE false)"
    return Table(label, sql, tuple(columns), tuple(columns.values()))


def frame_table(work: Workspace, frame: Any, label: str, **facts: Any) -> Table:
    """A table of pandas, Polars, Arrow, or a dictionary of NumPy arrays."""
    names = getattr(frame, "column_names", None)  # of Arrow, whose columns are arrays
    names = [str(name) for name in (getattr(frame, "columns", frame) if names is None else names)]
    name = work.name("frame")
    if hasattr(frame, "combine_chunks"):
        frame = _readable(frame)
    with work.clear_errors(label):
        work.con.register(name, frame)
        return work.table(label, name, names=names, **facts)


def _readable(table: Any) -> Any:
    """A table of Arrow without what DuckDB fails at: float16, and gaps in durations of pandas."""
    import pyarrow as pa

    def kind_of(kind: Any) -> Any:
        if pa.types.is_float16(kind):
            return pa.float32()
        if pa.types.is_duration(kind):
            return pa.duration("us")
        lists = pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)
        return pa.list_(kind_of(kind.value_type)) if lists else kind

    for i, field in enumerate(table.schema):
        if (kind := kind_of(field.type)) != field.type:
            cells = table.column(i).cast(kind, safe=str(field.type) != "duration[ns]")
            table = table.set_column(i, field.name, cells)
    return table
