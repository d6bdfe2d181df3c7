"""Predictions as a table: one row per node with its id and the model's outputs."""

from __future__ import annotations

import itertools
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.config import check_number
from hoplite.errors import (
    ConfigError,
    HopliteError,
    HopliteWarning,
    by_interface,
    check_choice,
    nearest_hint,
    option_name,
    plural,
)
from hoplite.files import atomic_write
from hoplite.graph import PARTS, NodeData
from hoplite.io.convert import converted
from hoplite.io.node_files import all_integers
from hoplite.io.sources import Workspace, literal, quoted
from hoplite.labels import distinct, known_labels
from hoplite.models.trained import SPLIT, TrainedModel, check_trained, split_facts
from hoplite.progress import Steps, steps_bar, watched

ROWS = 1 << 16  # rows of the table at a time
WRITER_MEMORY = 64 * 10**6  # bytes of DuckDB, which writes the table
SQL_TYPES = {
    "object": "VARCHAR",
    "bool": "BOOLEAN",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
Columns = dict[str, np.ndarray]  # of a table, or of some of its rows; text is of type object


def predictions(
    model: TrainedModel,
    data: NodeData,
    *,
    memory: str | int | None = None,
    proba: bool = False,
    coverage: float | None = None,
    by_class: bool = False,
    unlabelled: bool = False,
    nodes: np.ndarray | None = None,
    progress: bool | Steps | None = False,
) -> Iterator[Columns]:
    """A table with a row for every node, in their order, some rows at a time.

    - ``id``: the data's node ids, or 0 .. n-1.
    - The task's columns: ``predicted`` and, for classes, its ``probability``.
    - For one of several classes per node: the ``runner_up``, the most probable other class,
      and the ``margin``, how much less probable it is. Below 0 a chosen threshold decided.
    - ``neighbours``: how many nodes the node is joined with, where the edges are known.
    - With a ``coverage``, such as 0.9: the prediction ``set``, as ``a|b``, and its ``set_size``; of
      numbers ``low`` and ``high``. See :meth:`TrainedModel.prediction_sets`, also ``by_class``.
    - ``split``, where the data states one or has that of the training: train, val, test or None.
    - With ``proba`` the probability of every class, see :func:`class_columns`.

    With ``unlabelled`` only nodes without a label, and with ``nodes`` only these, which are sorted.

    ``memory`` is for hop stores: the peak of this process, such as ``"700MB"``. ``progress`` is
    True for a bar while the batches are made, or called with what is done and its share.
    """
    data = converted(data, prepare=model)
    sets = None if coverage is None else model.set_maker(data, coverage, by_class=by_class)
    if proba and not model.task.has_classes:
        raise ConfigError("requires a classifier, but this model predicts numbers.", "proba")
    pieces = model.logit_rows(data, memory=memory)
    first = next(pieces)
    ids, names = data.node_ids, class_columns(model.class_names)
    parts, whole = _split_parts(model, data), ids is None or all_integers(ids)
    id_type = np.int64 if whole else object
    edges, pairs = data.adjacency_rows, model.task.exclusive and len(names) > 1
    included = np.full(data.num_nodes, nodes is None)
    if nodes is not None:
        included[nodes] = True
    if unlabelled:
        included &= ~known_labels(data.labels)

    def columns(nodes: range, logits: np.ndarray) -> Columns:
        batch_ids = nodes if ids is None else ids[nodes.start : nodes.stop]
        table = {"id": np.array([*map(int if whole else str, batch_ids)], id_type)}
        table |= model.task.columns(logits, model.class_names)
        if pairs:
            table |= _runners_up(model, logits)
        if sets is not None:
            table |= model.task.set_columns(sets(nodes, logits), model.class_names)
        if edges is not None:
            table["neighbours"] = np.diff(edges.indptr(nodes.start, nodes.stop))
        if parts is not None:
            table["split"] = np.array([*PARTS, None])[parts[nodes.start : nodes.stop]]
        if proba:
            table |= dict(zip(names, model.task.link(logits).T, strict=True))
        rows = included[nodes.start : nodes.stop]
        return table if rows.all() else {name: cells[rows] for name, cells in table.items()}

    def batches() -> Iterator[Columns]:
        with watched(progress, steps_bar, f"predict {data.name}") as report:
            for start, logits in itertools.chain([first], pieces):
                for low in range(0, len(logits), ROWS):
                    part = logits[low : low + ROWS]
                    nodes = range(start + low, start + low + len(part))
                    yield columns(nodes, part)
                    if report is not None:
                        report(f"predict {data.name}", nodes.stop / data.num_nodes)

    return batches()


def predict_table(
    model: TrainedModel,
    data: NodeData,
    *,
    sort: str | None = None,
    top: int | None = None,
    ascending: bool = False,
    **options: Any,
) -> Columns:
    """Predictions of a model as a table, the one of ``hoplite predict``.

    Parameters
    ----------
    model : TrainedModel
    data : NodeData, or whatever :func:`hoplite.open_data` accepts
    sort : str, optional
        Column to sort by: numbers descending, ids and text ascending; ties keep the order of the
        data. ``p_CLASS`` is added if it is missing.
    top : int, optional
        Maximum number of rows. Without ``sort``, rows are sorted by the probability of the rarer of
        two classes, by that of the predicted class of several, or by the predicted number.
    ascending : bool, default False
        Sort numbers ascending as well: the least certain nodes first.
    **options
        As for :func:`hoplite.predictions.predictions`, e.g. ``proba=True, coverage=0.9``.

    Returns
    -------
    dict of ndarray
        The columns; ``pandas.DataFrame(table)`` accepts them.

    Examples
    --------
    >>> import hoplite
    >>> graph = hoplite.load("cora")
    >>> model = hoplite.train(graph, "sgc", hops=2, epochs=5).model
    >>> list(hoplite.predict_table(model, graph, top=3))
    ['id', 'predicted', 'probability', 'runner_up', 'margin', 'neighbours', 'split']
    """
    check_trained(model)
    for name in options.keys() - signature(predictions).parameters:
        hint = nearest_hint(name, signature(predictions).parameters)
        raise ConfigError(f"{name!r} is not an option of predict_table.{hint}")
    order = Order.of(model, sort, top, ascending=ascending)
    options["proba"] = options.get("proba", False) or order.column in class_columns(
        model.class_names
    )
    batches = list(predictions(model, data, **options))
    table = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    isolated = int((table["neighbours"] == 0).sum()) if "neighbours" in table else 0
    if isolated and model.config.reads_neighbours:
        note = isolated_note(model, isolated, len(table["id"]))
        warnings.warn(note, HopliteWarning, stacklevel=2)
    return order.sorted(table)


def isolated_note(model: TrainedModel, isolated: int, rows: int) -> str:
    """A sentence on the nodes without an edge, of so many rows of predictions."""
    note = f"{isolated:,} of {plural(rows, 'node')} {'has' if isolated == 1 else 'have'} no edge"
    if not model.config.reads_neighbours:
        return f"{note}."
    subject, own, them = ("it is", "its", "it") if isolated == 1 else ("they are", "their", "them")
    first = by_interface('sort="neighbours", ascending=True', "--sort neighbours --ascending")
    return (
        f"{note}: {subject} predicted from {own} own columns alone, less reliably. Check {them} by "
        f"hand; {first} lists {them} first."
    )


@dataclass(frozen=True)
class Order:
    """The column that sorts a table of predictions ("" for none), and the number of rows."""

    column: str = ""
    top: int | None = None
    ascending: bool = False  # of numbers; ids and text always are

    @classmethod
    def of(
        cls, model: TrainedModel, sort: str | None, top: int | None, *, ascending: bool = False
    ) -> Order:
        """See :func:`predict_table`."""
        if ascending and sort is None and top is None:
            raise ConfigError(
                f"requires {option_name('sort')} or {option_name('top')}.", "ascending"
            )
        if top is not None:
            check_number("top", top, 1, whole=True)
        positive = getattr(model.task, "positive", None)
        if sort is not None and sort.startswith("p_") and model.class_names:
            check_choice("sort", sort, class_columns(model.class_names))
        if sort is None and top is not None:
            if positive is not None:
                sort = class_columns(model.class_names)[positive]
            elif model.task.has_classes and not model.task.exclusive:
                needed = f"requires {option_name('sort')}, because nodes have several labels."
                raise ConfigError(needed, "top")
            else:
                sort = "probability" if model.task.has_classes else "predicted"
        return cls(sort or "", top, ascending)

    def _check(self, names: Sequence[str]) -> None:
        if self.column and self.column not in names:
            raise ConfigError(
                f"is {self.column!r}; it must be one of {', '.join(names)}."
                f"{nearest_hint(self.column, names)}",
                "sort",
            )

    def sorted(self, table: Columns) -> Columns:
        """The sorted rows of a table in memory.

        >>> table = {"id": np.array([1, 2, 3]), "margin": np.array([0.1, 0.3, 0.1])}
        >>> Order("margin", 2).sorted(table)["id"].tolist()
        [2, 1]
        """
        self._check([*table])
        if not self.column:
            return table
        cells = table[self.column]
        if cells.dtype == object:
            last = [(cell is None, cell or "") for cell in cells]
            rows = np.array(sorted(range(len(cells)), key=last.__getitem__), np.int64)
        else:
            upwards = self.ascending or self.column == "id"
            rows = np.argsort(cells if upwards else -cells, kind="stable")
        return {name: values[rows[: self.top]] for name, values in table.items()}

    def sql(self, table: Columns) -> str:
        """The end of a query that sorts a table of DuckDB with the columns c0, c1, ..."""
        self._check([*table])
        if not self.column:
            return ""
        number = table[self.column].dtype != object and self.column != "id"
        way = "DESC NULLS LAST" if number and not self.ascending else "NULLS LAST"
        place = [*table].index(self.column)
        return f"ORDER BY c{place} {way}, rowid" + (f" LIMIT {self.top}" if self.top else "")


def class_columns(names: Sequence[str]) -> list[str]:
    """A column for the probability of each class: its name behind ``p_``, so that none is ``id``.

    >>> class_columns(["id", "a,b", "a,b"])  # a graph made in Python may have a name twice
    ['p_id', 'p_a,b', 'p_a,b (2)']
    """
    return distinct([f"p_{name}" for name in names])


def _runners_up(model: TrainedModel, logits: np.ndarray) -> Columns:
    """``runner_up`` and ``margin`` of the predictions."""
    probabilities, winners = model.task.link(logits), model.task.predict(logits)
    rows, others = np.arange(len(winners)), np.array(probabilities)
    others[rows, winners] = -1
    second = others.argmax(axis=1)
    return {
        "runner_up": np.array(model.class_names, object)[second],
        "margin": probabilities[rows, winners] - probabilities[rows, second],
    }


def _split_parts(model: TrainedModel, data: NodeData) -> np.ndarray | None:
    """The number of each node's part; None if the split is not to be shown.

    A split that was drawn is shown only if the model was trained with the same one.
    """
    split, facts = data.split, split_facts(data.split)
    same = split.seed is None or model.training.get(SPLIT, facts) == facts
    if not same or not any(split.sizes().values()):
        return None
    numbers = np.full(data.num_nodes, len(PARTS), np.int8)
    for number, part in enumerate(PARTS):
        numbers[getattr(split, part)] = number
    return numbers


def write_table(batches: Iterable[Columns], path: Path, order: Order | None = None) -> int:
    """Write rows, some at a time, as CSV or Parquet by the ending of ``path``, all or nothing.

    Returns how many the file has.
    """
    form = "CSV, HEADER" if path.suffix.lower() == ".csv" else "PARQUET"
    chosen = sorting = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Workspace(WRITER_MEMORY) as work:
            for batch in batches:
                if not chosen:
                    work.keep_on_disk(len(batch))
                    types = (SQL_TYPES[str(column.dtype)] for column in batch.values())
                    columns = ", ".join(f"c{i} {sql}" for i, sql in enumerate(types))
                    work.rows(f"CREATE TABLE written ({columns})")
                    chosen = ", ".join(f"c{i} AS {quoted(name)}" for i, name in enumerate(batch))
                    sorting = (order or Order()).sql(batch)
                work.insert("written", {f"c{i}": cells for i, cells in enumerate(batch.values())})
            place = work.scratch / "table"
            rows = f"(SELECT {chosen} FROM written {sorting})"
            (count,) = work.row(f"COPY {rows} TO {literal(str(place))} (FORMAT {form})")
            with place.open("rb") as finished, atomic_write(path) as file:
                shutil.copyfileobj(finished, file)
            return count
    except OSError as error:
        raise HopliteError(f"cannot write {path}: {error.strerror or error}.") from error
