"""hoplite search: train a grid of settings and choose one, by validation or, biased, by test."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.cli.console import print_json, print_line, print_table, search_bar
from hoplite.cli.options import (
    DatasetArgument,
    JsonOption,
    LinkOption,
    ModelOption,
    OverwriteOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    check_new,
    check_table,
    complete,
    table_options,
    with_settings,
)
from hoplite.errors import plural
from hoplite.models.settings import DEFAULT_MODEL

if TYPE_CHECKING:  # importing it takes time
    from hoplite.selection import SearchResult
    from hoplite.selection.ranking import Summary
    from hoplite.tasks import Metric

LARGE = 1000  # figures in units of the labels may be of any size
GRIDS = ("paper", "reduced", "quick", "published", "usual")
PROTOCOLS = ("validation", "test")
SHOWN = 5  # configurations in the table of the best


@with_settings(defaults=False)
def search(
    dataset: DatasetArgument,
    out: Annotated[
        Path, typer.Option(help="Folder of the ledger; the same command continues from it.")
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
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each configuration.")] = 5,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Draw so many configurations at random.")
    ] = None,
    sample_seed: Annotated[int, typer.Option(min=0, help="Seed of that draw.")] = 0,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes; one per core if not given.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            help="Train on a Dask cluster instead: tcp://HOST:PORT of a scheduler, or local:N."
        ),
    ] = None,
    export: Annotated[
        Path | None, typer.Option(help="Write every run to FILE.csv or FILE.parquet.")
    ] = None,
    overwrite: OverwriteOption = False,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    link: LinkOption = False,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train every configuration of a grid on DATASET, several seeds each, and choose one.

    It may be stopped at any moment, or killed: the same command goes on where it was. Several may
    share one --out, on one machine or on several with a common disk. The model that was chosen on
    validation is in --out/model.

    An option of `hoplite train` that is given here holds for all configurations.

    Example: hoplite search cora --model lgc --out searches/cora-lgc
    """
    if export is not None:
        check_table("--export", export, dataset)
        check_new(export, overwrite=overwrite)
    tables = table_options(settings)
    fixed = {name: value for name, value in settings.items() if value is not None}
    workers = workers or os.cpu_count() or 1
    if cluster is None and workers > 1:
        from hoplite.processes import warm_up

        warm_up("hoplite.selection.cells")
    from hoplite import open_data  # only now, as importing it takes time
    from hoplite.predictions import write_table
    from hoplite.selection import search as run
    from hoplite.selection import train_command
    from hoplite.selection.space import usual_space

    reading = {"structural": structural, "link": link, **tables}
    graph = open_data(dataset, seed=split_seed, split=split_index, **reading).in_memory()
    with search_bar(f"{graph.name} {model}") as progress:
        result = run(
            graph,
            model,
            grid=grid or usual_space(dataset),
            out=out,
            protocol=protocol,
            seeds=seeds,
            samples=samples,
            sample_seed=sample_seed,
            workers=workers,
            cluster=cluster,
            progress=progress,
            **fixed,
        )
    summary = result.summary()
    places = {
        "command": train_command(
            dataset,
            model,
            result.best.options,
            seeds,
            split_seed,
            {"split_index": split_index, **reading},
        ),
        "out": str(out),
    }
    if protocol == "validation":
        places["saved"] = str(result.save_model())
    if export is not None:
        write_table(result.table(), export)
        places["export"] = str(export)
    if json:
        print_json(asdict(summary) | places)
        return
    _print(result, summary)
    titles = {"command": "Again", "out": "Ledger", "saved": "Model", "export": "Runs"}
    for name, place in places.items():
        print_line(f"{titles[name]}: {place}")


def _print(result: SearchResult, summary: Summary) -> None:
    """The best configurations, by the settings in which they differ, and the chosen one."""
    from hoplite.tasks.base import title_of
    from hoplite.training.scoring import PROTOCOL

    options = [candidate.options for candidate in result.ranking]
    varied = [name for name in options[0] if len({str(one[name]) for one in options}) > 1]
    test = summary.protocol == "test"
    monitor, score = result.monitor, result.task.score
    others = monitor != score  # what the configurations are compared by stands first
    rows = []
    for candidate in result.ranking[:SHOWN]:
        figures = [monitor.shown(result.monitored(candidate))] if others else []
        if result.task.exclusive:
            means = [candidate.val_mean, *([candidate.test_mean] if test else [])]
            figures += [score.shown(mean) for mean in means]
        rows.append([*[_shown(candidate.options[name]) for name in varied], *figures])
    columns = [*varied, *([f"val {monitor.title}"] if others else [])]
    if result.task.exclusive:
        columns += [f"val {score.title}", *([f"test {score.title} (biased)"] if test else [])]
    seeds = plural(len(summary.seeds), "seed")
    size = plural(summary.configurations, "configuration")
    if len(options) < summary.configurations:
        size = f"{size}: one seed each, {seeds} for {len(options)}"
    else:
        size = f"{size} x {seeds}"
    print_table(
        f"{summary.dataset}: {summary.model}, best of {size}",
        columns,
        rows,
    )
    biased = f" ({summary.biased})" if test else ""
    on_test, on_val = (
        _spread(score, *pair)
        for pair in ((summary.test_mean, summary.test_std), (summary.val_mean, summary.val_std))
    )
    told = f"test {title_of(score.name)} {on_test}, validation {on_val}{biased}"
    by = ""
    if others and not test:
        by, found = f" {title_of(monitor.name)}", summary.figures
        if found is not None and found.nodes == "test" and monitor.name in found.mean:
            own = _spread(monitor, found.mean[monitor.name], found.std[monitor.name])
            on_val = monitor.shown(result.monitored(result.best))
            told = f"test{by} {own}, validation {on_val}; {told}"
    print_line(f"Chosen by {summary.protocol}{by}: {told}")
    if summary.config.get("refit"):
        print_line(f"The test figures are of models {PROTOCOL}, after the choice")
    if summary.figures is not None:
        told, spread = summary.figures.mean, summary.figures.std
        rows = [
            [
                title_of(figure),
                *[_decimals(of.get(figure)) for of in (told, spread, summary.figures.baseline)],
            ]
            for figure in told
        ]
        nodes = summary.figures.nodes
        print_table(f"{nodes} nodes, the chosen one", ["", "mean", "std", "baseline"], rows)
    if summary.diverged:
        print_line(
            f"Diverged: {summary.diverged:,} of {summary.runs:,} runs; a configuration of "
            "which one has no finite result comes after all others"
        )
    if summary.cut:
        print_line(f"The grid is cut: {summary.cut}")


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(score: Metric, mean: float | None, std: float | None) -> str:
    if mean is None or std is None:
        return "not known"
    if score.percent:
        return f"{100 * mean:.1f} ± {100 * std:.2f} %"
    return f"{mean:z.3f} ± {std:.3f}"


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:z.3f}" if abs(value) < LARGE else f"{value:.4g}"
