"""The tables of a folder, a file or a database.

Those of SQLite, Postgres and Excel come as Arrow batches into DuckDB (extra `databases`).

DuckDB has extensions of its own for these, but downloads them at run time; they stay switched off.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hoplite.errors import DatasetError, nearest_hint, require_extra, some_of
from hoplite.files import open_regular
from hoplite.io.sources import (
    EXCEL_SUFFIXES,
    JSON_SUFFIXES,
    MAX_COLUMNS,
    MAX_LINE,
    STEMS,
    SUFFIXES,
    TEXT_SUFFIXES,
    Table,
    Workspace,
    csv_table,
    find_name,
    find_table,
    is_database,
    is_duckdb,
    is_postgres,
    is_query,
    literal,
    other_tables,
    query_table,
    quoted,
    suffix_of,
)
from hoplite.preparation import TableOptions

ROWS = 1 << 14  # of a sheet in a batch
MICROSECONDS = {"s": "{} * 1000000", "ms": "{} * 1000", "us": "{}", "ns": "{} // 1000"}
_LISTED = "SELECT 'main', name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
_LISTED_POSTGRES = (
    "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') "
    "ORDER BY table_schema <> current_schema(), table_schema, table_name"
)


def open_tables(
    work: Workspace, source: Any, options: TableOptions, stems: Sequence[str] = STEMS
) -> list[Table]:
    """The tables of ``source``: those called ``stems``, or what the options name instead.

    An option names a file of a folder, a table of a database or a sheet of a workbook, or is a
    query of it.
    """
    asked = {stem: getattr(options, stem) or stem for stem in stems}
    if not is_database(source):
        return _folder_tables(work, Path(source), asked, options)
    path = Path(source)
    if is_duckdb(path):
        return _duckdb_tables(work, path, asked)
    return _server_tables(work, source, asked)


def _folder_tables(
    work: Workspace, folder: Path, asked: dict[str, str], options: TableOptions
) -> list[Table]:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; give one with a node and an edge table.")
    found = []
    for stem, name in asked.items():
        if is_query(name):
            found.append((stem, name))
            continue
        path = folder / name if getattr(options, stem) else find_table(folder, stem)
        if not path.is_file():
            there = other_tables(folder)
            raise DatasetError(
                f"{stem} is {name!r}, but there is no such file in {folder}."
                f"{nearest_hint(name, there)}"
            )
        found.append((stem, path))
    work.rows(f"SET file_search_path = {literal(str(folder.resolve()))}")  # for queries
    tables = [
        file_table(work, one)
        if isinstance(one, Path)
        else query_table(work, f"{folder}: {stem}", one)
        for stem, one in found
    ]
    work.restrict(folder, *(one.resolve().parent for _, one in found if isinstance(one, Path)))
    return tables


def _duckdb_tables(work: Workspace, path: Path, asked: dict[str, str]) -> list[Table]:
    label = str(path)
    with work.clear_errors(label):
        work.rows(f"ATTACH {literal(str(path.resolve()))} AS source (READ_ONLY)")
        work.restrict()
        work.rows("USE source")
        listed = work.rows(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_catalog = 'source' ORDER BY ALL"
        )
    tables = []
    for stem, name in asked.items():
        if is_query(name):
            tables.append(query_table(work, f"{label}: {stem}", name))
            continue
        schema, table = find_name(label, stem, name, listed)
        with work.clear_errors(label):
            sql = f"source.{quoted(schema)}.{quoted(table)}"
            tables.append(work.table(f"{label}: {name}", sql))
    work.rows("USE memory")
    return tables


def file_table(work: Workspace, path: Path) -> Table:
    """The table in a file, by the ending of its name."""
    suffix = suffix_of(path)
    if not suffix:
        raise DatasetError(f"{path} is no table; give one of {', '.join(SUFFIXES)}.")
    with work.clear_errors(str(path)):
        open_regular(path).close()
        if suffix in TEXT_SUFFIXES:
            return csv_table(work, path)
        if suffix in EXCEL_SUFFIXES:
            return excel_table(work, path, None)
        place = literal(str(path.resolve()))
        if suffix in JSON_SUFFIXES:
            name = f"memory.main.{work.name('json')}"
            read = f"read_json({place}, sample_size = -1, maximum_object_size = {MAX_LINE})"
            work.rows(f"CREATE TABLE {name} AS SELECT * FROM {read}")  # its types are found once
            return work.table(str(path), name)
        work.rows(f"SELECT count(*) FROM parquet_schema({place})")  # which says what is wrong
        return _parquet_table(work, path, place)


def _parquet_table(work: Workspace, path: Path, place: str) -> Table:
    """A Parquet file under its own names, of which DuckDB changes some that look alike.

    Arrow writes durations as integers and their unit into the schema, which DuckDB does not read.
    """
    import pyarrow as pa
    from pyarrow.parquet import read_schema

    try:
        schema = read_schema(path)
    except pa.ArrowException as error:
        raise DatasetError(f"{path} cannot be read: {str(error).splitlines()[0]}.") from error
    names = [f"c{i}" for i in range(len(schema))]
    cells = list(names)
    for i, kind in enumerate(schema.types):
        if pa.types.is_duration(kind):
            cells[i] = f"to_microseconds({MICROSECONDS[kind.unit].format(names[i])}) AS {names[i]}"
        elif "duration[" in str(kind):
            raise DatasetError(f"column {schema.names[i]!r} of {path} has type {kind}; remove it.")
    rows = f"(SELECT {', '.join(cells)} FROM read_parquet({place}) AS t({', '.join(names)}))"
    return work.table(str(path), rows, names=schema.names)


def _server_tables(work: Workspace, source: Any, asked: dict[str, str]) -> list[Table]:
    """The tables of a SQLite file, a Postgres server or an Excel workbook.

    ``asked`` has for ``nodes`` and ``edges`` the name of a table or a sheet, or a query.
    """
    if suffix_of(Path(source)) in EXCEL_SUFFIXES:
        return [excel_table(work, Path(source), name) for name in asked.values()]
    if is_postgres(source):
        require_extra("databases", "reading Postgres", "adbc_driver_postgresql", "pyarrow")
        from adbc_driver_postgresql import dbapi

        return _read(work, dbapi, source, "the Postgres server", asked, _LISTED_POSTGRES)
    require_extra("databases", "reading SQLite", "adbc_driver_sqlite", "pyarrow")
    from adbc_driver_sqlite import dbapi

    address = Path(source).resolve().as_uri() + "?mode=ro"
    return _read(work, dbapi, address, str(source), asked, _LISTED)


def _read(
    work: Workspace, driver: Any, address: str, label: str, asked: dict[str, str], listed: str
) -> list[Table]:
    found = []
    with _clear_errors(label), contextlib.closing(driver.connect(address)) as con:
        for option, name in asked.items():
            if is_query(name):
                query, what = name.strip().rstrip(";"), f"{label}: {option}"
            else:
                with con.cursor() as cursor:
                    cursor.execute(listed)
                    there = cursor.fetchall()
                schema, table = find_name(label, option, name, there)
                query = f"SELECT * FROM {quoted(schema)}.{quoted(table)}"
                what = f"{label}: {name}"
            with con.cursor() as cursor:
                if driver.__name__.startswith("adbc_driver_sqlite"):
                    query = _typed(cursor, query)
                cursor.execute(query)
                found.append(_held(work, cursor.fetch_record_batch(), what))
    return found


def _typed(cursor: Any, query: str) -> str:
    """A query of SQLite whose columns have one type each: its cells may have any.

    The driver takes the type of a column from its first rows, and fails where a later one differs.
    """
    cursor.execute(f"SELECT * FROM ({query}) LIMIT 0")
    names = [column[0] for column in cursor.description]
    if len(names) > MAX_COLUMNS:
        raise DatasetError(f"a table of {len(names):,} columns is too wide.")
    tests = ", ".join(
        f"coalesce(max(CASE typeof({quoted(name)}) WHEN 'null' THEN 0 WHEN 'integer' THEN 1 "
        "WHEN 'real' THEN 2 ELSE 3 END), 0)"
        for name in names
    )
    cursor.execute(f"SELECT {tests} FROM ({query})")
    kinds = [("TEXT", "INTEGER", "REAL", "TEXT")[kind] for kind in cursor.fetchone()]
    columns = ", ".join(
        f"CAST({quoted(name)} AS {kind}) AS {quoted(name)}"
        for name, kind in zip(names, kinds, strict=True)
    )
    return f"SELECT {columns} FROM ({query})"


def _held(work: Workspace, batches: Any, label: str) -> Table:
    """Batches of Arrow as a table of DuckDB; decimals of Postgres come as text and are numbers."""
    name, schema = f"memory.main.{work.name('held')}", batches.schema
    work.con.register("batches", batches)
    columns = ", ".join(f"c{i}" for i in range(len(schema)))
    cells = ", ".join(
        f"CAST(c{i} AS DOUBLE) AS c{i}" if _is_decimal(field) else f"c{i}"
        for i, field in enumerate(schema)
    )
    with work.clear_errors(label):
        work.rows(f"CREATE TABLE {name} AS SELECT {cells} FROM batches AS t({columns})")
        work.con.unregister("batches")
        return work.table(label, name, names=schema.names)


def _is_decimal(field: Any) -> bool:
    return (field.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric"


@contextlib.contextmanager
def _clear_errors(label: str) -> Iterator[None]:
    from adbc_driver_manager import Error

    try:
        yield
    except Error as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise DatasetError(
            f"{label} cannot be read: {' '.join(lines)[:300].rstrip('.')}."
        ) from error


def excel_table(work: Workspace, path: Path, sheet: str | None) -> Table:
    """A sheet of a workbook, the first if it is not named: cells are text, as in CSV."""
    require_extra("databases", "reading Excel", "python_calamine", "pyarrow")
    import pyarrow as pa
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_path(str(path))
        sheets = book.sheet_names
        if sheet is not None and sheet not in sheets:
            raise DatasetError(
                f"{path} has no sheet {sheet!r} (it has {some_of(sheets)}); name another (--nodes, "
                f"--edges).{nearest_hint(sheet, sheets)}"
            )
        rows = book.get_sheet_by_name(sheet or sheets[0]).iter_rows()
        header = [_text(cell) or "" for cell in next(rows, [])]
        schema = pa.schema([(f"c{i}", pa.string()) for i in range(len(header))])
        batches = pa.RecordBatchReader.from_batches(schema, _batches(rows, schema, pa))
        label = f"{path}: {sheet}" if sheet else str(path)
        if not header:
            raise DatasetError(f"{label} cannot be read: it is empty.")
        name = f"memory.main.{work.name('sheet')}"
        work.con.register("batches", batches)
        work.rows(f"CREATE TABLE {name} AS SELECT * FROM batches")
        work.con.unregister("batches")
        return work.table(label, name, names=header, spelled=True)
    except (CalamineError, OSError) as error:
        raise DatasetError(f"{path} cannot be read as a workbook: {error}.") from error


def _batches(rows: Iterator[Sequence[Any]], schema: Any, pa: Any) -> Iterator[Any]:
    while piece := list(itertools.islice(rows, ROWS)):
        columns = [[_text(row[i]) for row in piece] for i in range(len(schema))]
        yield pa.record_batch([pa.array(column, pa.string()) for column in columns], schema)


def _text(cell: Any) -> str | None:
    """A cell as people write it; a workbook knows no integers."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, datetime.timedelta):
        return str(cell.total_seconds())
    return str(cell)
