"""hoplite train: fit one configuration with several seeds, score it, keep the best model."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from hoplite.cli.console import (
    DatasetArgument,
    JsonOption,
    LinkOption,
    SplitIndexOption,
    SplitSeedOption,
    StructuralOption,
    print_json,
    print_line,
    print_note,
    print_table,
    report_and_fail,
    steps_bar,
    training_bar,
)
from hoplite.cli.defaults import python_default
from hoplite.cli.settings import ModelByDataOption, table_options, with_settings
from hoplite.errors import ConfigError, HopliteError, plural
from hoplite.models import check_default_options, split_options
from hoplite.processes import held
from hoplite.stopping import stopping
from hoplite.strategies import STRATEGIES

if TYPE_CHECKING:  # importing it takes time
    from hoplite.search import AutoResult
    from hoplite.training import TrainingResult

LARGE = 1000  # figures in units of the labels may be of any size
MOST_CLASSES = 20  # that are told one by one
MOST_TRIED = 20  # candidates, likewise


@with_settings(defaults=True)
def train(
    dataset: DatasetArgument,
    model: ModelByDataOption = None,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help=f"Number of runs: seeds 0, 1, 2, and so on.{python_default('train', 'seeds')}",
        ),
    ] = 5,
    budget: Annotated[
        str | None,
        typer.Option(help="Of auto: wall time such as 60s, 5m or 1h.", show_default="60s"),
    ] = None,
    trials: Annotated[
        str | None,
        typer.Option(help="Of auto: how many candidates instead, or 48/16/6 for each rung."),
    ] = None,
    split_seed: SplitSeedOption = 0,
    split_index: SplitIndexOption = None,
    structural: StructuralOption = None,
    link: LinkOption = False,
    memory: Annotated[
        str | None,
        typer.Option(help="For a store: peak memory of the process.", show_default="4GB"),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="For a store: address of a Dask cluster, or local:N."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="CPU threads; all cores if not given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the model that is best on the validation nodes.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is already in --out.")
    ] = False,
    json: JsonOption = False,
    **settings: Any,
) -> None:
    """Train a model on DATASET and score it on the test nodes.

    With --model auto the models are tried and one is chosen on the validation nodes; --out/auto
    keeps what was tried, and the same command goes on where it was.

    Example: hoplite train cora --model lgc --hops 20 --lr 0.2 --weight-decay 5e-4 --dropout 0.5
    """
    tables = table_options(settings)
    options = {name: value for name, value in settings.items() if value is not None}
    reading = {"seed": split_seed, "split": split_index, "structural": structural, "link": link}
    reading |= tables
    if model in STRATEGIES:
        for option, value in (("memory", memory), ("cluster", cluster)):
            if value is not None:
                raise ConfigError(f"--{option} is for hop stores, which {model} does not read.")
        bounds = {"budget": budget, "trials": trials, "seeds": seeds, "threads": threads}
        _choose(dataset, model, reading, options | bounds, out, overwrite=overwrite, json=json)
        return
    if budget is not None or trials is not None:
        given = "--budget" if trials is None else "--trials"
        raise ConfigError(
            f"{given} is for a choice among models{f', not for {model}' if model else ''}; leave "
            f"it out, or give --model {' or '.join(STRATEGIES)}."
        )
    if not Path(dataset, "manifest.json").is_file():  # the rest comes from a store's manifest
        _check_options(model, options)  # reject wrong settings before any work
    from hoplite import open_data, set_num_threads  # only now, as importing it takes time
    from hoplite import train as train_model
    from hoplite.models.saved import check_target
    from hoplite.training.results import with_default_model

    if out is not None:
        check_target(out, overwrite=overwrite)  # before hours of training, not after
    if threads is not None:
        set_num_threads(threads)
    opened = open_data(dataset, **reading)
    data, chosen, options = with_default_model(opened, model, options)
    with training_bar(f"{data.name} {chosen}, {plural(seeds, 'seed')}") as progress:
        options |= {"seeds": seeds, "progress": progress, "memory": memory, "cluster": cluster}
        result = train_model(data, chosen, **options)
    _tell(result, out, overwrite=overwrite, json=json)


def _check_options(model: str | None, options: dict[str, Any]) -> None:
    if model is not None:
        split_options(model, options)
    else:
        check_default_options(options)


def _choose(
    dataset: str,
    model: str,
    reading: dict[str, Any],
    options: dict[str, Any],
    out: Path | None,
    *,
    overwrite: bool,
    json: bool,
) -> None:
    """Run the strategy that is called ``model``, within its time: all of this process's."""
    import psutil

    begun = psutil.Process().create_time()
    from hoplite import open_data, set_num_threads
    from hoplite.models.saved import check_target

    if out is not None:
        check_target(out, overwrite=overwrite)
    if (threads := options.pop("threads")) is not None:
        set_num_threads(threads)
    from hoplite import auto
    from hoplite.search.halving import BUDGET, parse_seconds

    data = open_data(dataset, **reading)
    if options["trials"] is None:  # the time of this process counts
        seconds = parse_seconds(options["budget"] or BUDGET)
        options["budget"] = max(0.2 * seconds, seconds - (time.time() - begun))
    with steps_bar(f"{data.name} {model}") as progress:
        found = auto(data, out=out, overwrite=overwrite, progress=progress, **options)
    _tell(found.trained, out, overwrite=True, json=json, found=found)


