"""Feature columns of a node table: their types, and how they become X.

DuckDB reads and types the cells; scikit-learn's scalers are fitted to blocks of rows whose size
depends on the table's width alone, so that threads and memory change no bit. What was fitted is a
:class:`hoplite.Preparation`, plain numbers that are kept with the model.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from msgspec.structs import replace

from hoplite.errors import DatasetError, nearest_hint, option_name, plural, some_of, warn
from hoplite.io.sources import Table, Workspace
from hoplite.preparation import (
    CONSTANT,
    OTHER,
    REFUSE,
    DateColumn,
    ListColumn,
    NumberColumn,
    Preparation,
    PreparedColumn,
    TextColumn,
    TimeColumn,
    WordsColumn,
    squeezed,
    stretched,
)

BLOCK = 1 << 20  # cells of X worked on at a time
SAMPLE = 1 << 21  # cells kept for the quartiles
SPARSE_BELOW = 0.1  # share of non-zero cells below which X is CSR
MIN_KEYS, KEY_SHARE = 20, 0.9  # a text with so many values, hardly any repeated, is a key
KEY_SPAN = 2  # numbers of a key in this many times as many rows
MAX_VALUES = 10_000  # distinct values of a text column without a limit of categories
MIN_WORDS = 3  # on average, of a text whose words are features
MIN_ROWS = 2  # training rows that a term must occur in
WORDS_WIDTH = 64  # cells of X that a text of words is counted as
MIN_OUTSIDE = 10  # new numbers of a column outside the range of training that suggest another unit
SHOWN = 60  # letters of a value in a message
TESTED, SAMPLED = 200, 2000  # columns in a query, rows looked at first
SPACES = " \t\n\r\v\f\u00a0\u2007\u202f\u3000"
GAP_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN",
    "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null",
)  # fmt: skip
INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
FLOATS = ("FLOAT", "DOUBLE", "DECIMAL")
_ISO = r"^(\d{2})\.(\d{2})\.(\d{4})\b"
_DATE = r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?"
_SLASHES = r"\d{1,2}/\d{1,2}/\d{4}"
SIGNS = "$€£¥%"  # before or after an amount
SLASHED = {
    "day": "%d/%m/%Y",
    "month": "%m/%d/%Y",
}  # formats of dates with slashes, by what comes first
_TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?"
_BLANK = r"^[\s\v\x{a0}\x{2007}\x{202f}\x{3000}]|[\s\v\x{a0}\x{2007}\x{202f}\x{3000}]$"
_THOUSANDS = "[+-]?[1-9][0-9]{0,2},[0-9]{3}"
_TRUTHS = ("true", "false", "0", "1")


def is_text(type_: str) -> bool:
    """Whether a type of DuckDB is text, an enumeration, or another that is read as text."""
    return type_.startswith("ENUM") or type_ in ("VARCHAR", "UUID", "JSON")


def is_integer(type_: str) -> bool:
    return type_.removeprefix("U") in INTEGERS


def is_number(type_: str) -> bool:
    return is_integer(type_) or type_ == "BOOLEAN" or is_float(type_)


def is_float(type_: str) -> bool:
    return type_.partition("(")[0] in FLOATS and not type_.endswith("]")


def text_sql(column: str) -> str:
    """Cells as text without surrounding white space, NULL where nothing is left."""
    text = f"CAST({column} AS VARCHAR)"  # trim is slow, and hardly any cell needs it
    wide = f"regexp_matches({text}, '{_BLANK}')"
    return f"nullif(CASE WHEN {wide} THEN trim({text}, '{SPACES}') ELSE {text} END, '')"


def filled_sql(column: str, table: Table) -> str:
    """The same and, in CSV, NULL for words that mean a gap, such as NA."""
    if not table.spelled:
        return column
    words = ", ".join(f"'{word}'" for word in GAP_WORDS if word)
    return f"CASE WHEN {column} IN ({words}) THEN NULL ELSE {column} END"


def number_sql(text: str, *, comma: bool) -> str:
    """The number that a text spells, NULL if it spells none."""
    plain = f"replace({text}, ',', '.')" if comma else text
    return f"TRY_CAST({plain} AS DOUBLE)"


def comma_sql(text: str) -> str:
    """The number of 1,5, 1,500.00 or 1,500,000; NULL of 1,500, which has two meanings."""
    more = "(,[0-9]{3})*[.][0-9]+|(,[0-9]{3})+"
    grouped = f"regexp_full_match({text}, '{_THOUSANDS}({more})')"
    number = f"regexp_full_match({text}, '[+-]?[0-9]+(,[0-9]+)?')"
    unclear = f"regexp_full_match({text}, '{_THOUSANDS}')"
    plain = f"CASE WHEN {grouped} THEN TRY_CAST(replace({text}, ',', '') AS DOUBLE)"
    return f"{plain} WHEN {number} AND NOT {unclear} THEN {number_sql(text, comma=True)} END"


def date_sql(text: str) -> str:
    """Days since 1970-01-01 of 2020-12-31 or 31.12.2020, with or without a time; else NULL."""
    iso = f"regexp_replace({text}, '{_ISO}', '\\3-\\2-\\1')"
    days = f"epoch_us(TRY_CAST({iso} AS TIMESTAMPTZ)) / 86400e6"
    return f"CASE WHEN regexp_full_match({iso}, '{_DATE}') THEN {days} END"


def slashed_sql(text: str, first: str) -> str:
    """The same of 31/12/2020 (``first`` is "day") or 12/31/2020 ("month")."""
    days = f"epoch_us(try_strptime({text}, '{SLASHED[first]}')) / 86400e6"
    return f"CASE WHEN regexp_full_match({text}, '{_SLASHES}') THEN {days} END"


def truth_sql(text: str) -> str:
    """1 and 0 of true and false."""
    words = ", ".join(f"'{word}'" for word in _TRUTHS)
    return f"CASE WHEN lower({text}) IN ({words}) THEN (lower({text}) IN ('true', '1'))::DOUBLE END"


def time_sql(text: str) -> str:
    """Seconds since midnight of 12:30 or 12:30:00."""
    return (
        f"CASE WHEN regexp_full_match({text}, '{_TIME}') THEN epoch(TRY_CAST({text} AS TIME)) END"
    )


def codes_sql(text: str) -> str:
    """Whether all texts of a column are digits, some with a leading zero such as 01019."""
    return f"{digits_sql(text)} AND bool_or(len({text}) > 1 AND {text} LIKE '0%')"


def digits_sql(text: str) -> str:
    """Whether all texts of a column are digits and nothing else."""
    return f"bool_and(regexp_full_match({text}, '[0-9]+'))"


def amount_sql(text: str, sign: str, *, comma: bool) -> str:
    """The number of £1.50 or 1.50 £ for the ``sign`` £, NULL without it; 0.5 of 50%.

    £1,500 is 1500, as no currency has three decimals.
    """
    ends = f"^([+-]?)\\s*[{sign}]\\s*|\\s*[{sign}]$"
    bare = f"regexp_replace({text}, '{ends}', '\\1')"
    number = f"coalesce({number_sql(bare, comma=comma)}, {comma_sql(bare)})"
    if sign == "%":
        number = f"{number} / 100"
    elif not comma:
        whole = f"WHEN regexp_full_match({bare}, '{_THOUSANDS}')"
        number = f"CASE {whole} THEN TRY_CAST(replace({bare}, ',', '') AS DOUBLE) ELSE {number} END"
    return f"CASE WHEN contains({text}, '{sign}') THEN {number} END"


class Cells(NamedTuple):
    """What the cells of a column mean: the class of the column, and its numbers or text in SQL."""

    type: type[PreparedColumn]
    sql: str
    truth: bool = False
    first: str = ""  # day or month: what comes first in dates with slashes
    sign: str = ""  # currency sign of amounts


def spellings(table: Table, name: str) -> list[Cells]:
    """The ways in which text may spell numbers and dates, in the order to try them.

    Plain numbers come first, untrimmed, which is fast.
    """
    column = table.columns[name]
    text = text_sql(column)
    return [
        Cells(NumberColumn, number_sql(column, comma=table.comma)),
        Cells(NumberColumn, number_sql(text, comma=table.comma)),
        Cells(NumberColumn, truth_sql(text), truth=True),
        Cells(NumberColumn, comma_sql(text)),
        *(Cells(NumberColumn, amount_sql(text, s, comma=table.comma), sign=s) for s in SIGNS),
        Cells(DateColumn, date_sql(text)),
        Cells(TimeColumn, time_sql(text)),
        *(Cells(DateColumn, slashed_sql(text, first), first=first) for first in SLASHED),
    ]


def typed_cells(table: Table, name: str) -> Cells | None:
    """The cells of a column whose type says what they mean; None of text."""
    column, type_ = table.columns[name], table.types[name]
    if is_text(type_):
        return None
    if is_number(type_) or type_ == '"NULL"':
        return Cells(NumberColumn, f"CAST({column} AS DOUBLE)", type_ == "BOOLEAN")
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        stamp = column if "ZONE" in type_ else f"CAST({column} AS TIMESTAMP)"
        return Cells(DateColumn, f"epoch_us({stamp}) / 86400e6")
    if type_.startswith(("TIME", "INTERVAL")):
        return Cells(TimeColumn, f"epoch({column})")
    inner, bracket, _ = type_.rpartition("[")
    if bracket and (is_number(inner) or inner == '"NULL"'):
        return Cells(ListColumn, f"CAST(CAST({column} AS {inner}[]) AS DOUBLE[])")
    raise DatasetError(
        f"column {name!r} of {table.label} has type {type_}; features must be numbers, lists of "
        "numbers, dates or text."
    )


def spelled_cells(
    work: Workspace, table: Table, candidates: Mapping[str, Sequence[Cells]]
) -> dict[str, tuple[Cells, int]]:
    """For each column of text the first spelling that all its cells have, and how many have it.

    Blanks and words that mean a gap do not count. The first rows rule most spellings out.
    """
    spelled: dict[str, tuple[Cells, int]] = {}

    def matching(
        tests: list[tuple[str, Cells]], rows: str
    ) -> Iterator[tuple[str, tuple[Cells, int]]]:
        for start in range(0, len(tests), TESTED):
            batch = tests[start : start + TESTED]
            counts = []
            for name, cells in batch:
                filled = filled_sql(text_sql(table.columns[name]), table)
                odd = f"CASE WHEN {cells.sql} IS NULL THEN {filled} IS NOT NULL ELSE false END"
                counts.append(f"count_if({odd}), count({cells.sql})")
            with work.clear_errors(table.label):
                row = work.row(f"SELECT {', '.join(counts)} FROM {rows}")
            for (name, cells), odd, count in zip(batch, row[::2], row[1::2], strict=True):
                if not odd:
                    yield name, (cells, count)

    with work.clear_errors(table.label):
        work.rows(f"CREATE OR REPLACE TEMP TABLE head AS FROM {table.sql} LIMIT {SAMPLED}")
    left = {name: list(cells) for name, cells in candidates.items() if cells}
    while left:
        first = [(name, cells.pop(0)) for name, cells in left.items()]
        likely = [(name, cells) for name, (cells, _) in matching(first, "head")]
        spelled |= dict(matching(likely, table.sql))
        left = {name: cells for name, cells in left.items() if name not in spelled and cells}
    return spelled


def guess_cells(
    work: Workspace, table: Table, names: Sequence[str], words: Sequence[str] = ()
) -> dict[str, Cells]:
    """What columns mean, by their types and, of text, by all of their cells.

    ``words`` are those whose words are features, whatever they seem to be.
    """
    forced = {name: Cells(WordsColumn, filled_sql(label_sql(table, name), table)) for name in words}
    typed = {name: forced.get(name) or typed_cells(table, name) for name in names}
    texts = {
        name: [c for c in spellings(table, name) if table.spelled or c.type is DateColumn or c.sign]
        for name, cells in typed.items()
        if cells is None
    }
    spelled = {n: cells for n, (cells, count) in spelled_cells(work, table, texts).items() if count}
    for name in code_columns(
        work, table, [n for n, c in spelled.items() if c.type is NumberColumn]
    ):
        del spelled[name]
    slashed = {n: spellings(table, n)[-1:] for n, cells in spelled.items() if cells.first == "day"}
    unclear = spelled_cells(work, table, slashed)  # the month may come first as well
    return {
        name: cells
        or (spelled.get(name) if name not in unclear else None)
        or Cells(TextColumn, filled_sql(text_sql(table.columns[name]), table))
        for name, cells in typed.items()
    }


def code_columns(work: Workspace, table: Table, names: Sequence[str]) -> list[str]:
    """The columns of codes, see :func:`codes_sql`; the first rows rule most columns out."""
    codes: list[str] = []
    for start in range(0, len(names), TESTED):
        batch = names[start : start + TESTED]
        for rows, test in (("head", digits_sql), (table.sql, codes_sql)):
            tests = [test(filled_sql(text_sql(table.columns[name]), table)) for name in batch]
            answers = work.row(f"SELECT {', '.join(tests)} FROM {rows}") if batch else ()
            batch = [name for name, answer in zip(batch, answers, strict=True) if answer]
        codes += batch
    return codes


def trained_cells(
    work: Workspace, table: Table, columns: Sequence[PreparedColumn]
) -> dict[str, Cells]:
    """The cells of the columns that a model was trained with; DatasetError if they differ."""
    typed = {c.name: typed_cells(table, c.name) for c in columns if c.type_name != "text"}
    texts = {
        column.name: [
            cells
            for cells in spellings(table, column.name)
            if cells.type is type(column)
            and cells.first in ("", getattr(column, "first", ""))
            and _same_unit(cells.sign, column)
        ]
        for column in columns
        if column.name in typed and typed[column.name] is None
    }
    spelled = spelled_cells(work, table, texts)
    result: dict[str, Cells] = {}
    for column in columns:
        name, type_ = column.name, table.types[column.name]
        trained = f"but the model was trained with a {column.type_name}"
        if isinstance(column, NumberColumn) and column.sign:
            unit = "percentages" if column.sign == "%" else f"amounts in {column.sign}"
            trained = f"but the model was trained with {unit}"
        cells = typed.get(name)
        if isinstance(column, TextColumn | WordsColumn):
            result[name] = Cells(type(column), filled_sql(label_sql(table, name), table))
        elif name in spelled:
            result[name] = spelled[name][0]
        elif cells is None:
            raise _misspelled(work, table, column, texts[name], trained)
        elif not _same_unit("", column) and type_ != '"NULL"':
            raise DatasetError(
                f"column {name!r} of {table.label} has numbers without %, {trained}; write 63% as "
                "text, not 63."
            )
        elif cells.type is not type(column) and (type_ != '"NULL"' or column.type_name == "list"):
            raise DatasetError(
                f"column {name!r} of {table.label} has type {type_} {trained}; use the same type "
                "as in training."
            )
        else:
            result[name] = cells
    return result


def _same_unit(sign: str, column: PreparedColumn) -> bool:
    """Whether cells with ``sign`` have the unit of training: 63 may be $63, but is not 63%."""
    signs = {sign, getattr(column, "sign", "")}
    return len(signs) == 1 or ("" in signs and "%" not in signs)


def _misspelled(
    work: Workspace, table: Table, column: PreparedColumn, spelled: list[Cells], trained: str
) -> DatasetError:
    """The error for a column of text in which some cell is not what the model was trained with."""
    name, text = column.name, text_sql(table.columns[column.name])
    what = f"column {name!r} of {table.label}"
    if not spelled:
        return DatasetError(f"{what} is text {trained}; convert it.")
    ways = [f"({cells.sql} IS NOT NULL)::INT" for cells in spelled if cells.truth == column.truth]
    rows = work.rows(  # the first value with the fewest ways to read it
        f"SELECT {text}, {' + '.join(ways)} AS ways, row FROM "
        f"(SELECT *, row_number() OVER () AS row FROM {table.sql}) "
        f"WHERE {filled_sql(text, table)} IS NOT NULL ORDER BY ways, row LIMIT 1"
    )
    cell = f"{rows[0][0][:SHOWN]!r} in data row {rows[0][2]:,}" if rows else "no value"
    return DatasetError(f"{what} has {cell}, {trained}; correct that value.")


def empty_column(name: str, table: Table) -> DatasetError:
    """The error for a column without any value."""
    return DatasetError(
        f"column {name!r} of {table.label} is empty; fill it or drop it with "
        f"{option_name('drop', name)}."
    )


def whole_sql(column: str) -> str:
    """The branch of a CASE that gives whole numbers of a column of floats as text, without a point.

    >>> whole_sql("c0")[:14]
    'WHEN c0 = roun'
    """
    whole = f"{column} = round({column}) AND abs({column}) < 9007199254740992"
    return f"WHEN {whole} THEN CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR)"


def label_sql(table: Table, name: str) -> str:
    """Cells as classes: text as it is, whole numbers without a decimal point."""
    column, type_ = table.columns[name], table.types[name]
    if not is_float(type_):
        return text_sql(column)
    number = f"CAST({column} AS DOUBLE)"
    text = f"CAST({number if type_.startswith('DECIMAL') else column} AS VARCHAR)"
    return f"CASE WHEN isnan({number}) THEN NULL {whole_sql(column)} ELSE {text} END"


class NumberFit:
    """Statistics of columns of numbers, side by side, over blocks of rows.

    >>> fit = NumberFit(rows=3, width=1, scale="standard")
    >>> fit.add(np.array([[1.0], [np.nan], [3.0]]))
    >>> fit.column(NumberColumn, "x", slice(0, 1)).centre
    (2.0,)
    """

    def __init__(self, rows: int, width: int, scale: str) -> None:
        self._scale, self._mean, self._squares = scale, np.zeros(width), np.zeros(width)
        self._stride = max(1, -(-rows * width // SAMPLE))
        self._sample: list[np.ndarray] = []
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self._binary, self._seen = np.ones(width, bool), 0
        self.filled = np.zeros(width, np.int64)  # number of cells that are not missing

    def add(self, cells: np.ndarray) -> None:
        """The next rows, (rows, width), NaN for gaps."""
        gaps = np.isnan(cells)
        counts = (~gaps).sum(axis=0)
        self._binary &= ((cells == 0) | (cells == 1) | gaps).all(axis=0)
        np.fmin(self._low, np.fmin.reduce(cells, axis=0), out=self._low)
        np.fmax(self._high, np.fmax.reduce(cells, axis=0), out=self._high)
        if self._scale == "robust":
            self._sample.append(cells[-self._seen % self._stride :: self._stride])
        # merge the mean and squares of earlier rows and of these (Chan, Golub and LeVeque);
        # importing scikit-learn for it would take 130 MB of an import's memory
        values = squeezed(cells) if self._scale == "log" else cells
        mean = np.nansum(values, axis=0) / np.maximum(counts, 1)
        apart = np.where(counts > 0, mean - self._mean, 0.0)
        share = counts / np.maximum(self.filled + counts, 1)
        self._squares += np.nansum((values - mean) ** 2, axis=0) + apart**2 * self.filled * share
        self._mean += share * apart
        self.filled += counts
        self._seen += len(cells)

    @property
    def span(self) -> np.ndarray:
        """The largest number of every column minus the smallest."""
        return self._high - self._low

    @cached_property
    def _scales(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and scale of every column, 0 and 1 where it has no number."""
        centre, scale = self._mean, np.sqrt(self._squares / np.maximum(self.filled, 1))
        if self._scale == "robust":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of a column without a number
                low, centre, high = np.nanpercentile(
                    np.concatenate(self._sample), [25, 50, 75], axis=0
                )
            scale = np.where(high > low, high - low, scale)
        centre = np.where(self.filled > 0, centre, 0.0)
        return centre, np.where((self.filled > 0) & (scale > 0), scale, 1.0)

    def column(
        self, type_: type[PreparedColumn], name: str, place: slice, *, truth: bool = False
    ) -> Any:
        """How the cells of the columns at ``place`` become features."""
        scale, low, high = self._scale, self._low[place], self._high[place]
        centre, by = (values[place] for values in self._scales)
        facts: dict[str, Any] = {"truth": truth}
        if type_ is ListColumn:
            facts["width"] = len(low)
        if np.isfinite(low).all():  # a place of a list may have no number at all
            facts |= {"low": tuple(low.tolist()), "high": tuple(high.tolist())}
        middle = stretched(centre) if scale == "log" else centre
        still, binary = low >= high, bool(self._binary[place].all())
        if binary:  # 0 and 1 stay; a 0 that never was a 1 would have weights of chance
            ones = still & (centre != 0) & (not truth)  # ones stand for a constant
            still, middle = still & ~ones, middle.clip(0, 1)
            centre, by = (still & (low == 1)).astype(float), np.ones_like(by)
        if scale != "none" and (still.any() or not binary):
            facts["centre"] = tuple(centre.tolist())
            facts["scale"] = tuple(np.where(still, CONSTANT, by).tolist())
            facts["log"] = scale == "log" and not binary
        if (self.filled[place] < self._seen).any():
            facts["fill"] = tuple(middle.tolist())
        return type_(name, **facts)


