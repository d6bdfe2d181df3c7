"""How the columns of a node table become X: fitted once, kept with graph, store and model.

A number x becomes (f(x) - centre) / scale, with f(x) = sign(x) log(1 + |x|) or x itself; a gap
becomes what ``fill`` becomes, and a 1 in the feature ``column=(missing)``. A text becomes a 1 in
the feature ``column=value``, or ``column=(other)`` if it is rare; a text of several words becomes
TF-IDF, a feature ``column: "word"`` for each term. All of it are plain numbers and strings, so it
is saved as JSON, and what a batch of rows becomes depends on no other row.
"""

# pyright: reportIncompatibleVariableOverride=false
# A field of a column takes the place of the constant that other columns have.

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import scipy.sparse as sp

from hoplite.config import (
    Checked,
    check_number,
    choice_setting,
    flag_setting,
    number_setting,
    setting,
)
from hoplite.errors import ConfigError, nearest_hint, option_name, plural, some_of
from hoplite.formatting import listing, short
from hoplite.labels import AUTO, TASK_WORDS

SCALES = ("standard", "robust", "log", "none")
FILL, REFUSE = "fill", "refuse"
ERROR, DROP, CREATE = UNKNOWN_NODES = ("error", "drop", "create")
MISSING, OTHER = "(missing)", "(other)"
MISSING_CELL = "missing"  # the text that stands for a missing cell
DIGITS = 6  # digits of an original value that float32 keeps
CONSTANT = 1e308  # the scale of a constant column, so that any later value becomes 0 in X


def _as_column(name: str, value: Any) -> Any:
    """A name of a column, whose white space at the ends does not count, as in tables."""
    return value.strip() if isinstance(value, str) else value


def _as_columns(name: str, value: Any) -> tuple[str, ...]:
    """Names of columns: a sequence, or text with commas."""
    columns = value.split(",") if isinstance(value, str) else value
    return tuple(column.strip() for column in columns if column.strip())


def _check_categories(name: str, value: Any) -> int | None:
    if value is not None:
        check_number(name, value, 2, whole=True)
    return value


