"""Commands on sets of graphs, and models of whole graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hoplite
from hoplite.cli import console, options
from hoplite.config import FAMILIES
from hoplite.errors import ConfigError, DatasetError, check_choice
from hoplite.models.settings import AUTO
from hoplite.progress import steps_bar

TASK = "graphs"  # value of --task


def is_set(dataset: str, reading: dict[str, Any]) -> bool:
    """Whether DATASET is a set of graphs; ``--task graphs`` says so and is removed."""
    if reading.get("task") == TASK:
        del reading["task"]
        return True
    if not Path(dataset).exists():
        return False
    from hoplite.graphs import is_graph_set  # only now, as importing it takes time

    return is_graph_set(dataset)


def train(
    dataset: str,
    model: str | None,
    reading: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    test: bool,
    out: Path | None,
    overwrite: bool,
    json: bool,
) -> None:
    """Train on a set of graphs, print the scores and keep the model."""
    from hoplite.models.saved import check_target

    if model is not None:
        check_choice("model", model, (AUTO, *FAMILIES))
    if out is not None:
        check_target(out, overwrite=overwrite)
    data = hoplite.load_graphs(dataset, **reading)
    with steps_bar(f"{data.name} {model or 'auto'}") as progress:
        result = hoplite.train_graphs(data, model, test=test, progress=progress, **settings)
    summary = result.summary()
    failure = options.save_model(result.model, out, summary, overwrite=overwrite)
    if json:
        console.print_json(summary)
    else:
        console.print_line(repr(result.graphs))
        console.print_description(result._describe())
        console.print_line(f"Model: {result.model!r}" + ("" if out is None else f" in {out}"))
        if out is None:
            console.print_note("Note: the model was not saved; use --out FOLDER to save it.")
    console.report_and_fail(failure)


def load(
    model_dir: Path, dataset: str, reading: Mapping[str, Any]
) -> tuple[hoplite.GraphModel, hoplite.GraphSet]:
    """A model of graphs, and a set of graphs prepared as in its training."""
    from hoplite.graphs import is_graph_set

    if Path(dataset).is_dir() and not is_graph_set(dataset):
        raise DatasetError(
            f"{dataset} is not a set of graphs, which the model in {model_dir} predicts; add a "
            "table graphs.csv, and a column `graph` to nodes.csv and edges.csv."
        )
    model = hoplite.GraphModel.load(model_dir)
    return model, hoplite.load_graphs(dataset, prepare=model, **options.without_none(reading))


def open_data(
    model_dir: Path, model: hoplite.TrainedModel, dataset: str, reading: Mapping[str, Any]
) -> tuple[hoplite.TrainedModel, hoplite.NodeData]:
    """A saved model and DATASET; for graphs, its linear map and the graphs as nodes."""
    from hoplite.graphs.model import is_graph_model  # only now, as importing it takes time

    if is_graph_model(model):
        whole, graphs = load(model_dir, dataset, reading)
        return whole.head, whole.pooled(graphs)
    return model, hoplite.open_data(dataset, prepare=model, **options.without_none(reading))


def check_names(
    model: hoplite.TrainedModel, node: list[str] | None, graph: list[str] | None, names: list[str]
) -> bool:
    """Whether ``names`` are of graphs; ConfigError if ``model`` cannot explain ``--node`` or
    ``--graph``, or nothing is named."""
    from hoplite.graphs.model import is_graph_model

    of_graphs = is_graph_model(model)
    if of_graphs and node:
        raise ConfigError("requires a node model; use --graph.", "node")
    if not of_graphs and graph:
        raise ConfigError("requires a model of graphs; use --node.", "graph")
    if not names:
        what = "graph" if of_graphs else "node"
        raise ConfigError(f"pass the {what} to explain with --{what} ID.")
    return of_graphs
