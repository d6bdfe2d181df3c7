"""hoplite predict: a trained model's labels for every node of a graph, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    SplitSeedOption,
    check_table,
    print_json,
    print_line,
    print_table,
    steps_bar,
)
from hoplite.cli.outputs import check_new
from hoplite.cli.saved import ModelArgument, OwnClassOption, StoreMemoryOption, load_model
from hoplite.cli.settings import table_options, with_tables
from hoplite.config import check_number
from hoplite.errors import ConfigError, plural

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@with_tables(reading=True)
def predict(
    model_dir: ModelArgument,
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option(help="The table to write: FILE.parquet or FILE.csv.")],
    proba: Annotated[
        bool, typer.Option("--proba", help="Write the probability of every class: p_CLASS.")
    ] = False,
    sets: Annotated[
        float | None,
        typer.Option(
            metavar="COVERAGE",
            help="Write the set of labels that holds the true one with this probability: 0.9.",
        ),
    ] = None,
    by_class: Annotated[
        bool,
        typer.Option("--by-class", help="With --sets: cover the nodes of every class so, each."),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the file --out if it is there.")
    ] = False,
    memory: StoreMemoryOption = None,
    split_seed: SplitSeedOption = 0,
    own_class: OwnClassOption = None,
    add: Annotated[
        Path | None,
        typer.Option(
            metavar="NEW",
            help="A folder of tables with nodes that came after DATASET, and their edges, also to "
            "its nodes: only the new ones are written (without any, the ends of the edges).",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With --add: write the nodes of DATASET, too.")
    ] = False,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Predict the label of every node of DATASET and write id, predicted label and probability.

    The split is written where DATASET states one, or has that of the training.
    From a hop store (see `hoplite propagate`) the predictions are made some rows at a time, within
    --memory. Tables are prepared as those of the training were. Nodes that arrived later are
    predicted with --add, as if their tables and those of DATASET were one.
    """
    check_table("--out", out, dataset)
    if add is not None:
        check_table("--out", out, str(add))
    elif every:
        raise ConfigError("--all is given without --add; all nodes are written anyway, leave it.")
    if sets is not None:
        check_number("--sets", sets, 0, 1, open_ends="lm")
    elif by_class:
        raise ConfigError("--by-class is given without --sets; say what to cover: --sets 0.9.")
    check_new(out, overwrite=overwrite)
    from hoplite import open_data  # only now, as importing it takes time
    from hoplite.predictions import predictions, write_batches
    from hoplite.store.opening import open_extended

    model = load_model(model_dir, own_class)
    given = table_options(tables)
    if add is None:
        data, named = open_data(dataset, seed=split_seed, prepare=model, **given), None
    else:
        data, named = open_extended(dataset, add, seed=split_seed, prepare=model, **given)
    counts, values, sizes = Counter[str](), Numbers(), Counter[int]()
    with steps_bar(f"predict {data.name}") as report:
        schema, batches = predictions(
            model, data, memory=memory, proba=proba, coverage=sets, by_class=by_class
        )
        if named is not None and not every:
            batches = rows_of(named, batches)
        done = 0

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                nonlocal done
                done += len(batch)
                if model.task.has_classes:
                    counts.update(model.task.tallied(batch["predicted"].to_pylist()))
                else:
                    values.add(batch["predicted"])
                if "set_size" in schema.names:
                    sizes.update(batch["set_size"].to_pylist())
                report(f"predict {data.name}", done / max(data.num_nodes, 1))
                yield batch

        write_batches(schema, counted(), out)
    told = dict(sorted(counts.items())) if model.task.has_classes else values.told()
    summary: dict[str, Any] = {"out": str(out), "nodes": done, "predicted": told}
    if named is not None:
        from hoplite.io.extend import isolated

        summary["isolated"] = isolated(data.in_memory(), named)
    if sets is not None:
        summary["coverage"] = sets
    if sizes:
        summary["set_sizes"] = {str(size): count for size, count in sorted(sizes.items())}
    if json:
        print_json(summary)
        return
    if model.task.has_classes:
        rows = [[name, f"{count:,}"] for name, count in told.items()]
        print_table(f"{data.name}: predicted labels", ["label", "nodes"], rows)
    else:
        rows = [[name, f"{value:.6g}"] for name, value in told.items()]
        print_table(f"{data.name}: predicted values, {done:,} nodes", ["", "value"], rows)
    if sets is not None and sizes:
        mean = sum(size * count for size, count in sizes.items()) / max(done, 1)
        each = " of each class" if by_class else ""
        print_line(
            f"Sets that cover {100 * sets:g} %{each}: of {mean:.2f} labels in the mean; "
            f"{sizes[1]:,} of one, {sizes[0]:,} of none"
        )
    print_line(f"Table: {out}")
    if named is not None and (alone := summary["isolated"]):
        print_line(
            f"Without an edge: {alone:,} of {plural(len(named), 'node')} that {add} names; their "
            "own columns alone decide."
        )
    if named is not None and not every:
        print_line(
            f"It has the nodes that {add} names alone; --all writes those of {dataset}, too."
        )


def rows_of(nodes: np.ndarray, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of the rows of all nodes, in their order, those of ``nodes``, which are sorted."""
    start = 0
    for batch in batches:
        low, high = nodes.searchsorted([start, start + len(batch)])
        yield batch.take(nodes[low:high] - start)
        start += len(batch)


class Numbers:
    """What is told of values that come a batch at a time."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, float, float, float]] = []

    def add(self, values: pa.Array) -> None:
        found = values.to_numpy()
        if len(found):
            self._parts.append((len(found), found.mean(), found.min(), found.max()))

    def told(self) -> dict[str, float]:
        if not self._parts:
            return {}
        counts, means, least, most = zip(*self._parts, strict=True)
        mean = sum(c * m for c, m in zip(counts, means, strict=True)) / sum(counts)
        return {"mean": float(mean), "least": float(min(least)), "largest": float(max(most))}