def _tell(
    result: TrainingResult,
    out: Path | None,
    *,
    overwrite: bool,
    json: bool,
    found: AutoResult | None = None,
) -> None:
    """Save and print the result, and how it was ``found`` if it was chosen among models."""
    from hoplite.training.results import number

    summary, failure = result.summary(), None
    if found is not None:
        summary["auto"] = found.summary()
    preparation = result.graph.preparation
    if preparation is not None and (told := preparation.summary()):
        summary["prepared"] = told
    if result.graph.relation_weights:
        summary["relations"] = list(result.graph.relation_weights)
    if out is not None:
        curves = {
            str(run.seed): {name: list(map(number, curve)) for name, curve in run.history.items()}
            for run in result.runs
        }
        try:
            with held():
                result.model.save(out, overwrite=overwrite, result=summary | {"history": curves})
                stopping.remark = f"the model was saved in {out}"
            summary["out"] = str(out)
        except HopliteError as error:  # a full disk must not take the figures with it
            failure = error
            summary["error"] = str(error)
    if json:
        print_json(summary)
    else:
        if found is not None:
            _print_choice(found)
        _print(result, summary)
        if out is None:
            print_note("Note: nothing was kept; --out FOLDER keeps the model and these figures.")
    report_and_fail(failure)


def _print_choice(found: AutoResult) -> None:
    """What was tried and why one was chosen."""
    shown = found.candidates[:MOST_TRIED]
    rows = [
        [
            f"{'> ' if one.chosen else ''}{one.candidate}",
            str(one.rung),
            found.monitor.shown(one.val),
            str(one.seeds),
            f"{one.seconds:.1f}",
        ]
        for one in shown
    ]
    columns = ["candidate", "rung", f"val {found.monitor.title}", "seeds", "seconds"]
    print_table(f"tried, rungs of {found.trials}", columns, rows)
    if len(found.candidates) > len(shown):
        print_line(f"And {len(found.candidates) - len(shown)} more, which --json tells.")
    print_line(f"Why: {found.why}")
    for told in found.budget_notes:
        print_line(f"Time: {told}")
    for told in found.left_out:
        print_line(f"Left out: {told}")
    print_line(f"Again: --trials {found.trials} gives the same choice")


def _spread(found: dict[str, Any], show: Callable[[Any], str], runs: int) -> str:
    return show(found["mean"]) + (f" ± {show(found['std'])}" if runs > 1 else "")