@dataclass(frozen=True)
class TableOptions(Checked):
    """How node and edge tables are read.

    The fields are keyword arguments of :func:`hoplite.load` and options of the command line. For a
    trained model, only the names of tables and columns and ``unknown_nodes`` can be changed.

    Parameters
    ----------
    nodes, edges : str, optional
        Other files, tables of the database, or queries for the two tables.
    label, id : str, default "label" and "id"
        Columns of the node table.
    source, target, weight : str, default "source", "target" and "weight"
        Columns of the edge table.
    task : {"auto", "classification", "regression", "multilabel"}
        What the labels are.
    unknown_nodes : {"error", "drop", "create"}
        What to do with edges to nodes without a row.
    directed : bool, default False
        Keep the direction of edges.
    type : str, optional
        Column of the edge table with edge types.
    drop, only : sequence of str, optional
        Columns that are not features, or the only ones that are.
    text : sequence of str, optional
        Columns that become TF-IDF features.
    terms : int, default 20000
        Maximum number of terms of a text column.
    scale : {"standard", "robust", "log", "none"}
        How numbers are scaled.
    gaps : {"fill", "refuse"}
        Fill missing values and mark them, or raise an error.
    categories : int, default 50
        Maximum number of features of a text column.

    Examples
    --------
    >>> TableOptions(scale="minmax")
    Traceback (most recent call last):
    ...
    hoplite.errors.ConfigError: scale is 'minmax'; it must be one of standard, robust, log, none.
    """

    # ``reading`` marks options that may differ from those of training, and ``default_text`` is what
    # a help shows as the default
    nodes: str = setting(
        "",
        "Node table: a file in the folder, a table of the database, or a query.",
        reading=True,
        default_text="nodes",
    )
    edges: str = setting("", "Edge table, chosen like --nodes.", reading=True, default_text="edges")
    label: str = setting("label", "Label column.", _as_column, reading=True)
    id: str = setting("id", "Id column.", _as_column, reading=True)
    source: str = setting(
        "source", "Edge column with the id of the source.", _as_column, reading=True
    )
    target: str = setting(
        "target", "Edge column with the id of the target.", _as_column, reading=True
    )
    weight: str = setting("weight", "Edge column with the weight.", _as_column, reading=True)
    task: str = choice_setting(AUTO, "Task: classification, regression or multilabel.", TASK_WORDS)
    unknown_nodes: str = choice_setting(
        ERROR,
        "Edges to nodes without a row: error, drop (the edges) or create (empty nodes).",
        UNKNOWN_NODES,
        reading=True,
    )
    directed: bool = flag_setting(
        False, "Keep edge directions, with one polynomial for each (lgc, in memory)."
    )
    type: str = setting(
        "", "Edge column with types; each type has its own polynomial (lgc, in memory).", _as_column
    )
    drop: tuple[str, ...] = setting((), "Columns to ignore: A,B.", _as_columns)
    text: tuple[str, ...] = setting(
        (),
        "Columns to turn into TF-IDF features: A,B.",
        _as_columns,
        default_text="texts of several words",
    )
    terms: int = number_setting(20_000, "Maximum number of words per text column.", 1)
    only: tuple[str, ...] = setting(
        (), "Columns to use as features: A,B.", _as_columns, default_text="all"
    )
    scale: str = choice_setting(
        "standard",
        "Scaling of numbers: standard, robust (median and quartiles), log or none.",
        SCALES,
    )
    gaps: str = choice_setting(
        FILL, "Missing numbers: fill (and mark them) or refuse.", (FILL, REFUSE)
    )
    categories: int | None = setting(
        50, "Maximum number of categories per column; rarer ones are merged.", _check_categories
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.type, str):
            raise ConfigError(f"is {self.type!r}; it must be the name of a column.", "type")
        if len({*self.ends, self.weight, self.type}) < 4:
            names = ("source", "target", "weight", *(["type"] if self.type else []))
            roles = listing([option_name(name, getattr(self, name)) for name in names])
            raise ConfigError(f"{roles} must name different columns.")
        if self.drop and self.only:
            other = option_name("only")
            raise ConfigError(f"cannot be combined with {other}; pass one of them.", "drop")

    @property
    def ends(self) -> tuple[str, str]:
        """The columns of the two ends of edges."""
        return self.source, self.target

    @property
    def edge_columns(self) -> dict[str, str]:
        """The columns that an edge table must have, and the option that names each."""
        named = {self.source: "source", self.target: "target"}
        if self.weight != type(self).weight:  # without a name it need not be there
            named[self.weight] = "weight"
        return named | ({self.type: "type"} if self.type else {})

    def without(self, columns: Sequence[str]) -> TableOptions:
        """The options without ``columns`` as features."""
        if self.only:
            left = tuple(name for name in self.only if name not in columns)
            return dataclasses.replace(self, only=left)
        return dataclasses.replace(self, drop=(*self.drop, *columns))

    @classmethod
    def only_for_tables(cls, options: Mapping[str, Any]) -> dict[str, Any]:
        """The ``options`` that are not None and have no meaning for sources without columns."""
        return {
            name: value for name, value in options.items() if value is not None and name != "task"
        }

    @classmethod
    def check_names(cls, options: Iterable[str], others: Iterable[str] = ()) -> None:
        """ConfigError for an unknown option; the hint may also name one of ``others``.

        >>> TableOptions.check_names(["labels"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        hoplite.errors.ConfigError: 'labels' is not ... Did you mean 'label'?
        """
        names = cls.names()
        for name in options:
            if name not in names:
                raise ConfigError(
                    f"{name!r} is not an option of tables; use one of {', '.join(names)}."
                    f"{nearest_hint(name, [*names, *others])}"
                )

    @classmethod
    def names(cls, *, reading: bool = False) -> list[str]:
        """The names of the options; with ``reading``, of those that do not change X."""
        options = dataclasses.fields(cls)
        return [
            option.name for option in options if option.metadata.get("reading", False) >= reading
        ]


def refuse_options(
    source: Any, options: Mapping[str, Any], allowed: Iterable[str] = ()
) -> dict[str, Any]:
    """The options of tables that are given for a source without columns; ConfigError unless they
    are ``allowed``."""
    only_for_tables = TableOptions.only_for_tables(options)
    for name in only_for_tables:
        if name not in allowed:
            raise ConfigError(
                f"is an option of node and edge tables, but {short(source)} is not a "
                f"table; leave it out{''.join(f' or use {other}' for other in allowed)}.",
                name,
            )
    return only_for_tables


