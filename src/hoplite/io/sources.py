"""Sources of node and edge tables: files, databases, queries and data frames.

Everything becomes a :class:`Table` of one DuckDB connection, with columns ``c0``, ``c1``, ... in
place of the user's names, so that no name of a file ever becomes SQL. SQLite and Postgres come by
ADBC drivers and workbooks by python-calamine (extra ``databases``): DuckDB's own extensions for
these are downloaded at run time, and stay switched off.
"""

from __future__ import annotations

import base64
import codecs
import contextlib
import csv
import datetime
import gzip
import io
import itertools
import os
import re
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hoplite.errors import (
    ConfigError,
    DatasetError,
    HopliteError,
    first_line,
    nearest_hint,
    option_name,
    plural,
    require_extra,
    some_of,
)
from hoplite.files import open_regular
from hoplite.preparation import TableOptions

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
PIECE = 1 << 20  # bytes of text at a time
NUL_BYTES = 1 << 12  # at the start of a file, where text has no NUL
ARROW_DURATION = 18  # a type of Arrow's format
DURATIONS = {  # integers of Arrow's units, in their order there, in SQL
    "s": "to_seconds({})",
    "ms": "to_milliseconds({})",
    "us": "to_microseconds({})",
    "ns": "to_microseconds({} // 1000)",
}
SHEET_ROWS = 1 << 14  # rows of a workbook at a time
# Types of Python's objects that one column may have together.
FAMILIES = ((str,), (bool, np.bool_), (int, float, np.number), (list, tuple, np.ndarray))
MIN_MEMORY, THREAD_MEMORY = 64 * 10**6, 125 * 10**6  # bytes for DuckDB, in all and per thread
_QUERY = re.compile(r"\s*(select|with|from|values)\b", re.IGNORECASE)
_CELLS = re.compile(r"^Expected Number of Columns: (\d+) Found: (\d+)", re.MULTILINE)
_FILE_ERROR = re.compile(r'\\?": ([^"]+)')  # DuckDB's reason, after the name of a file
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_POSTGRES = re.compile(r"postgres(ql)?://")
_SQLITE_TABLES = (
    "SELECT 'main', name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
)
_POSTGRES_TABLES = (
    "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') "
    "ORDER BY table_schema <> current_schema(), table_schema, table_name"
)


@dataclass(frozen=True)
class Table:
    """A relation of DuckDB under the user's names of its columns.

    Attributes
    ----------
    label : str
        What messages call it: a path, or a table of a database.
    sql : str
        What stands behind FROM.
    columns, types : dict of str
        For each of the user's names, the column in SQL and its type in DuckDB.
    spelled : bool
        Whether numbers and dates are written as text, as in CSV.
    comma : bool
        Whether such numbers may have a decimal comma.
    """

    label: str
    sql: str
    columns: Mapping[str, str]
    types: Mapping[str, str]
    spelled: bool = False
    comma: bool = False

    @classmethod
    def of(
        cls, label: str, sql: str, names: Sequence[str], types: Sequence[str], **facts: Any
    ) -> Table:
        """A relation with the columns c0, c1, ...; DatasetError unless each has a name of its own.

        White space around names does not count. A column that only numbers the rows, as pandas
        writes it, is left out.
        """
        names = [name.strip() for name in names]
        indices = [i for i, name in enumerate(names) if not _PANDAS_INDEX.fullmatch(name)]
        if len(indices) > MAX_COLUMNS:
            raise DatasetError(
                f"{label} has {len(indices):,} columns, more than the maximum of {MAX_COLUMNS:,}; "
                "store that many numbers as one column of lists, in Parquet."
            )
        if not all(names):
            raise DatasetError(
                f"{label} has a column without a name; name it, remove it if it only contains row "
                "numbers, or remove a title above the names."
            )
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise DatasetError(
                f"{label} has several columns named {min(repeated)!r}; rename all but one."
            )
        columns = {names[i]: f"c{i}" for i in indices}
        return cls(label, sql, columns, {names[i]: types[i] for i in indices}, **facts)

    @property
    def names(self) -> list[str]:
        """The user's names of the columns."""
        return list(self.columns)

    def without(self, *names: str) -> Table:
        """The same table without some columns, whether it has them or not."""
        return replace(self, columns={n: c for n, c in self.columns.items() if n not in names})

    def renamed(self, old: str, new: str) -> Table:
        """The same table with the column ``old`` called ``new``, instead of any that was."""
        columns = {new if n == old else n: c for n, c in self.without(new).columns.items()}
        return replace(self, columns=columns, types={**self.types, new: self.types[old]})