def _print(result: TrainingResult, summary: dict[str, Any]) -> None:
    from hoplite.tasks.base import title_of

    config, task = result.model_config, result.task
    score, beside = task.score, task.headline
    rows = [
        [
            str(run["seed"]),
            *[score.shown(run[f"{part}_{score.name}"]) for part in ("val", "test")],
            *[score.shown(run["metrics"].get("test", {}).get(name)) for name in beside],
            f"{run['best_epoch']} of {run['epochs']}",
        ]
        for run in summary["runs"]
    ]
    if len(rows) > 1:  # one run has no spread
        means = [
            {what: summary[f"{part}_{score.name}_{what}"] for what in ("mean", "std")}
            for part in ("val", "test")
        ]
        unknown = {"mean": None, "std": None}
        means += [summary["metrics"]["test"].get(name, unknown) for name in beside]
        shown = [_spread(found, score.shown, len(rows)) for found in means]
        rows.append(["mean ± std", *shown, f"of {summary['epochs_mean']:.0f}"])
    what = "" if task.exclusive else f", {task.labels.task}"
    title = f"{summary['dataset']}: {config.model}, {config.size()}{what}"
    shown = [f"{title_of(name)} %" for name in beside]
    columns = ["seed", f"val {score.title}", f"test {score.title}", *shown, "best epoch"]
    print_table(title, columns, rows)
    _print_metrics(result, summary)
    sizes = ", ".join(f"{summary['split'][part]:,} {part}" for part in ("train", "val", "test"))
    note = f" ({summary['split']['note']})" if summary["split"]["note"] else ""
    print_line(f"Split: {sizes}{note}")
    if (told := summary["unvalidated"]) is not None:
        print_line(f"Note: {told}")
    if "prepared" in summary:
        print_line(f"Prepared: {summary['prepared']}")
    if "relations" in summary:
        print_line(f"Edges: {', '.join(summary['relations'])}, with a polynomial each")
    if (after := result.model.correct_smooth) is not None:
        print_line(f"Correct and Smooth: {after.describe()}")
    if "protocol" in summary:
        print_line(
            f"Protocol: {summary['protocol']}; the validation figures are of the training before, "
            "which chose the epochs"
        )
    if (threshold := result.best_run.threshold) is not None:
        how = f"by {result.training_config.threshold} on the validation nodes"
        print_line(f"Threshold: {threshold:.3f}, chosen {how}")
    calibration = result.best_run.calibration
    if calibration is not None:
        errors = [
            f"{part} {error['before']:.3f} before, {error['after']:.3f} after"
            for part in ("val", "test")
            if (error := calibration.get(part))
        ]
        told = f"temperature {calibration['temperature']:.3f}; calibration error: "
        print_line(f"Calibrated: {told}{'; '.join(errors)}")
    print_line(f"Time: {summary['ms_per_epoch']:.2f} ms per epoch and seed")
    for known, what in ((True, "their best epoch before that counts"), (False, "without a result")):
        diverged = [r for r in summary["runs"] if r["diverged"] and bool(r["best_epoch"]) is known]
        if diverged:
            seeds = ", ".join(str(run["seed"]) for run in diverged)
            print_line(f"Diverged: seeds {seeds}; {what}")
    if "out" in summary:
        print_line(f"Model: {summary['out']}")


def _print_metrics(result: TrainingResult, summary: dict[str, Any]) -> None:
    """Every figure beside the baseline's, and each class at the test nodes of the chosen run."""
    from hoplite.tasks.base import title_of

    found, least = summary["metrics"], summary["baseline"]
    parts = [part for part in ("val", "test") if found[part]]
    if not parts:
        return
    runs, last = len(summary["runs"]), parts[-1]
    rows = [
        [
            title_of(name),
            *[_spread(found[part][name], _decimals, runs) for part in parts],
            _decimals(least[last][name]),
        ]
        for name in found[last]
    ]
    print_table("metrics", ["", *parts, f"baseline, {last}"], rows)
    best = result.best_run.metrics(last)
    if best is None or not 0 < len(best.classes) <= MOST_CLASSES:
        return
    columns = ["class", "precision", "recall", "nodes"]
    rows = [
        [
            name,
            *[_decimals(values[what]) for what in ("precision", "recall")],
            f"{values['support']:,}",
        ]
        for name, values in best.classes.items()
    ]
    if best.confusion is not None:
        names, wrong = list(best.classes), best.confusion - np.diag(best.confusion.diagonal())
        columns.append("mostly taken for")
        for row, other in zip(rows, wrong, strict=True):
            row.append(f"{names[other.argmax()]} ({other.max():,})" if other.any() else "")
    print_table(f"classes, {last} nodes, seed {result.best_run.seed}", columns, rows)


def _decimals(value: float | None) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:z.3f}" if abs(value) < LARGE else f"{value:.4g}"
