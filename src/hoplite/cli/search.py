"""hoplite search: train a grid of settings and choose one, by validation or, biased, by test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Option

import hoplite
from hoplite.cli import console, graphs, options
from hoplite.config import EXECUTORS, GRIDS, PROTOCOLS
from hoplite.models.settings import AUTO, DEFAULT_MODEL


@options.with_settings()
def search(
    dataset: options.Source,
    out: Path = Option(help="Folder of the search; run the command again to continue."),
    model: options.ModelName = None,
    grid: str = Option(
        "default",
        help=f"{', '.join(GRIDS)}, or a TOML file.",
        autocompletion=options.complete(GRIDS),
    ),
    protocol: str = Option(
        "validation",
        help="Scores that choose the best: validation, or test (biased, as in the paper's "
        "appendix; no model is saved).",
        autocompletion=options.complete(PROTOCOLS),
    ),
    seeds: int = Option(5, min=1, metavar="N", help="Seeds per configuration."),
    samples: int | None = Option(
        None, min=1, metavar="N", help="Draw N configurations at random.", show_default="all"
    ),
    sample_seed: int = Option(0, min=0, metavar="N", help="Seed of --samples."),
    workers: int | None = Option(
        None, min=1, metavar="N", help="Trials at a time.", show_default="one per core"
    ),
    executor: str = Option(
        "threads",
        help="Type of the workers: threads or processes.",
        autocompletion=options.complete(EXECUTORS),
    ),
    cluster: options.Cluster = None,
    export: Path | None = Option(
        None, help="Table of all trials to write: FILE.csv or FILE.parquet."
    ),
    overwrite: bool = Option(False, "--overwrite", help="Replace an existing --export."),
    json: options.Json = False,
    **settings: Any,
) -> None:
    """Train every configuration of a grid and choose the best.

    The chosen model is saved in OUT/model. After an interruption, run the same command again to
    continue; several processes may share one --out. Other options apply to every trial and
    override the grid. For a set of graphs, the grid is over families of features, and there is
    one seed.

    Example: hoplite search cora --model lgc --out searches/cora-lgc
    """
    if export is not None:
        options.check_table("--export", export, dataset)
        options.check_new(export, overwrite=overwrite)
    reading, fixed = options.split_settings(settings)
    of_graphs = graphs.is_set(dataset, reading)
    from hoplite.predictions import write_table  # only now, as importing it takes time

    model = model or (AUTO if of_graphs else DEFAULT_MODEL)
    if of_graphs:
        data = hoplite.load_graphs(dataset, **reading)
    else:
        data = hoplite.open_data(dataset, **reading).in_memory()
    result = hoplite.search(
        data,
        model,
        grid=grid,
        seeds=seeds,
        out=out,
        protocol=protocol,
        samples=samples,
        sample_seed=sample_seed,
        workers=workers,
        executor=executor,
        cluster=cluster,
        progress=True,
        **fixed,
    )
    flags = {"seed": "split_seed", "split": "split_index"}
    reading = {flags.get(name, name): value for name, value in reading.items()}
    places = {
        "command": result.command(dataset, reading),
        "out": str(out),
    }
    if protocol == "validation":
        places["saved"] = str(out / "model")
    if export is not None:
        write_table([result.table()], export)
        places["export"] = str(export)
    if json:
        console.print_json(result.summary() | places)
        return
    console.print_description(result._describe())
    titles = {"command": "To reproduce", "out": "Search", "saved": "Model", "export": "Trials"}
    for name, place in places.items():
        console.print_line(f"{titles[name]}: {place}")