class PreparedColumn(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """One column of a node table: how its cells become features.

    There is a class for each type of cells; what it has learned from a table are plain numbers and
    texts, which are kept with the model as JSON.
    """

    name: str

    type_name: ClassVar[str]  # the word for the type of its cells
    width: ClassVar[int] = 1  # numbers in a cell
    values: ClassVar[tuple[str, ...]] = ()
    other: ClassVar[bool] = False
    categories: ClassVar[Sequence[str]] = ()  # values that have a feature each
    fill: ClassVar[tuple[float, ...]] = ()
    default_fill: ClassVar[tuple[float, ...]] = ()
    centre: ClassVar[tuple[float, ...]] = ()
    low: ClassVar[tuple[float, ...]] = ()
    high: ClassVar[tuple[float, ...]] = ()
    truth: ClassVar[bool] = False
    step: ClassVar[int] = 0  # how far apart the cells are: whole days; 0 if they are any numbers

    def names(self) -> list[str]:
        """The names of its features."""
        raise NotImplementedError

    def prepared(self, cells: np.ndarray) -> Any:
        """The features of ``cells`` (rows, ...): float32 (rows, features), CSR of words."""
        raise NotImplementedError

    @property
    def changed(self) -> tuple[Any, ...] | None:
        """The settings that determine its features in addition to their names; None if none do."""
        raise NotImplementedError

    @property
    def constant(self) -> bool:
        """Whether all cells were equal, so that nothing can be learned from it."""
        return False

    def is_plain(self, place: int) -> bool:
        """Whether feature ``place`` is the number itself."""
        return True

    def original(self, features: np.ndarray, place: int) -> float | str:
        """The cell that became feature ``place`` of a node with these ``features`` of the column.

        >>> age = NumberColumn("age", centre=(40.0,), scale=(10.0,))
        >>> age.original(np.array([0.5]), 0)
        45.0
        """
        return float(features[place])

    def value(self, feature: float, place: int) -> float:
        """The number in a cell that becomes ``feature`` at ``place``; infinite if it is too large.

        >>> NumberColumn("age", centre=(40.0,), scale=(10.0,)).value(-1.0, 0)
        30.0
        """
        return feature

    def to_cell(self, value: float) -> float | str | None:
        """The number as the cell shows it: a date, true or false; None if it is not a date."""
        return value


class NumberColumn(PreparedColumn, frozen=True, tag="number"):
    """A number x becomes (f(x) - centre) / scale, with f(x) = sign(x) log(1 + |x|) if ``log``.

    ``centre`` and ``scale`` are empty if they are 0 and 1; ``fill``, which stands for a gap, is
    empty if no cell was missing. ``low`` and ``high`` are the least and the largest that were seen,
    both in the unit of the cells. ``truth`` is for numbers that stand for true and false; ``sign``
    is the currency or % of the cells.

    >>> column = NumberColumn("age", centre=(40.0,), scale=(10.0,), fill=(40.0,))
    >>> column.prepared(np.array([[50.0], [np.nan]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> column.names()
    ['age', 'age=(missing)']
    """

    type_name = "number"
    centre: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    log: bool = False
    fill: tuple[float, ...] = ()
    truth: bool = False
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    sign: str = ""

    def __post_init__(self) -> None:
        for name in ("centre", "scale", "fill", "low", "high"):
            numbers = getattr(self, name)
            if numbers and len(numbers) != self.width:
                raise ValueError(f"{len(numbers):,} {name} of {self.width:,} features")
        if 0 in self.scale:
            raise ValueError("a scale of 0")

    @property
    def changed(self) -> tuple[Any, ...] | None:
        facts = (self.log, self.centre, self.scale, self.fill)
        return facts if any(facts) else None

    @property
    def constant(self) -> bool:
        return bool(self.scale) and not self.fill and all(by == CONSTANT for by in self.scale)

    def is_plain(self, place: int) -> bool:
        return not self.centre or (self.centre[place] == 0 and self.scale[place] == 1)

    def names(self) -> list[str]:
        return [*self._own_names(), *([f"{self.name}={MISSING}"] if self.fill else [])]

    def _own_names(self) -> list[str]:
        return [self.name]

    def prepared(self, cells: np.ndarray) -> np.ndarray:
        """The features of ``cells`` (rows, width) in float64, NaN where they are missing: float32.

        Not finite where a number is beyond float32.
        """
        gaps = np.isnan(cells)
        if gaps.any():
            cells = np.where(gaps, np.array(self.fill or self.default_fill), cells)
        with np.errstate(over="ignore"):
            if self.centre:
                cells = (squeezed(cells) if self.log else cells) - np.array(self.centre)
                cells /= np.array(self.scale)
            features = cells.astype(np.float32)
        return np.column_stack([features, gaps.any(axis=1)]) if self.fill else features

    @property
    def default_fill(self) -> tuple[float, ...]:
        """The value for gaps if training had none: the centre, in the unit of the cells."""
        centre = self.centre or (0.0,) * self.width
        return tuple(stretched(np.array(centre)).tolist()) if self.log else centre

    def original(self, features: np.ndarray, place: int) -> float | str:
        if place >= self.width:
            return float(features[place])
        if self.fill and features[self.width]:
            return MISSING_CELL
        value = self.value(float(features[place]), place)
        cell = self.to_cell(value)
        return float(f"{value:.{DIGITS}g}") if cell is None or cell == value else cell

    def value(self, feature: float, place: int) -> float:
        if not self.centre:
            return feature
        with np.errstate(over="ignore"):
            number = np.float64(feature) * self.scale[place] + self.centre[place]
        return float(stretched(np.array(number)) if self.log else number)

    def to_cell(self, value: float) -> float | str | None:
        return ("true" if value else "false") if self.truth and value in (0, 1) else value


class DateColumn(NumberColumn, frozen=True, tag="date"):
    """A date: days since 1970-01-01. ``first`` is what comes first in 03/04/2024."""

    type_name, step = "date", 1
    first: Literal["", "day", "month"] = ""

    def to_cell(self, value: float) -> float | str | None:
        try:
            return str(datetime.date(1970, 1, 1) + datetime.timedelta(days=round(value)))
        except (OverflowError, ValueError):
            return None


class TimeColumn(NumberColumn, frozen=True, tag="time"):
    """A time of day or a duration: seconds."""

    type_name = "time"


class ListColumn(NumberColumn, frozen=True, tag="list"):
    """A list of ``width`` numbers: a feature each, called ``column[0]``, ``column[1]``, ..."""

    type_name = "list"
    width: int = 1

    def _own_names(self) -> list[str]:
        return [f"{self.name}[{i}]" for i in range(self.width)]


class TextColumn(PreparedColumn, frozen=True, tag="text"):
    """A text becomes a 1 in the feature of its value; with ``other``, the rarer share one.

    >>> town = TextColumn("town", values=("Bonn", "Ulm"), other=True)
    >>> town.prepared(np.array(["Ulm", "Rome", None], object)).tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    type_name = "text"
    values: tuple[str, ...] = ()
    other: bool = False

    @property
    def changed(self) -> tuple[Any, ...] | None:
        return (self.values,) if self.other else None

    @property
    def categories(self) -> list[str]:
        return [*self.values, *([OTHER] if self.other else [])]

    def names(self) -> list[str]:
        return [f"{self.name}={end}" for end in self.categories]

    def prepared(self, cells: np.ndarray) -> np.ndarray:
        """The features of ``cells`` (rows,), texts or None: float32 of 0 and 1."""
        place = {value: i for i, value in enumerate(self.values)}
        rest = len(self.values) if self.other else -1
        places = [-1 if cell is None else place.get(cell, rest) for cell in cells.tolist()]
        columns = np.array(places, np.int64)
        features = np.zeros((len(cells), len(self.categories)), np.float32)
        filled = np.flatnonzero(columns >= 0)
        features[filled, columns[filled]] = 1
        return features


class WordsColumn(PreparedColumn, frozen=True, tag="words"):
    """A text of several words becomes TF-IDF: a number for each of the ``terms``.

        x_t = (1 + log tf_t) idf_t,   idf_t = 1 + log((1 + n) / (1 + df_t)),   divided by ||x||_2

    with tf_t how often the text has the term t, and df_t how many of the n training rows have it.
    Terms are words of at least two letters or digits in lower case, as those of scikit-learn's
    ``TfidfVectorizer(sublinear_tf=True)``. Words that are no terms do not count; a missing text is
    a row of zeros.

    >>> about = WordsColumn("about", terms=("graph", "library"), idf=(1.0, 1.5))
    >>> about.prepared(np.array(["A library.", None, "a Graph graph"], object)).toarray().tolist()
    [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    >>> about.names()
    ['about: "graph"', 'about: "library"']
    """

    type_name = "text"
    terms: tuple[str, ...] = ()
    idf: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.terms or len(set(self.terms)) < len(self.terms):
            raise ValueError("terms are missing or duplicated")
        if len(self.idf) != len(self.terms) or not np.isfinite(self.idf).all():
            raise ValueError(f"{len(self.idf):,} finite idf of {len(self.terms):,} terms")

    @property
    def changed(self) -> tuple[Any, ...] | None:
        return self.terms, self.idf

    def names(self) -> list[str]:
        return [f'{self.name}: "{term}"' for term in self.terms]

    def prepared(self, cells: np.ndarray) -> sp.csr_array:
        """The features of ``cells`` (rows,), texts or None: CSR of float32."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        place = {term: i for i, term in enumerate(self.terms)}
        vectorizer = TfidfVectorizer(vocabulary=place, sublinear_tf=True)
        vectorizer.idf_ = np.array(self.idf)
        features = vectorizer.transform("" if text is None else text for text in cells)
        return sp.csr_array(features).astype(np.float32)


COLUMN_TYPES = (NumberColumn, DateColumn, TimeColumn, ListColumn, TextColumn, WordsColumn)
AnyColumn = NumberColumn | DateColumn | TimeColumn | ListColumn | TextColumn | WordsColumn


def as_days(text: str) -> float | None:
    """Days since 1970-01-01 of 2020-12-31 or 31.12.2020, with or without a time; None if no date.

    >>> as_days("1970-01-02 12:00"), as_days("02.01.1970"), as_days("soon")
    (1.5, 1.0, None)
    """
    iso = re.sub(r"^(\d{2})\.(\d{2})\.(\d{4})\b", r"\3-\2-\1", text.strip())
    try:
        moment = datetime.datetime.fromisoformat(iso)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds() / 86400


def squeezed(values: np.ndarray) -> np.ndarray:
    """sign(x) log(1 + |x|), which is log1p where x is not negative."""
    return np.sign(values) * np.log1p(np.abs(values))


def stretched(values: np.ndarray) -> np.ndarray:
    """The inverse of :func:`squeezed`."""
    with np.errstate(over="ignore"):
        return np.sign(values) * np.expm1(np.abs(values))


@dataclass(frozen=True)
class Preparation:
    """How the columns of tables become features; a model stores it and applies it to new tables.

    Parameters
    ----------
    options : TableOptions
        How tables are read.
    columns : tuple, optional
        The fitted columns: type, centre, scale and values of each.
    transformer : str
        The type of a transformer of your own that made the features instead; it is not stored.
    unused : tuple of str
        Columns of the edge table that are not used.
    constant : tuple of str
        Columns of the node table that never change, so that nothing is learned from them.

    Examples
    --------
    >>> import hoplite, pandas as pd
    >>> nodes = pd.DataFrame({"id": [1, 2, 3], "age": [31, 45, None], "town": ["A", "B", "A"]})
    >>> edges = pd.DataFrame({"source": [1, 2], "target": [2, 3]})
    >>> hoplite.load((nodes, edges)).preparation.names
    ('age', 'age=(missing)', 'town=A', 'town=B')
    """

    options: TableOptions = TableOptions()
    columns: tuple[AnyColumn, ...] | None = None
    transformer: str = ""
    unused: tuple[str, ...] = ()
    constant: tuple[str, ...] = ()

    @property
    def fitted(self) -> tuple[AnyColumn, ...]:
        """The columns with what was learned of each; empty before any table was read."""
        return self.columns or ()

    @property
    def scales(self) -> bool:
        """Whether numbers that are not just 0 and 1 are scaled."""
        return bool(self.columns) and self.options.scale != "none"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(name for column in self.fitted for name in column.names())

    def original(self, row: np.ndarray) -> list[float | str]:
        """The cells that became the features ``row`` (d,) of a node; other features as they are."""
        cells: list[float | str] = []
        for column in self.fitted:
            width = len(column.names())
            features = row[len(cells) : len(cells) + width]
            cells += [column.original(features, place) for place in range(width)]
        return [*cells, *row[len(cells) :].tolist()]

    def summary(self, added: Sequence[str] = ()) -> str:
        """A description in one line, with the names of features that were ``added``.

        >>> age = NumberColumn("age", centre=(40.0,), scale=(10.0,), fill=(40.0,))
        >>> born = DateColumn("born", centre=(7000.0,), scale=(99.0,))
        >>> Preparation(columns=(age, born)).summary()
        '1 numeric column (age) and 1 date column (born) scaled, gaps in 1 column filled'
        """
        more = f", {' and '.join(added)} added" if added else ""
        left = f". Dropped as constant: {some_of(self.constant)}" if self.constant else ""
        if self.transformer:
            return f"by {self.transformer}, your own{more}{left}"
        used = [column for column in self.fitted if column.name not in self.constant]
        texts = [column for column in used if isinstance(column, TextColumn)]
        words = [column for column in used if isinstance(column, WordsColumn)]
        numbers = [column for column in used if isinstance(column, NumberColumn)]
        scaled = [column for column in numbers if column.centre]
        plain = [column for column in numbers if not column.centre]
        filled = sum(bool(column.fill) for column in self.fitted)
        how = "" if self.options.scale == "standard" else f" ({self.options.scale})"
        parts = {
            f"{_list_columns(scaled)} scaled{how}": len(scaled),
            f"{_list_columns(plain)} as {'it is' if len(plain) == 1 else 'they are'}": len(plain),
            f"gaps in {plural(filled, 'column')} filled": filled,
            f"{_list_columns(texts)} one-hot encoded": len(texts),
        } | {
            f"words of {column.name!r} as TF-IDF ({plural(len(column.terms), 'term')})": 1
            for column in words
        }
        text = ", ".join(text for text, count in parts.items() if count) + more
        return (text.removeprefix(", ") + left).removeprefix(". ")


def _list_columns(columns: Sequence[PreparedColumn]) -> str:
    """The columns of each type: ``2 numeric columns (age, size) and 1 date column (born)``."""
    parts = []
    for type_name in dict.fromkeys(type_.type_name for type_ in COLUMN_TYPES):
        names = [column.name for column in columns if column.type_name == type_name]
        noun = f"{type_name.replace('number', 'numeric')} column"
        parts += [f"{plural(len(names), noun)} ({some_of(names)})"] if names else []
    return listing(parts or [""])


# How tables are read for a model whose training data had no preparation.
AS_THEY_ARE = Preparation(TableOptions(scale="none", gaps=REFUSE, categories=None))


def changes(preparation: Preparation | None) -> dict[str, tuple[Any, ...]]:
    """How each column is transformed; features of equal names agree if these do."""
    columns = () if preparation is None else preparation.fitted
    return {column.name: column.changed for column in columns if column.changed is not None}


def chosen_preparation(prepare: Any, options: Mapping[str, Any]) -> Preparation:
    """The preparation that a user's ``prepare`` and ``options`` of tables mean.

    ``prepare`` is None, a Preparation, or what has one: a trained model, a graph, a store. With
    it, only what does not change X (``label``, ``id``, ``source``, ...) may be set.
    """
    chosen = {name: value for name, value in options.items() if value is not None}
    TableOptions.check_names(chosen)
    if prepare is None:
        return Preparation(TableOptions(**chosen))
    preparation = getattr(prepare, "preparation", prepare)
    if preparation is None:
        preparation = AS_THEY_ARE
    if not isinstance(preparation, Preparation):
        raise ConfigError(
            f"prepare has type {type(prepare).__name__}; pass a trained model, a graph, a graph's "
            "preparation, or a fitted scikit-learn transformer."
        )
    if preparation.transformer:
        raise ConfigError(
            f"the model's features come from {preparation.transformer}, a transformer that is not "
            "saved with the model; load the tables in Python with hoplite.load(folder, "
            "prepare=transformer) and call model.predict(graph)."
        )
    task = getattr(prepare, "task", None)  # of a model, whose labels are not asked about
    fixed_task = {} if task is None else {"task": task.labels.task}
    free = TableOptions.names(reading=True)
    fixed = [name for name in TableOptions.only_for_tables(chosen) if name not in free]
    fixed += [name for name, value in fixed_task.items() if chosen.get(name, value) != value]
    if fixed:
        raise ConfigError(f"{fixed[0]} is determined by the trained model; leave it out.")
    # a query comes from the user, never from a model file, which may be untrusted
    overrides = {"nodes": "", "edges": ""} | chosen | fixed_task
    return dataclasses.replace(
        preparation, options=dataclasses.replace(preparation.options, **overrides)
    )
