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
from hoplite.cli.settings import table_options, with_tables

if TYPE_CHECKING:
    import pyarrow as pa


@with_tables(reading=True)
def predict(
    model_dir: Annotated[Path, typer.Argument(help="A folder that `hoplite train --out` wrote.")],
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option(help="The table to write: FILE.parquet or FILE.csv.")],
    memory: Annotated[
        str | None,
        typer.Option(help="For a store: peak memory of the process, such as 700MB."),
    ] = None,
    split_seed: SplitSeedOption = 0,
    json: JsonOption = False,
    **tables: Any,
) -> None:
    """Predict the label of every node of DATASET and write id, predicted label and probability.

    From a hop store (see `hoplite propagate`) the predictions are made some rows at a time, within
    --memory. Tables are prepared as those of the training were.
    """
    check_table("--out", out, dataset)
    from hoplite import TrainedModel, open_data  # only now: importing torch takes a second
    from hoplite.predictions import predictions, write_batches

    model = TrainedModel.load(model_dir)
    data = open_data(dataset, seed=split_seed, prepare=model, **table_options(tables))
    counts, values = Counter[str](), Numbers()
    with steps_bar(f"predict {data.name}") as report:
        schema, batches = predictions(model, data, memory=memory)
        done = 0

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                nonlocal done
                done += len(batch)
                if model.task.has_classes:
                    counts.update(batch["predicted"].to_pylist())
                else:
                    values.add(batch["predicted"])
                report(f"predict {data.name}", done / max(data.num_nodes, 1))
                yield batch

        write_batches(schema, counted(), out)
    told = dict(sorted(counts.items())) if model.task.has_classes else values.told()
    if json:
        print_json({"out": str(out), "nodes": done, "predicted": told})
        return
    if model.task.has_classes:
        rows = [[name, f"{count:,}"] for name, count in told.items()]
        print_table(f"{data.name}: predicted labels", ["label", "nodes"], rows)
    else:
        rows = [[name, f"{value:.6g}"] for name, value in told.items()]
        print_table(f"{data.name}: predicted values, {done:,} nodes", ["", "value"], rows)
    print_line(f"Table: {out}")


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