class Workspace:
    """A DuckDB connection that holds the tables of one graph; a context manager.

    Parameters
    ----------
    memory : int, optional
        Bytes that DuckDB may hold; most of the machine's memory if not given.
    scratch : path, optional
        A folder for what does not fit into memory, which the caller removes; by default a temporary
        one.
    """

    def __init__(
        self, memory: int | None = None, scratch: str | os.PathLike[str] | None = None
    ) -> None:
        import duckdb  # only now: most graphs are not tables

        self._open, self.Error = contextlib.ExitStack(), duckdb.Error
        self.OutOfMemory = duckdb.OutOfMemoryException
        self._disk_errors = duckdb.IOException, duckdb.TransactionException, duckdb.FatalException
        if scratch is None:
            scratch = self._open.enter_context(
                tempfile.TemporaryDirectory(prefix="hoplite-", ignore_cleanup_errors=True)
            )
        self.scratch = Path(scratch).resolve()
        config: dict[str, Any] = {
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "temp_directory": str(self.scratch / "spilled"),
        }
        self.max_line = MAX_LINE if memory is None else LIMITED_LINE
        self.memory = None if memory is None else max(memory, MIN_MEMORY)
        if self.memory is not None:
            threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            config["memory_limit"] = f"{self.memory // 1000}KB"
            config["threads"] = max(1, min(threads, self.memory // THREAD_MEMORY))
        self.con: DuckDBPyConnection = duckdb.connect(":memory:", config=config)
        self._open.callback(self.con.close)
        self.con.execute("SET TimeZone = 'UTC'")
        with contextlib.suppress(duckdb.Error):  # fails in a notebook without widgets
            self.con.execute("SET enable_progress_bar = false")  # it would print to standard output
        self._count = 0

    def __enter__(self) -> Workspace:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._open.close()
        if self.memory is not None and isinstance(error, self.OutOfMemory):
            share = f"{self.memory / 1e6:.0f} MB"
            raise ConfigError(
                f"leaves {share} for reading the tables, which is not enough; "
                f"increase {option_name('memory')} by {share}.",
                "memory",
            ) from error
        if isinstance(error, self._disk_errors):  # of the user's files, clear_errors has others
            reason = _FILE_ERROR.search(str(error))
            raise HopliteError(
                f"cannot write temporary files in {self.scratch.parent}: "
                f"{reason[1] if reason else first_line(error)}."
            ) from error

    def keep_on_disk(self, width: int) -> None:
        """Put tables from here on into a file; a row of the widest has ``width`` values.

        DuckDB collects groups of rows in memory, for each thread, before it writes them.
        """
        if self.memory is not None:
            rows = self.memory // GROUP_SHARE // (16 * max(width, 1))
            rows = max(1, min(rows // VECTOR, MAX_GROUP // VECTOR)) * VECTOR
            place = literal(str(self.scratch / "tables.duckdb"))
            self.rows(f"ATTACH {place} AS kept (ROW_GROUP_SIZE {rows})")
            self.rows("USE kept")

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.con.execute(sql, list(parameters)).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
        """The only row of a query."""
        return self.rows(sql, parameters)[0]

    def arrays(self, sql: str) -> dict[str, Any]:
        """The columns of a query as NumPy arrays, masked where they have gaps."""
        return self.con.execute(sql).fetchnumpy()

    def texts(self, sql: str) -> dict[str, np.ndarray]:
        """The columns of a query as arrays of objects, None for gaps."""
        texts = {}
        for name, column in self.arrays(sql).items():
            texts[name] = np.array(np.ma.getdata(column), object)
            texts[name][np.ma.getmaskarray(column)] = None
        return texts

    def name(self, stem: str) -> str:
        """A new name for a table or a view."""
        self._count += 1
        return f"{stem}_{self._count}"

    def insert(self, table: str, columns: Mapping[str, Any]) -> None:
        """Add rows, given as NumPy arrays, to a table."""
        self.con.register("piece", dict(columns))
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

    def table(
        self, label: str, sql: str, names: Sequence[str] | None = None, **facts: Any
    ) -> Table:
        """A :class:`Table` of ``sql``, what stands behind FROM; its own ``names`` if not given."""
        described = self.rows(f"DESCRIBE SELECT * FROM {sql}")
        names = [row[0] for row in described] if names is None else names
        columns = ", ".join(f"c{i}" for i in range(len(described)))
        rows = f"(SELECT * FROM {sql} AS t({columns}))"
        return Table.of(label, rows, names, [str(row[1]) for row in described], **facts)

    @contextlib.contextmanager
    def clear_errors(self, label: str) -> Iterator[None]:
        """Within the block, what cannot be read is a DatasetError of one sentence."""
        try:
            yield
        except (self.Error, OSError, EOFError, UnicodeError, csv.Error) as error:
            short = self.memory is not None and isinstance(error, self.OutOfMemory)
            ours = isinstance(error, self._disk_errors) and str(self.scratch) in str(error)
            if short or ours:
                raise  # see __exit__
            text = getattr(error, "strerror", None) or str(error)
            lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
            reason = _csv_reason(text) if "CSV Error" in lines[0] else lines[0]
            raise DatasetError(f"{label} cannot be read: {reason[:400].rstrip('.')}.") from error


def _csv_reason(text: str) -> str:
    """What is wrong with which line of a CSV file, from DuckDB's message."""
    line = text.partition("Line: ")[2].partition("\n")[0]
    if "unterminated quote" in text:
        return f"line {line} has a quote that is never closed; add or remove a quote"
    if counts := _CELLS.search(text):
        expected, cells = map(int, counts.groups())
        if cells < expected:
            return f"line {line} has {plural(cells, 'cell')} instead of {expected}; correct it"
        return (  # DuckDB counts no further
            f"line {line} has at least {plural(cells, 'cell')} instead of {expected}; correct it, "
            "or write a cell that contains the separator in quotes"
            + "; if line 1 is a title above the header, remove it"
            * (line == "2")
        )
    return "; ".join(text.splitlines()[:3])


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


# ------------------------------------------------------------------- types of sources


def suffix_of(path: Path) -> str:
    """The ending of a table's file, with ``.gz``; "" if it has none of :data:`SUFFIXES`.

    >>> suffix_of(Path("a.b/nodes.csv.gz")), suffix_of(Path("notes.txt"))
    ('.csv.gz', '')
    """
    name = path.name.lower()
    return max((suffix for suffix in SUFFIXES if name.endswith(suffix)), key=len, default="")


def table_files(folder: Path, stem: str) -> list[Path]:
    """The files of ``folder`` that may be its table ``stem``."""
    paths = [folder / f"{stem}{suffix}" for suffix in SUFFIXES]
    return [path for path in paths if path.is_file()]


def tables_in(folder: Path) -> list[str]:
    """The names of the files in ``folder`` that are tables by their extension."""
    return sorted(path.name for path in folder.iterdir() if suffix_of(path) and path.is_file())


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
    plain = (".csv", ".tsv", *JSON_SUFFIXES)
    return sum(file.stat().st_size * (1 if suffix_of(file) in plain else 6) for file in files)


def open_tables(
    work: Workspace, source: Any, options: TableOptions, stems: Sequence[str] = STEMS
) -> list[Table]:
    """The tables of ``source``: those called ``stems``, or what the options name instead.

    An option names a file of a folder, a table of a database or a sheet of a workbook, or is a
    query of it.
    """
    names = {stem: getattr(options, stem, "") for stem in stems}
    if not is_database(source):
        return _folder_tables(work, Path(source), names)
    path, names = Path(source), {stem: name or stem for stem, name in names.items()}
    if is_duckdb(path):
        return _duckdb_tables(work, path, names)
    if suffix_of(path) in EXCEL_SUFFIXES:
        return [excel_table(work, path, name) for name in names.values()]
    if is_postgres(source):
        require_extra("databases", "reading Postgres", "adbc_driver_postgresql", "pyarrow")
        from adbc_driver_postgresql import dbapi

        return _server_tables(work, dbapi, source, "the Postgres server", names)
    require_extra("databases", "reading SQLite", "adbc_driver_sqlite", "pyarrow")
    from adbc_driver_sqlite import dbapi

    address = path.resolve().as_uri() + "?mode=ro"
    return _server_tables(work, dbapi, address, str(source), names, sqlite=True)


# ------------------------------------------------------------------------------- files


def _folder_tables(work: Workspace, folder: Path, names: dict[str, str]) -> list[Table]:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder; pass one with a node and an edge table.")
    paths: dict[str, Path] = {}
    for stem, name in names.items():
        if not name:
            paths[stem] = find_table(folder, stem)
        elif not is_query(name):
            paths[stem] = folder / name
            if not paths[stem].is_file():
                files = tables_in(folder)
                raise DatasetError(
                    f"{folder} has no file {name!r} (it has {some_of(files) or 'no tables'}); "
                    f"choose one with {option_name(stem)}.{nearest_hint(name, files)}"
                )
    work.rows(f"SET file_search_path = {literal(str(folder.resolve()))}")  # for queries
    tables = [
        file_table(work, paths[stem])
        if stem in paths
        else query_table(work, f"{folder}: {stem}", query)
        for stem, query in names.items()
    ]
    work.restrict(folder, *(path.resolve().parent for path in paths.values()))
    return tables


def find_table(folder: Path, stem: str) -> Path:
    """The file of ``folder`` that is its table ``stem``; DatasetError unless there is one."""
    files = table_files(folder, stem)
    if not files:
        columns = "source and target" if stem == "edges" else "id and label"
        raise DatasetError(
            f"{folder} has no {stem}.csv, {stem}.parquet or {stem}.xlsx (it has "
            f"{some_of(tables_in(folder)) or 'no tables'}); add one with the columns {columns}, or "
            f"choose another file with {option_name(stem)}."
        )
    if len(files) > 1:
        raise DatasetError(
            f"{folder} has both {files[0].name} and {files[1].name}; remove one, or choose one "
            f"with {option_name(stem)}."
        )
    return files[0]


def file_table(work: Workspace, path: Path) -> Table:
    """The table in a file, by the ending of its name."""
    suffix, place, label = suffix_of(path), literal(str(path.resolve())), str(path)
    if not suffix:
        raise DatasetError(f"{path} is not a table; supported formats are {', '.join(SUFFIXES)}.")
    with work.clear_errors(label):
        open_regular(path).close()
        if suffix in TEXT_SUFFIXES:
            return csv_table(work, path)
        if suffix in EXCEL_SUFFIXES:
            return excel_table(work, path, None)
        if suffix in JSON_SUFFIXES:
            name = f"memory.main.{work.name('json')}"
            read = f"read_json({place}, sample_size = -1, maximum_object_size = {MAX_LINE})"
            work.rows(f"CREATE TABLE {name} AS SELECT * FROM {read}")  # its types are found once
            return work.table(label, name)
        return parquet_table(work, place, label)


def parquet_table(work: Workspace, place: str, label: str) -> Table:
    """A Parquet file, under its own names: DuckDB changes some that differ in case only.

    Parquet has no durations. Arrow writes them as integers and notes their unit next to them.
    """
    schema = work.rows(f"SELECT name, num_children FROM parquet_schema({place})")
    table = work.table(label, f"read_parquet({place})", _outer_names(schema[1:]))
    notes = work.rows(
        f"SELECT value FROM parquet_kv_metadata({place}) WHERE key = 'ARROW:schema'::BLOB LIMIT 1"
    )
    units = {
        name: unit
        for name, unit in (arrow_durations(notes[0][0]) if notes else {}).items()
        if table.types.get(name) == "BIGINT"
    }
    if not units:
        return table
    cells = ", ".join(
        f"{DURATIONS[unit].format(table.columns[name])} AS {table.columns[name]}"
        for name, unit in units.items()
    )
    sql = f"(SELECT * REPLACE ({cells}) FROM {table.sql})"
    return replace(table, sql=sql, types={**table.types, **dict.fromkeys(units, "INTERVAL")})


def arrow_durations(note: bytes) -> dict[str, str]:
    """The columns of durations and their units in Arrow's note of a schema.

    The note is base64 of a flatbuffer, a Message of Arrow's format: a table starts with the
    distance to a list of the places of its fields. A damaged note has no durations. PyArrow would
    read it, too, but importing it takes 25 MB of a memory limit.
    """
    message = b""

    def number(place: int, form: str) -> int:
        return struct.unpack_from(f"<{form}", message, place)[0]

    def follow(place: int) -> int:
        return place + number(place, "I")

    def field(table: int, slot: int) -> int:  # 0 if it has its default
        places = table - number(table, "i")
        stored = 4 + 2 * slot < number(places, "H")
        offset = number(places + 4 + 2 * slot, "H") if stored else 0
        return table + offset if offset else 0

    units: dict[str, int] = {}
    with contextlib.suppress(struct.error, ValueError):
        message = base64.b64decode(note)
        message = message[8:] if message[:4] == b"\xff\xff\xff\xff" else message[4:]
        schema = follow(field(follow(0), 2))
        fields = follow(field(schema, 1))
        for i in range(number(fields, "I")):
            column = follow(fields + 4 + 4 * i)
            name, type_, facts = (field(column, slot) for slot in (0, 2, 3))
            if name and type_ and facts and number(type_, "B") == ARROW_DURATION:
                text, unit = follow(name), field(follow(facts), 0)
                key = message[text + 4 : text + 4 + number(text, "I")].decode().strip()
                units[key] = number(unit, "h") if unit else 1
    names = tuple(DURATIONS)
    return {key: names[unit] for key, unit in units.items() if 0 <= unit < len(names)}


def _outer_names(schema: Sequence[tuple[str, int | None]]) -> list[str]:
    """The columns of a Parquet file, whose schema lists each before what it consists of.

    >>> _outer_names([("id", None), ("x", 1), ("list", 1), ("element", None), ("y", None)])
    ['id', 'x', 'y']
    """
    names, inside = list[str](), 0
    for name, children in schema:
        if not inside:
            names.append(name)
            inside = 1
        inside += (children or 0) - 1
    return names


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

    place, (encoding, line_ends) = path, _encoding(path, opened)
    if encoding != "utf-8" or isinstance(line_ends, tuple):  # DuckDB reads neither
        place = work.scratch / f"{work.name('utf8')}.csv"
        with (
            io.TextIOWrapper(opened(), encoding) as raw,
            place.open("w", encoding="utf-8", newline="\n") as out,
        ):
            shutil.copyfileobj(raw, out, PIECE)
        packed = False
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
            names = next(csv.reader(itertools.chain([first], file), delimiter=separator), [])
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
    types = ["VARCHAR"] * len(names)
    return Table.of(str(path), sql, names, types, spelled=True, comma=separator in ";\t")


def _encoding(path: Path, opened: Callable[[], Any]) -> tuple[str, str | tuple[str, ...] | None]:
    """UTF-8 if all bytes are, UTF-16 if the file says so, and otherwise Windows-1252 or Latin-1.

    With it the line end, of UTF-8, or a tuple if there are several.
    """
    with opened() as file:
        start = file.read(NUL_BYTES)
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", None
    if b"\0" in start:
        raise DatasetError(
            f"{path} is not a text file; save the table as CSV in UTF-8, or give the file the "
            f"extension of its format: {', '.join(SUFFIXES[len(TEXT_SUFFIXES) :])}."
        )
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        lines = io.IncrementalNewlineDecoder(decoder, translate=False)
        with opened() as file, contextlib.suppress(UnicodeDecodeError):
            while piece := file.read(PIECE):
                lines.decode(piece)
            lines.decode(b"", final=True)
            return encoding, lines.newlines
    return "latin-1", None


def excel_table(work: Workspace, path: Path, sheet: str | None) -> Table:
    """A sheet of a workbook, the first if it is not named: cells are text, as in CSV."""
    require_extra("databases", "reading Excel", "python_calamine")
    from python_calamine import CalamineError, CalamineWorkbook

    label, name = f"{path}: {sheet}" if sheet else str(path), f"memory.main.{work.name('sheet')}"
    try:
        with work.clear_errors(str(path)):
            book = CalamineWorkbook.from_path(str(path))
        sheets = book.sheet_names
        if sheet is not None and sheet not in sheets:
            raise DatasetError(
                f"{path} has no sheet {sheet!r} (it has {some_of(sheets)}); choose one with "
                f"{option_name('nodes')} and {option_name('edges')}.{nearest_hint(sheet, sheets)}"
            )
        rows = book.get_sheet_by_name(sheet or sheets[0]).iter_rows()
        header = [_sheet_text(cell) or "" for cell in next(rows, [])]
        if not header:
            raise DatasetError(f"{label} cannot be read: it is empty.")
        work.rows(f"CREATE TABLE {name} ({', '.join(f'c{i} VARCHAR' for i in range(len(header)))})")
        while piece := list(itertools.islice(rows, SHEET_ROWS)):
            cells = ([_sheet_text(row[i]) for row in piece] for i in range(len(header)))
            work.insert(name, {f"c{i}": np.array(column, object) for i, column in enumerate(cells)})
        return work.table(label, name, header, spelled=True)
    except CalamineError as error:
        raise DatasetError(
            f"{path} is not a valid Excel workbook: it is damaged, has a password, or is another "
            "type of file; save it again as .xlsx or .csv."
        ) from error


def _sheet_text(cell: Any) -> str | None:
    """A cell as people write it; a workbook has no integers."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, datetime.timedelta):
        return str(cell.total_seconds())
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


# --------------------------------------------------------------------------- databases


def _duckdb_tables(work: Workspace, path: Path, names: dict[str, str]) -> list[Table]:
    label, tables = str(path), []
    with work.clear_errors(label):
        work.rows(f"ATTACH {literal(str(path.resolve()))} AS source (READ_ONLY)")
        work.restrict()
        work.rows("USE source")
        existing = work.rows(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_catalog = 'source' ORDER BY ALL"
        )
        for stem, name in names.items():
            if is_query(name):
                tables.append(query_table(work, f"{label}: {stem}", name))
            else:
                schema, table = find_name(label, stem, name, existing)
                sql = f"source.{quoted(schema)}.{quoted(table)}"
                tables.append(work.table(f"{label}: {name}", sql))
        work.rows("USE memory")
    return tables


def find_name(
    label: str, option: str, name: str, existing: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """The schema and the name of a table that a user calls ``name`` or ``schema.name``."""
    for schema, table in existing:
        if name in (table, f"{schema}.{table}"):
            return schema, table
    tables = [table for _, table in existing]
    raise DatasetError(
        f"{label} has no table {name!r} (it has {some_of(tables) or 'none'}); choose a table or "
        f"pass a query with {option_name(option)}.{nearest_hint(name, tables)}"
    )


def query_table(work: Workspace, label: str, query: str) -> Table:
    """The result of a user's query, held as a table: it is asked once."""
    with work.clear_errors(label):
        statements = work.con.extract_statements(query)
        if len(statements) != 1 or not str(statements[0].type).endswith("SELECT"):
            raise ConfigError(f"{label} is not a single query; pass one SELECT statement.")
        name = f"memory.main.{work.name('query')}"
        work.rows(f"CREATE TABLE {name} AS {query.strip().rstrip(';')}")
        return work.table(label, name)


def _server_tables(
    work: Workspace,
    driver: Any,
    address: str,
    label: str,
    names: dict[str, str],
    *,
    sqlite: bool = False,
) -> list[Table]:
    """The tables of a SQLite file or a Postgres server, as Arrow batches."""
    from adbc_driver_manager import Error

    tables = []
    try:
        with contextlib.closing(driver.connect(address)) as con, con.cursor() as cursor:
            for option, name in names.items():
                query, what = name.strip().rstrip(";"), f"{label}: {option}"
                if not is_query(name):
                    cursor.execute(_SQLITE_TABLES if sqlite else _POSTGRES_TABLES)
                    schema, table = find_name(label, option, name, cursor.fetchall())
                    query = f"SELECT * FROM {quoted(schema)}.{quoted(table)}"
                    what = f"{label}: {name}"
                cursor.execute(_typed(cursor, query) if sqlite else query)
                tables.append(_held(work, cursor.fetch_record_batch(), what))
    except Error as error:
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise DatasetError(f"{label} cannot be read: {reason}.") from error
    return tables


def _typed(cursor: Any, query: str) -> str:
    """A query of SQLite whose columns have one type each: its cells may have any.

    The driver takes the type of a column from its first rows, and fails where a later one differs.
    """
    cursor.execute(f"SELECT * FROM ({query}) LIMIT 0")
    names = [quoted(column[0]) for column in cursor.description]
    if len(names) > MAX_COLUMNS:
        raise DatasetError(f"the table has {len(names):,} columns, which is too many.")
    tests = ", ".join(
        f"coalesce(max(CASE typeof({name}) WHEN 'null' THEN 0 WHEN 'integer' THEN 1 "
        "WHEN 'real' THEN 2 ELSE 3 END), 0)"
        for name in names
    )
    cursor.execute(f"SELECT {tests} FROM ({query})")
    types = [("TEXT", "INTEGER", "REAL", "TEXT")[code] for code in cursor.fetchone()]
    cells = (f"CAST({name} AS {type}) AS {name}" for name, type in zip(names, types, strict=True))
    return f"SELECT {', '.join(cells)} FROM ({query})"


def _held(work: Workspace, batches: Any, label: str) -> Table:
    """Batches of Arrow as a table of DuckDB; decimals of Postgres come as text and are numbers."""
    name, schema = f"memory.main.{work.name('held')}", batches.schema
    decimals = [
        (field.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric" for field in schema
    ]
    cells = (f"CAST(c{i} AS DOUBLE) AS c{i}" if d else f"c{i}" for i, d in enumerate(decimals))
    columns = ", ".join(f"c{i}" for i in range(len(schema)))
    with work.clear_errors(label):
        work.con.register("batches", batches)
        work.rows(f"CREATE TABLE {name} AS SELECT {', '.join(cells)} FROM batches AS t({columns})")
        work.con.unregister("batches")
        return work.table(label, name, schema.names)


# ------------------------------------------------------------------------------ frames


def is_frame(value: Any) -> bool:
    """Whether it is a table: pandas, Polars, Arrow, or what speaks Arrow's protocol."""
    return hasattr(value, "__arrow_c_stream__")


class _Stream:
    """A table as a stream of Arrow, which DuckDB reads without PyArrow."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def frame_table(work: Workspace, frame: Any, label: str, **facts: Any) -> Table:
    """A table of pandas, Polars, Arrow, or a dictionary of NumPy arrays."""
    columns, name = getattr(frame, "column_names", None), work.name("frame")
    if hasattr(frame, "iloc"):  # pandas, whose named index counts
        if frame.index.name is not None:
            frame = frame.reset_index()
        read: Any = frame
    elif isinstance(frame, Mapping):
        read = dict(frame)
    elif is_frame(frame):
        read = _Stream(_without_half(frame) if columns is not None else frame)
    else:
        raise DatasetError(
            f"{label} has type {type(frame).__name__}; pass a pandas, Polars or Arrow table."
        )
    columns = getattr(frame, "columns", frame) if columns is None else columns
    for column, cells in read.items() if hasattr(read, "items") else ():
        if cells.dtype == object:
            _check_types(label, str(column), cells)
    with work.clear_errors(label):
        work.con.register(name, read)
        return work.table(label, name, [str(column) for column in columns], **facts)


def _check_types(label: str, name: str, cells: Any) -> None:
    """DatasetError if a column of Python's objects has several types: DuckDB makes text of them."""
    types = {type(cell) for cell in cells if cell is not None and not isinstance(cell, float)}
    types |= {float for cell in cells if isinstance(cell, float) and cell == cell}  # no gap
    types = {t for t in types if t.__name__ not in ("NAType", "NaTType")}  # of pandas
    families = {next((f for f in FAMILIES if issubclass(t, f)), (t,)) for t in types}
    if len(families) > 1:
        raise DatasetError(
            f"column {name!r} of {label} mixes values of the types "
            f"{', '.join(sorted(t.__name__ for t in types))}; each column must have one type: "
            "numbers, text, or lists of numbers."
        )


def _without_half(table: Any) -> Any:
    """A table of PyArrow with float32 for float16, which DuckDB does not read."""
    import pyarrow as pa

    schema = table.schema
    for i, field in enumerate(schema):
        if "halffloat" in str(field.type):
            half = field.type == pa.float16()
            schema = schema.set(
                i, field.with_type(pa.float32() if half else pa.list_(pa.float32()))
            )
    return table if schema == table.schema else table.cast(schema)


def empty_table(label: str, types: Mapping[str, str]) -> Table:
    """A table without rows, of columns with these names and types."""
    cells = ", ".join(f"NULL::{sql} AS c{i}" for i, sql in enumerate(types.values()))
    return Table.of(label, f"(SELECT {cells} WHERE false)", [*types], [*types.values()])