def block_rows(width: int) -> int:
    """Rows of a table of this width that are worked on at a time, whatever the memory."""
    return int(np.clip(BLOCK // max(width, 1), 16, 1 << 16))


class Features:
    """The feature columns of the DuckDB table ``cells``, whose ``rowid`` numbers the nodes.

    ``cells`` has the column ``id`` and, for the column ``name`` of the user's, ``x{i}`` with i its
    place in ``columns``: DOUBLE, DOUBLE[] or VARCHAR. The terms of texts of several words are those
    of the nodes ``train``, or of all if there are none; the scales of numbers are those of all.
    Where X has to be ``dense``, only the words of columns that the options name are features.
    """

    def __init__(
        self,
        work: Workspace,
        table: Table,
        columns: dict[str, Cells],
        nodes: int,
        prepare: Preparation,
        train: np.ndarray | None = None,
        *,
        dense: bool = False,
    ) -> None:
        self._work, self._table, self._nodes = work, table, nodes
        self._train, self._dense = train, dense
        self._columns = dict(columns)
        self._place = {name: f"x{i}" for i, name in enumerate(columns)}
        self._options, self._widths = prepare.options, dict[str, int]()
        if prepare.columns is None:
            prepare = self._fitted(prepare)
        else:
            for column in prepare.columns:
                if isinstance(column, ListColumn):
                    self._check_lengths(column.name, column.width, "in training")
            self._warn_about_news(prepare.columns)
        self.preparation, self.names = prepare, prepare.names
        self._widths |= {column.name: column.width for column in prepare.fitted}
        origins: dict[str, str] = {}
        for column in prepare.fitted:
            for feature in column.names():
                if origins.setdefault(feature, column.name) != column.name:
                    raise DatasetError(
                        f"columns {origins[feature]!r} and {column.name!r} of {table.label} both "
                        f"produce the feature {feature!r}; rename one of them."
                    )

    # ------------------------------------------------------------------------- fitting

    def _fitted(self, prepare: Preparation) -> Preparation:
        words = {n: self._fit_words(n) for n, c in self._columns.items() if c.type is WordsColumn}
        for name, column in words.items():
            if column is None:
                raise DatasetError(
                    f"column {name!r} of {self._table.label} has no word that {MIN_ROWS} training "
                    f"nodes share; leave it out of {option_name('text')}."
                )
        texts = {n: self._fit_text(n) for n, c in self._columns.items() if c.type is TextColumn}
        fitted = {name: fit for name, fit in texts.items() if fit is not None}
        still = [name for name, (_, changes) in fitted.items() if not changes]
        if len(still) == len(self._columns):
            still = []
        prepared: dict[str, Any] = {
            n: column for n, (column, _) in fitted.items() if n not in still
        }
        prepared |= words
        prepared |= self._fit_numbers(
            [name for name in self._columns if name not in (*texts, *words)]
        )
        self._columns |= {
            name: cells._replace(type=type(prepared[name]))
            for name, cells in self._columns.items()
            if name in prepared
        }
        if not prepared:
            raise DatasetError(
                f"{self._table.label} has no usable feature column, because its text columns look "
                "like titles or keys; add numbers, or text with repeated values."
            )
        still += [name for name, column in prepared.items() if column.constant]
        return dataclasses.replace(
            prepare,
            options=prepare.options.without(
                [name for name in self._columns if name not in prepared]
            ),
            columns=tuple(prepared[name] for name in self._columns if name in prepared),
            constant=tuple(name for name in self._columns if name in still),
        )

    def _fit_numbers(self, names: list[str]) -> dict[str, Any]:
        if not names:
            return {}
        self._widths = {name: self._width(name) for name in names}
        ends = np.cumsum([self._widths[name] for name in names]).tolist()
        places = {n: slice(end - self._widths[n], end) for n, end in zip(names, ends, strict=True)}
        fit, rows = NumberFit(self._nodes, ends[-1], self._options.scale), block_rows(ends[-1])
        gaps = dict.fromkeys(names, 0)
        first: dict[str, int] = {}
        for start in range(0, self._nodes, rows):
            cells = np.hstack([*self._read(names, start, start + rows).values()])
            fit.add(cells)
            missing = np.isnan(cells)
            for name in names if missing.any() else ():
                empty = np.flatnonzero(missing[:, places[name]].any(axis=1)).tolist()
                gaps[name] += len(empty)
                if empty:
                    first.setdefault(name, start + empty[0])
        for name, place in places.items():
            if not fit.filled[place].any():
                raise empty_column(name, self._table)
        if first and self._options.gaps == REFUSE:
            columns = ", ".join(f"{name!r} ({gaps[name]:,} rows)" for name in names if gaps[name])
            node = self._node(next(first[name] for name in names if name in first))
            raise DatasetError(
                f"{self._table.label} has missing values: {columns}, the first for node {node!r}; "
                f"fill them, remove the column, or use {option_name('gaps', 'fill')}."
            )
        spans = {name: float(fit.span[place][0]) for name, place in places.items()}
        numbers = [name for name in names if self._columns[name].type is NumberColumn]
        self._warn_about_keys([n for n in numbers if spans[n] < KEY_SPAN * self._nodes])
        fitted = {}
        for name, place in places.items():
            cells = self._columns[name]
            column = fit.column(cells.type, name, place, truth=cells.truth)
            column = replace(column, sign=cells.sign) if cells.sign else column
            fitted[name] = replace(column, first=cells.first) if cells.first else column
        return fitted

    def _warn_about_keys(self, names: Sequence[str]) -> None:
        """Whole numbers that are all different, with few left out, are rather a key."""
        for name in names if self._nodes >= MIN_KEYS else ():
            column = self._place[name]
            different, whole = self._work.row(
                f"SELECT count(DISTINCT {column}), count_if({column} = round({column})) FROM cells"
            )
            if different == whole == self._nodes:
                warn(
                    f"column {name!r} of {self._table.label} has a different whole number in every "
                    "row, so it looks like an identifier but is used as a feature; leave it out "
                    f"with {option_name('drop', name)}."
                )

    def _node(self, row: int) -> str:
        return self._work.row(f"SELECT id FROM cells WHERE rowid = {row}")[0]

    def _width(self, name: str) -> int:
        if self._columns[name].type is not ListColumn:
            return 1
        column = self._place[name]
        rows = self._work.rows(
            f"SELECT len({column}), id FROM cells WHERE {column} IS NOT NULL ORDER BY rowid LIMIT 1"
        )
        if not rows or not rows[0][0]:
            raise empty_column(name, self._table)
        width, node = rows[0]
        self._check_lengths(name, width, f"for node {node!r}")
        return width

    def _check_lengths(self, name: str, width: int, where: str) -> None:
        column = self._place[name]
        other = self._work.rows(
            f"SELECT len({column}), id FROM cells WHERE len({column}) <> {width} "
            "ORDER BY rowid LIMIT 1"
        )
        if other:
            raise DatasetError(
                f"column {name!r} of {self._table.label} has {plural(other[0][0], 'number')} for "
                f"node {other[0][1]!r} but {width:,} {where}; all lists must have the same length."
            )

    def _fit_words(self, name: str) -> WordsColumn | None:
        """How a text becomes TF-IDF; None if no two rows of the training share a word.

        The most frequent words are kept, and of equally frequent ones the first by name. All
        distinct words of the training rows are held at a time.
        """
        from sklearn.feature_extraction.text import CountVectorizer

        analyze = CountVectorizer().build_analyzer()
        rows, uses, total = Counter[str](), Counter[str](), 0
        train = self._train if self._train is not None and len(self._train) else None
        step = block_rows(WORDS_WIDTH)
        for start in range(0, self._nodes, step):
            texts = self._read([name], start, start + step)[name]
            if train is not None:
                low, high = train.searchsorted([start, start + step])
                texts = texts[train[low:high] - start]
            total += len(texts)
            for text in texts:
                words = analyze(text) if text else ()
                uses.update(words)
                rows.update(set(words))
        frequent = sorted(
            (word for word, count in rows.items() if count >= MIN_ROWS),
            key=lambda word: (-uses[word], word),
        )
        terms = tuple(sorted(frequent[: self._options.terms]))
        if not terms:
            return None
        counts = np.array([rows[term] for term in terms])
        idf = 1 + np.log((1 + total) / (1 + counts))
        return WordsColumn(name, terms=terms, idf=tuple(idf.tolist()))

    def _fit_text(self, name: str) -> tuple[TextColumn | WordsColumn, bool] | None:
        """How a text becomes features and whether it ever changes; None if it is a key."""
        column, limit, label = self._place[name], self._options.categories, self._table.label
        many, filled = self._work.row(
            f"SELECT count(DISTINCT {column}), count({column}) FROM cells"
        )
        if not filled:
            raise empty_column(name, self._table)
        facts = f"text column {name!r} of {label} has {plural(many, 'different value')} "
        facts += f"in {plural(filled, 'row')}"
        if limit is None and many > MAX_VALUES:
            raise DatasetError(f"{facts}; remove it or replace it with numbers.")
        key = limit is not None and many >= max(MIN_KEYS, KEY_SHARE * filled)
        mistake = self._warn_about_typing(name, column, "left out" if key else "read as text")
        if limit is not None and (key or many > limit) and not mistake and self._has_words(column):
            words = None if self._dense else self._fit_words(name)
            if words is not None:
                return words, True
            if self._dense:
                warn(
                    f"{facts}; it is left out because graphs on disk and hop stores are dense; "
                    f"train in memory, or use a few words only with "
                    f"{option_name('text', name)} and {option_name('terms', 200)}."
                )
                return None
        if key:
            if not mistake:
                warn(
                    f"{facts}; it is left out because it looks like an identifier; "
                    f"{option_name('text', name)} makes features of its words."
                )
            return None
        most = limit - 1 if limit is not None and many > limit else None
        if most is not None and not mistake:
            warn(
                f"{facts}; the {most:,} most frequent become features and all others are merged "
                f"into {f'{name}={OTHER}'!r}; increase {option_name('categories')} if they matter."
            )
        rows = self._work.rows(
            f"SELECT {column} AS v FROM cells WHERE v IS NOT NULL GROUP BY v "
            f"ORDER BY count(*) DESC, v DESC {'' if most is None else f'LIMIT {most}'}"
        )
        values = sorted(value for (value,) in rows if most is None or value != OTHER)
        changes = limit is None or many > 1 or filled < self._nodes
        return TextColumn(name, values=tuple(values), other=most is not None), changes

    def _has_words(self, column: str) -> bool:
        """Whether a text has several words on average."""
        spaces = f"len(regexp_extract_all({column}, '\\s+'))"
        (mean,) = self._work.row(f"SELECT avg(1 + {spaces}) FROM cells WHERE {column} IS NOT NULL")
        return mean >= MIN_WORDS

    def _warn_about_typing(self, name: str, text: str, fate: str) -> bool:
        """One "1,5" makes a column of numbers a column of text, which deserves a warning."""
        comma = f"CASE WHEN regexp_full_match({text}, '[+-]?[0-9]+,[0-9]+') THEN 1 END"
        amounts = [amount_sql(text, sign, comma=self._table.comma) for sign in SIGNS]
        forms = [("number", f"coalesce({', '.join([comma, *amounts])})"), ("date", date_sql(text))]
        forms += [("date", slashed_sql(text, first)) for first in SLASHED]
        if self._table.spelled:
            forms.insert(0, ("number", number_sql(text, comma=self._table.comma)))
        if self._work.row(f"SELECT {codes_sql(text)} FROM cells")[0]:
            return False
        for what, sql in forms:
            good, total = self._work.row(f"SELECT count({sql}), count({text}) FROM cells")
            if 2 * good <= total:
                continue
            value, node = self._work.row(
                f"SELECT {text}, id FROM cells WHERE {text} IS NOT NULL "
                f"ORDER BY {sql} IS NOT NULL, rowid LIMIT 1"
            )
            form = "numbers with a decimal point" if what == "number" else "dates as 2024-12-31"
            other = "write it like the others, or leave it empty"
            advice = f"write {form}" if re.search(r"\d", value) else other
            warn(
                f"column {name!r} of {self._table.label} is {fate} because "
                f"{total - good or total:,} of {plural(total, 'value')} could not be read reliably "
                f"as a {what}, such as {value[:SHOWN]!r} (node {node!r}); {advice}."
            )
            return True
        return False

    def _warn_about_news(self, columns: Sequence[PreparedColumn]) -> None:
        """Warn of values and gaps that the training data did not have, and of other units."""
        new, gaps, outside = dict[str, int](), dict[str, int](), dict[str, int]()
        for column in columns:
            cell = self._place[column.name]
            if isinstance(column, TextColumn) and not column.other:
                unknown = f"SELECT count_if(NOT list_contains(?, {cell})) FROM cells"
                (new[column.name],) = self._work.row(unknown, [list(column.values)])
            elif isinstance(column, NumberColumn) and column.width == 1 and not column.fill:
                missing = f"SELECT count_if({cell} IS NULL OR isnan({cell})) FROM cells"
                (gaps[column.name],) = self._work.row(missing)
            if type(column) is NumberColumn and column.low != column.high:
                beyond = f"NOT isnan({cell}) AND ({cell} < ? OR {cell} > ?)"
                counts = f"SELECT count(*) FILTER ({beyond}), count({cell}) FROM cells"
                count, known = self._work.row(counts, [*column.low, *column.high])
                if count >= MIN_OUTSIDE and 2 * count > known:
                    outside[column.name] = count
        filled = "they are filled with the centre of the column"
        for counts, change, result in (
            (new, "values that the model does not know", "they are ignored"),
            (gaps, "missing values in columns that had none in training", filled),
            (outside, "numbers outside the range of training", "check their units"),
        ):
            names = [f"{name} ({count:,})" for name, count in sorted(counts.items()) if count]
            if names:
                warn(f"{self._table.label} has {change}: {', '.join(names)}; {result}.")

    # ------------------------------------------------------------------------- reading

    def _read(self, names: Sequence[str], start: int, stop: int) -> dict[str, np.ndarray]:
        """Cells of some rows: (rows, width) of float64 with NaN for gaps, or (rows,) of text.

        A table is scanned in the order of its rows.
        """
        rows = f"FROM cells WHERE rowid >= {start} AND rowid < {min(stop, self._nodes)}"
        lists = [name for name in names if self._columns[name].type is ListColumn]
        texts = [name for name in names if self._columns[name].type in (TextColumn, WordsColumn)]
        plain = [self._place[name] for name in names if name not in (*texts, *lists)]
        arrays = self._work.arrays(f"SELECT {', '.join(plain)} {rows}") if plain else {}
        words = [self._place[name] for name in texts]
        words = self._work.texts(f"SELECT {', '.join(words)} {rows}") if words else {}
        cells = {name: words[self._place[name]] for name in texts}
        for name in names:
            if name in cells:
                continue
            column, width = self._place[name], self._widths[name]
            if name in lists:
                items = f"unnest(coalesce({column}, list_resize([]::DOUBLE[], {width})))"
                arrays[column] = self._work.arrays(f"SELECT {items} AS v {rows}")["v"]
            numbers = np.ma.filled(arrays.pop(column), np.nan).reshape(-1, width)
            cells[name] = numbers.astype(np.float64, copy=False)
            with np.errstate(over="ignore"):
                infinite = np.argwhere(np.isinf(numbers.astype(np.float32)))
            if len(infinite):
                row, at = infinite[0].tolist()
                title = f"{name}[{at}]" if name in lists else name
                raise DatasetError(
                    f"column {title!r} of {self._table.label} contains infinity for node "
                    f"{self._node(start + row)!r}; correct it or remove the column."
                )
        return cells

    @property
    def sparse(self) -> bool:
        """Whether X has the words of a text, which are too many to be dense."""
        return any(isinstance(column, WordsColumn) for column in self.preparation.fitted)

    def blocks(self) -> Iterator[Any]:
        """X in float32, some rows at a time; CSR if it is sparse."""
        columns = self.preparation.fitted
        widths = (WORDS_WIDTH if isinstance(c, WordsColumn) else len(c.names()) for c in columns)
        rows, join = block_rows(sum(widths)), sp.hstack if self.sparse else np.hstack
        for start in range(0, self._nodes, rows):
            cells = self._read([column.name for column in columns], start, start + rows)
            block = join([column.prepared(cells.pop(column.name)) for column in columns])
            yield sp.csr_array(block) if self.sparse else block

    def dense_blocks(self) -> Iterator[np.ndarray]:
        """X in float32 and dense, some rows at a time."""
        rows = block_rows(len(self.names))
        for block in self.blocks():
            for start in range(0, block.shape[0] if self.sparse else 0, rows):
                yield block[start : start + rows].toarray()
            if not self.sparse:
                yield block

    def matrix(self) -> np.ndarray | sp.csr_array:
        """All of X, dense or CSR, whichever is smaller; CSR if it is sparse."""
        blocks, entries = [], 0
        for block in self.blocks():
            count = block.nnz if self.sparse else int(np.count_nonzero(block))
            entries += count
            few = count < SPARSE_BELOW * np.prod(block.shape)
            blocks.append(sp.csr_array(block) if few else block)
        if self.sparse or entries < SPARSE_BELOW * self._nodes * len(self.names):
            return sp.csr_array(sp.vstack(blocks, format="csr"))
        dense = [block.toarray() if sp.issparse(block) else block for block in blocks]
        return np.concatenate(dense) if dense else np.empty((0, len(self.names)), np.float32)


def check_trained_columns(
    table: Table, trained: Sequence[PreparedColumn], columns: Sequence[str]
) -> None:
    """DatasetError if a column is missing that a model was trained with; a warning of others."""
    for column in trained:
        if column.name not in columns:
            raise DatasetError(
                f"{table.label} has no column {column.name!r} (a {column.type_name}), which the "
                f"model was trained with; rename or add it.{nearest_hint(column.name, columns)}"
            )
    others = [name for name in columns if name not in {column.name for column in trained}]
    if others:
        warn(f"{table.label} has columns that the model does not use: {some_of(others)}.")


def prepared_matrix(
    column: str, matrix: np.ndarray, prepare: Preparation
) -> tuple[np.ndarray, tuple[str, ...], Preparation]:
    """X, its names and the fitted preparation of an array (n, d), as of a ``column`` of lists.

    >>> scaled, names, _ = prepared_matrix("x", np.array([[1.0], [3.0]]), Preparation())
    >>> scaled.tolist(), names
    ([[-1.0], [1.0]], ('x[0]',))
    """
    cells = np.asarray(matrix, np.float64)
    rows, width = cells.shape
    if np.isinf(cells).any():
        raise DatasetError(f"{column} contains infinity; correct it.")
    if prepare.columns is None:
        fit, step = NumberFit(rows, width, prepare.options.scale), block_rows(width)
        for start in range(0, rows, step):
            fit.add(cells[start : start + step])
        fitted = fit.column(ListColumn, column, slice(0, width))
        if fitted.fill and prepare.options.gaps == REFUSE:
            raise DatasetError(
                f"{column} contains NaN; fill the missing values, or use "
                f"{option_name('gaps', 'fill')}."
            )
        prepare = dataclasses.replace(prepare, columns=(fitted,))
    fitted = next((c for c in prepare.fitted if c.name == column), None)
    if fitted is None or fitted.width != width:
        raise DatasetError(f"{column} has {plural(width, 'column')}, unlike in training.")
    return fitted.prepared(cells), prepare.names, prepare
