"""hoplite predict: a trained model's labels for every node of a graph, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    SplitSeedOption,
    check_table,
    print_json,
    print_line,
    print_table,
)


def predict(
    model_dir: Annotated[Path, typer.Argument(help="A folder that `hoplite train --out` wrote.")],
    dataset: DatasetArgument,
    out: Annotated[Path, typer.Option(help="The table to write: FILE.parquet or FILE.csv.")],
    split_seed: SplitSeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Predict the label of every node of DATASET and write id, predicted label and probability."""
    check_table("--out", out, dataset)
    from hoplite import TrainedModel, load  # only now: importing torch takes a second
    from hoplite.predictions import predict_table, write_table

    model = TrainedModel.load(model_dir)
    graph = load(dataset, seed=split_seed)
    table = predict_table(model, graph)
    write_table(table, out)
    names, counts = np.unique(table["predicted"].to_numpy(zero_copy_only=False), return_counts=True)
    if json:
        per_class = dict(zip(names.tolist(), counts.tolist(), strict=True))
        print_json({"out": str(out), "nodes": len(table), "predicted": per_class})
        return
    rows = [[str(name), f"{count:,}"] for name, count in zip(names, counts, strict=True)]
    print_table(f"{graph.name}: predicted labels", ["label", "nodes"], rows)
    print_line(f"Table: {out}")
