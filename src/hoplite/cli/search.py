"""hoplite search: train a grid of settings and choose one, by validation or, biased, by test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hoplite.cli.console import print_json, print_line, print_table, search_bar
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
from hoplite.errors import plural
from hoplite.models.settings import DEFAULT_MODEL

if TYPE_CHECKING:  # importing it takes time
    from hoplite.search import SearchResult
    from hoplite.tasks import Metric

GRIDS = ("paper", "reduced", "quick", "published", "usual")
PROTOCOLS = ("validation", "test")
LARGE = 1000  # figures in units of the labels may be of any size


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
    summary, tables = result.summary(), {"split_index": split_index, **reading}
    places = {
        "command": train_command(dataset, model, result.best.options, seeds, split_seed, tables),
        "out": str(out),
    }
    if protocol == "validation":
        places["saved"] = str(out / "model")
    if export is not None:
        write_table(result.table(), export)
        places["export"] = str(export)
    if json:
        print_json(summary | places)
        return
    _print(result, summary)
    titles = {"command": "Again", "out": "Search", "saved": "Model", "export": "Trials"}
    for name, place in places.items():
        print_line(f"{titles[name]}: {place}")


def _print(result: SearchResult, summary: dict[str, Any]) -> None:
    """The best configurations, by the settings in which they differ, and the chosen one."""
    from hoplite.search.results import TOP
    from hoplite.tasks.base import title_of
    from hoplite.training.scoring import PROTOCOL

    varied, monitor, score = result.varied, result.monitor, result.task.score
    columns, rows = [*varied, f"val {monitor.title}"], []
    if summary["protocol"] == "test":
        columns.append(f"test {score.title} (biased)")
    for one in result.ranking[:TOP]:
        figures = [monitor.shown(result.monitored(one))]
        figures += [score.shown(one.test_mean)] if summary["protocol"] == "test" else []
        rows.append([*[_format(one.options[name]) for name in varied], *figures])
    size = plural(summary["configurations"], "configuration")
    seeds = plural(len(summary["seeds"]), "seed")
    if len(result.ranking) < summary["configurations"]:
        size = f"{size}: one seed each, {seeds} for {len(result.ranking)}"
    else:
        size = f"{size} x {seeds}"
    print_table(f"{summary['dataset']}: {summary['model']}, best of {size}", columns, rows)
    on_test = _spread(score, summary["test_mean"], summary["test_std"])
    on_val = _spread(score, summary["val_mean"], summary["val_std"])
    biased = f" ({summary['biased']})" if summary["biased"] else ""
    print_line(
        f"Chosen by {summary['protocol']}, {title_of(monitor.name)}: test {title_of(score.name)} "
        f"{on_test}, validation {on_val}{biased}"
    )
    if summary["config"].get("refit"):
        print_line(f"The test figures are of models {PROTOCOL}, after the choice")
    if (figures := summary["figures"]) is not None:
        parts = [figures[part] for part in ("mean", "std", "baseline")]
        rows = [
            [title_of(name), *[_decimals(part.get(name)) for part in parts]]
            for name in figures["mean"]
        ]
        title = f"{figures['nodes']} nodes, the chosen one"
        print_table(title, ["", "mean", "std", "baseline"], rows)
    if summary["diverged"]:
        print_line(
            f"Diverged: {summary['diverged']:,} of {summary['trials']:,} trials; a configuration "
            "with one that has no finite result comes after all others"
        )
    if summary["cut"]:
        print_line(f"The grid is cut: {summary['cut']}")


def _format(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _spread(score: Metric, mean: float | None, std: float | None) -> str:
    if mean is None or std is None:
        return "not known"
    if score.percent:
        return f"{100 * mean:.1f} ± {100 * std:.2f} %"
    return f"{mean:z.3f} ± {std:.3f}"


def _decimals(value: float | None) -> str:
    return "-" if value is None else f"{value:z.3f}" if abs(value) < LARGE else f"{value:.4g}"
