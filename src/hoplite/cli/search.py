"""hoplite search: train a grid of settings and choose one, by validation or, biased, by test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hoplite.cli.console import print_description, print_json, print_line, search_bar
from hoplite.cli.options import (
    DatasetArgument,
    JsonOption,
    LinkOption,
    ModelOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    check_new,
    check_table,
    complete,
    table_options,
    with_settings,
)
from hoplite.models.settings import DEFAULT_MODEL

GRIDS = ("paper", "reduced", "quick", "published", "usual")
PROTOCOLS = ("validation", "test")


@with_settings(defaults=False)
def search(
    dataset: DatasetArgument,
    out: Annotated[
        Path,
        typer.Option(help="Folder of the search; the same command continues from it."),
    ],
    model: ModelOption = DEFAULT_MODEL,
    grid: Annotated[
        str | None,
        typer.Option(
            help="paper, reduced, quick, published, usual, or a TOML file of your own "
            "(docs/searching.md).  [default: usual, or paper for its datasets]",
            autocompletion=complete(GRIDS),
        ),
    ] = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="validation: the test set is read once, for the chosen one. "
            "test: the paper's appendix, biased.",
            autocompletion=complete(PROTOCOLS),
        ),
    ] = "validation",
    seeds: Annotated[int, typer.Option(min=1, help="Trials of each configuration.")] = 5,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Draw so many configurations at random.")
    ] = None,
    sample_seed: Annotated[int, typer.Option(min=0, help="Seed of that draw.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time; one per core if not given.")
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            help="What the workers are: threads or processes.",
            autocompletion=complete(("threads", "processes")),
        ),
    ] = "threads",
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Train on a Dask cluster instead: tcp://HOST:PORT of a scheduler, or local:N."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write every trial to FILE.csv or FILE.parquet.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --export.")] = False,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    link: LinkOption = False,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train every configuration of a grid on DATASET, several seeds each, and choose one.

    It may be stopped at any moment, or killed: the same command goes on where it was. Several may
    share one --out. The model that was chosen on validation is in --out/model.

    An option of `hoplite train` that is given here holds for all configurations.

    Example: hoplite search cora --model lgc --out searches/cora-lgc
    """
    if export is not None:
        check_table("--export", export, dataset)
        check_new(export, overwrite=overwrite)
    reading = {"structural": structural, "link": link, **table_options(settings)}
    fixed = {name: value for name, value in settings.items() if value is not None}
    from hoplite import open_data  # only now, as importing it takes time
    from hoplite import search as run
    from hoplite.predictions import write_table
    from hoplite.search import train_command
    from hoplite.search.space import default_space

    graph = open_data(dataset, seed=split_seed, split=split_index, **reading).in_memory()
    with search_bar(f"{graph.name} {model}") as progress:
        result = run(
            graph,
            model,
            grid=grid or default_space(dataset),
            seeds=seeds,
            out=out,
            protocol=protocol,
            samples=samples,
            sample_seed=sample_seed,
            workers=workers,
            executor=executor,
            cluster=cluster,
            progress=progress,
            **fixed,
        )
    reading |= {"split_seed": split_seed or None, "split_index": split_index}
    places = {
        "command": train_command(dataset, model, result.best.options, seeds, reading),
        "out": str(out),
    }
    if protocol == "validation":
        places["saved"] = str(out / "model")
    if export is not None:
        write_table([result.table()], export)
        places["export"] = str(export)
    if json:
        print_json(result.summary() | places)
        return
    print_description(result._describe())
    titles = {"command": "Again", "out": "Search", "saved": "Model", "export": "Trials"}
    for name, place in places.items():
        print_line(f"{titles[name]}: {place}")
