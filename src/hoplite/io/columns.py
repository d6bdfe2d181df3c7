"""Feature columns of a node table: what their cells mean, and how they become X.

DuckDB reads and types the cells; scikit-learn's scalers are fitted to blocks of rows whose size
depends on the table's width alone, so that threads and memory change no bit. What was fitted is a
:class:`hoplite.Preparation`, plain numbers that are kept with the model.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from hoplite.errors import DatasetError, HopliteWarning, nearest_hint, some_of
from hoplite.io.sources import Table, Workspace
from hoplite.preparation import (
    DATE,
    LIST,
    NUMBER,
    OTHER,
    REFUSE,
    TEXT,
    TIME,
    Preparation,
    PreparedColumn,
    squeezed,
    stretched,
)

BLOCK = 1 << 20  # cells of X worked on at a time
SAMPLE = 1 << 21  # cells kept for the quartiles
SPARSE_BELOW = 0.1  # share of non-zero cells below which X is CSR
CONSTANT = 1e308  # the scale of what never changed: whatever comes later is 0 in X
MIN_KEYS, KEY_SHARE = 20, 0.9  # a text with so many values, hardly any repeated, is a key
MAX_VALUES = 10_000  # of a text without a limit of categories
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
_TIME = r"([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?"
_BLANK = r"^[\s\v\x{a0}\x{2007}\x{202f}\x{3000}]|[\s\v\x{a0}\x{2007}\x{202f}\x{3000}]$"
_TRUTHS = ("true", "false", "0", "1")


def is_text(kind: str) -> bool:
    """Whether a type of DuckDB is text, an enumeration, or another that is read as text."""
    return kind.startswith("ENUM") or kind in ("VARCHAR", "UUID", "JSON")


def is_integer(kind: str) -> bool:
    return kind.removeprefix("U") in INTEGERS


def is_number(kind: str) -> bool:
    return is_integer(kind) or kind == "BOOLEAN" or is_float(kind)


def is_float(kind: str) -> bool:
    return kind.partition("(")[0] in FLOATS and not kind.endswith("]")


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


def date_sql(text: str) -> str:
    """Days since 1970-01-01 of 2020-12-31 or 31.12.2020, with or without a time; else NULL."""
    iso = f"regexp_replace({text}, '{_ISO}', '\\3-\\2-\\1')"
    days = f"epoch_us(TRY_CAST({iso} AS TIMESTAMPTZ)) / 86400e6"
    return f"CASE WHEN regexp_full_match({iso}, '{_DATE}') THEN {days} END"


def truth_sql(text: str) -> str:
    """1 and 0 of true and false."""
    words = ", ".join(f"'{word}'" for word in _TRUTHS)
    return f"CASE WHEN lower({text}) IN ({words}) THEN (lower({text}) IN ('true', '1'))::DOUBLE END"


def time_sql(text: str) -> str:
    """Seconds since midnight of 12:30 or 12:30:00."""
    return (
        f"CASE WHEN regexp_full_match({text}, '{_TIME}') THEN epoch(TRY_CAST({text} AS TIME)) END"
    )


@dataclasses.dataclass(frozen=True)
class Cells:
    """How one column is read: its kind, and its cells in SQL, as DOUBLE, DOUBLE[] or VARCHAR."""

    kind: str
    sql: str
    truth: bool = False


def typed_cells(table: Table, name: str) -> Cells | None:
    """The cells of a column whose type says what they mean; None of text."""
    column, kind = table.column(name), table.type(name)
    if is_text(kind):
        return None
    if is_number(kind):
        return Cells(NUMBER, f"CAST({column} AS DOUBLE)", kind == "BOOLEAN")
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        stamp = column if "ZONE" in kind else f"CAST({column} AS TIMESTAMP)"
        return Cells(DATE, f"epoch_us({stamp}) / 86400e6")
    if kind.startswith(("TIME", "INTERVAL")):
        return Cells(TIME, f"epoch({column})")
    inner, bracket, _ = kind.rpartition("[")
    if bracket and (is_number(inner) or inner == '"NULL"'):
        return Cells(LIST, f"CAST(CAST({column} AS {inner}[]) AS DOUBLE[])")
    if kind == '"NULL"':
        return Cells(NUMBER, f"CAST({column} AS DOUBLE)")
    raise DatasetError(
        f"column {name!r} of {table.label} has type {kind}; features are numbers, lists of "
        "numbers, dates or text."
    )


WAYS = ((NUMBER, False), (NUMBER, True), (DATE, False), (TIME, False))  # kinds that text may spell


def spelled_sql(table: Table, name: str, kind: str, *, truth: bool) -> str:
    """The cells of a column of text that spells numbers, dates or times; NULL for other words."""
    text = text_sql(table.column(name))
    if kind == NUMBER:
        return truth_sql(text) if truth else number_sql(text, comma=table.comma)
    return date_sql(text) if kind == DATE else time_sql(text)


def spelled_cells(
    work: Workspace, table: Table, ways: Mapping[str, Sequence[tuple[str, bool]]]
) -> dict[str, Cells]:
    """The columns whose cells all spell numbers, dates or times, in the first way that fits.

    Plain numbers are tested first and as they are, because that is fast; of what is left, blanks
    and words that mean a gap do not count.
    """
    found, seen = dict[str, Cells](), dict[str, int]()

    def test(names: list[str], filled: Callable[[str], str], way: Callable[[str], Cells]) -> None:
        first = f"(SELECT * FROM {table.sql} LIMIT {SAMPLED})"  # which rules most of them out
        for rows in (first, table.sql):
            left, names = names, []
            for start in range(0, len(left), TESTED):
                some = left[start : start + TESTED]
                counts = [f"count({filled(name)}), count({way(name).sql})" for name in some]
                with work.clear_errors(table.label):
                    total, *row = work.one(f"SELECT count(*), {', '.join(counts)} FROM {rows}")
                for name, known, read in zip(some, row[::2], row[1::2], strict=True):
                    if table.spelled and rows != first and total and not known:
                        raise empty_column(name, table)
                    if known == read:
                        names.append(name)
                        seen[name] = known
        found.update({name: way(name) for name in names if seen[name]})

    numbers = [name for name, kinds in ways.items() if (NUMBER, False) in kinds]
    test(
        numbers,
        table.column,
        lambda name: Cells(NUMBER, number_sql(table.column(name), comma=table.comma)),
    )
    for kind, truth in WAYS:
        test(
            [name for name, kinds in ways.items() if (kind, truth) in kinds and name not in found],
            lambda name: filled_sql(text_sql(table.column(name)), table),
            lambda name, kind=kind, truth=truth: Cells(
                kind, spelled_sql(table, name, kind, truth=truth), truth
            ),
        )
    return found


def guess_cells(work: Workspace, table: Table, names: Sequence[str]) -> dict[str, Cells]:
    """What columns mean, by their types and, of text, by all of their cells."""
    typed = {name: typed_cells(table, name) for name in names}
    ways = WAYS if table.spelled else ((DATE, False),)
    texts = {name: ways for name, cells in typed.items() if cells is None}
    spelled = spelled_cells(work, table, texts)
    return {
        name: cells or spelled.get(name) or Cells(TEXT, text_sql(table.column(name)))
        for name, cells in typed.items()
    }


def empty_column(name: str, table: Table) -> DatasetError:
    return DatasetError(
        f"column {name!r} of {table.label} is empty; fill it or leave it out (--drop {name}, drop= "
        "in Python)."
    )


def known_cells(
    work: Workspace, table: Table, wanted: Sequence[PreparedColumn]
) -> dict[str, Cells]:
    """The cells of the columns that a model was trained with."""
    found = {one.name: typed_cells(table, one.name) for one in wanted if one.kind != TEXT}
    texts = {
        one.name: [way for way in WAYS if way[0] == one.kind]
        for one in wanted
        if one.kind != TEXT and found[one.name] is None
    }
    spelled = spelled_cells(work, table, texts) if texts else {}
    for one in wanted:
        name, column = one.name, table.column(one.name)
        cells = found.get(name) or spelled.get(name)
        if one.kind == TEXT:
            cells = Cells(TEXT, label_sql(table, name))
        elif cells is None:
            raise _other_kind(work, table, one)
        elif cells.kind != one.kind and (table.type(name) != '"NULL"' or one.kind == LIST):
            raise DatasetError(
                f"column {name!r} of {table.label} has type {table.type(name)} but the model was "
                f"trained with a {one.kind}; give it as in training."
            )
        found[name] = Cells(LIST, f"CAST({column} AS DOUBLE[])") if one.kind == LIST else cells
    return {one.name: found[one.name] for one in wanted}  # pyright: ignore[reportReturnType]


def _other_kind(work: Workspace, table: Table, wanted: PreparedColumn) -> DatasetError:
    name, what = wanted.name, f"but the model was trained with a {wanted.kind}"
    text = text_sql(table.column(name))
    if wanted.kind == LIST:
        return DatasetError(f"column {name!r} of {table.label} is text {what}; correct it.")
    sql = spelled_sql(table, name, wanted.kind, truth=wanted.truth)
    rows = work.rows(
        f"SELECT {text} FROM {table.sql} WHERE {filled_sql(text, table)} IS NOT NULL "
        f"AND {sql} IS NULL LIMIT 1"
    )
    shown = repr(rows[0][0][:SHOWN]) if rows else "no value"
    return DatasetError(f"column {name!r} of {table.label} has {shown} {what}; correct that value.")


def label_sql(table: Table, name: str) -> str:
    """Cells as classes: text as it is, whole numbers without a decimal point."""
    column, kind = table.column(name), table.type(name)
    if not is_float(kind):
        return text_sql(column)
    whole = f"{column} = round({column}) AND abs({column}) < 9007199254740992"
    text = f"CAST({column} AS VARCHAR)"
    if kind.startswith("DECIMAL"):
        text = f"CAST(CAST({column} AS DOUBLE) AS VARCHAR)"
    return (
        f"CASE WHEN isnan(CAST({column} AS DOUBLE)) THEN NULL WHEN {whole} "
        f"THEN CAST(TRY_CAST({column} AS BIGINT) AS VARCHAR) ELSE {text} END"
    )


class NumberFit:
    """What all numbers of some columns, side by side, say together: block after block.

    >>> fit = NumberFit(rows=3, width=1, scale="standard")
    >>> fit.add(np.array([[1.0], [np.nan], [3.0]]))
    >>> fit.prepared("x", NUMBER, slice(0, 1)).centre
    (2.0,)
    """

    def __init__(self, rows: int, width: int, scale: str) -> None:
        from sklearn.preprocessing import StandardScaler

        self._scale, self._moments = scale, StandardScaler()
        self._stride = max(1, -(-rows * width // SAMPLE))
        self._sample: list[np.ndarray] = []
        self._low, self._high = np.full(width, np.inf), np.full(width, -np.inf)
        self._binary, self._seen = np.ones(width, bool), 0
        self._known = np.zeros(width, np.int64)

    def add(self, cells: np.ndarray) -> None:
        """The next rows, (rows, width), NaN for gaps."""
        gaps = np.isnan(cells)
        self._known += (~gaps).sum(axis=0)
        self._binary &= ((cells == 0) | (cells == 1) | gaps).all(axis=0)
        np.fmin(self._low, np.fmin.reduce(cells, axis=0), out=self._low)
        np.fmax(self._high, np.fmax.reduce(cells, axis=0), out=self._high)
        if self._scale == "robust":
            self._sample.append(cells[-self._seen % self._stride :: self._stride])
        with np.errstate(invalid="ignore", divide="ignore"):  # a column may have no number yet
            self._moments.partial_fit(squeezed(cells) if self._scale == "log" else cells)
        self._seen += len(cells)

    def finish(self) -> None:
        """After the last rows."""
        self.centre, self.scale = self._moments.mean_, self._moments.scale_
        if self._scale == "robust":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of a column without a number
                low, self.centre, high = np.nanpercentile(
                    np.concatenate(self._sample), [25, 50, 75], axis=0
                )
            self.scale = np.where(high > low, high - low, self.scale)
        self.centre = np.where(self._known > 0, self.centre, 0.0)
        self.scale = np.where((self._known > 0) & (self.scale > 0), self.scale, 1.0)

    def prepared(
        self, name: str, kind: str, place: slice, *, truth: bool = False, gaps: bool = False
    ) -> PreparedColumn:
        """How the cells of the columns at ``place`` become features."""
        if not hasattr(self, "centre"):
            self.finish()
        scale, low, high = self._scale, self._low[place], self._high[place]
        centre, by = self.centre[place], self.scale[place]
        found = PreparedColumn(name, kind, len(low), truth=truth)
        if np.isfinite(low).all():  # a place of a list may have no number at all
            found = dataclasses.replace(found, low=tuple(low.tolist()), high=tuple(high.tolist()))
        middle = stretched(centre) if scale == "log" else centre
        still, binary = low >= high, bool(self._binary[place].all())
        if binary:  # 0 and 1 stay; a 0 that never was a 1 would have weights of chance
            kept = still & (centre != 0) & (not truth)  # ones stand for a constant
            still, middle = still & ~kept, middle.clip(0, 1)
            centre, by = (still & (low == 1)).astype(float), np.ones_like(by)
        if scale != "none" and (still.any() or not binary):
            found = dataclasses.replace(
                found,
                centre=tuple(centre.tolist()),
                scale=tuple(np.where(still, CONSTANT, by).tolist()),
                log=scale == "log" and not binary,
            )
        return dataclasses.replace(found, fill=tuple(middle.tolist())) if gaps else found


def block_rows(width: int) -> int:
    """Rows of a table of this width that are worked on at a time, whatever the memory."""
    return int(np.clip(BLOCK // max(width, 1), 16, 1 << 16))


class Features:
    """The feature columns of the DuckDB table ``cells``, whose ``rowid`` numbers the nodes.

    ``cells`` has the column ``id`` and, for the column ``name`` of the user's, ``x{i}`` with i its
    place in ``columns``: DOUBLE, DOUBLE[] or VARCHAR.
    """

    def __init__(
        self,
        work: Workspace,
        table: Table,
        columns: dict[str, Cells],
        nodes: int,
        prepare: Preparation,
    ) -> None:
        self._work, self._table, self._nodes = work, table, nodes
        self._columns, self._place = columns, {name: f"x{i}" for i, name in enumerate(columns)}
        self._options, self._widths = prepare.options, dict[str, int]()
        self._types: dict[str, str] = {}
        if prepare.columns is None:
            self._prepared = self._fit()
            left = [name for name in columns if name not in self._prepared]
            options = prepare.options.without(left)
            still = [name for name, one in self._prepared.items() if _is_constant(one)]
            prepare = dataclasses.replace(
                prepare,
                options=options,
                columns=tuple(self._prepared.values()),
                constant=tuple(name for name in columns if name in {*self._left_out, *still}),
            )
        else:
            self._prepared = {one.name: one for one in prepare.columns}
            for name, one in self._prepared.items():
                if one.kind == LIST:
                    self._check_lengths(name, one.width, "in training")
            self._warn_about_news()
        self.preparation, self.names = prepare, prepare.names
        self._refuse_same_features()
        for name, one in self._prepared.items():
            if one.kind == TEXT:
                self._types[name] = self._enumeration(one.values)

    # ------------------------------------------------------------------------- fitting

    def _fit(self) -> dict[str, PreparedColumn]:
        texts = {n: self._fit_text(n) for n, c in self._columns.items() if c.kind == TEXT}
        numbers = [name for name in self._columns if name not in texts]
        self._left_out = [name for name, one in texts.items() if one is not None and not one[1]]
        if len(self._left_out) == len(self._columns):
            self._left_out = []
        kept = {name: one[0] for name, one in texts.items() if one and name not in self._left_out}
        if not numbers and not kept:
            raise DatasetError(
                f"{self._table.label} has no feature column left, as its texts are titles or keys; "
                "add numbers, or text that repeats."
            )
        kept |= self._fit_numbers(numbers)
        return {name: kept[name] for name in self._columns if name in kept}

    def _fit_numbers(self, names: list[str]) -> dict[str, PreparedColumn]:
        if not names:
            return {}
        for name in names:
            self._widths[name] = self._width(name)
        width = sum(self._widths.values())
        fit = NumberFit(self._nodes, width, self._options.scale)
        gaps, first = dict.fromkeys(names, 0), dict[str, int]()
        rows = block_rows(width)
        for start in range(0, self._nodes, rows):
            cells = self._numbers(names, start, min(start + rows, self._nodes))
            fit.add(cells)
            for name, place in self._places(names):
                empty = np.flatnonzero(np.isnan(cells[:, place]).any(axis=1)).tolist()
                gaps[name] += len(empty)
                if empty:
                    first.setdefault(name, start + empty[0])
        fit.finish()
        found = {}
        for name, place in self._places(names):
            one = self._columns[name]
            found[name] = fit.prepared(name, one.kind, place, truth=one.truth, gaps=gaps[name] > 0)
            if not fit._known[place].any():
                raise empty_column(name, self._table)
        filled = {name: count for name, count in gaps.items() if count}
        if filled and self._options.gaps == REFUSE:
            shown = ", ".join(f"{name!r} ({count:,} rows)" for name, count in filled.items())
            row = first[next(iter(filled))]
            (node,) = self._work.one(f"SELECT id FROM cells WHERE rowid = {row}")
            raise DatasetError(
                f"{self._table.label} has gaps: {shown}, first of node {node!r}; fill them "
                "or remove the column, or let --gaps fill do it."
            )
        return found

    def _width(self, name: str) -> int:
        if self._columns[name].kind != LIST:
            return 1
        column = self._place[name]
        found = self._work.rows(
            f"SELECT len({column}), id FROM cells WHERE {column} IS NOT NULL ORDER BY rowid LIMIT 1"
        )
        if not found or not found[0][0]:
            raise empty_column(name, self._table)
        width, node = found[0]
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
                f"column {name!r} of {self._table.label} has {other[0][0]:,} numbers for node "
                f"{other[0][1]!r} but {width:,} {where}; give all nodes lists of the same length."
            )

    def _fit_text(self, name: str) -> tuple[PreparedColumn, bool] | None:
        """How a text becomes features and whether it ever changes; None if it is a key."""
        column, limit, label = self._place[name], self._options.categories, self._table.label
        many, filled = self._work.one(
            f"SELECT count(DISTINCT {column}), count({column}) FROM cells"
        )
        said = f"text column {name!r} of {label} has {many:,} different values in {filled:,} rows"
        mistake = self._warn_about_typing(name, column)
        is_key = many >= MIN_KEYS and many >= KEY_SHARE * filled
        if not filled:
            raise empty_column(name, self._table)
        if limit is None and many > MAX_VALUES:
            raise DatasetError(f"{said}; remove it, or replace it by numbers.")
        if is_key and limit is not None:
            _warn(f"{said}; it is left out, as a title or a key is")
            return None
        kept = limit - 1 if limit is not None and many > limit else None
        if kept is not None and not mistake:
            _warn(
                f"{said}; the {kept:,} most frequent become features and all others "
                f"{f'{name}={OTHER}'!r}, so give more categories if they matter"
            )
        most = "" if kept is None else f"LIMIT {kept}"
        rows = self._work.rows(
            f"SELECT {column} AS v FROM cells WHERE v IS NOT NULL GROUP BY v "
            f"ORDER BY count(*) DESC, v DESC {most}"
        )
        values = sorted(value for (value,) in rows if kept is None or value != OTHER)
        found = PreparedColumn(name, TEXT, values=tuple(values), other=kept is not None)
        changes = limit is None or many > 1 or filled < self._nodes
        return found, changes

    def _warn_about_typing(self, name: str, column: str) -> bool:
        """One "1,5" makes a column of numbers a column of text, which deserves a warning."""
        text = f"({filled_sql(column, self._table)})"
        words = {"number": number_sql(text, comma=self._table.comma), "date": date_sql(text)}
        if not self._table.spelled:
            del words["number"]
        for what, sql in words.items():
            good, known = self._work.one(f"SELECT count({sql}), count({text}) FROM cells")
            if not 2 * good > known > good:
                continue
            value, node = self._work.one(
                f"SELECT {column}, id FROM cells WHERE {text} IS NOT NULL AND {sql} IS NULL "
                "ORDER BY rowid LIMIT 1"
            )
            bad = known - good
            _warn(
                f"column {name!r} of {self._table.label} is taken as text because {bad:,} of "
                f"{known:,} values {'is' if bad == 1 else 'are'} no {what}: {value[:SHOWN]!r} "
                f"(node {node!r}); correct {'it' if bad == 1 else 'them'} if {what}s are meant"
            )
            return True
        return False

    def _warn_about_news(self) -> None:
        """Which rows have what the training had not."""
        new, gaps = dict[str, int](), dict[str, int]()
        for name, one in self._prepared.items():
            column = self._place[name]
            if one.kind == TEXT and not one.other:
                kind = self._enumeration(one.values)
                odd, found = f"{column} IS NOT NULL AND TRY_CAST({column} AS {kind}) IS NULL", new
            elif one.kind not in (TEXT, LIST) and not one.fill:
                odd, found = f"{column} IS NULL OR isnan({column})", gaps
            else:
                continue
            if count := self._work.one(f"SELECT count_if({odd}) FROM cells")[0]:
                found[name] = count
        for names, what in (
            (new, "values that the model does not know: {}; they count as none"),
            (gaps, "gaps that the training had not: {}; the centre of the column stands for them"),
        ):
            if names:
                shown = ", ".join(f"{name} ({count:,})" for name, count in sorted(names.items()))
                _warn(f"{self._table.label} has {what.format(shown)}")

    def _enumeration(self, values: Sequence[str]) -> str:
        """A type of DuckDB whose codes are the places in ``values``."""
        name, held = self._work.name("words"), self._work.name("values")
        words = np.array(values or ["\0"], object)  # it may not be empty
        self._work.con.register(held, {"v": words, "i": np.arange(len(words))})
        self._work.rows(f"CREATE TYPE {name} AS ENUM (SELECT v FROM {held} ORDER BY i)")
        self._work.con.unregister(held)
        return name

    def _refuse_same_features(self) -> None:
        first: dict[str, str] = {}
        for name, column in self._prepared.items():
            for feature in column.names():
                if first.setdefault(feature, name) != name:
                    raise DatasetError(
                        f"columns {first[feature]!r} and {name!r} of {self._table.label} both give "
                        f"the feature {feature!r}; rename one of them."
                    )

    # ------------------------------------------------------------------------- reading

    def _places(self, names: Iterable[str]) -> Iterator[tuple[str, slice]]:
        start = 0
        for name in names:
            yield name, slice(start, start + self._widths[name])
            start += self._widths[name]

    def _numbers(self, names: list[str], start: int, stop: int) -> np.ndarray:
        """The cells of columns of numbers, side by side: (rows, width), NaN for gaps."""
        found = np.empty((stop - start, sum(self._widths[name] for name in names)))
        plain = [name for name in names if self._columns[name].kind != LIST]
        arrays = self._read([f"{self._place[name]}" for name in plain], start, stop)
        for name, place in self._places(names):
            if self._columns[name].kind != LIST:
                found[:, place.start] = np.ma.filled(arrays[self._place[name]], np.nan)
                continue
            column, width = self._place[name], self._widths[name]
            cells = f"unnest(coalesce({column}, list_resize([]::DOUBLE[], {width}))) AS v"
            values = np.ma.filled(self._read([cells], start, stop)["v"], np.nan)
            found[:, place] = values.reshape(-1, width)
        with np.errstate(over="ignore"):
            bad = np.argwhere(np.isinf(found.astype(np.float32)))
        if len(bad):
            row, at = bad[0].tolist()
            name, place = next(both for both in self._places(names) if both[1].stop > at)
            shown = name if self._columns[name].kind != LIST else f"{name}[{at - place.start}]"
            (node,) = self._work.one(f"SELECT id FROM cells WHERE rowid = {start + row}")
            raise DatasetError(
                f"column {shown!r} of {self._table.label} has no finite number for node {node!r}; "
                "correct it or remove the column."
            )
        return found

    def _read(self, columns: list[str], start: int, stop: int) -> dict[str, Any]:
        """Columns of some rows; a table is scanned in the order of its rows."""
        if not columns:
            return {}
        return self._work.arrays(
            f"SELECT {', '.join(columns)} FROM cells WHERE rowid >= {start} AND rowid < {stop}"
        )

    def blocks(self) -> Iterator[np.ndarray]:
        """X in float32, some rows at a time."""
        numbers = [name for name, one in self._prepared.items() if one.kind != TEXT]
        texts = [name for name, one in self._prepared.items() if one.kind == TEXT]
        self._widths |= {name: self._prepared[name].width for name in numbers}
        rows = block_rows(max(len(self.names), 1))
        coded = [
            f"enum_code(TRY_CAST({self._place[name]} AS {self._types[name]}))::INTEGER AS k{i}, "
            f"{self._place[name]} IS NOT NULL AS f{i}"
            for i, name in enumerate(texts)
        ]
        for start in range(0, self._nodes, rows):
            stop = min(start + rows, self._nodes)
            cells = self._numbers(numbers, start, stop)
            places, codes = dict(self._places(numbers)), self._read(coded, start, stop)
            out, at = np.zeros((stop - start, len(self.names)), np.float32), 0
            for name, one in self._prepared.items():
                width = len(one.names())
                if one.kind == TEXT:
                    i = texts.index(name)
                    code = np.ma.filled(codes[f"k{i}"], -1).astype(np.int64)
                    if one.other:
                        code[(code < 0) & np.asarray(codes[f"f{i}"])] = width - 1
                    known = np.flatnonzero((code >= 0) & (code < width))
                    out[known, at + code[known]] = 1
                else:
                    out[:, at : at + width] = one.prepared(cells[:, places[name]])
                at += width
            yield out

    def matrix(self) -> np.ndarray | sp.csr_array:
        """All of X, dense or CSR, whichever is smaller."""
        made, entries = [], 0
        for block in self.blocks():
            count = int(np.count_nonzero(block))
            entries += count
            made.append(sp.csr_array(block) if count < SPARSE_BELOW * block.size else block)
        if entries < SPARSE_BELOW * self._nodes * len(self.names):
            return sp.csr_array(sp.vstack(made, format="csr"))
        parts = [one.toarray() if sp.issparse(one) else one for one in made]
        return np.concatenate(parts) if parts else np.empty((0, len(self.names)), np.float32)


def _is_constant(column: PreparedColumn) -> bool:
    still = column.scale and all(by == CONSTANT for by in column.scale)
    return bool(still) and not column.fill


def check_known(table: Table, wanted: Sequence[PreparedColumn], columns: Sequence[str]) -> None:
    """DatasetError if a column lacks that a model was trained with; a warning of further ones."""
    for one in wanted:
        if one.name not in columns:
            raise DatasetError(
                f"{table.label} has no column {one.name!r}, a {one.kind} that the model was "
                f"trained with; add it.{nearest_hint(one.name, columns)}"
            )
    known = {one.name for one in wanted}
    others = [name for name in columns if name not in known]
    if others:
        _warn(f"{table.label} has columns that the model does not use: {some_of(others)}")


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
    fitted = {one.name: one for one in prepare.fitted}.get(column)
    if np.isinf(cells).any():
        raise DatasetError(f"{column} contains infinity; correct it.")
    if prepare.columns is None:
        fit, step = NumberFit(rows, width, prepare.options.scale), block_rows(width)
        for start in range(0, rows, step):
            fit.add(cells[start : start + step])
        gaps = bool(np.isnan(cells).any())
        if gaps and prepare.options.gaps == REFUSE:
            raise DatasetError(f"{column} contains NaN; fill the gaps, or let --gaps fill do it.")
        fitted = fit.prepared(column, LIST, slice(0, width), gaps=gaps)
        prepare = dataclasses.replace(prepare, columns=(fitted,))
    if fitted is None or fitted.width != width:
        raise DatasetError(f"{column} has {width:,} columns, other than in training.")
    return fitted.prepared(cells), prepare.names, prepare


def _warn(sentence: str) -> None:
    warnings.warn(f"{sentence}.", HopliteWarning, stacklevel=2)
