"""Predictions as a table: one row per node with its id and what the model tells of it."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hoplite.errors import ConfigError, HopliteError
from hoplite.files import atomic_write
from hoplite.graph import PARTS
from hoplite.io.array_files import all_integers
from hoplite.io.convert import converted
from hoplite.io.sources import Workspace, literal, quoted
from hoplite.labels import distinct
from hoplite.models.trained import SPLIT, TrainedModel, split_facts
from hoplite.node_data import NodeData
from hoplite.progress import Steps, steps_bar, watched

ROWS = 1 << 16  # of the table at a time
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
    progress: bool | Steps | None = False,
) -> Iterator[Columns]:
    """A table with a row for every node, in their order, some rows at a time.

    - ``id``: the data's node ids, or 0 .. n-1.
    - What the task tells: ``predicted`` and, of classes, its ``probability``.
    - With a ``coverage``, such as 0.9: the prediction ``set``, as ``a|b``, and its ``set_size``; of
      numbers ``low`` and ``high``. See :meth:`TrainedModel.prediction_sets`, also ``by_class``.
    - ``split``, where the data states one or has that of the training: train, val, test or None.
    - With ``proba`` the probability of every class, see :func:`class_columns`.

    ``memory`` is for hop stores: the peak of this process, such as ``"700MB"``. ``progress`` is
    True for a bar while the batches are made, or called with what is done and its share.
    """
    data = converted(data, prepare=model)
    most = None if coverage is None else model.set_quantile(coverage, by_class=by_class)
    if proba and not model.task.has_classes:
        raise ConfigError("requires classes, but the model predicts numbers.", "proba")
    pieces = model.logit_rows(data, memory=memory)
    first = next(pieces)
    ids, names = data.node_ids, class_columns(model.class_names)
    parts, whole = _split_parts(model, data), ids is None or all_integers(ids)

    def columns(nodes: range, logits: np.ndarray) -> Columns:
        own = nodes if ids is None else ids[nodes.start : nodes.stop]
        found = {"id": np.array(own, np.int64) if whole else np.array([*map(str, own)], object)}
        found |= model.task.columns(logits, model.class_names)
        if most is not None:
            found |= model.task.set_columns(logits, model.class_names, most)
        if parts is not None:
            found["split"] = np.array([*PARTS, None])[parts[nodes.start : nodes.stop]]
        if proba:
            found |= dict(zip(names, model.task.link(logits).T, strict=True))
        return found

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


def predict_table(model: TrainedModel, data: NodeData, **options: Any) -> Columns:
    """All of the :func:`predictions`, in memory: ``pandas.DataFrame(table)`` takes it."""
    batches = list(predictions(model, data, **options))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def class_columns(names: Sequence[str]) -> list[str]:
    """A column for the probability of each class: its name behind ``p_``, so that none is ``id``.

    >>> class_columns(["id", "a,b", "a,b"])  # a graph made in Python may have a name twice
    ['p_id', 'p_a,b', 'p_a,b (2)']
    """
    return distinct([f"p_{name}" for name in names])


def _split_parts(model: TrainedModel, data: NodeData) -> np.ndarray | None:
    """The number of each node's part; None if the split is none that anybody knows of.

    One that was drawn for the data, as its note says, is known if the training had the same.
    """
    for split in (data.split, data.split.for_training()):
        facts = split_facts(split)
        if split.seed is None or model.training.get(SPLIT, facts) == facts:
            break
    else:
        return None
    if not any(split.sizes().values()):
        return None
    found = np.full(data.num_nodes, len(PARTS), np.int8)
    for number, part in enumerate(PARTS):
        found[getattr(split, part)] = number
    return found


def write_table(batches: Iterable[Columns], path: Path) -> None:
    """Write rows, some at a time, as CSV or Parquet by the ending of ``path``, all or nothing."""
    form = "CSV, HEADER" if path.suffix.lower() == ".csv" else "PARQUET"
    chosen = ""
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
                work.insert("written", {f"c{i}": cells for i, cells in enumerate(batch.values())})
            place = work.scratch / "table"
            rows = f"(SELECT {chosen} FROM written)"
            work.rows(f"COPY {rows} TO {literal(str(place))} (FORMAT {form})")
            with place.open("rb") as made, atomic_write(path) as file:
                shutil.copyfileobj(made, file)
    except OSError as error:
        raise HopliteError(f"cannot write {path}: {error.strerror or error}.") from error
