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
    StructuralOption,
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
    structural: StructuralOption = None,
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
    given = {"structural": structural, **table_options(tables)}
    data = open_data(dataset, seed=split_seed, prepare=model, **given)
    counts = Counter[str]()
    with steps_bar(f"predict {data.name}") as report:
        schema, batches = predictions(model, data, memory=memory)

        def counted() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                counts.update(batch["predicted"].to_pylist())
                report(f"predict {data.name}", counts.total() / max(data.num_nodes, 1))
                yield batch

        write_batches(schema, counted(), out)
    per_class = dict(sorted(counts.items()))
    if json:
        print_json({"out": str(out), "nodes": counts.total(), "predicted": per_class})
        return
    rows = [[name, f"{count:,}"] for name, count in per_class.items()]
    print_table(f"{data.name}: predicted labels", ["label", "nodes"], rows)
    print_line(f"Table: {out}")
